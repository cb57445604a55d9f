"""Rechunk dask blocks to boundaries of store keys before they are written, so that one task writes each key.

Each task takes the source blocks that it needs elements of, and assembles the values of one store key after the other
in the memory that is encoded. Dask's own ``rechunk`` has a task for every overlap, and copies whole blocks. Not here:
writing (`chunkmill.dask_arrays.write_task`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import Alias, Task, TaskRef
from dask.array import core as da
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from numpy.typing import NDArray

from chunkmill.array.selection import region_shape
from chunkmill.dask_arrays.blocks import SharedFunction
from chunkmill.model.grid import ChunkGrid, DaskChunks, Region, RegularAxis, RunsAxis
from chunkmill.model.user_values import block_as_dtype, checked_block

_WORTH_A_TASK = 1 << 20  # bytes of a block that a task does not need: to extract the rest costs less than to send them
_LEAST_BYTES = 1 << 20  # of a regrouped block: more work than the overhead of its task
_MOST_BYTES = 8 << 20  # so that no thread waits long for the last task
_LEAST_TASKS = 16


# --------------------------------------------------------------------------------------------------------------------
# Boundaries: pure integers


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
    >>> aligned_chunks(ChunkGrid.regular((10,), (4,)), (slice(0, 10),), ((10, 0),))
    ((10,),)
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


# --------------------------------------------------------------------------------------------------------------------
# Graph


def regroup(
    x: da.Array,
    chunks: DaskChunks,
    function: Callable[[AssembledBlock, Region], Any],
    *,
    name: str,
    n_results: int,
    dtype: np.dtype[Any] | None = None,
) -> da.Array:
    """Return `function` mapped over the blocks of `x` rechunked to `chunks`.

    Parameters
    ----------
    function
        Called with a block and the region that it covers; returns `n_results` numbers along a last axis after those of
        `x`, which have length 1.
    dtype
        Of the values of a block; that of `x` by default.
    """
    call = SharedFunction(_Assembling(function, dtype or x.dtype))
    axes = [list(_spans(old, new)) for old, new in zip(x.chunks, chunks, strict=True)]
    graph: dict[Any, Any] = {}
    used = set()
    for index in np.ndindex(*map(len, axes)):
        spans = tuple(axis[i] for axis, i in zip(axes, index, strict=True))
        is_extracted, references = [], []
        for numbers, needed in _needed(spans):
            source = _computed(x, (x.name, *numbers))
            used.add(source[0])
            shape = tuple(lengths[number] for lengths, number in zip(x.chunks, numbers, strict=True))
            is_extracted.append(_is_worth_extracting(shape, region_shape(needed), x.dtype.itemsize))
            if is_extracted[-1]:
                key = (f"extract-{name}", *index, *numbers)
                graph[key] = Task(key, _extract, TaskRef(source), needed, numbers, shape)
                source = key
            references.append(TaskRef(source))
        key = (name, *index, 0)
        graph[key] = Task(key, call, spans, tuple(is_extracted), *references)
    if not used <= x.dask.layers.keys():  # a layer has the name that its keys have, but in graphs made by hand
        used = {*x.dask.layers}
    layers = {**x.dask.layers, name: MaterializedLayer(graph)}
    return da.Array(
        # without the layers that hold names alone: dask culls layer by layer
        HighLevelGraph(layers, {**x.dask.dependencies, name: used}).cull_layers([name]),
        name,
        (*((1,) * len(axis) for axis in axes), (n_results,)),
        meta=np.empty((0,) * (x.ndim + 1), np.int64),
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """Extent of a block along one axis, and the source blocks that overlap it.

    Attributes
    ----------
    extent
        In elements of the whole array.
    numbers, lengths
        Of the source blocks that hold some of it.
    bounds
        First element of each of them, counted from the start of `extent`; then its end.
    n_skipped
        Elements of the first of them that precede `extent`.
    """

    extent: slice
    numbers: tuple[int, ...]
    lengths: tuple[int, ...]
    bounds: tuple[int, ...]
    n_skipped: int


def _spans(old: Sequence[int], new: Sequence[int]) -> Iterator[_Span]:
    ends = accumulate(old)
    blocks = [(number, end - length, end) for number, (length, end) in enumerate(zip(old, ends, strict=True)) if length]
    starts, stops = [start for _, start, _ in blocks], [stop for _, _, stop in blocks]
    for start, stop in pairwise(accumulate(new, initial=0)):
        own = blocks[bisect_right(stops, start) : bisect_left(starts, stop)]
        bounds = (*(max(begin - start, 0) for _, begin, _ in own), stop - start)
        numbers, lengths = tuple(n for n, _, _ in own), tuple(end - begin for _, begin, end in own)
        yield _Span(slice(start, stop), numbers, lengths, bounds, start - own[0][1] if own else 0)


def _needed(spans: Sequence[_Span]) -> Iterator[tuple[tuple[int, ...], Region]]:
    """Yield the number of each source block along each axis, and the region of it that is needed, in C order."""
    axes = []
    for span in spans:
        axis = []
        for i, (number, (start, stop)) in enumerate(zip(span.numbers, pairwise(span.bounds), strict=True)):
            n_skipped = 0 if i else span.n_skipped
            axis.append((number, slice(n_skipped, n_skipped + stop - start)))
        axes.append(axis)
    for along in product(*axes):
        yield tuple(number for number, _ in along), tuple(needed for _, needed in along)


def _is_worth_extracting(shape: Sequence[int], needed: Sequence[int], itemsize: int) -> bool:
    n, n_needed = prod(shape), prod(needed)
    return 2 * n_needed <= n and (n - n_needed) * itemsize > _WORTH_A_TASK


def _computed(x: da.Array, key: Any) -> Any:
    """Return the key of the task that computes a block of `x`, of which `key` may be only another name.

    As of ``x.blocks[...]`` and of joined regions: dask runs a task for each name, and of 256 regions of 64 KiB these
    took a fifth of the CPU.
    """
    layers = x.dask.layers
    while isinstance(layer := layers.get(key[0]), MaterializedLayer):
        node = layer.get(key)
        if type(node) is Alias:
            node = node.target
        if not (isinstance(node, tuple) and node and isinstance(node[0], str) and node[0] in layers):
            break
        key = node
    return key


# --------------------------------------------------------------------------------------------------------------------
# In the process that runs a task


def _extract(block: Any, needed: Region, index: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    return checked_block(block, index, shape)[needed].copy()  # not a view, which would keep the whole block in memory


class _Assembling:
    """Calls a function with an `AssembledBlock` of the source blocks that a task receives."""

    def __init__(self, function: Callable[[AssembledBlock, Region], Any], dtype: np.dtype[Any]) -> None:
        self._function = function
        self._dtype = dtype

    def __call__(self, spans: tuple[_Span, ...], is_extracted: Sequence[bool], *sources: Any) -> Any:
        block = AssembledBlock(spans, is_extracted, sources, self._dtype)
        return self._function(block, tuple(span.extent for span in spans))


class AssembledBlock:
    """A block over several source blocks, of which only the regions that are indexed are put together."""

    def __init__(
        self, spans: tuple[_Span, ...], is_extracted: Sequence[bool], sources: Sequence[Any], dtype: np.dtype[Any]
    ) -> None:
        self._spans, self._dtype = spans, dtype
        self._bounds = [span.bounds for span in spans]
        self._sources = {}
        indexes = np.ndindex(*(len(span.numbers) for span in spans))
        for index, source, alone in zip(indexes, sources, is_extracted, strict=True):
            start = [0 if alone or i else span.n_skipped for i, span in zip(index, spans, strict=True)]
            if not alone:
                shape = tuple(span.lengths[i] for i, span in zip(index, spans, strict=True))
                source = checked_block(source, self._numbers(index), shape)  # noqa: PLW2901
            self._sources[index] = source, start

    def _numbers(self, index: Sequence[int]) -> tuple[int, ...]:
        return tuple(span.numbers[i] for i, span in zip(index, self._spans, strict=True))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._bounds)

    def __getitem__(self, index: tuple[Any, ...]) -> NDArray[Any]:
        """Return the values of a region, which dots may follow: a view where a single source block holds them."""
        region = index[: self.ndim]
        found = list(product(*(_overlaps(bounds, cut) for bounds, cut in zip(self._bounds, region, strict=True))))
        if len(found) == 1:
            return self._view(found[0])
        block = np.empty(region_shape(region), self._dtype)
        for overlap in found:
            block[tuple(to for _, _, to in overlap)] = self._view(overlap)
        return block

    def _view(self, overlap: Sequence[tuple[int, slice, slice]]) -> NDArray[Any]:
        index = tuple(i for i, _, _ in overlap)
        source, start = self._sources[index]
        values: NDArray[Any] = source[
            tuple(slice(cut.start + s, cut.stop + s) for (_, cut, _), s in zip(overlap, start, strict=True))
        ]
        return block_as_dtype(values, self._dtype, self._numbers(index))


def _overlaps(bounds: Sequence[int], cut: slice) -> Iterator[tuple[int, slice, slice]]:
    """Yield each source block that `cut` overlaps, the overlap counted from its bound, and from the start of `cut`."""
    for i in range(bisect_right(bounds, cut.start) - 1, bisect_left(bounds, cut.stop)):
        start, stop = max(bounds[i], cut.start), min(bounds[i + 1], cut.stop)
        yield i, slice(start - bounds[i], stop - bounds[i]), slice(start - cut.start, stop - cut.start)
