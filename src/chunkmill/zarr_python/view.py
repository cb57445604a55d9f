"""Store of zarr-python over a node of any format.

Documents are made from the node's metadata when they are asked for. Bytes of chunks are passed on where Zarr v3 has
their codecs; others are decoded, and sent as plain bytes. Values that are set are decoded, and written by the data path
(`chunkmill.array.chunk_io`). Not here: what Zarr v3 can hold (`chunkmill.conversion.target_metadata`), zarr-python's
stores as sources (`chunkmill.stores.zarr_python`).
Spec: Zarr v3 core, "Stores"; checked against zarr-python 3.1.6 and 3.4.2, by their own tests of stores.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from typing import Any, Self, TypeVar

from numpy.typing import NDArray
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.group import GroupMetadata
from zarr.core.metadata import ArrayV3Metadata

from chunkmill.array.chunk_io import decode_chunk, encode_chunk, update_chunk
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.array.threads import automatic_lock
from chunkmill.codecs.elements import differing
from chunkmill.conversion.actions import ChosenAction, choose_action
from chunkmill.conversion.convert_tasks import reframed
from chunkmill.conversion.target_metadata import describe_group_target, describe_target
from chunkmill.errors import StoreError, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.grid import Overlap
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.array import Array, written
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.group import Group
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
        keys = self.array.metadata.chunk_grid.axes
        decoded = describe_target(self.array, zarr3, self.path, chunks=keys, shards=None, codecs="raw")
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

    def is_inside(self, coords: tuple[int, ...]) -> bool:
        """Return whether a chunk has elements of the array."""
        shape = self._shown[0].chunk_grid.grid_shape
        return len(coords) == len(shape) and all(i < n for i, n in zip(coords, shape, strict=True))

    def size(self, coords: tuple[int, ...]) -> int | None:
        """Return the bytes of a chunk that is passed on, of another one as stored; ``None`` where it is absent."""
        if not self.is_inside(coords):
            return None
        return self.array.store.size(self.array.write_layout.locator.key(coords))

    def value(self, coords: tuple[int, ...], part: ByteRange | None) -> bytes | None:
        """Return the bytes of a chunk or shard; ``None`` where it is absent or outside the array."""
        if not self.is_inside(coords):
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
        elif self.size(coords) is None:
            return None
        encoder = self._encoder
        block = Array(self.array)[metadata.chunk_grid.region(coords)]
        return bytes(encode_chunk(encoder, encoder.write_layout, coords, block, write_empty=True))

    def write(self, coords: tuple[int, ...], value: bytes | None) -> None:
        """Write a chunk or shard that is shown, from its bytes; ``None``: fill it."""
        Array(self.array)[self._shown[0].chunk_grid.region(coords)] = self._decoded(coords, value)

    def change(self, coords: tuple[int, ...], before: bytes | None, value: bytes | None) -> None:
        """Write the elements of a chunk or shard that differ, bit for bit, from those that were read `before`."""
        old, new = self._decoded(coords, before), self._decoded(coords, value)
        with written(self.array) as array:
            for field in new.dtype.names or (...,):
                changed = differing(new[field], old[field])
                where: Any = (changed,)
                if changed.any():
                    masked = Overlap(coords, where, where, whole=False)
                    update_chunk(array, masked, new[field][changed], lock=automatic_lock, fields=field)

    def _decoded(self, coords: tuple[int, ...], value: bytes | None) -> NDArray[Any]:
        """Return the elements, inside the array, of a chunk or shard that is shown."""
        layout = self._encoder.write_layout
        extent: Any = (*layout.grid.extent(coords), ...)
        return decode_chunk(self._encoder, layout, coords, value)[extent]  # type: ignore[no-any-return]

    def chunk_keys(self) -> Iterator[str]:
        """Yield the keys, below the array, of the chunks that are stored."""
        found = map(self.array.coords_of_key, self.array.stored_keys())
        stored = (coords for coords in found if coords is not None and self.is_inside(coords))
        return ("/".join(["c", *map(str, coords)]) for coords in stored)


_REMEMBERED, _LEAST = 1 << 28, 1 << 12  # bytes: of all values, and counted for small and absent ones
_FEW = 16  # values that are remembered whatever their size


class NodeStore(Store):
    """Store of zarr-python over a node of any format (see `zarr_store`).

    Parameters
    ----------
    node
        The root: an Array or a Group.
    read_only
        False for a node that was opened with ``mode="r+"``, to write chunks and attributes.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, node: StoredNode, *, read_only: bool = True) -> None:
        if node.read_only and not read_only:
            raise ValueError(f"{node.url} was opened for reading only: zarr_store(url, mode='r+') writes")
        super().__init__(read_only=read_only)
        self._node = node
        # what operations of zarr-python have read, by the string object that each makes to name its chunk, and that it
        # sets the chunk by; the key is held, so that no other has its id
        self._read: OrderedDict[int, tuple[str, bytes | None]] = OrderedDict()
        self._forgotten: deque[str] = deque(maxlen=1 << 14)
        self._found: dict[str, ShownArray | StoredGroup] = {}  # threads that look up the same find the same

    def __getstate__(self) -> dict[str, Any]:
        return {"node": self._node, "read_only": self.read_only}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return a store of the same node, for reading only or not."""
        return type(self)(self._node, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeStore) or type(other) is not type(self):
            return False
        return (str(other), other.read_only) == (str(self), self.read_only)

    def __hash__(self) -> int:
        return hash(str(self))

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
        """Write a chunk, or what the operation changed of it since it read it; or the attributes of a node."""
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"expected a Buffer of zarr-python, got {type(value).__name__}")
        await _in_thread(lambda: self._write(key, value.to_bytes()))

    async def delete(self, key: str) -> None:
        """Fill a chunk, as zarr-python wants it for one that became empty."""
        self._check_writable()
        await _in_thread(lambda: self._write(key, None))

    async def delete_dir(self, prefix: str) -> None:
        """Refuse."""
        self._check_writable()
        raise self._refused(prefix)

    def list(self) -> AsyncIterator[str]:
        """Yield the keys of all documents and chunks."""
        return self.list_prefix("")

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
        if byte_range is None and not self.read_only:
            value = found.value(coords, None)
            self._read[id(key)] = key, value
            while len(self._read) > max(_FEW, _REMEMBERED // max(len(value or b""), _LEAST)):
                self._forgotten.append(self._read.popitem(last=False)[1][0])
            return value
        if byte_range is None or not found.is_passed_on:
            return _cut(found.value(coords, None), byte_range)
        part = _part(byte_range)
        try:
            return found.value(coords, ByteRange(part.start, None if part.stop is None else part.stop - part.start))
        except StoreError:  # zarr-python cuts a range that runs past the end
            return _cut(found.value(coords, None), byte_range)

    def _write(self, key: str, value: bytes | None) -> None:
        document, chunk = _DOCUMENT.fullmatch(key), self._chunk(key)
        if chunk is not None and chunk[0].is_inside(chunk[1]):
            found, coords = chunk
            seen = self._read.pop(id(key), None)
            if seen is None and any(key is each for each in list(self._forgotten)):
                reason = f"more than {_REMEMBERED:,} bytes were read since this operation read the chunk: do it again"
                raise StoreError(url=str(self), key=key, reason=reason)
            if seen is None or not coords:  # without axes, the key is the same object in all operations
                found.write(coords, value)
            else:
                found.change(coords, seen[1], value)
        elif document is None or value is None or not self._change_document(document[1] or "", value):
            raise self._refused(key)

    def _refused(self, key: str) -> StoreError:
        reason = "a zarr_store writes chunks and attributes; all else: append, write_dataset, create_array, delete"
        return StoreError(url=str(self), key=key, reason=reason)

    def _change_document(self, path: str, value: bytes) -> bool:
        """Change attributes of a node as a document does, or make it smaller; False where other things would change.

        What is shown from then on, and compared with the next one, are the attributes that zarr-python knows.
        """
        found, shown = self._at(path), self._document(path)
        if found is None or shown is None:
            return False
        (old, before, shape), (new, after, new_shape) = _split_document(shown), _split_document(value)
        if old != new or any(n < wanted for n, wanted in zip(shape, new_shape, strict=True)):
            return False
        node = Array(found.array) if isinstance(found, ShownArray) else Group(found)
        if isinstance(node, Array) and shape != new_shape:
            node.resize(new_shape)  # zarr-python has deleted the chunks outside
        node.update_attributes({name: each for name, each in after.items() if before.get(name, after) != each})
        node.del_attributes(*(before.keys() - after.keys() & node.attributes.keys()))
        known: Any = replace(node.stored.metadata, attributes=after)
        self._found[path] = _shown(replace(node.stored, metadata=known), path)
        return True

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


def _split_document(document: bytes) -> tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]:
    """Return a document as zarr-python says it, and apart from it its attributes and its shape."""
    found = json.loads(document)
    kind: Any = ArrayV3Metadata if found.get("node_type") == "array" else GroupMetadata
    described: dict[str, Any] = kind.from_dict(found).to_dict()
    return described, described.pop("attributes", {}), described.pop("shape", ())


_DOCUMENT = re.compile(r"(?:(.+)/)?zarr\.json")
_CHUNK = re.compile(r"(?:(.+)/)?c(?:/(\d+(?:/\d+)*))?")


async def _in_thread(function: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool(os.getpid()), function)


@cache
def _pool(pid: int) -> ThreadPoolExecutor:
    """Return threads that wait for requests: the loop's own are as few as the processors."""
    del pid  # a fork has none
    return ThreadPoolExecutor(2 * REQUESTS_AT_ONCE, "chunkmill-shown")


def _part(request: ByteRequest) -> slice:
    """Return the bytes that are asked for; of a suffix, which may be empty, counted from the end."""
    if isinstance(request, RangeByteRequest):
        return slice(request.start, request.end)
    if isinstance(request, OffsetByteRequest):
        return slice(request.offset, None)
    return slice(-request.suffix, None) if request.suffix else slice(0, 0)


def _cut(value: bytes | None, request: ByteRequest | None) -> bytes | None:
    return value if value is None or request is None else value[_part(request)]
