"""Read-only store of zarr-python over a node of any format.

Documents are made from the node's metadata when they are asked for. Not here: the bytes of chunks
(`chunkmill.zarr_python.shown`), zarr-python's stores as sources (`chunkmill.stores.zarr_python`).
Spec: Zarr v3 core, "Stores"; checked against zarr-python 3.1.6.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.target_metadata import describe_group_target
from chunkmill.errors import StoreError
from chunkmill.formats.registry import get_format
from chunkmill.nodes.keys import join_path
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.base import ByteRange
from chunkmill.zarr_python.shown import ShownArray

__all__ = ["NodeStore"]


class NodeStore(Store):
    """Read-only store of zarr-python over a node of any format (see `zarr_store`).

    Parameters
    ----------
    node
        The root: an Array or a Group.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, node: StoredNode) -> None:
        super().__init__(read_only=True)
        self._node = node
        self._found: dict[str, ShownArray | StoredGroup | None] = {}
        self._lock = Lock()
        self._is_open = True

    def __getstate__(self) -> dict[str, Any]:
        return {"node": self._node}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["node"])  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, NodeStore) and (other._node.url, other._node.path) == (self._node.url, self._node.path)
        return same and type(other) is type(self)

    def __hash__(self) -> int:
        return hash((self._node.url, self._node.path))

    def __str__(self) -> str:
        return join_path(self._node.url, self._node.path)

    def __repr__(self) -> str:
        return f"NodeStore({str(self)!r})"

    def with_read_only(self, read_only: bool = False) -> NodeStore:
        """Return the store; `ValueError` for one to write to."""
        if not read_only:
            raise ValueError(f"{self!r} shows a node of another format: it is read-only")
        return self

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a document, or the bytes of a chunk; ``None`` where there is neither."""
        value = await asyncio.to_thread(self._value, key, byte_range)
        return None if value is None else _prototype(prototype).buffer.from_bytes(value)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> Any:
        """Return the values of keys and ranges, in order."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is such a document or chunk."""
        return await asyncio.to_thread(self._value, key, None) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse."""
        del value
        raise StoreError(url=str(self), key=key, reason="this shows a node of another format: it is read-only")

    async def delete(self, key: str) -> None:
        """Refuse."""
        raise StoreError(url=str(self), key=key, reason="this shows a node of another format: it is read-only")

    async def list(self) -> AsyncIterator[str]:
        """Yield the keys of all documents and chunks."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that start with `prefix`."""
        keys = await asyncio.to_thread(lambda: [*self._keys("")])
        for key in filter(lambda key: key.startswith(prefix), keys):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below `prefix`."""
        for name in await asyncio.to_thread(self._names, prefix.strip("/")):
            yield name

    # --- nodes

    def _at(self, path: str) -> ShownArray | StoredGroup | None:
        with self._lock:
            if path not in self._found:
                self._found[path] = self._look_up(path)
            return self._found[path]

    def _look_up(self, path: str) -> ShownArray | StoredGroup | None:
        node: StoredNode | None = self._node
        if path:
            try:
                node = self._node[path] if isinstance(self._node, StoredGroup) else None
            except KeyError:
                return None
        return ShownArray(node, path) if isinstance(node, StoredArray) else node

    def _value(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        if (match := _DOCUMENT.fullmatch(key)) is not None:
            return _cut(self._document(match[1] or ""), byte_range)
        if (match := _CHUNK.fullmatch(key)) is None:
            return None
        found = self._at(match[1] or "")
        if not isinstance(found, ShownArray):
            return None
        coords = tuple(map(int, match[2].split("/"))) if match[2] else ()
        try:
            value = found.value(coords, _our_range(byte_range))
        except StoreError:
            if byte_range is None:
                raise
            value = found.value(coords, None)  # zarr-python cuts a range that runs past the end
            return _cut(value, byte_range)
        return value if found.is_passed_on else _cut(value, byte_range)

    def _document(self, path: str) -> bytes | None:
        found = self._at(path)
        if found is None:
            return None
        if isinstance(found, ShownArray):
            return found.document()
        zarr3 = get_format("zarr3")
        metadata = describe_group_target(found.metadata, zarr3, path, allow=("attributes",))
        (value,) = zarr3.emit_group(path, metadata).values()
        return value

    def _keys(self, path: str) -> Iterator[str]:
        found = self._at(path)
        if found is None:
            return
        yield join_path(path, "zarr.json")
        if isinstance(found, ShownArray):
            yield from (join_path(path, key) for key in found.chunk_keys())
        else:
            for name in found.names():
                yield from self._keys(join_path(path, name))

    def _names(self, prefix: str) -> Sequence[str]:
        found = self._at(prefix)
        if isinstance(found, ShownArray):
            return ["zarr.json", "c"]
        if found is not None:
            return ["zarr.json", *found.names()]
        if (match := _FOLDER.fullmatch(prefix)) is not None and isinstance(
            found := self._at(match[1] or ""), ShownArray
        ):
            return found.names_below(match[2].split("/") if match[2] else [])
        return []


_DOCUMENT = re.compile(r"(?:(.+)/)?zarr\.json")
_CHUNK = re.compile(r"(?:(.+)/)?c(?:/(\d+(?:/\d+)*))?")
_FOLDER = _CHUNK


def _our_range(request: ByteRequest | None) -> ByteRange | None:
    if isinstance(request, RangeByteRequest):
        return ByteRange(request.start, request.end - request.start)
    if isinstance(request, OffsetByteRequest):
        return ByteRange(request.offset)
    return ByteRange(-request.suffix) if isinstance(request, SuffixByteRequest) and request.suffix else None


def _cut(value: bytes | None, request: ByteRequest | None) -> bytes | None:
    if value is None or request is None:
        return value
    if isinstance(request, RangeByteRequest):
        return value[request.start : request.end]
    if isinstance(request, OffsetByteRequest):
        return value[request.offset :]
    return value[-request.suffix :] if request.suffix else b""


def _prototype(prototype: BufferPrototype | None) -> BufferPrototype:
    from zarr.core.buffer import default_buffer_prototype  # noqa: PLC0415

    return default_buffer_prototype() if prototype is None else prototype
