"""Assemble target chunks (shards) from source chunks or intermediate files, and write them.

Every element is copied once, from its source to its target chunk (or, where those are many and small, through one
block), and the codecs encode that memory. Presence is kept: a target chunk is not written when none of its source
chunks is present.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import write_chunk
from chunkmill.array.chunk_step import chunk_step
from chunkmill.array.metered import metered
from chunkmill.conversion.rechunking.intermediate_files import intermediate_values
from chunkmill.conversion.rechunking.source_chunks import ArrayRechunk, SourceReads, source_values, within
from chunkmill.conversion.rechunking.target_buffers import target_buffer
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.runtime.job import TaskResult
from chunkmill.stores.metered import Meter, MeteredStore

__all__ = ["write_target_block"]


def write_target_block(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> TaskResult:
    """Write the target chunks of one block: `spec` is the array's number, and the block's."""
    rechunk, number = rechunks[spec[0]], spec[1]
    meter, read = Meter(), SourceReads()
    source, target = metered(rechunk.source, meter), metered(rechunk.target, meter)
    block = rechunk.plan.writes.coords_of(number)
    region = rechunk.plan.writes.region(block)
    if rechunk.plan.reads is None:
        found = source_values(rechunk, source, region, read)
    else:
        found = intermediate_values(rechunk, MeteredStore(rechunk.intermediate, meter), block)
    chunks = _TargetChunks(rechunk, target.write_layout.grid, region)
    for at, values in found:
        chunks.put(at, values)
        del values  # before the next one is fetched
    n_keys = n_empty = 0
    for coords, chunk in chunks.take():
        n_keys += 1
        if chunk is not None:
            write_chunk(target, coords, chunk.astype(target.dtype, copy=False), write_empty=True)
            continue
        n_empty += 1
        if not rechunk.fresh:
            key = target.write_layout.locator.key(coords)
            with chunk_step(target, target.write_layout, coords, "set"):
                target.store.delete(key)
    actions = {"action_rechunk": n_keys - n_empty, "action_absent": n_empty}
    return TaskResult.of(meter, n_keys=n_keys, **read.counts(), **{name: n for name, n in actions.items() if n})


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
