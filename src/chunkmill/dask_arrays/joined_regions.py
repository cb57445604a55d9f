"""Join dask arrays that go to neighbouring regions of one stored array.

Written one by one, each of them reads, changes and writes back the store keys that it shares with its neighbours: 2^n
times for a key where 2^n of them meet. Joined, their blocks are regrouped, and each key is written once. Not here:
regrouping (`chunkmill.dask_arrays.regroup`), writing (`chunkmill.dask_arrays.write`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any
from uuid import uuid4

import numpy as np
from dask._task_spec import Alias
from dask.array import core as da
from dask.highlevelgraph import HighLevelGraph

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.hazards import canonical_location, locations_read
from chunkmill.model.grid import ChunkGrid, DaskChunks, Region

__all__ = ["JoinedRegions", "join_regions", "neighbouring_regions"]

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class JoinedRegions:
    """Regions that divide a larger one into a grid, and their values as one dask array.

    Attributes
    ----------
    x
        The values of `region`.
    region
        The larger region.
    starts
        Along each axis, where the regions start.
    numbers
        The numbers of the regions, in C order of the grid.
    """

    x: da.Array
    region: Region
    starts: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]

    def owners(self, chunks: DaskChunks) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the index of each block of `chunks`, and the number of the region that its first element is in."""
        axes = []
        for cut, starts, lengths in zip(self.region, self.starts, chunks, strict=True):
            begins = accumulate(lengths[:-1], initial=cut.start)
            axes.append([bisect_right(starts, begin) - 1 for begin in begins])
        for index in product(*(range(len(axis)) for axis in axes)):
            place = 0
            for axis, starts, i in zip(axes, self.starts, index, strict=True):
                place = place * len(starts) + axis[i]
            yield index, self.numbers[place]


def join_regions(sources: Sequence[da.Array], array: StoredArray, regions: Sequence[Region]) -> JoinedRegions | None:
    """Join `sources`, which go to `regions` of `array`; ``None`` where they are to be written one by one.

    That is where no two of them share a store key, where the regions do not make up a larger one, or their blocks do
    not make up blocks of it; and where a source reads `array`, which `check_in_place` allows within one region only.
    """
    spans = neighbouring_regions(regions)
    if spans is None or not _share_keys(array.write_layout.grid, spans):
        return None
    numbers = sorted(range(len(regions)), key=lambda number: [cut.start for cut in regions[number]])
    ordered = [sources[number] for number in numbers]
    lengths = _lengths(ordered, spans)
    here = canonical_location(array.store.url, array.path)
    kinds = {(x.dtype, type(x._meta)) for x in sources}  # noqa: SLF001 - as dask's own functions do
    if lengths is None or len(kinds) > 1 or any(here in locations_read(x) for x in sources):
        return None
    name = f"joined-{uuid4().hex}"
    layer: dict[Any, Any] = {}
    for x, blocks in zip(ordered, product(*map(_blocks, lengths)), strict=True):
        for index, own in zip(product(*blocks), np.ndindex(*x.numblocks), strict=True):
            layer[name, *index] = Alias((name, *index), (x.name, *own))
    chunks = tuple(tuple(n for own in axis for n in own) for axis in lengths)
    depended: Any = list(sources)
    graph = HighLevelGraph.from_collections(name, layer, dependencies=depended)
    region = tuple(slice(axis[0][0], axis[-1][1]) for axis in spans)
    starts_along = tuple(tuple(start for start, _ in axis) for axis in spans)
    joined = da.Array(graph, name, chunks, meta=sources[0]._meta)  # noqa: SLF001
    return JoinedRegions(joined, region, starts_along, tuple(numbers))


def neighbouring_regions(regions: Sequence[Region]) -> tuple[Spans, ...] | None:
    """Return start and stop of the regions along each axis; ``None`` unless they divide one region into a grid.

    Examples
    --------
    >>> neighbouring_regions([(slice(2, 6), slice(0, 4)), (slice(6, 8), slice(0, 4))])
    (((2, 6), (6, 8)), ((0, 4),))
    >>> neighbouring_regions([(slice(2, 6), slice(0, 4)), (slice(6, 8), slice(0, 3))])
    """
    found = {tuple((cut.start, cut.stop) for cut in region) for region in regions}
    if len(regions) <= 1 or len(found) < len(regions):
        return None
    spans = tuple(tuple(sorted(set(axis))) for axis in zip(*found, strict=True))
    is_divided = all(a[1] == b[0] for axis in spans for a, b in pairwise(axis))
    is_empty = any(start == stop for axis in spans for start, stop in axis)
    return spans if is_divided and not is_empty and prod(map(len, spans)) == len(regions) else None


def _share_keys(grid: ChunkGrid, spans: tuple[Spans, ...]) -> bool:
    """Return whether a store key is on both sides of a boundary between two regions."""
    return any(
        axis.start(axis.index(start)) != start
        for axis, along in zip(grid.axes, spans, strict=True)
        for start, _ in along[1:]
    )


def _lengths(sources: Sequence[da.Array], spans: tuple[Spans, ...]) -> list[list[tuple[int, ...]]] | None:
    """Return the block lengths of each region along each axis; ``None`` unless neighbours fit each other.

    `sources` are in C order of the grid.
    """
    lengths: list[list[tuple[int, ...]]] = [[()] * len(axis) for axis in spans]
    for x, place in zip(sources, product(*(range(len(axis)) for axis in spans)), strict=True):
        if x.shape != tuple(axis[i][1] - axis[i][0] for axis, i in zip(spans, place, strict=True)):
            return None
        for own, axis, i in zip(x.chunks, lengths, place, strict=True):
            if axis[i] not in {(), own}:
                return None
            axis[i] = own
    return lengths


def _blocks(lengths: Sequence[tuple[int, ...]]) -> list[range]:
    """Return the numbers of the blocks of each region along an axis."""
    return [range(after - len(own), after) for own, after in zip(lengths, accumulate(map(len, lengths)), strict=True)]
