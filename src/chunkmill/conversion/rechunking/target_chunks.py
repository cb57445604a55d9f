"""Target units, put together from parts: of the source's chunks, or of temporary files.

A unit is what lies under one store key. Every element is copied once, from its part to its unit (or, when units are
many and small, through one block), which is what the codecs then encode. Presence is kept: a unit none of whose source
chunks is there is not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import write_chunk
from chunkmill.array.chunk_step import chunk_step
from chunkmill.array.metered import metered
from chunkmill.array.selection import region_shape
from chunkmill.conversion.rechunking.intermediate_files import piece_parts
from chunkmill.conversion.rechunking.source_chunks import ArrayRechunk, chunk_parts, fill_values, unshifted, within
from chunkmill.conversion.rechunking.tiled_copy import put_in_tiles
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.runtime.job import TaskResult
from chunkmill.stores.metered import Meter, MeteredStore

__all__ = ["write_box"]


def write_box(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> TaskResult:
    """Write the target units of one box: `spec` is the array's number, and the box's."""
    rechunk, number = rechunks[spec[0]], spec[1]
    meter = Meter()
    source, target = metered(rechunk.source, meter), metered(rechunk.target, meter)
    box = rechunk.plan.writes.coords_of(number)
    region = rechunk.plan.writes.region(box)
    if rechunk.plan.reads is None:
        parts = chunk_parts(rechunk, source, region)
    else:
        parts = piece_parts(rechunk, MeteredStore(rechunk.temporary, meter), box)
    units = _Units(rechunk, target.write_layout.grid, region)
    for at, values in parts:
        units.put(at, values)
        del values  # before the next one is fetched
    n_keys = n_empty = 0
    for coords, unit in units.take():
        n_keys += 1
        if unit is not None:
            write_chunk(target, coords, unit.astype(target.dtype, copy=False), write_empty=True)
            continue
        n_empty += 1
        if not rechunk.fresh:
            key = target.write_layout.locator.key(coords)
            with chunk_step(target, target.write_layout, coords, "set"):
                target.store.delete(key)
    actions = {"action_rechunk": n_keys - n_empty, "action_absent": n_empty}
    return TaskResult.of(meter, n_keys=n_keys, **{name: n for name, n in actions.items() if n})


class _Units:
    """The target units of one box, while they are put together.

    Each is contiguous, so that what it is made into is what is encoded, or all are parts of one block
    (``plan.estimate.through_block``). In either case one piece of memory holds all: the system gives a large one in
    large pages, and has it back when the box is done, whatever the allocator thinks of small ones.
    """

    def __init__(self, rechunk: ArrayRechunk, grid: ChunkGrid, region: Region) -> None:
        self._source = rechunk.source
        self._grid = grid
        self._region = region
        self._first = tuple(axis.index(cut.start) for axis, cut in zip(grid.axes, region, strict=True))
        last = tuple(axis.index(cut.stop - 1) for axis, cut in zip(grid.axes, region, strict=True))
        n_units = tuple(stop - start + 1 for start, stop in zip(self._first, last, strict=True))
        self._present = np.full(n_units, rechunk.materialize, bool)
        self._gaps = np.zeros(n_units, bool)  # units to be made of fill value, since parts of them were absent before
        self._units: dict[ChunkCoords, NDArray[Any]] = {}
        shape = region_shape(region)
        self._memory = np.empty(prod(shape), self._source.dtype)
        self._n_used = 0
        self._block = self._memory.reshape(shape) if rechunk.plan.estimate.through_block else None
        unit = grid.shape_of(self._first)
        whole = grid.is_regular and shape == tuple(n * s for n, s in zip(n_units, unit, strict=True))
        self._tiles = self._memory.reshape(*n_units, *unit) if whole and self._block is None else None

    def put(self, at: Region, values: NDArray[Any] | None) -> None:
        """Copy the values of region `at` to where they belong."""
        touched = within(self._touched(at))
        if values is None:
            self._gaps[touched] = True
            self._copy(at, fill_values(self._source, region_shape(at)), begin=False)
        else:
            self._present[touched] = True
            self._copy(at, values)

    def take(self) -> Iterator[tuple[ChunkCoords, NDArray[Any] | None]]:
        """Yield every unit, which is forgotten then; ``None`` for those that nothing was put into."""
        for overlap in self._grid.overlaps(self._region):
            if not self._present[self._place(overlap.coords)]:
                yield overlap.coords, None
            elif self._block is not None:
                yield overlap.coords, self._block[within(overlap.in_region)]
            else:
                yield overlap.coords, self._taken(overlap.coords)

    def _taken(self, coords: ChunkCoords) -> NDArray[Any]:
        if self._tiles is not None:
            place: Any = (*self._place(coords), ...)
            return self._tiles[place]  # type: ignore[no-any-return]
        unit = self._units.pop(coords, None)
        return self._begun(coords) if unit is None else unit  # all of it absent, and to be written all the same

    def _copy(self, at: Region, values: NDArray[Any], *, begin: bool = True) -> None:
        """Copy values into the block, or into units; into such as hold something already, unless `begin`."""
        to = unshifted(at, self._region)
        if self._block is not None:
            self._block[within(to)] = values
            return
        if self._tiles is not None:
            put_in_tiles(self._tiles, to, values)
            return
        for overlap in self._grid.overlaps(at):
            unit = self._units.get(overlap.coords)
            if unit is None:
                if not begin:
                    continue
                unit = self._units[overlap.coords] = self._begun(overlap.coords)
            unit[within(overlap.in_chunk)] = values[within(overlap.in_region)]

    def _begun(self, coords: ChunkCoords) -> NDArray[Any]:
        """Return a unit to copy into."""
        shape = region_shape(self._grid.extent(coords))
        start, self._n_used = self._n_used, self._n_used + prod(shape)
        unit = self._memory[start : self._n_used].reshape(shape)
        if self._gaps[self._place(coords)]:
            unit[...] = fill_values(self._source, shape)
        return unit

    def _place(self, coords: ChunkCoords) -> ChunkCoords:
        """Return where a unit is counted from the first of the box."""
        return tuple(i - first for i, first in zip(coords, self._first, strict=True))

    def _touched(self, at: Region) -> Region:
        """Return which units share elements with `at`, counted from the first of the box."""
        return tuple(
            slice(axis.index(cut.start) - first, axis.index(cut.stop - 1) + 1 - first)
            for axis, cut, first in zip(self._grid.axes, at, self._first, strict=True)
        )
