"""Plan how an array gets from one chunk grid to another within bounded memory: integers in, a frozen plan out.

Say that the source is stored in six chunks, its columns, and the target in three, its rows::

    source  ┌─┬─┬─┬─┬─┬─┐        target  ┌───────────┐
            │ │ │ │ │ │ │                ├───────────┤
            │ │ │ │ │ │ │                ├───────────┤
            └─┴─┴─┴─┴─┴─┘                └───────────┘

**direct**: each task owns whole target chunks, here a row, and reads the source chunks that they overlap: all columns
are decoded three times over. Where blocks of target chunks fit both grids, once. Of chunks that are stored as they are
in memory a task may read the slice that it needs, where that is contiguous: none is read twice then.

**spill**: each task of stage 1 owns whole source chunks, here two columns, reads them once and writes one file, with a
section for each task of stage 2. Each of those owns whole target chunks and reads one range of every file that they
overlap::

            ┌───┬───┬───┐
            │a0 │b0 │c0 │        file a = a0 a1 a2        row 0 = a0 b0 c0
            │a1 │b1 │c1 │        file b = b0 b1 b2        row 1 = a1 b1 c1
            │a2 │b2 │c2 │        file c = c0 c1 c2        row 2 = a2 b2 c2
            └───┴───┴───┘

Each element is decoded, spilled, fetched and written once; there are as many files as tasks of stage 1, and as many
ranged reads as sections. The larger the blocks of both stages, the fewer sections; memory says how large they can be.

No element has two owners, and no task waits for another one of its stage. Nothing here walks a grid: 10**7 chunks are
planned as fast as ten. The cheaper strategy that fits into memory is taken. Not here: stores, codecs, dask
(`chunkmill.conversion.rechunking.job` runs these plans; a loop over numpy arrays does so in the tests).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import cast

from chunkmill.conversion.rechunking.strategies import (
    LEAST_SLICE,
    Candidate,
    Direct,
    Estimate,
    Limits,
    Side,
    Spill,
    Strategy,
    UnitCosts,
    best_blocks,
)
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Overlap, Region


@dataclass(frozen=True, slots=True)
class RechunkPlan:
    """Regions that each task reads and writes.

    Attributes
    ----------
    writes
        The grid of the tasks that write: each block is made of whole target chunks.
    reads
        The grid of the tasks that spill: each block is made of whole source chunks, and is one intermediate file.
        ``None`` when the strategy is direct.
    trailer_bytes
        Bytes after each section: a bit for each source chunk of the block, set where it is present.
    estimate, others
        Estimate of the plan, and of the strategies that were not chosen.
    """

    source: Side
    target: Side
    itemsize: int
    writes: ChunkGrid
    reads: ChunkGrid | None
    trailer_bytes: int
    estimate: Estimate
    others: tuple[Estimate, ...] = ()

    @property
    def strategy(self) -> Strategy:
        """``"direct"`` or ``"spill"``."""
        return self.estimate.strategy

    @property
    def files(self) -> ChunkGrid:
        """The grid of intermediate files, which a direct plan has not."""
        return cast("ChunkGrid", self.reads)

    def sections(self, file: Region) -> Iterator[Overlap]:
        """Yield the sections of the file of a region in order: `coords` are those of the task that reads each."""
        return self.writes.overlaps(file)

    def section_span(self, file: Region, coords: ChunkCoords) -> tuple[int, int]:
        """Return offset and size in bytes of the section for task `coords` in a file, trailer included.

        Sections are stored in C order, each contiguous. The elements before section (1, 2) of a file of 5 x 9 elements
        that is divided into rows of 2, 3 and columns of 4, 2, 3::

            0 0 0 0|1 1|2 2 2      the whole row of sections above:   2 x 9
            0 0 0 0|1 1|2 2 2
            -------+---+-----      to the left in its own row:        3 x (4 + 2)
            3 3 3 3|4 4|. . .
            3 3 3 3|4 4|. . .      36 elements, and 5 trailers
            3 3 3 3|4 4|. . .
        """
        number, before, size, n_after = 0, 0, 1, prod(cut.stop - cut.start for cut in file)
        for axis, cut, i in zip(self.writes.axes, file, coords, strict=True):
            first, n_elements = axis.index(cut.start), cut.stop - cut.start
            start = max(axis.start(i), cut.start)
            length = min(axis.start(i) + axis.length(i), cut.stop) - start
            n_after //= n_elements
            before += size * (start - cut.start) * n_after
            size *= length
            number = number * (axis.index(cut.stop - 1) - first + 1) + i - first
        offset = before * self.itemsize + number * self.trailer_bytes
        return offset, size * self.itemsize + self.trailer_bytes


@lru_cache(maxsize=256)  # of 10^5 arrays in a group, few differ in shape and chunks
def choose_rechunk_strategy(
    source: Side,
    target: Side,
    itemsize: int,
    limits: Limits,
    *,
    costs: UnitCosts | None = None,
    strategy: Strategy | None = None,
    ahead_bytes: int = 0,
    slices: Sequence[Side] = (),
) -> RechunkPlan:
    """Plan a rechunk: the cheapest strategy, and the cheapest blocks for its tasks, within ``limits.max_mem``.

    Where not even the smallest blocks fit, those that need least are planned: `Estimate.peak_bytes` is more then.

    Parameters
    ----------
    itemsize
        Bytes of an element in memory.
    strategy
        Consider only this one.
    ahead_bytes
        Memory for sections of intermediate files that are fetched ahead of their use: none where a request costs no
        latency.
    slices
        The source as it can be read by slices of its chunks: only where no file is written.

    Examples
    --------
    Images to time series: 8 MB images, 64 MB for each of two threads.

    >>> def side(shape, chunks, n_bytes):
    ...     grid = ChunkGrid.regular(shape, chunks)
    ...     return Side(grid, grid, n_bytes)
    >>> shape = (1000, 1000, 1000)
    >>> images, series = side(shape, (1, 1000, 1000), 2**23), side(shape, (1000, 32, 32), 2**22)
    >>> plan = choose_rechunk_strategy(images, series, 4, Limits(2**27, 2))
    >>> plan.strategy, plan.estimate.amplification
    ('spill', 1.0)
    """
    costs = costs or UnitCosts()
    budget = limits.max_mem // limits.n_threads - limits.overhead_bytes
    candidates: list[Candidate] = []
    if strategy != "spill":
        candidates += [Direct(side, target, itemsize, limits, costs) for side in (source, *slices)]
    if strategy != "direct":
        candidates.append(Spill(source, target, itemsize, limits, costs, ahead_bytes=ahead_bytes))
    ways = [(each, best_blocks(each, budget)) for each in candidates]
    fits = [(each, state) for each, state in ways if each.peak_bytes(state) <= budget]
    # where nothing else fits, short slices are better than none
    fits = [way for way in fits if way[0].source.sliced is None or _reads_enough(way[0].estimate(way[1]))] or fits
    if fits:
        chosen, state = min(fits, key=lambda way: way[0].estimate(way[1]).seconds)
    else:
        chosen, state = min(ways, key=lambda way: way[0].peak_bytes(way[1]))
    if isinstance(chosen, Direct):
        reads, writes, trailer_bytes = None, chosen.grid(state), 0
    else:
        (reads, writes), trailer_bytes = chosen.grids(state), chosen.trailer_bytes(state)
    others = tuple(each.estimate(way) for each, way in fits if each is not chosen and each.source.sliced is None)
    estimate = chosen.estimate(state)
    return RechunkPlan(chosen.source, target, itemsize, writes, reads, trailer_bytes, estimate, others)


def _reads_enough(estimate: Estimate) -> bool:
    """Return whether slices of chunks are long enough to be read by themselves."""
    return estimate.decoded_bytes >= LEAST_SLICE * estimate.n_chunk_reads
