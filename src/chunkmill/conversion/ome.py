"""Describe the multiscale images of a conversion: as OME-Zarr, or as they were where a region is taken.

Not here: what attributes say (`chunkmill.model.multiscales`), making levels (`chunkmill.pyramids`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.region_option import Names, Reduction, cropping
from chunkmill.errors import ChunkmillError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.hints import Hint
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.model.multiscales import (
    Level,
    Multiscale,
    emit_n5_levels,
    emit_transform,
    image_name,
    moved_level,
    without_level,
)
from chunkmill.model.ome_zarr import OME_VERSIONS, emit_ome, ome_version
from chunkmill.nodes import opening
from chunkmill.nodes.group import Group, MultiscaleImage, described_level, image_of_array
from chunkmill.nodes.new_array import axis_names
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredGroup, StoredNode

Crop = Callable[[StoredArray], StoredArray]


def check_ome(documents_format: Format, version: str | None) -> None:
    """Raise `UnsupportedFeature` where the format is not that of the version of OME-Zarr, which `ValueError` names."""
    if version not in {None, *OME_VERSIONS}:
        raise ValueError(f"ome={version!r}: expected one of {', '.join(map(repr, OME_VERSIONS))}, or None")
    if version is None or documents_format.level_metadata == ("0.4" if version == "0.4" else "0.5"):
        return
    hint = Hint("0.4 is for Zarr v2, 0.5 and 0.6 for Zarr v3: give another {}", ("format", ...))
    raise UnsupportedFeature(format=documents_format.name, feature=f"OME-Zarr {version}", hint=hint)


@dataclass(frozen=True, slots=True)
class OmeImages:
    """The images in a source, and the version of OME-Zarr to describe them by.

    Attributes
    ----------
    images
        Path of the group -> its images.
    axes
        Path of an array that is a level -> names of its axes.
    """

    version: str
    images: Mapping[str, tuple[MultiscaleImage, ...]]
    axes: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, node: StoredNode, version: str) -> OmeImages:
        """Find the images at and below a node.

        Raises
        ------
        ValueError
            There are none.
        """
        groups = [each for each in opening.walk_openable(node) if isinstance(each, StoredGroup)]
        images = {group.path: found for group in groups if (found := Group(group).multiscales)}
        if not images:
            msg = f"ome={version!r}: no group of the source describes a multiscale image"
            raise ValueError(f"{msg}; `pyramid` makes the levels of one")
        every = [(image, level) for found in images.values() for image in found for level in image]
        axes = {level.array.path: tuple(axis.name for axis in image.axes) for image, level in every}
        return cls(version, images, axes)

    def array(self, array: StoredArray, metadata: ArrayMetadata) -> ArrayMetadata:
        """Return the target's metadata of an array: of a level with names of its axes, and nested keys in 0.4."""
        names = self.axes.get(array.path)
        if names is None:
            return metadata
        kept = without_level(metadata.attributes)
        if self.version == "0.4":
            return replace(metadata, attributes=kept, chunk_keys=replace(metadata.chunk_keys, separator="/"))
        return replace(metadata, attributes=kept, dimension_names=names)

    def group(
        self,
        group: StoredGroup,
        crop: Crop | None = None,
        chosen: Collection[str] | None = None,
        allow: Collection[str] = (),
    ) -> GroupMetadata:
        """Return the target's metadata of a group: images, labels and plates as the version wants them."""
        found = self.images.get(group.path, ())
        if self.version == "0.6":  # the others have the levels in the system that is chosen
            found = tuple(image.within(None) for image in found)
        images = [each for image in found if (each := _relative(group, image, crop, chosen)).levels]
        return GroupMetadata(emit_ome(images, self.version, group.attributes, allow=allow))


def cropping_of_images(
    region: Any, node: StoredNode, arrays: Collection[StoredArray], names: Names = axis_names
) -> Crop | None:
    """Return the function that crops an array (`cropping`); of images by the region of their finest level.

    Other levels are cut to what covers it.
    """
    taken = {array.path for array in arrays}
    found: dict[str, Reduction] = {}
    groups = opening.walk_openable(node) if isinstance(region, Mapping) else ()
    for image in chain.from_iterable(Group(each).multiscales for each in groups if isinstance(each, StoredGroup)):
        levels = [level for level in image if level.array.path in taken]
        for level in levels[1:]:
            factors = tuple(a / b for a, b in zip(level.scale, levels[0].scale, strict=True))
            found[level.array.path] = Reduction(factors, levels[0].array.shape)
    return cropping(region, node, arrays, names, found)


