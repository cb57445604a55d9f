"""Show a node of any format as Zarr v3: a read-only store for zarr-python and all that read through it.

Documents are made from the node's metadata when they are asked for. Bytes of chunks are passed on where Zarr v3 has
their codecs; others are decoded, and sent as plain bytes. Not here: what Zarr v3 can hold
(`chunkmill.conversion.target_metadata`), zarr-python's stores as sources (`chunkmill.stores.zarr_python`).
Spec: Zarr v3 core, "Stores"; checked against zarr-python 3.1.6.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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

from chunkmill.array.chunk_io import encode_chunk
from chunkmill.array.stored_array import chunk_step
from chunkmill.conversion.actions import ChosenAction, choose_action
from chunkmill.conversion.convert_tasks import reframed
from chunkmill.conversion.target_metadata import describe_group_target, describe_target
from chunkmill.errors import StoreError, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.api import NodeLocation, open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.keys import join_path
from chunkmill.stores.base import ByteRange
from chunkmill.stores.memory import MemoryStore

__all__ = ["NodeStore", "zarr_store"]


def zarr_store(node: NodeLocation, *, storage_options: Mapping[str, Any] | None = None) -> NodeStore:
    """Return a read-only store of zarr-python that shows a node of any format as Zarr v3.

    N5, the draft of Zarr v3, reference sets, zip files and nested folders can be read by zarr-python, xarray's zarr
    engine, napari, anndata, and whatever else takes a ``zarr.abc.store.Store``, with equal values.

    Parameters
    ----------
    node
        A url, ``(url, path)``, an Array or a Group; what is below a group is shown, too.
    storage_options
        For the filesystem of the url, as in fsspec.

    Returns
    -------
    NodeStore
        A ``zarr.abc.store.Store``, whose root is the node. It refuses to write.

    Raises
    ------
    NodeNotFound
        There is no node.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np, zarr
    >>> _ = cm.to_store(np.arange(6), "memory://doc-zarr-store", chunks=4, format="n5")
    >>> zarr.open_array(cm.zarr_store("memory://doc-zarr-store"), mode="r")[2:5]
    array([2, 3, 4])
    """
    return NodeStore(open_source(node, storage_options))


@dataclass(frozen=True)
class _ShownArray:
    """An array, and the metadata by which it is shown."""

    array: Array
    path: str

    @cached_property
    def _shown(self) -> tuple[ArrayMetadata, ChosenAction | None]:
        """Metadata, and how stored bytes become those of the chunks that it describes; ``None``: by decoding."""
        zarr3 = get_format("zarr3")
        try:
            kept = describe_target(self.array, zarr3, self.path)
            action = choose_action(self.array.metadata, kept, max_bytes=1, max_keys=1)
            if action.name in {"copy", "reframe"} and not action.materialize:
                return kept, action
        except UnsupportedFeature:  # a codec that Zarr v3 has not
            pass
        return describe_target(self.array, zarr3, self.path, shards=None, codecs="raw"), None

    @property
    def is_passed_on(self) -> bool:
        """True where ranges of stored values are ranges of what is shown."""
        action = self._shown[1]
        return action is not None and action.name == "copy"

    @cached_property
    def _encoder(self) -> Array:
        """The array as it is shown, in a store that is never written to."""
        return Array(MemoryStore(), "", self._shown[0], "zarr3", "")

    def document(self) -> bytes:
        (value,) = get_format("zarr3").emit_array(self.path, self._shown[0]).values()
        return value

    def value(self, coords: tuple[int, ...], part: ByteRange | None) -> bytes | None:
        """Return the bytes of a chunk or shard; ``None`` where it is absent or outside the array."""
        metadata, action = self._shown
        grid = metadata.chunk_grid
        if len(coords) != grid.ndim or any(i >= n for i, n in zip(coords, grid.grid_shape, strict=True)):
            return None
        layout = self.array.write_layout
        if action is not None:
            stored = self.array.store.get(layout.locator.key(coords), part if self.is_passed_on else None)
            if stored is None or self.is_passed_on:
                return stored
            with chunk_step(self.array, layout, coords, "decode"):
                payload = reframed(action, layout, coords, stored)
            if payload is not None:
                return bytes(payload)
        encoder = self._encoder
        block = self.array[grid.region(coords)]
        encoded = encode_chunk(encoder, encoder.write_layout, coords, block, write_empty=False)
        return None if encoded is None else bytes(encoded)

    def chunk_keys(self) -> Iterator[str]:
        """Yield the keys, below the array, of the chunks that are stored; of all where one stored key holds several."""
        metadata, action = self._shown
        array = self.array
        stored = (array.coords_of_key(key) for key in array.stored_keys())
        for coords in metadata.chunk_grid.all_coords() if action is None else stored:
            if coords is not None:
                yield "/".join(["c", *map(str, coords)])

    def names_below(self, parts: Sequence[str]) -> Sequence[str]:
        """Return the names directly below the folder of a chunk's first coords, given as texts."""
        shape = self._shown[0].chunk_grid.grid_shape
        depth = len(parts)
        fits = depth < len(shape) and all(
            part.isdecimal() and int(part) < n for part, n in zip(parts, shape, strict=False)
        )
        return [str(i) for i in range(shape[depth])] if fits else []


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

    def __init__(self, node: Node) -> None:
        super().__init__(read_only=True)
        self._node = node
        self._found: dict[str, _ShownArray | Group | None] = {}
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

    def _at(self, path: str) -> _ShownArray | Group | None:
        with self._lock:
            if path not in self._found:
                self._found[path] = self._look_up(path)
            return self._found[path]

    def _look_up(self, path: str) -> _ShownArray | Group | None:
        node: Node | None = self._node
        if path:
            try:
                node = self._node[path] if isinstance(self._node, Group) else None
            except KeyError:
                return None
        return _ShownArray(node, path) if isinstance(node, Array) else node

    def _value(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        if (match := _DOCUMENT.fullmatch(key)) is not None:
            return _cut(self._document(match[1] or ""), byte_range)
        if (match := _CHUNK.fullmatch(key)) is None:
            return None
        found = self._at(match[1] or "")
        if not isinstance(found, _ShownArray):
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
        if isinstance(found, _ShownArray):
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
        if isinstance(found, _ShownArray):
            yield from (join_path(path, key) for key in found.chunk_keys())
        else:
            for name in found:
                yield from self._keys(join_path(path, name))

    def _names(self, prefix: str) -> Sequence[str]:
        found = self._at(prefix)
        if isinstance(found, _ShownArray):
            return ["zarr.json", "c"]
        if found is not None:
            return ["zarr.json", *found]
        if (match := _FOLDER.fullmatch(prefix)) is not None and isinstance(
            found := self._at(match[1] or ""), _ShownArray
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
