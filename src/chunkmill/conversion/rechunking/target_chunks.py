"""Assemble target chunks (shards) from source chunks or intermediate files, and write them.

The memory of a block of them is one block, equal tiles, or a buffer for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import fill_values, write_chunk
from chunkmill.array.present_keys import count_in, touch
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, chunk_step, metered, metered_source
from chunkmill.array.threads import BackgroundCalls
from chunkmill.conversion.estimate import MOST_STORING, chunk_bytes, most_encoded, n_encoding
from chunkmill.conversion.rechunking.intermediate_files import (
    MAX_TILED_AXES,
    intermediate_values,
    put_in_tiles,
)
from chunkmill.conversion.rechunking.source_chunks import (
    ArrayRechunk,
    RegionValues,
    SourceReads,
    source_values,
    unshifted,
    within,
)
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Overlap, Region
from chunkmill.runtime.stage import TaskResult
from chunkmill.stores.wrapper import Meter


class TargetBuffer(ABC):
    """The target chunks of one block while values are copied into them."""

    @abstractmethod
    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""

    @abstractmethod
    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return one target chunk: `overlap` is its overlap with the block. It is asked for once."""


def target_buffer(dtype: np.dtype[Any], grid: ChunkGrid, region: Region, *, through_block: bool) -> TargetBuffer:
    """Return a buffer for the chunks of `grid` in `region`.

    Parameters
    ----------
    through_block
        Whether the chunks are cut out of one block (see `Estimate`).
    """
    shape = region_shape(region)
    if through_block:
        return BlockBuffer(dtype, region)
    first = grid.first_touched(region)
    chunk_shape = grid.shape_of(first)
    counts = tuple(-(-n // length) for n, length in zip(shape, chunk_shape, strict=True))
    is_whole = grid.is_regular and all(n % length == 0 for n, length in zip(shape, chunk_shape, strict=True))
    if is_whole and len(shape) <= MAX_TILED_AXES:
        return TiledBuffer(dtype, region, first, (*counts, *chunk_shape))
    return SeparateBuffer(dtype, grid, region)


class BlockBuffer(TargetBuffer):
    """One block, of which the chunks are parts: cheapest for many small chunks, at the cost of one copy more."""

    def __init__(self, dtype: np.dtype[Any], region: Region) -> None:
        self._region = region
        self._block = np.empty(region_shape(region), dtype)

    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""
        self._block[within(unshifted(at, self._region))] = values

    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return the part of the block that a chunk covers."""
        return self._block[within(overlap.in_region)]  # type: ignore[no-any-return]


class TiledBuffer(TargetBuffer):
    """Chunks of one shape, one after the other in memory, into all of which one copy goes."""

    def __init__(self, dtype: np.dtype[Any], region: Region, first: ChunkCoords, tiles_shape: tuple[int, ...]) -> None:
        self._region, self._first = region, first
        self._tiles = np.empty(prod(tiles_shape), dtype).reshape(tiles_shape)

    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""
        put_in_tiles(self._tiles, unshifted(at, self._region), values)

    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return the tile of a chunk."""
        place: Any = (*(i - first for i, first in zip(overlap.coords, self._first, strict=True)), ...)
        return self._tiles[place]  # type: ignore[no-any-return]


class SeparateBuffer(TargetBuffer):
    """Chunks of any shape, each contiguous, so that its memory is what is encoded.

    A chunk gets its memory when the first value is copied into it.
    """

    def __init__(self, dtype: np.dtype[Any], grid: ChunkGrid, region: Region) -> None:
        self._grid = grid
        self._memory = np.empty(prod(region_shape(region)), dtype)
        self._n_used = 0
        self._chunks: dict[ChunkCoords, NDArray[Any]] = {}

    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""
        for overlap in self._grid.overlaps(at):
            chunk = self._chunks.get(overlap.coords)
            if chunk is None:
                chunk = self._chunks[overlap.coords] = self._begin(overlap.coords)
            chunk[within(overlap.in_chunk)] = values[within(overlap.in_region)]

    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return a chunk and forget it."""
        return self._chunks.pop(overlap.coords)

    def _begin(self, coords: ChunkCoords) -> NDArray[Any]:
        shape = region_shape(self._grid.extent(coords))
        start, self._n_used = self._n_used, self._n_used + prod(shape)
        return self._memory[start : self._n_used].reshape(shape)


def write_target_block(rechunks: Sequence[ArrayRechunk], spec: tuple[Any, ...]) -> TaskResult:
    """Write the target chunks of one block: `spec` is the array's number, the block's, and which source keys exist."""
    rechunk, number = ArrayRechunk.of_task(rechunks, spec)
    meter, read = Meter(), SourceReads()
    target = metered(rechunk.target, meter)
    block = rechunk.plan.writes.coords_of(number)
    region = rechunk.plan.writes.region(block)
    n_keys, n_written = count_in(target.write_layout.grid, region), 0
    parts = _touched_keys(rechunk, region) if rechunk.by_key else [region]
    for part in parts:
        if rechunk.by_key or rechunk.plan.reads is None:
            found = source_values(rechunk, metered_source(rechunk.source, meter), part, read)
        else:
            found = intermediate_values(rechunk, meter, block)
        n_written += _write(rechunk, target, part, found)
        del found
    n_temporary = 0 if rechunk.by_key or rechunk.plan.reads is None else meter.bytes_read
    actions = {"action_rechunk": n_written, "action_absent": n_keys - n_written, "bytes_temporary_read": n_temporary}
    return TaskResult.of(meter, n_keys=n_keys, **read.counts(), **{name: n for name, n in actions.items() if n})


def _touched_keys(rechunk: ArrayRechunk, region: Region) -> list[Region]:
    """Return the regions of the store keys of the target in `region` to deal with, where the source was listed."""
    grid = rechunk.target.write_layout.grid
    touched = None
    if rechunk.present is not None and rechunk.fresh:
        touched = touch(rechunk.present, rechunk.source.write_layout.grid, grid)
    if touched is None:
        return [grid.region(overlap.coords) for overlap in grid.overlaps(region)]
    found = (grid.region(grid.coords_of(number)) for number in touched.numbers.tolist())
    return [each for each in found if all(a.start <= b.start < a.stop for a, b in zip(region, each, strict=True))]


def _write(rechunk: ArrayRechunk, target: StoredArray, region: Region, found: Iterable[RegionValues]) -> int:
    """Write the target chunks of a region; return how many are present."""
    chunks = _TargetChunks(rechunk, target.write_layout.grid, region)
    for at, values in found:
        chunks.put(at, values)
        del values  # before the next one is fetched
    n_written = 0
    with BackgroundCalls(writes_at_once(target, rechunk.ahead_bytes)) as background:
        for coords, chunk in chunks.take():
            if chunk is not None:
                n_written += 1
                background.call(_put, target, coords, chunk)
            elif not rechunk.fresh:
                background.call(_delete, target, coords)
            del chunk
    return n_written


def writes_at_once(array: StoredArray, ahead_bytes: int) -> int:
    """Return the number of values that a task stores at once, in the memory that it fetched ahead before.

    0: one after the other, where requests cost no latency or memory does not suffice for two.
    """
    n = min(MOST_STORING, ahead_bytes // max(1, writing_bytes(array))) if array.store.is_remote else 0
    return n if n > 1 else 0


def writing_bytes(array: StoredArray) -> int:
    """Return the memory to encode and store a value."""
    layout = array.write_layout
    return chunk_bytes(array, layout) * n_encoding(layout.codecs) + most_encoded(array, layout) * array.store.is_remote


def _put(target: StoredArray, coords: ChunkCoords, chunk: NDArray[Any]) -> None:
    write_chunk(target, coords, chunk.astype(target.dtype, copy=False), write_empty=True)


def _delete(target: StoredArray, coords: ChunkCoords) -> None:
    with chunk_step(target, target.write_layout, coords, "set"):
        target.store.delete(target.write_layout.locator.key(coords))


class _TargetChunks:
    """The target chunks of one block while they are assembled, and which of them are present."""

    def __init__(self, rechunk: ArrayRechunk, grid: ChunkGrid, region: Region) -> None:
        self._grid, self._region = grid, region
        self._first = grid.first_touched(region)
        last = tuple(axis.index(cut.stop - 1) for axis, cut in zip(grid.axes, region, strict=True))
        counts = tuple(stop - start + 1 for start, stop in zip(self._first, last, strict=True))
        self._present = np.full(counts, rechunk.materialize, bool)
        through_block = rechunk.plan.estimate.through_block
        self._source = rechunk.source
        self._buffer = target_buffer(self._source.dtype, grid, region, through_block=through_block)

    def put(self, at: Region, values: NDArray[Any] | None) -> None:
        """Copy the values of the region `at`; ``None``: they are absent in the source."""
        if values is None:
            self._buffer.put(at, fill_values(self._source, region_shape(at)))
            return
        touched = tuple(
            slice(axis.index(cut.start) - first, axis.index(cut.stop - 1) + 1 - first)
            for axis, cut, first in zip(self._grid.axes, at, self._first, strict=True)
        )
        self._present[within(touched)] = True
        self._buffer.put(at, values)

    def take(self) -> Iterator[tuple[ChunkCoords, NDArray[Any] | None]]:
        """Yield every chunk once; ``None`` for those of which all source chunks are absent."""
        for overlap in self._grid.overlaps(self._region):
            place = tuple(i - first for i, first in zip(overlap.coords, self._first, strict=True))
            yield overlap.coords, self._buffer.take(overlap) if self._present[place] else None
