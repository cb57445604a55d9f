"""Which blocks to write by, so that every store key has one owner.

Pure integers.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod

from chunkmill.model.grid import ChunkGrid, DaskChunks, Region, RegularAxis, RunsAxis

__all__ = ["aligned_chunks", "write_chunks"]


_LEAST_BYTES = 1 << 20  # for one task to write, of blocks that are regrouped: more work than a task is by itself
_MOST_BYTES = 8 << 20  # and few enough that nobody waits for the last one
_LEAST_TASKS = 16


def write_chunks(grid: ChunkGrid, region: Region, chunks: DaskChunks, itemsize: int) -> DaskChunks:
    """Return the block lengths to write by: `chunks` themselves where they are aligned to store keys.

    Where they are not, blocks have to be put together from those of the source, whose tasks they cannot share. They
    can as well be larger then, so that there are fewer, and fewer of the source's that several need.

    Examples
    --------
    >>> write_chunks(ChunkGrid.regular((20,), (4,)), (slice(0, 20),), ((8, 8, 4),), 2)
    ((8, 8, 4),)
    >>> write_chunks(ChunkGrid.regular((20,), (4,)), (slice(2, 18),), ((8, 8),), 2)
    ((16,),)
    """
    aligned = aligned_chunks(grid, region, chunks)
    return aligned if aligned == chunks else _merged(aligned, itemsize)


def aligned_chunks(grid: ChunkGrid, region: Region, chunks: DaskChunks) -> DaskChunks:
    """Return block lengths near `chunks` whose inner borders all fall on borders of store keys.

    `chunks` cut `region`. Only the first and the last block along an axis may then cover a store key partly, where
    the region itself does.

    Examples
    --------
    >>> aligned_chunks(ChunkGrid.regular((10,), (4,)), (slice(0, 10),), ((3, 3, 4),))
    ((4, 6),)
    >>> aligned_chunks(ChunkGrid.regular((20,), (4,)), (slice(2, 18),), ((16,),))
    ((16,),)
    """
    return tuple(_align_axis(axis, cut, own) for axis, cut, own in zip(grid.axes, region, chunks, strict=True))


def _align_axis(axis: RegularAxis | RunsAxis, cut: slice, lengths: tuple[int, ...]) -> tuple[int, ...]:
    if cut.start >= cut.stop:
        return lengths
    borders = {cut.start, cut.stop}
    for border in accumulate(lengths[:-1], initial=cut.start):
        near = _nearest_border(axis, border)
        if cut.start < near < cut.stop:
            borders.add(near)
    return tuple(b - a for a, b in pairwise(sorted(borders)))


def _nearest_border(axis: RegularAxis | RunsAxis, element: int) -> int:
    """Return the start of the store key around `element`, or its end when that is nearer."""
    if element >= axis.size:
        return axis.size
    i = axis.index(element)
    start = axis.start(i)
    stop = start + axis.length(i)
    return start if element - start <= stop - element else stop


def _merged(chunks: DaskChunks, itemsize: int) -> DaskChunks:
    """Return `chunks` with neighbours merged, alike along all axes, as long as a task does not write too much."""
    total = prod(map(sum, chunks)) * itemsize
    most = min(max(total // _LEAST_TASKS, _LEAST_BYTES), _MOST_BYTES)
    together = [1] * len(chunks)
    n_bytes = total // prod(map(len, chunks))
    while 2 * n_bytes <= most:
        axes = [axis for axis, lengths in enumerate(chunks) if together[axis] < len(lengths)]
        if not axes:
            break
        axis = min(reversed(axes), key=together.__getitem__)  # of equal ones the fastest
        together[axis] *= 2
        n_bytes *= 2
    return tuple(
        tuple(sum(lengths[first : first + n]) for first in range(0, len(lengths), n))
        for lengths, n in zip(chunks, together, strict=True)
    )
