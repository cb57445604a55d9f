"""Locate the bytes of every chunk, in parallel tasks that read no chunk data.

A task asks for the size of a whole object, the index of a shard, or the header of an N5 block. Where a listing has
the sizes of whole objects, there are no tasks. The byte ranges of an array are columns: ten million rows take 160 MB.
Not here: writing the set (`chunkmill.references.write`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import decode_chunk
from chunkmill.array.layout import ShardedChunks, build_layouts
from chunkmill.array.present_keys import chunks_in_shard
from chunkmill.array.stored_array import StoredArray, chunk_step, metered
from chunkmill.codecs.n5_block import parse_header
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.model.grid import ChunkCoords
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_KEYS, Stage, TaskResult
from chunkmill.runtime.stage_runner import JobMonitor, StageResult, run_once
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.wrapper import Meter

Container: TypeAlias = Literal["object", "shard", "n5_block"]
"""Value that holds a chunk: the chunk's bytes alone, a shard of many, or an N5 block (a header and the bytes)."""

_MAX_TASK_CHUNKS = 1 << 18  # of the shards of one task: their columns travel
_MAX_PROBED = 100_000_000  # keys of a grid that are asked for one by one, where the store cannot list them
_N_THREADS = 32  # requests for sizes at once
_N5_START = 4  # bytes of mode and rank
_N5_COUNT = 4  # more of a block of mode 1


@dataclass(frozen=True, slots=True)
class ReferencedArray:
    """An array, and the array in the set whose chunks are byte ranges of its store keys.

    Attributes
    ----------
    array
        The array whose bytes are referenced.
    metadata
        Of the array in the set: the same chunks, without shards or block headers around them.
    container
        What its store keys hold.
    """

    array: StoredArray
    metadata: ArrayMetadata
    container: Container


def locate_references(
    referenced: Sequence[ReferencedArray], *, progress: bool | str | None = None
) -> tuple[list[ChunkTable], StageResult]:
    """Locate every chunk of every array, on the current dask scheduler or Client.

    Raises
    ------
    ChunkError
        A shard's index or a block's header is damaged; names the store key.
    """
    with JobMonitor("to_references", progress).showing() as monitor:
        listed = [_list_keys(each.array) for each in referenced]
        specs = [spec for which, each in enumerate(referenced) for spec in _specs(which, each, listed[which])]
        stage = Stage("references", locate_chunks, tuple(referenced), specs, _task_shows)
        (result,) = run_once([stage], monitor, (each.array for each in referenced))
    found: list[list[ChunkTable]] = [[] for _ in referenced]
    for which, _, table in sorted(result.details, key=lambda detail: detail[:2]):
        found[which].append(table)
    tables = [
        _whole_objects(keys) if _is_listed(each, keys) else ChunkTable.joined(own)
        for each, keys, own in zip(referenced, listed, found, strict=True)
    ]
    return tables, result


def key_of(array: StoredArray, number: int) -> str:
    """Return the store key with this number (C order, in the grid of store keys)."""
    return array.write_layout.locator.key(array.write_layout.grid.coords_of(number))


# --------------------------------------------------------------------------------------------------------------------
# Which store keys exist


class _StoreKeys(NamedTuple):
    """Numbers of the store keys of an array, ascending, and their sizes where the listing has them."""

    numbers: NDArray[np.int64]
    sizes: NDArray[np.int64] | None

    def between(self, first: int, stop: int) -> _StoreKeys:
        return _StoreKeys(self.numbers[first:stop], None if self.sizes is None else self.sizes[first:stop])


_Spec: TypeAlias = tuple[int, _StoreKeys]  # of the array with this number


def _list_keys(array: StoredArray) -> _StoreKeys:
    """Return the store keys that exist; all of the grid where the store cannot list.

    Web servers cannot: some do, and leave out keys after the first hundreds.
    """
    grid = array.write_layout.grid
    grid_shape, n_keys = grid.grid_shape, grid.n_chunks
    if not array.store.can_list:
        if n_keys > _MAX_PROBED:
            reason = f"{n_keys:,} keys would have to be asked for one by one: a web server does not list them"
            hint = "copy the metadata and chunks to a store that lists"
            raise JobError(job=f"references to {array.path!r} in {array.url}", reason=reason, hint=hint)
        return _StoreKeys(np.arange(n_keys), None)
    numbers, sizes = [], []
    for key, size in array.store.list_sizes(array.prefix):
        coords = array.metadata.chunk_keys.decode(key[len(array.prefix) :], len(grid_shape))
        if coords is None or any(index >= n for index, n in zip(coords, grid_shape, strict=True)):
            continue  # a document, or a chunk that remained when the array was made smaller
        numbers.append(grid.number_of(coords))
        sizes.append(-1 if size is None else size)
    found, n_bytes = np.array(numbers, np.int64), np.array(sizes, np.int64)
    order = np.argsort(found)
    return _StoreKeys(found[order], n_bytes[order] if len(n_bytes) and n_bytes.min() >= 0 else None)