def names_of_axes(node: StoredNode, names: Names, *options: Any) -> Names:
    """Return the function of an array that returns the names of its axes: of an image's, where it has none.

    Parameters
    ----------
    options
        Options that may be by dimension; where none is a mapping, nobody asks for names.
    """
    if not any(isinstance(option, Mapping) for option in options):
        return names
    axes: dict[str, tuple[str, ...]] = {}
    for each in [node] if isinstance(node, StoredArray) else opening.walk_openable(node):
        with suppress(ChunkmillError):  # metadata of an image that contradict themselves describe nothing
            if isinstance(each, StoredGroup):
                for image in Group(each).multiscales:
                    axes |= {level.array.path: tuple(axis.name for axis in image.axes) for level in image}
            elif found := image_of_array(each, partial(open_stored, each.store), warns=False):
                axes.setdefault(each.path, tuple(axis.name for axis in found[1].axes))

    def named(array: StoredArray) -> Sequence[str | None]:
        own = names(array)
        return axes.get(array.path, own) if all(name is None for name in own) else own

    return named


def cropped_group(group: StoredGroup, crop: Crop, chosen: Collection[str] | None) -> GroupMetadata:
    """Return the metadata of a group whose images are cropped: each level begins where its region does.

    Levels that are not taken are left out. `crop` returns the region of an array; `chosen` has paths below the root.
    """
    images = [_relative(group, image, crop, chosen) for image in Group(group).multiscales]
    if not images:
        return group.metadata
    if version := ome_version(images[0].version):
        taken = [image for image in images if image.levels]
        return GroupMetadata(emit_ome(taken, version, group.attributes, allow=["coordinate_systems"]))
    of_group = emit_n5_levels(images[0])[0] if images[0].levels else {}
    return GroupMetadata(
        {**group.attributes, **{name: of_group[name] for name in of_group if name in group.attributes}}
    )


def with_place(array: StoredArray, metadata: ArrayMetadata, *, alone: bool, to_n5: bool) -> ArrayMetadata:
    """Return the metadata of a copy of an array with the length and the place of its voxels, as far as they are known.

    Parameters
    ----------
    alone
        Whether it is copied without the group that describes it.
    to_n5
        Whether the copy is of N5: elsewhere nothing tells the order of axes of ``resolution`` and ``offset``.
    """
    region = array.region
    if not array.path and not array.attributes:  # nothing describes it
        return metadata
    try:
        own = None if alone else described_level(array, warns=False)
        if not alone and (own is None or (region is None and (to_n5 or own.version != "n5"))):
            return metadata
        found = image_of_array(array, partial(open_stored, array.store), warns=False)
    except ChunkmillError:  # metadata of an image that contradict themselves describe nothing
        return metadata
    if found is None or len(found[1].axes) != array.ndim:
        return metadata
    group, image, level = found
    if region is None and group is None and (to_n5 or image.version != "n5"):
        return metadata
    kept = metadata.attributes
    if region is not None:
        level = moved_level(level, [cut.start for cut in region])
        kept = {name: value for name, value in kept.items() if name != "offset" or image.version != "n5"}
    return replace(metadata, attributes={**kept, "transform": emit_transform(image.axes, level)})


def _relative(
    group: StoredGroup, image: MultiscaleImage, crop: Crop | None = None, chosen: Collection[str] | None = None
) -> Multiscale:
    levels = []
    for each in image:
        path = each.array.path[len(group.path) :].strip("/")
        level = Level(path, each.scale, each.translation)
        if chosen is not None and each.array.path not in chosen:
            continue
        region = None if crop is None else crop(each.array.stored).region
        levels.append(level if region is None else moved_level(level, [cut.start for cut in region]))
    name = image_name(image.name, group.path, group.url)
    own = image.axes, tuple(levels), image.version, name, image.method, image.system
    return Multiscale(*own, stored=image.stored)
