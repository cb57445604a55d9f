"""Where the bytes of every chunk lie: looked up in parallel tasks, nothing of the data is read.

Of a whole object its size is asked for, of a shard its index, of an N5 block its header. What can be listed with its
size is not asked for at all.
Not here: what references describe and how they are written (`chunkmill.references.write`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import decode_chunk
from chunkmill.array.chunk_step import chunk_step
from chunkmill.array.layout import ChunkLayout, ShardedChunks, build_layouts
from chunkmill.array.metered import metered
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.n5_block import parse_header
from chunkmill.errors import ChunkError, JobError, StoreError, UnsupportedFeature
from chunkmill.model.grid import ChunkCoords
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.runtime.job import Stage, StageResult, TaskResult, run_once
from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.metered import Meter

__all__ = ["Frame", "Located", "Virtual", "locate_references", "store_below"]

Frame: TypeAlias = Literal["object", "shard", "n5_block"]
"""What a chunk's bytes lie in."""

_LEAST_TASKS = 128
_MAX_TASK_KEYS = 1024
_MAX_TASK_CHUNKS = 1 << 18  # of the shards of one task: their columns travel
_MAX_PROBED = 100_000_000  # keys of a grid that are asked for one by one, where the store cannot list them
_N_THREADS = 32  # requests for sizes at once
_N5_START = 4  # bytes of mode and rank
_N5_COUNT = 4  # more of a block of mode 1


@dataclass(frozen=True, slots=True)
class Virtual:
    """One array, and the array that references to its bytes make.

    Attributes
    ----------
    array
        Where the bytes lie.
    metadata
        Of the array that the references make: its chunks are those of the source, shards and frames taken off.
    inline_ends
        Whether N5's truncated blocks are made whole and held in the set itself; refused otherwise.
    """

    array: StoredArray
    metadata: ArrayMetadata
    frame: Frame
    inline_ends: bool = True


@dataclass(slots=True)
class Located:
    """Where the chunks of one array lie, in columns.

    Attributes
    ----------
    keys
        Numbers (C order, in the grid of store keys) of the keys that there may be.
    rows
        For each chunk that is there, which of `keys` it lies under.
    chunks
        Its number in the grid of chunks.
    offsets, lengths
        Its range, in bytes.
    inline
        Number and bytes of chunks that the set itself shall hold.
    """

    keys: NDArray[np.int64]
    rows: NDArray[np.integer]
    chunks: NDArray[np.integer]
    offsets: NDArray[np.integer]
    lengths: NDArray[np.integer]
    inline: list[tuple[int, bytes]] = field(default_factory=list)


def locate_references(
    virtuals: Sequence[Virtual], *, progress: bool | str | None = None
) -> tuple[list[Located], StageResult]:
    """Locate every chunk of every array, on the current dask scheduler or Client.

    Raises
    ------
    ChunkError
        A shard's index or a block's header is damaged; names the store key.
    UnsupportedFeature
        A block is truncated and must not be held in the set.
    """
    listed = [_list_keys(virtual.array) for virtual in virtuals]
    specs = [spec for which, virtual in enumerate(virtuals) for spec in _specs(which, virtual, *listed[which])]
    stage = Stage("references", locate_group, tuple(virtuals), specs, _group_reads, _group_shows)
    arrays = (virtual.array for virtual in virtuals)
    (result,) = run_once([stage], name="to_references", arrays=arrays, progress=progress)
    parts: list[list[_Part]] = [[] for _ in virtuals]
    for part in sorted(result.details, key=lambda part: (part.which, part.first)):
        parts[part.which].append(part)
    located = []
    for (keys, sizes), virtual, own in zip(listed, virtuals, parts, strict=True):
        if sizes is not None and virtual.frame == "object":
            rows = np.arange(len(keys))
            located.append(Located(keys, rows, keys, np.zeros(len(keys), np.int8), sizes))
        else:
            located.append(_joined(keys, own))
    return located, result


def store_below(store: Store) -> Store:
    """Return the store that holds the bytes, below those that count or answer from memory."""
    while (below := getattr(store, "below", None)) is not None:
        store = below
    return store


