"""Choose the blocks of a write so that each store key is written by one task. Pure integers."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod

from chunkmill.model.grid import ChunkGrid, DaskChunks, Region, RegularAxis, RunsAxis

__all__ = ["aligned_chunks", "write_chunks"]


_LEAST_BYTES = 1 << 20  # of a regrouped block: more work than the overhead of its task
_MOST_BYTES = 8 << 20  # so that no thread waits long for the last task
_LEAST_TASKS = 16


def write_chunks(grid: ChunkGrid, region: Region, chunks: DaskChunks, itemsize: int) -> DaskChunks:
    """Return the block lengths of a write: `chunks` themselves where they are aligned to store keys.

    Where they are not, blocks are assembled from source blocks in tasks of their own. These blocks are larger, so that
    there are fewer tasks, and fewer source blocks that several tasks need.

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
    """Return block lengths near `chunks`, which divide `region`, whose inner boundaries are boundaries of store keys.

    Only the first and the last block along an axis may cover a store key partly, where the region itself does.

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
    boundaries = {cut.start, cut.stop}
    for boundary in accumulate(lengths[:-1], initial=cut.start):
        near = _nearest_boundary(axis, boundary)
        if cut.start < near < cut.stop:
            boundaries.add(near)
    return tuple(b - a for a, b in pairwise(sorted(boundaries)))


def _nearest_boundary(axis: RegularAxis | RunsAxis, element: int) -> int:
    """Return the start or the end of the store key that holds `element`, whichever is nearer."""
    if element >= axis.size:
        return axis.size
    i = axis.index(element)
    start = axis.start(i)
    stop = start + axis.length(i)
    return start if element - start <= stop - element else stop


def _merged(chunks: DaskChunks, itemsize: int) -> DaskChunks:
    """Return `chunks` with neighbours merged, equally along all axes, up to the bytes that one task may write."""
    total = prod(map(sum, chunks)) * itemsize
    most = min(max(total // _LEAST_TASKS, _LEAST_BYTES), _MOST_BYTES)
    together = [1] * len(chunks)
    n_bytes = total // prod(map(len, chunks))
    while 2 * n_bytes <= most:
        axes = [axis for axis, lengths in enumerate(chunks) if together[axis] < len(lengths)]
        if not axes:
            break
        axis = min(reversed(axes), key=together.__getitem__)  # of equal ones the last axis
        together[axis] *= 2
        n_bytes *= 2
    return tuple(
        tuple(sum(lengths[first : first + n]) for first in range(0, len(lengths), n))
        for lengths, n in zip(chunks, together, strict=True)
    )