def _is_listed(referenced: ReferencedArray, keys: _StoreKeys) -> bool:
    """Return whether the listing has all that a table needs."""
    return referenced.container == "object" and keys.sizes is not None


def _whole_objects(keys: _StoreKeys) -> ChunkTable:
    sizes = cast("NDArray[np.int64]", keys.sizes)
    return ChunkTable.of(keys.numbers, keys.numbers, np.zeros_like(keys.numbers), sizes)


def _specs(which: int, referenced: ReferencedArray, keys: _StoreKeys) -> Iterator[_Spec]:
    if _is_listed(referenced, keys):
        return
    writing, reading = referenced.array.write_layout.grid, referenced.array.read_layout.grid
    n_inner = prod(writing.chunk_shape) // prod(reading.chunk_shape)
    n_keys = len(keys.numbers)
    size = max(1, min(n_keys // LEAST_TASKS, MAX_TASK_KEYS, _MAX_TASK_CHUNKS // n_inner))
    yield from ((which, keys.between(first, first + size)) for first in range(0, n_keys, size))


# --------------------------------------------------------------------------------------------------------------------
# In a task


def locate_chunks(referenced: Sequence[ReferencedArray], spec: _Spec) -> TaskResult:
    """Locate the chunks under some store keys of one array: the function of the stage's tasks."""
    which, (numbers, sizes) = spec
    meter = Meter()
    array = metered(referenced[which].array, meter)
    coords = [array.write_layout.grid.coords_of(number) for number in numbers.tolist()]
    lookup = _Lookup(referenced[which], array, numbers, coords, None if sizes is None else sizes.tolist(), meter)
    table = _LOCATE[referenced[which].container](lookup)
    return TaskResult(meter.counts() | {"n_keys": len(numbers)}, {}, [(which, int(numbers[0]), table)])


def _task_shows(referenced: Sequence[ReferencedArray], spec: _Spec) -> str:
    return key_of(referenced[spec[0]].array, int(spec[1].numbers[0]))


@dataclass(slots=True)
class _Lookup:
    """The store keys of one task: numbers, coords, and sizes where they are known; `array` counts its requests."""

    referenced: ReferencedArray
    array: StoredArray
    numbers: NDArray[np.int64]
    coords: list[ChunkCoords]
    sizes: Sequence[int | None] | None
    meter: Meter

    def key(self, row: int) -> str:
        return self.array.write_layout.locator.key(self.coords[row])

    def known_sizes(self) -> Sequence[int | None]:
        """Return the size of each object; ``None`` where there is none."""
        if self.sizes is None:
            store = self.array.store.below  # type: ignore[attr-defined] # the counting store, which is not for threads
            self.meter.n_requests += len(self.coords)
            keys = [self.key(row) for row in range(len(self.coords))]
            if store.is_remote:
                with ThreadPoolExecutor(_N_THREADS) as pool:
                    self.sizes = list(pool.map(store.size, keys))
            else:
                self.sizes = [store.size(key) for key in keys]
        return self.sizes


def _in_objects(lookup: _Lookup) -> ChunkTable:
    sizes = lookup.known_sizes()
    there = [row for row, size in enumerate(sizes) if size is not None]
    numbers = lookup.numbers[there]
    return ChunkTable.of(numbers, numbers, np.zeros(len(there), np.int64), [size for size in sizes if size is not None])


def _in_shards(lookup: _Lookup) -> ChunkTable:
    array = lookup.array
    locator = cast("ShardedChunks", array.read_layout.locator)
    # the size of a local shard costs nothing; elsewhere a reader of the range finds out that it is short
    sizes = lookup.sizes if array.store.is_remote else lookup.known_sizes()
    tables: list[ChunkTable] = []
    for row, (shard, index) in enumerate(locator.indexes(array.store, lookup.coords)):
        if index is None:
            continue
        here, chunks, inside = chunks_in_shard(array, shard, index)
        starts, lengths = index.reshape(-1, 2)[here].T
        _check_ranges(array, shard, starts, lengths, None if sizes is None else sizes[row])
        keys = np.full(len(here), lookup.numbers[row])
        table = ChunkTable(keys, chunks, starts.astype(np.int64), lengths.astype(np.int64))
        tables.append(table.where(inside))
    return ChunkTable.joined(tables)


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


def _in_blocks(lookup: _Lookup) -> ChunkTable:
    array, layout = lookup.array, lookup.array.write_layout
    sizes = lookup.known_sizes()
    there = {row: size for row, size in enumerate(sizes) if size is not None}
    columns: list[tuple[int, int, int, int]] = []
    inline: list[tuple[int, bytes]] = []
    for (row, size), header in zip(there.items(), _headers(lookup, list(there)), strict=True):
        coords, number = lookup.coords[row], int(lookup.numbers[row])
        with chunk_step(array, layout, coords, "n5_block"):
            shape, offset = parse_header(header, layout.spec(coords).shape)
        if shape == layout.spec(coords).shape:
            columns.append((number, number, offset, size - offset))
        else:
            inline.append((number, _padded(lookup, row)))
    numbers, chunks, offsets, lengths = np.array(columns, np.int64).reshape(-1, 4).T
    return ChunkTable.of(numbers, chunks, offsets, lengths, inline=inline)


def _headers(lookup: _Lookup, rows: Sequence[int]) -> Iterator[bytes]:
    """Yield the header of each block: of a fixed size but in mode 1, which is asked for once more."""
    array = lookup.array
    n_bytes = _N5_START + 4 * array.ndim
    results = array.store.get_many(ByteSpan(lookup.key(row), ByteRange(0, n_bytes)) for row in rows)
    for row in rows:
        with chunk_step(array, array.write_layout, lookup.coords[row], "get"):
            header = next(results)
            if header is not None and header[:2] == b"\0\1":
                header = array.store.get(lookup.key(row), ByteRange(0, n_bytes + _N5_COUNT))
            if header is None:
                raise StoreError(url=array.url, key=lookup.key(row), reason="it was deleted while it was read")
        yield header


def _padded(lookup: _Lookup, row: int) -> bytes:
    """Return a truncated block padded to the block size, encoded as a chunk of the set."""
    array, coords = lookup.array, lookup.coords[row]
    layout = array.write_layout
    with chunk_step(array, layout, coords, "get"):
        data = array.store.get(lookup.key(row))
    chunk = decode_chunk(array, layout, coords, data)
    target = build_layouts(lookup.referenced.metadata, "")[1]
    with chunk_step(array, layout, coords, "encode"):
        return bytes(target.codecs.encode(np.ascontiguousarray(chunk), target.spec(coords)))


_LOCATE: dict[Container, Callable[[_Lookup], ChunkTable]] = {
    "object": _in_objects,
    "shard": _in_shards,
    "n5_block": _in_blocks,
}


Column: TypeAlias = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Byte ranges of the chunks of one array: columns with one row per chunk, ordered by store key.

    Attributes
    ----------
    keys
        Number of the store key that holds the chunk (C order, in the grid of store keys).
    chunks
        Number of the chunk (C order, in the grid of chunks).
    offsets, lengths
        Byte range of the chunk in the value of its store key.
    inline
        Number and bytes of the chunks that the set itself holds; they have no row.

    Examples
    --------
    >>> table = ChunkTable.of([0, 0, 3], [0, 1, 6], [0, 20, 0], [20, 15, 20])
    >>> len(table), [column.tolist() for column in table.by_key()]
    (3, [[0, 3], [0, 0, 1]])
    """

    keys: Column
    chunks: Column
    offsets: Column
    lengths: Column
    inline: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def of(cls, *columns: Sequence[int] | Column, inline: Sequence[tuple[int, bytes]] = ()) -> Self:
        """Return a table whose columns take 4 bytes a row where they can: they travel."""
        keys, chunks, offsets, lengths = map(_narrow, columns)
        return cls(keys, chunks, offsets, lengths, list(inline))

    @classmethod
    def joined(cls, tables: Sequence[ChunkTable]) -> Self:
        """Return the rows of several tables, in their order."""
        columns = zip(
            *((each.keys, each.chunks, each.offsets, each.lengths) for each in [_NO_CHUNKS, *tables]), strict=True
        )
        return cls.of(*map(np.concatenate, columns), inline=[entry for table in tables for entry in table.inline])

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def n_chunks(self) -> int:
        """Chunks that are stored: by range or inline."""
        return len(self.chunks) + len(self.inline)

    def where(self, mask: NDArray[np.bool]) -> ChunkTable:
        """Return the rows that `mask` selects, and all inline chunks."""
        return ChunkTable(self.keys[mask], self.chunks[mask], self.offsets[mask], self.lengths[mask], self.inline)

    def by_key(self) -> tuple[Column, NDArray[np.int64]]:
        """Return the store keys, each once, and for every row the index of its own among them."""
        is_first = np.ones(len(self.keys), bool)
        is_first[1:] = self.keys[1:] != self.keys[:-1]
        return self.keys[is_first], np.cumsum(is_first) - 1


def _narrow(values: Sequence[int] | Column) -> Column:
    column = np.asarray(values, getattr(values, "dtype", np.int64))
    fits = not len(column) or int(column.max()) < 2**31  # as int32
    return column.astype(np.int32, copy=False) if fits else column


_NO_CHUNKS = ChunkTable.of([], [], [], [])