# --------------------------------------------------------------------------------------------------------------------
# Which keys there are

_Keys: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64] | None]
_Spec: TypeAlias = tuple[int, int, NDArray[np.int64], NDArray[np.int64] | None]


def _list_keys(array: StoredArray) -> _Keys:
    """Return the numbers of the store keys that there are, and their sizes where the listing tells them.

    Where the store cannot list (web servers; some do, and cut it short), all keys of the grid may be there.
    """
    grid = array.write_layout.grid
    grid_shape, n_chunks = grid.grid_shape, grid.n_chunks
    store = store_below(array.store)
    if store.url.startswith(("http://", "https://")):
        if n_chunks > _MAX_PROBED:
            reason = f"{n_chunks:,} keys would have to be asked for one by one: a web server does not list them"
            hint = "copy the metadata and chunks to a store that lists"
            raise JobError(job=f"references to {array.path!r} in {array.url}", reason=reason, hint=hint)
        return np.arange(n_chunks), None
    numbers, sizes = [], []
    for key, size in _listed(store, array.prefix):
        coords = array.metadata.chunk_keys.decode(key[len(array.prefix) :], len(grid_shape))
        if coords is None or any(index >= n for index, n in zip(coords, grid_shape, strict=True)):
            continue  # a document, or what a shrunken array left behind
        numbers.append(grid.number_of(coords))
        sizes.append(-1 if size is None else size)
    found, n_bytes = np.array(numbers, np.int64), np.array(sizes, np.int64)
    order = np.argsort(found)
    return found[order], n_bytes[order] if len(n_bytes) and n_bytes.min() >= 0 else None


def _listed(store: Store, prefix: str) -> Iterator[tuple[str, int | None]]:
    list_sizes = getattr(store, "list_sizes", None)
    if list_sizes is not None:
        yield from list_sizes(prefix)
    else:
        yield from ((key, None) for key in store.list_prefix(prefix))


