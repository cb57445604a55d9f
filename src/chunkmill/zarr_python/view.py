"""Read-only store of zarr-python over a node of any format.

Documents are made from the node's metadata when they are asked for. Bytes of chunks are passed on where Zarr v3 has
their codecs; others are decoded, and sent as plain bytes. Not here: what Zarr v3 can hold
(`chunkmill.conversion.target_metadata`), zarr-python's stores as sources (`chunkmill.stores.zarr_python`).
Spec: Zarr v3 core, "Stores"; checked against zarr-python 3.1.6 and 3.4.2, by their own tests of stores.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from typing import Any, TypeVar

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from chunkmill.array.chunk_io import encode_chunk
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.conversion.actions import ChosenAction, choose_action
from chunkmill.conversion.convert_tasks import reframed
from chunkmill.conversion.target_metadata import describe_group_target, describe_target
from chunkmill.errors import StoreError, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.base import REQUESTS_AT_ONCE, ByteRange
from chunkmill.stores.memory import MemoryStore

T = TypeVar("T")

_LISTED_AT_ONCE = 1000


@dataclass(frozen=True)
class ShownArray:
    """An array, and the metadata by which it is shown."""

    array: StoredArray
    path: str

    @cached_property
    def _shown(self) -> tuple[ArrayMetadata, ChosenAction | None]:
        """Metadata, and how stored bytes become those of the chunks that it describes; ``None``: by decoding.

        Chunks are shown by the default keys, ``c/0/0``, whichever the array has.
        """
        zarr3 = get_format("zarr3")
        try:
            kept = describe_target(self.array, zarr3, self.path)
            action = choose_action(self.array.metadata, kept, max_bytes=1, max_keys=1)
            if action.name in {"copy", "reframe"} and not action.materialize:
                return replace(kept, chunk_keys=zarr3.default_chunk_keys), action
        except UnsupportedFeature:  # a codec that Zarr v3 has not
            pass
        decoded = describe_target(self.array, zarr3, self.path, shards=None, codecs="raw")
        return replace(decoded, chunk_keys=zarr3.default_chunk_keys), None

    @property
    def is_passed_on(self) -> bool:
        """True where ranges of stored values are ranges of what is shown."""
        action = self._shown[1]
        return action is not None and action.name == "copy"

    @cached_property
    def _encoder(self) -> StoredArray:
        """The array as it is shown, in a store that is never written to."""
        return StoredArray(MemoryStore(), "", self._shown[0], "zarr3", "")

    def document(self) -> bytes:
        """Return ``zarr.json``, in which structured types have the name that every zarr-python 3 reads."""
        metadata = replace(self._shown[0], struct_name="structured")
        (value,) = get_format("zarr3").emit_array(self.path, metadata).values()
        return value

    @cached_property
    def _has_own_keys(self) -> bool:
        """True where each chunk that is shown has a store key: not where shards are decoded."""
        metadata, action = self._shown
        return action is not None or metadata.chunk_grid == self.array.write_layout.grid

    def _is_inside(self, coords: tuple[int, ...]) -> bool:
        shape = self._shown[0].chunk_grid.grid_shape
        return len(coords) == len(shape) and all(i < n for i, n in zip(coords, shape, strict=True))

    def size(self, coords: tuple[int, ...]) -> int | None:
        """Return the bytes of a chunk that is passed on, of another one as stored; ``None`` where it is absent."""
        if not self._is_inside(coords):
            return None
        if not self._has_own_keys:
            value = self.value(coords, None)
            return None if value is None else len(value)
        return self.array.store.size(self.array.write_layout.locator.key(coords))

    def value(self, coords: tuple[int, ...], part: ByteRange | None) -> bytes | None:
        """Return the bytes of a chunk or shard; ``None`` where it is absent or outside the array."""
        if not self._is_inside(coords):
            return None
        metadata, action = self._shown
        layout = self.array.write_layout
        if action is not None:
            stored = self.array.store.get(layout.locator.key(coords), part if self.is_passed_on else None)
            if stored is None or self.is_passed_on:
                return stored
            with chunk_step(self.array, layout, coords, "decode"):
                payload = reframed(action, layout, coords, stored)
            if payload is not None:
                return bytes(payload)
        elif self._has_own_keys and self.size(coords) is None:
            return None
        encoder = self._encoder
        block = Array(self.array)[metadata.chunk_grid.region(coords)]
        encoded = encode_chunk(encoder, encoder.write_layout, coords, block, write_empty=self._has_own_keys)
        return None if encoded is None else bytes(encoded)

    def chunk_keys(self) -> Iterator[str]:
        """Yield the keys, below the array, of the chunks that are stored."""
        array = self.array
        if self._has_own_keys:
            found = (array.coords_of_key(key) for key in array.stored_keys())
            stored: Iterator[tuple[int, ...]] = (each for each in found if each is not None and self._is_inside(each))
        else:
            every = self._shown[0].chunk_grid.all_coords()
            stored = (coords for coords in every if self.size(coords) is not None)
        return ("/".join(["c", *map(str, coords)]) for coords in stored)


class NodeStore(Store):
    """Read-only store of zarr-python over a node of any format (see `zarr_store`).

    Parameters
    ----------
    node
        The root: an Array or a Group.
    read_only
        As zarr-python gives it: true.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, node: StoredNode, *, read_only: bool = True) -> None:
        if not read_only:
            raise ValueError(f"{node.url} is shown as Zarr v3 for reading only: give read_only=True")
        super().__init__(read_only=True)
        self._node = node
        self._found: dict[str, ShownArray | StoredGroup] = {}  # threads that look up the same find the same

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

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a document, or the bytes of a chunk; ``None`` where there is neither."""
        await self._ensure_open()
        if not isinstance(byte_range, (RangeByteRequest, OffsetByteRequest, SuffixByteRequest, type(None))):
            raise TypeError(f"Unexpected byte_range, got {byte_range}.")  # as zarr-python's own stores
        value = await _in_thread(lambda: self._value(key, byte_range))
        return None if value is None else (prototype or default_buffer_prototype()).buffer.from_bytes(value)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> Any:
        """Return the values of keys and ranges, in order."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is such a document or chunk."""
        return await _in_thread(lambda: self._exists(key))

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse."""
        del key, value
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refuse."""
        del key
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        """Yield the keys of all documents and chunks."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that start with `prefix`."""
        keys = (key for key in self._keys("", prefix) if key.startswith(prefix))
        while batch := await _in_thread(lambda: tuple(islice(keys, _LISTED_AT_ONCE))):
            for key in batch:
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below `prefix`."""
        for name in await _in_thread(lambda: self._names(prefix.strip("/"))):
            yield name

    # --- nodes

    def _at(self, path: str) -> ShownArray | StoredGroup | None:
        if (found := self._found.get(path)) is not None:
            return found
        node = self._look_up(path)
        return None if node is None else self._found.setdefault(path, _shown(node, path))

    def _look_up(self, path: str) -> StoredNode | None:
        if not path:
            return self._node
        if not isinstance(self._node, StoredGroup):
            return None
        try:
            return self._node[path]
        except KeyError:  # below a folder without a document, or of another format
            above, _, name = path.rpartition("/")
            group = self._at(above)
            return self._below(group, above).get(name) if isinstance(group, StoredGroup) else None

    def _below(self, group: StoredGroup, path: str) -> Mapping[str, StoredNode]:
        """Return the nodes directly below a group, but those that cannot be opened."""
        members = group.members(on_error=lambda path, error: None)  # noqa: ARG005 - it is left out
        for name, node in members.items():
            self._found.setdefault(join_path(path, name), _shown(node, join_path(path, name)))
        return members

    def _value(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        if (match := _DOCUMENT.fullmatch(key)) is not None:
            return _cut(self._document(match[1] or ""), byte_range)
        if (chunk := self._chunk(key)) is None:
            return None
        found, coords = chunk
        part = _our_range(byte_range)
        if byte_range is None or part is None or not found.is_passed_on:
            return _cut(found.value(coords, None), byte_range)
        try:
            return found.value(coords, part)
        except StoreError:  # zarr-python cuts a range that runs past the end
            return _cut(found.value(coords, None), byte_range)

    def _exists(self, key: str) -> bool:
        if (match := _DOCUMENT.fullmatch(key)) is not None:
            return self._at(match[1] or "") is not None
        chunk = self._chunk(key)
        return chunk is not None and chunk[0].size(chunk[1]) is not None

    def _chunk(self, key: str) -> tuple[ShownArray, tuple[int, ...]] | None:
        match = _CHUNK.fullmatch(key)
        found = None if match is None else self._at(match[1] or "")
        if match is None or not isinstance(found, ShownArray):
            return None
        return found, tuple(map(int, match[2].split("/"))) if match[2] else ()

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

    def _keys(self, path: str, prefix: str) -> Iterator[str]:
        """Yield the keys at and below a node; nodes are left out of which no key starts with `prefix`."""
        found = self._at(path)
        if found is not None:
            yield join_path(path, "zarr.json")
        if isinstance(found, ShownArray):
            yield from (join_path(path, key) for key in found.chunk_keys())
        elif found is not None:
            for name in self._below(found, path):
                below = join_path(path, name)
                if f"{below}/".startswith(prefix) or prefix.startswith(f"{below}/"):
                    yield from self._keys(below, prefix)

    def _names(self, prefix: str) -> Iterable[str]:
        found = self._at(prefix)
        if isinstance(found, StoredGroup):
            return ["zarr.json", *self._below(found, prefix)]
        if found is not None:
            return ["zarr.json", *(["c"] if next(found.chunk_keys(), None) is not None else [])]
        start = f"{prefix}/" if prefix else ""
        keys = (key for key in self._keys("", start) if key.startswith(start))
        return sorted({key[len(start) :].partition("/")[0] for key in keys})


def _shown(node: StoredNode, path: str) -> ShownArray | StoredGroup:
    return ShownArray(node, path) if isinstance(node, StoredArray) else node


_DOCUMENT = re.compile(r"(?:(.+)/)?zarr\.json")
_CHUNK = re.compile(r"(?:(.+)/)?c(?:/(\d+(?:/\d+)*))?")


async def _in_thread(function: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool(os.getpid()), function)


@cache
def _pool(pid: int) -> ThreadPoolExecutor:
    """Return threads that wait for requests: the loop's own are as few as the processors."""
    del pid  # a fork has none
    return ThreadPoolExecutor(2 * REQUESTS_AT_ONCE, "chunkmill-shown")


def _our_range(request: ByteRequest | None) -> ByteRange | None:
    """Return a range that our stores take; ``None`` where that is all of a value, and where it is empty."""
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
