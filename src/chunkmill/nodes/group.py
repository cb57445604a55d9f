"""The public group: what it shows of a stored group, and the nodes that are created and deleted below it.

Not here: how children are opened (`chunkmill.nodes.stored_group`), drawings (`chunkmill.display.nodes`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, cast

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import ChunkmillError, MetadataError, NodeExists, NodeNotFound
from chunkmill.formats.consolidated import parsed_once
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import Level, Multiscale, parse_level, self_described
from chunkmill.model.ome_zarr import parse_multiscales
from chunkmill.nodes.array import Array
from chunkmill.nodes.changes import PublicNode
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.stored_group import OnError, StoredGroup, StoredNode
from chunkmill.stores.base import Store


class Group(PublicNode):
    """A group of arrays and groups, opened when they are asked for.

    Iterating gives the names of its direct children. Made by `chunkmill.open_group` and `chunkmill.create_group`.

    Attributes
    ----------
    stored : StoredGroup
        The stored group, whose children are stored arrays and groups.

    Examples
    --------
    >>> import chunkmill as cm
    >>> g = cm.create_group("memory://doc-group")
    >>> _ = cm.create_array("memory://doc-group", "a/b", shape=(4,), dtype="i4", chunks=(2,))
    >>> list(g), list(g["a"]), g["a/b"].shape
    (['a'], ['b'], (4,))
    """

    stored: StoredGroup

    def __init__(self, stored: StoredGroup) -> None:
        self.stored = stored

    @property
    def metadata(self) -> GroupMetadata:
        """Content of the stored document, in one form for all formats."""
        return self.stored.metadata

    @property
    def multiscales(self) -> tuple[MultiscaleImage, ...]:
        """Images whose levels are in this group, by OME-Zarr, N5-viewer, BigDataViewer or COSEM; often none.

        `MetadataError` where their metadata are wrong. See `chunkmill.pyramid`, which makes the levels.
        """
        return multiscales_of(self.path, self.attributes, self.stored.arrays, self.stored.__getitem__)

    def children(self, *, without: Collection[str] = ()) -> dict[str, Array | Group]:
        """Open every direct child but those named: one listing, then all documents at once where the store can."""
        return {name: as_node(node) for name, node in self.stored.children(without=without).items()}

    def members(self, *, without: Collection[str] = (), on_error: OnError | None = None) -> dict[str, Array | Group]:
        """Open every direct child, and as groups the folders without a document that contain nodes further down.

        Such folders are not groups in Zarr v2 and v3, but some writers leave their documents out (TensorStore all,
        zarr-java's OME-Zarr plates those of rows and wells), and others find the arrays below by their paths only. Each
        folder without a document is listed, down to the first document. Children of another Zarr version are members.
        In N5, where every folder is a group, those are arrays, or have attributes, that documents of Zarr describe.

        Parameters
        ----------
        without : collection of str
            Names to leave out.
        on_error : callable, optional
            Called with path and error of each child that cannot be opened; by default the first error is raised.

        Examples
        --------
        >>> import chunkmill as cm
        >>> from chunkmill.stores.memory import MemoryStore
        >>> store = MemoryStore()
        >>> _ = cm.create_array(store, "plate/A1", shape=(4,), dtype="i4", chunks=(2,))
        >>> store.delete("plate/zarr.json")
        >>> list(cm.open_group(store).children()), list(cm.open_group(store).members())
        ([], ['plate'])
        """
        return {name: as_node(node) for name, node in self.stored.members(without=without, on_error=on_error).items()}

    def arrays(self) -> dict[str, Array]:
        """Return the arrays directly below, by name; a warning names each node that cannot be opened."""
        return {name: node for name, node in self._openable().items() if isinstance(node, Array)}

    def groups(self) -> dict[str, Group]:
        """Return the groups directly below, by name; a warning names each node that cannot be opened."""
        return {name: node for name, node in self._openable().items() if isinstance(node, Group)}

    def keys(self) -> KeysView[str]:
        """Return the names of the nodes directly below, as iterating does: of those that cannot be opened, too."""
        return dict.fromkeys(self.stored.names()).keys()

    def values(self) -> ValuesView[Array | Group]:
        """Return the nodes directly below; a warning names each that cannot be opened."""
        return self._openable().values()

    def items(self) -> ItemsView[str, Array | Group]:
        """Return name and node of each node directly below; a warning names each that cannot be opened."""
        return self._openable().items()

    def _openable(self) -> dict[str, Array | Group]:
        def warn(path: str, error: ChunkmillError) -> None:
            warnings.warn(f"{path!r} cannot be opened, and is left out: {error}", stacklevel=6)

        return {name: as_node(node) for name, node in self.stored.children(on_error=warn).items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored.names())

    def __len__(self) -> int:
        return len(self.stored.names())

    def __contains__(self, path: object) -> bool:
        return path in self.stored

    def __getitem__(self, path: str) -> Array | Group:
        """Open the node at `path` below the group; `NodeNotFound` (a ``KeyError``) when there is none."""
        return as_node(self.stored[path])

    def array(self, path: str) -> Array:
        """Open the array at `path` below the group; `NodeNotFound` where there is none, or a group."""
        node = self[path]
        if not isinstance(node, Array):
            raise NodeNotFound(url=self.url, path=node.path, found="group", wanted="array")
        return node

    def group(self, path: str) -> Group:
        """Open the group at `path` below the group; `NodeNotFound` where there is none, or an array."""
        node = self[path]
        if not isinstance(node, Group):
            raise NodeNotFound(url=self.url, path=node.path, found="array", wanted="group")
        return node

    def tree(self) -> str:
        """Draw everything below the group, as text.

        Examples
        --------
        >>> import chunkmill as cm
        >>> g = cm.create_group("memory://doc-tree")
        >>> _ = cm.create_array("memory://doc-tree", "a/b", shape=(4,), dtype="i4", chunks=(2,))
        >>> print(g.tree())
        /
        └── a
            └── b (4,) int32
        """
        from chunkmill.display.nodes import tree_text  # noqa: PLC0415

        return tree_text(self.stored)

    @parsed_once()
    def create_array(
        self,
        path: str,
        *,
        shape: int | Sequence[int] | None = None,
        dtype: Any = None,
        chunks: int | Sequence[int] | Mapping[str, int | Literal["auto"]] | str = "auto",
        shards: int | Sequence[int] | Mapping[str, int | Literal["auto"]] | str | None = None,
        codecs: Any = "default",
        fill_value: Any = None,
        dimension_names: Sequence[str | None] | None = None,
        attributes: Mapping[str, Any] | None = None,
        chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
        overwrite: bool = False,
        like: Any = None,
    ) -> Array:
        """Create an array at `path` below the group, in its format (see `chunkmill.create_array`).

        Examples
        --------
        >>> import chunkmill as cm
        >>> g = cm.create_group("memory://doc-group-create", format="n5")
        >>> g.create_array("a/b", shape=(4,), dtype="i4").format, list(g)
        ('n5', ['a'])
        """
        from chunkmill.nodes.new_array import describe_array  # noqa: PLC0415
        from chunkmill.nodes.target import put_array  # noqa: PLC0415 - opening a group needs nothing that creates nodes

        store, path = self._place_to_write(path)
        metadata = describe_array(
            self.stored.documents,
            path,
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            shards=shards,
            codecs=codecs,
            fill_value=fill_value,
            dimension_names=dimension_names,
            attributes=attributes,
            chunk_key_encoding=chunk_key_encoding,
            like=like,
        )
        return Array(put_array(store, path, metadata, format=self.format, overwrite=overwrite))

    @parsed_once()
    def create_group(self, path: str, *, attributes: Mapping[str, Any] | None = None, overwrite: bool = False) -> Group:
        """Create a group at `path` below the group, in its format (see `chunkmill.create_group`)."""
        from chunkmill.nodes.target import put_group  # noqa: PLC0415

        store, path = self._place_to_write(path)
        metadata = GroupMetadata(dict(attributes or {}))
        return Group(put_group(store, path, metadata, format=self.format, overwrite=overwrite))

    def require_group(self, path: str) -> Group:
        """Return the group at `path` below the group, made where there is none; `NodeExists` where an array is there.

        Examples
        --------
        >>> import chunkmill as cm
        >>> g = cm.create_group("memory://doc-require-group")
        >>> g.require_group("a/b").path, g.require_group("a/b").path
        ('a/b', 'a/b')
        """
        self.stored.check_writable()
        try:
            node = self[path] if path in self else self.create_group(path)
        except NodeExists:
            if path not in self:
                raise
            node = self[path]  # made by another writer since
        if isinstance(node, Group):
            return node
        raise NodeExists(url=self.url, path=node.path, found="array", hint="give another path")

    def __setitem__(self, path: str, values: Any) -> None:
        """Store values as the array at `path` below the group, in its format; an array that is there is replaced.

        Examples
        --------
        >>> import chunkmill as cm
        >>> g = cm.create_group("memory://doc-group-set")
        >>> g["x"] = [[1, 2], [3, 4]]
        >>> g["x"][1]
        array([3, 4])
        """
        store, below = self._place_to_write(path)
        if path in self and isinstance(self[path], Group):
            hint = "delete it first, or give another path: values replace arrays alone"
            raise NodeExists(url=self.url, path=below, found="group", hint=hint)
        from chunkmill.dask_arrays.to_store import to_store  # noqa: PLC0415

        to_store(values, store, below, format=cast("Any", self.format), mode="w")

    def __delitem__(self, path: str) -> None:
        """Delete the node at `path` below the group, with everything below it (see `chunkmill.delete`)."""
        from chunkmill.nodes.delete import delete_node  # noqa: PLC0415

        store, path = self._place_to_write(path)
        delete_node(store, path)

    def _place_to_write(self, path: str) -> tuple[Store, str]:
        """Return store and path of a node below the group; raise where the group was opened for reading."""
        self.stored.check_writable()
        below = self.stored.documents.normalize_path(path)
        if not below:
            raise ValueError(f"path={path!r}: expected the path of a node below the group {self.path!r}")
        full = join_path(self.path, below)
        self.stored = self.stored.with_store(self.store.after_stored(without=f"{full}/"))  # which lists it, too
        return self.store.uncached, full


Node = Array | Group


def as_node(stored: StoredNode) -> Array | Group:
    """Return the public array or group of a stored one."""
    return Array(stored) if isinstance(stored, StoredArray) else Group(stored)


# --------------------------------------------------------------------------------------------------------------------
# Levels of multiscale images: arrays with the size of their voxels


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
class MultiscaleImage(Multiscale, Sequence[ScaleLevel]):
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

    levels: tuple[ScaleLevel, ...]  # type: ignore[assignment]

    def __repr__(self) -> str:
        axes = ", ".join(axis.name if axis.unit is None else f"{axis.name} in {axis.unit}" for axis in self.axes)
        shapes = ", ".join(f"{level.array.shape} of {level.scale}" for level in self.levels)
        return f"<MultiscaleImage {self.name or ''!r} ({self.version}), axes {axes}: {shapes}>"

    def _repr_html_(self) -> str:
        from chunkmill.display.nodes import image_html  # noqa: PLC0415

        return image_html(self)

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
        said = {each.name: getattr(image, each.name) for each in fields(image)}
        images.append(MultiscaleImage(**said | {"levels": tuple(levels)}))
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
    is_n5 = get_format(array.format).names_in_axes  # attributes of its arrays say where an image is
    return parse_level(array.attributes, array.ndim, array.dimension_names, path=array.path, is_n5=is_n5, warns=warns)


def level_array(path: str, level: Level, node: Callable[[str], StoredNode]) -> StoredArray:
    """Return the array of a level in the group at `path`; `MetadataError` where it is none of its rank."""
    array, n_axes = node(level.path), len(level.scale)
    if not isinstance(array, StoredArray) or array.ndim != n_axes:
        got = f"an array of {array.ndim} axes" if isinstance(array, StoredArray) else "a group"
        raise MetadataError(key=f"{path}/{level.path}", field="level", got=got, expected=f"an array of {n_axes} axes")
    return array