def _specs(which: int, virtual: Virtual, keys: NDArray[np.int64], sizes: NDArray[np.int64] | None) -> Iterator[_Spec]:
    """Yield the tasks of one array; none where the listing has told everything."""
    if virtual.frame == "object" and sizes is not None:
        return
    writing, reading = virtual.array.write_layout.grid, virtual.array.read_layout.grid
    n_inner = prod(writing.chunk_shape) // max(prod(reading.chunk_shape), 1)
    size = max(1, min(len(keys) // _LEAST_TASKS, _MAX_TASK_KEYS, _MAX_TASK_CHUNKS // max(n_inner, 1)))
    for first in range(0, len(keys), size):
        part = slice(first, first + size)
        yield which, first, keys[part], None if sizes is None else sizes[part]


# --------------------------------------------------------------------------------------------------------------------
# In a task


@dataclass(slots=True)
class _Part:
    """What one task found: as `Located`, rows counted from `first`."""

    which: int
    first: int
    rows: NDArray[np.integer]
    chunks: NDArray[np.integer]
    offsets: NDArray[np.integer]
    lengths: NDArray[np.integer]
    inline: list[tuple[int, bytes]]


@dataclass(slots=True)
class _Keyed:
    """The store keys of one task: their coords, and sizes where they are known."""

    array: StoredArray
    coords: list[ChunkCoords]
    sizes: Sequence[int | None] | None
    meter: Meter

    def key(self, row: int) -> str:
        return self.array.write_layout.locator.key(self.coords[row])

    def known_sizes(self) -> Sequence[int | None]:
        """Return the size of each object; ``None`` where there is none."""
        if self.sizes is None:
            store = self.array.store.below  # type: ignore[attr-defined] # it counts, and not in threads
            self.meter.n_requests += len(self.coords)
            keys = [self.key(row) for row in range(len(self.coords))]
            if store.is_remote:
                with ThreadPoolExecutor(_N_THREADS) as pool:
                    self.sizes = list(pool.map(store.size, keys))
            else:
                self.sizes = [store.size(key) for key in keys]
        return self.sizes


def locate_group(virtuals: Sequence[Virtual], spec: _Spec) -> TaskResult:
    """Locate the chunks under some store keys: the task of the stage."""
    which, first, numbers, sizes = spec
    virtual, meter = virtuals[which], Meter()
    array = metered(virtual.array, meter)
    coords = [array.write_layout.grid.coords_of(number) for number in numbers.tolist()]
    keyed = _Keyed(array, coords, None if sizes is None else sizes.tolist(), meter)
    rows, chunks, offsets, lengths, inline = _LOCATE[virtual.frame](virtual, keyed, numbers)
    part = _Part(which, first, rows, chunks, offsets, lengths, inline)
    return TaskResult(meter.counts() | {"n_keys": len(numbers)}, {}, [part])


def _group_reads(virtuals: Sequence[Virtual], spec: _Spec) -> Iterator[tuple[StoredArray, list[str]]]:
    array, numbers = virtuals[spec[0]].array, spec[2].tolist()
    layout = array.write_layout
    yield array, [layout.locator.key(layout.grid.coords_of(number)) for number in numbers]


def _group_shows(virtuals: Sequence[Virtual], spec: _Spec) -> str:
    array = virtuals[spec[0]].array
    return array.write_layout.locator.key(array.write_layout.grid.coords_of(int(spec[2][0])))


_Columns: TypeAlias = tuple[
    NDArray[np.integer], NDArray[np.integer], NDArray[np.integer], NDArray[np.integer], list[tuple[int, bytes]]
]


def _in_objects(virtual: Virtual, keyed: _Keyed, numbers: NDArray[np.int64]) -> _Columns:  # noqa: ARG001
    sizes = keyed.known_sizes()
    rows = np.array([row for row, size in enumerate(sizes) if size is not None], np.int64)
    lengths = np.array([size for size in sizes if size is not None], np.int64)
    return rows, numbers[rows], np.zeros(len(rows), np.int8), lengths, []


def _in_shards(virtual: Virtual, keyed: _Keyed, numbers: NDArray[np.int64]) -> _Columns:  # noqa: ARG001
    array = keyed.array
    locator = cast("ShardedChunks", array.read_layout.locator)
    grid = array.read_layout.grid
    # the size of a local shard costs nothing; elsewhere whoever reads the range finds out that it is short
    sizes = keyed.sizes if array.store.is_remote else keyed.known_sizes()
    found: list[_Columns] = []
    for row, (shard, index) in enumerate(locator.indexes(array.store, keyed.coords)):
        if index is None:
            continue
        entries = index.reshape(-1, 2)
        here = np.flatnonzero(entries[:, 0] != np.uint64(_MISSING))
        starts, lengths = entries[here, 0], entries[here, 1]
        _check_ranges(array, shard, starts, lengths, None if sizes is None else sizes[row])
        places = np.unravel_index(here, index.shape[:-1]) if index.ndim > 1 else ()
        chunks = np.zeros(len(here), np.int64)
        inside = np.ones(len(here), bool)
        for axis in range(array.ndim):
            first = grid.axes[axis].index(array.write_layout.grid.axes[axis].start(shard[axis]))
            along = first + places[locator.order.index(axis)]
            inside &= along < grid.grid_shape[axis]  # past the end of the array nothing is read
            chunks = chunks * grid.grid_shape[axis] + along
        columns = (np.full(len(here), row), chunks, starts.astype(np.int64), lengths.astype(np.int64))
        found.append((*(_narrow(column[inside]) for column in columns), []))  # type: ignore[arg-type]
    return _stacked(found)


_MISSING = 2**64 - 1
_INT64_MAX = 2**63 - 1


def _check_ranges(
    array: StoredArray, shard: ChunkCoords, starts: NDArray[np.uint64], lengths: NDArray[np.uint64], size: int | None
) -> None:
    limit = _INT64_MAX if size is None else size
    bad = (starts > limit) | (lengths > limit - np.minimum(starts, np.uint64(limit)))
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        reason = f"the shard's index names {lengths[at]} bytes at {starts[at]}, the shard has {limit}"
        key = array.write_layout.locator.key(shard)
        raise ChunkError(url=array.url, key=key, coords=shard, step="sharding_indexed", reason=reason)


def _in_blocks(virtual: Virtual, keyed: _Keyed, numbers: NDArray[np.int64]) -> _Columns:
    array, layout = keyed.array, keyed.array.write_layout
    sizes = keyed.known_sizes()
    there = [row for row, size in enumerate(sizes) if size is not None]
    columns: list[tuple[int, int, int, int]] = []
    inline: list[tuple[int, bytes]] = []
    for row, header in zip(there, _headers(keyed, there), strict=True):
        coords, number = keyed.coords[row], int(numbers[row])
        with chunk_step(array, layout, coords, "n5_block"):
            shape, offset = parse_header(header, layout.spec(coords).shape)
        if shape == layout.spec(coords).shape:
            columns.append((row, number, offset, (sizes[row] or 0) - offset))
        else:
            inline.append((number, _made_whole(virtual, keyed, row, shape)))
    rows, chunks, offsets, lengths = np.array(columns, np.int64).reshape(-1, 4).T
    return rows, chunks, offsets, lengths, inline


def _headers(keyed: _Keyed, rows: Sequence[int]) -> Iterator[bytes]:
    """Yield the header of each block: of a fixed size but in mode 1, which is asked for once more."""
    array = keyed.array
    n_bytes = _N5_START + 4 * array.ndim
    results = array.store.get_many(ByteSpan(keyed.key(row), ByteRange(0, n_bytes)) for row in rows)
    for row in rows:
        with chunk_step(array, array.write_layout, keyed.coords[row], "get"):
            header = next(results)
            if header is not None and header[:2] == b"\0\1":
                header = array.store.get(keyed.key(row), ByteRange(0, n_bytes + _N5_COUNT))
            if header is None:
                raise StoreError(url=array.url, key=keyed.key(row), reason="it was deleted meanwhile")
        yield header


def _made_whole(virtual: Virtual, keyed: _Keyed, row: int, shape: tuple[int, ...]) -> bytes:
    """Return a truncated block as the whole chunk that it is the beginning of, encoded."""
    array, coords = keyed.array, keyed.coords[row]
    layout = array.write_layout
    if not virtual.inline_ends:
        at_end = region_shape(layout.grid.extent(coords)) == shape
        feature = f"the truncated block {coords} of {array.path!r} (key {keyed.key(row)!r}): {shape} of the block size "
        feature += f"{layout.spec(coords).shape}{', at an end of the array' if at_end else ''}"
        hint = "end_blocks='inline' holds such blocks in the set itself, made whole; or convert the array"
        raise UnsupportedFeature(format="a reference set", feature=feature, hint=hint)
    with chunk_step(array, layout, coords, "get"):
        data = array.store.get(keyed.key(row))
    chunk = decode_chunk(array, layout, coords, data)
    target: ChunkLayout = build_layouts(virtual.metadata, "")[1]
    with chunk_step(array, layout, coords, "encode"):
        return bytes(target.codecs.encode(np.ascontiguousarray(chunk), target.spec(coords)))


_LOCATE: dict[Frame, Callable[[Virtual, _Keyed, NDArray[np.int64]], _Columns]] = {
    "object": _in_objects,
    "shard": _in_shards,
    "n5_block": _in_blocks,
}


def _narrow(column: NDArray[np.int64]) -> NDArray[np.integer]:
    return column.astype(np.int32) if not len(column) or int(column.max()) < 2**31 else column


def _stacked(found: Sequence[_Columns]) -> _Columns:
    if not found:
        nothing: NDArray[Any] = np.zeros(0, np.int64)
        return nothing, nothing, nothing, nothing, []
    rows, chunks, offsets, lengths = (np.concatenate([part[i] for part in found]) for i in range(4))
    return rows, chunks, offsets, lengths, [entry for part in found for entry in part[4]]


def _joined(keys: NDArray[np.int64], parts: Sequence[_Part]) -> Located:
    found = [
        (_narrow(part.rows + np.int64(part.first)), part.chunks, part.offsets, part.lengths, part.inline)
        for part in parts
    ]
    return Located(keys, *_stacked(found))
