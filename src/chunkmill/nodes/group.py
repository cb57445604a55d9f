"""The public group: a stored group below which nodes are created and deleted.

Not here: children, attributes, drawings (`chunkmill.nodes.stored_group`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, cast

from chunkmill.errors import NodeExists, NodeNotFound
from chunkmill.formats.base import Format
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes import deferred_imports
from chunkmill.nodes.array import Array
from chunkmill.nodes.keys import join_path
from chunkmill.nodes.opening import open_as
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import uncached

__all__ = ["Group", "Node", "open_node"]


class Group(StoredGroup):
    """A group of arrays and groups, opened when they are asked for.

    Iterating gives the names of its direct children. Made by `chunkmill.open_group` and `chunkmill.create_group`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> g = cm.create_group("memory://doc-group")
    >>> _ = cm.create_array("memory://doc-group", "a/b", shape=(4,), dtype="i4", chunks=(2,))
    >>> list(g), list(g["a"]), g["a/b"].shape
    (['a'], ['b'], (4,))
    """

    def create_array(
        self,
        path: str,
        *,
        shape: int | Sequence[int],
        dtype: Any,
        chunks: int | Sequence[int] | Mapping[str, int | Literal["auto"]] | Literal["auto"] = "auto",
        shards: int | Sequence[int] | Mapping[str, int] | None = None,
        codecs: Any = "default",
        fill_value: Any = None,
        dimension_names: Sequence[str | None] | None = None,
        attributes: Mapping[str, Any] | None = None,
        chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> Array:
        """Create an array at `path` below the group, in its format (see `chunkmill.create_array`).

        Examples
        --------
        >>> import chunkmill as cm
        >>> g = cm.create_group("memory://doc-group-create", format="n5")
        >>> g.create_array("a/b", shape=(4,), dtype="i4").format, list(g)
        ('n5', ['a'])
        """
        from chunkmill.nodes import replacing  # noqa: PLC0415 - opening a group needs nothing that creates nodes
        from chunkmill.nodes.new_array import describe_array  # noqa: PLC0415

        store, path = self._place_to_write(path)
        metadata = describe_array(
            self.documents,
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
        )
        return replacing.put_array(store, path, metadata, format=self.format, overwrite=overwrite)

    def create_group(self, path: str, *, attributes: Mapping[str, Any] | None = None, overwrite: bool = False) -> Self:
        """Create a group at `path` below the group, in its format (see `chunkmill.create_group`)."""
        from chunkmill.nodes import replacing  # noqa: PLC0415

        store, path = self._place_to_write(path)
        metadata = GroupMetadata(dict(attributes or {}))
        return self.of(replacing.put_group(store, path, metadata, format=self.format, overwrite=overwrite))

    def require_group(self, path: str) -> Self:
        """Return the group at `path` below the group, made where there is none; `NodeExists` where an array is there.

        Examples
        --------
        >>> import chunkmill as cm
        >>> g = cm.create_group("memory://doc-require-group")
        >>> g.require_group("a/b").path, g.require_group("a/b").path
        ('a/b', 'a/b')
        """
        self._check_writable()
        try:
            if path in self:
                return self.group(path)
            return self.create_group(path)
        except NodeExists:  # made by another writer since
            if isinstance(self[path], Group):
                return self.group(path)
            raise
        except NodeNotFound as error:
            if error.found != "array":
                raise
            raise NodeExists(url=self.url, path=error.path, found="array", hint="give another path") from None

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
        deferred_imports.to_store(values, store, below, format=cast("Any", self.format), mode="w")

    def __delitem__(self, path: str) -> None:
        """Delete the node at `path` below the group, with everything below it (see `chunkmill.delete`)."""
        from chunkmill.nodes.delete import delete_node  # noqa: PLC0415

        store, path = self._place_to_write(path)
        delete_node(store, path)

    @classmethod
    def of(cls, group: StoredGroup) -> Self:
        """Return a group without children of this class: those of `group` are of its own."""
        return cls(group.store, group.path, group.metadata, group.documents, read_only=group.read_only)

    def _place_to_write(self, path: str) -> tuple[Store, str]:
        """Return store and path of a node below the group; raise where the group was opened for reading."""
        self._check_writable()
        below = self.documents.normalize_path(path)
        if not below:
            raise ValueError(f"path={path!r}: expected the path of a node below the group {self.path!r}")
        self.store = uncached(self.store)  # which lists what is written, too
        return self.store, join_path(self.path, below)


Node = Array | Group


def open_node(
    store: Store,
    path: str = "",
    *,
    format: str | Format | None = None,  # noqa: A002
    consolidated: bool | None = None,
    read_only: bool = True,
) -> Node:
    """Open the node at `path`, in the first format that has one there (see `chunkmill.nodes.opening.open_as`)."""
    return open_as(Group, store, path, format=format, consolidated=consolidated, read_only=read_only)
