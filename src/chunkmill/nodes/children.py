"""Methods of groups that create and delete nodes below them.

They look the public functions up when they are called: those open what is there, which may be a group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, Self

from chunkmill.nodes.array import Array
from chunkmill.stores.base import Store

__all__ = ["WritesChildren"]


def _public() -> Any:
    return import_module("chunkmill")


class WritesChildren(ABC):
    """A group below which nodes are created and deleted."""

    @property
    @abstractmethod
    def format(self) -> str:
        """Name of the format."""

    def create_array(
        self,
        path: str,
        *,
        shape: int | Sequence[int],
        dtype: Any,
        chunks: int | Sequence[int] | Literal["auto"] = "auto",
        shards: int | Sequence[int] | None = None,
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
        store, path = self._place_to_write(path)
        array: Array = _public().create_array(
            store,
            path,
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            shards=shards,
            format=self.format,
            codecs=codecs,
            fill_value=fill_value,
            dimension_names=dimension_names,
            attributes=attributes,
            chunk_key_encoding=chunk_key_encoding,
            overwrite=overwrite,
        )
        return array

    def create_group(self, path: str, *, attributes: Mapping[str, Any] | None = None, overwrite: bool = False) -> Self:
        """Create a group at `path` below the group, in its format (see `chunkmill.create_group`)."""
        store, path = self._place_to_write(path)
        made = _public().create_group(store, path, format=self.format, attributes=attributes, overwrite=overwrite)
        group: Self = made
        return group

    def __delitem__(self, path: str) -> None:
        """Delete the node at `path` below the group, with everything below it (see `chunkmill.delete`)."""
        store, path = self._place_to_write(path)
        _public().delete(store, path)

    @abstractmethod
    def _place_to_write(self, path: str) -> tuple[Store, str]:
        """Return store and path of a node below the group; raise where the group was opened for reading."""
