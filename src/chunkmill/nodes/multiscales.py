"""Open the levels of multiscale images: arrays with the size of their voxels.

Not here: what attributes say (`chunkmill.model.multiscales`), making levels (`chunkmill.pyramids`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import MetadataError, NodeNotFound
from chunkmill.formats.registry import get_format
from chunkmill.model.multiscales import Affine, Axis, Level, Multiscale, Placement, parse_level, self_described
from chunkmill.model.ome_zarr import parse_multiscales
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_group import StoredGroup, StoredNode


@dataclass(frozen=True, slots=True)
class ScaleLevel:
    """One level of an image.

    Attributes
    ----------
    array
        Its array, open for reading.
    scale
        Length of a voxel along each axis, in the axes' units.
    translation
        Position of the centre of the first voxel.
    """

    array: Array
    scale: tuple[float, ...]
    translation: tuple[float, ...]


@dataclass(frozen=True, slots=True, repr=False)
class MultiscaleImage(Sequence[ScaleLevel]):
    """One image in several resolutions, the finest first: a sequence of `ScaleLevel`.

    Attributes
    ----------
    levels
        The levels, as iterating gives them.
    axes
        Name, type and unit of each axis, in the order of the arrays'.
    version
        Of OME-Zarr (``"0.5"``), or the convention: ``"n5-viewer"``, ``"bdv"``, ``"cosem"``.
    name, method
        As stored; ``None`` where nothing says.
    system
        Name of the coordinate system that scale and translation are of, where the image has several (SpatialData);
        ``None``: that of the levels themselves.
    systems
        For each system that scale and translation reach, both for each level; `within` chooses one.
    affines
        For each system that a matrix reaches, its rows: factors and an offset, which take a point of the levels' own
        system to that one. What scale and translation reach is among them.
    own
        Scale and translation of each level in the levels' own system; empty where there is no other.
    stored
        The image as OME-Zarr stores it.
    """

    levels: tuple[ScaleLevel, ...]
    axes: tuple[Axis, ...]
    version: str
    name: str | None = None
    method: str | None = None
    system: str | None = None
    systems: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    affines: Mapping[str, Affine] = field(default_factory=dict)
    own: tuple[Placement, ...] = ()
    stored: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        axes = ", ".join(axis.name if axis.unit is None else f"{axis.name} in {axis.unit}" for axis in self.axes)
        shapes = ", ".join(f"{level.array.shape} of {level.scale}" for level in self.levels)
        return f"<MultiscaleImage {self.name or ''!r} ({self.version}), axes {axes}: {shapes}>"

    def within(self, system: str | None) -> MultiscaleImage:
        """Return the image in another of its coordinate systems; ``None``: that of the levels themselves.

        Raises
        ------
        KeyError
            The image has no such system, or scale and translation do not reach it.
        """
        if system == self.system:
            return self
        if system is not None and system not in self.systems:
            msg = f"{system!r}: the coordinate systems of this image are {', '.join(map(repr, self.systems)) or 'none'}"
            raise KeyError(msg)
        placed = zip(self.levels, self.own if system is None else self.systems[system], strict=True)
        levels = tuple(ScaleLevel(level.array, scale, translation) for level, (scale, translation) in placed)
        return replace(self, levels=levels, system=system)

    def __len__(self) -> int:
        return len(self.levels)

    def __getitem__(self, number: Any) -> Any:
        return self.levels[number]

    def __iter__(self) -> Iterator[ScaleLevel]:
        return iter(self.levels)


Arrays: TypeAlias = Callable[[Callable[[str], bool]], Mapping[str, StoredArray]]
"""Function that returns the arrays directly below a group whose names are accepted, by name."""


def multiscales_of(
    path: str, attributes: Mapping[str, Any], arrays: Arrays, node: Callable[[str], StoredNode]
) -> tuple[MultiscaleImage, ...]:
    """Return the images whose levels are in the group at `path`.

    Parameters
    ----------
    attributes
        Of the group.
    node
        Opens a node by its path below the group.
    """
    images = []
    for image in described_images(attributes, arrays):
        levels = [
            ScaleLevel(Array(level_array(path, each, node)), each.scale, each.translation) for each in image.levels
        ]
        said = {each.name: getattr(image, each.name) for each in fields(image) if each.name != "levels"}
        images.append(MultiscaleImage(tuple(levels), **said))
    return tuple(images)


def described_images(attributes: Mapping[str, Any], arrays: Arrays) -> tuple[Multiscale, ...]:
    """Return the images that the attributes of a group describe, whether their levels are there or not."""

    def children(accepts: Callable[[str], bool]) -> Mapping[str, tuple[int, Mapping[str, Any]]]:
        found = arrays(accepts).items()
        return {
            n: (a.ndim, a.attributes if get_format(a.format).names_in_axes else self_described(a.attributes))
            for n, a in found
        }

    return parse_multiscales(attributes, children)


def _says_place(array: StoredArray) -> bool:
    """Return whether attributes of arrays in its format say where an image is."""
    return get_format(array.format).names_in_axes


def image_of_array(
    array: StoredArray, open_group: Callable[[str], StoredNode], *, warns: bool = True
) -> tuple[StoredGroup | None, Multiscale, Level] | None:
    """Return the group, the image and the level that describe an array; ``None`` where metadata describe none.

    The group above is asked first, then the attributes of the array itself: there the group is ``None``. Other levels
    may be absent: they are not opened.

    Parameters
    ----------
    open_group
        Opens a node of the array's store by its path.
    warns
        As in `parse_level`.
    """
    above, _, name = array.path.rpartition("/")
    if name:
        try:
            group = open_group(above)
        except NodeNotFound:
            group = None
        if isinstance(group, StoredGroup):
            for image in described_images(group.attributes, group.arrays):
                for level in image.levels:
                    if level.path.strip("/") == name:
                        return group, image, level
    found = described_level(array, warns=warns)
    return None if found is None else (None, found, found.levels[0])


def described_level(array: StoredArray, *, warns: bool = True) -> Multiscale | None:
    """Return the image of one level that the attributes of an array describe by themselves, if they do."""
    is_n5 = _says_place(array)
    return parse_level(array.attributes, array.ndim, array.dimension_names, path=array.path, is_n5=is_n5, warns=warns)


def level_array(path: str, level: Level, node: Callable[[str], StoredNode]) -> StoredArray:
    """Return the array of a level in the group at `path`; `MetadataError` where it is none of its rank."""
    array, n_axes = node(level.path), len(level.scale)
    if not isinstance(array, StoredArray) or array.ndim != n_axes:
        got = f"an array of {array.ndim} axes" if isinstance(array, StoredArray) else "a group"
        raise MetadataError(key=f"{path}/{level.path}", field="level", got=got, expected=f"an array of {n_axes} axes")
    return array
