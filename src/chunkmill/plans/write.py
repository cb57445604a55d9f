"""Which blocks to write by, so that every store key has one owner.

Pure integers.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from chunkmill.model.grid import ChunkGrid, Region, RegularAxis, RunsAxis

__all__ = ["aligned_chunks"]

DaskChunks = tuple[tuple[int, ...], ...]


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
