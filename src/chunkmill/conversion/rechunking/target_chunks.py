"""Assemble target chunks (shards) from source chunks or intermediate files, and write them.

Every element is copied once, from its source to its target chunk (or, where those are many and small, through one
block), and the codecs encode that memory. Presence is kept: a target chunk is not written when none of its source
chunks is present.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import write_chunk
from chunkmill.array.other_stores import metered, metered_source
from chunkmill.array.present_keys import count_in, touch
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.array.threads import BackgroundCalls
from chunkmill.conversion.rechunking.intermediate_files import intermediate_values
from chunkmill.conversion.rechunking.sides import writes_at_once
from chunkmill.conversion.rechunking.source_chunks import ArrayRechunk, RegionValues, SourceReads, source_values, within
from chunkmill.conversion.rechunking.target_buffers import target_buffer
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.runtime.stage import TaskResult
from chunkmill.stores.metered import Meter, MeteredStore

__all__ = ["write_target_block"]


def write_target_block(rechunks: Sequence[ArrayRechunk], spec: tuple[Any, ...]) -> TaskResult:
    """Write the target chunks of one block: `spec` is the array's number, the block's, and which source keys exist."""
    rechunk, number = ArrayRechunk.of_task(rechunks, spec)
    meter, read = Meter(), SourceReads()
    target = metered(rechunk.target, meter)
    block = rechunk.plan.writes.coords_of(number)
    region = rechunk.plan.writes.region(block)
    n_keys, n_written = count_in(target.write_layout.grid, region), 0
    if rechunk.by_key:
        source = metered_source(rechunk.source, meter)
        for each in _touched_keys(rechunk, region):
            n_written += _write(rechunk, target, each, source_values(rechunk, source, each, read))
    elif rechunk.plan.reads is None:
        source = metered_source(rechunk.source, meter)
        n_written = _write(rechunk, target, region, source_values(rechunk, source, region, read))
    else:
        store = MeteredStore(meter.read_from(rechunk.intermediate), meter)
        n_written = _write(rechunk, target, region, intermediate_values(rechunk, store, block))
    n_empty = n_keys - n_written
    actions = {"action_rechunk": n_keys - n_empty, "action_absent": n_empty}
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
        self._buffer = target_buffer(rechunk.source, grid, region, through_block=through_block)

    def put(self, at: Region, values: NDArray[Any] | None) -> None:
        """Copy the values of the region `at`; ``None``: they are absent in the source."""
        if values is None:
            self._buffer.put_fill(at)
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
