"""Blocks that are written by other borders than they came with.

Each task takes the blocks that it needs something of, and puts one store key after the other together from them, in
the memory that is encoded: dask's ``rechunk`` has tasks for every part, and copies whole blocks. Not here: which
borders (`chunkmill.dask_arrays.aligned_chunks`), writing (`chunkmill.dask_arrays.write`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from chunkmill.array.selection import region_shape
from chunkmill.dask_arrays.blocks import Carried
from chunkmill.model.grid import Region

__all__ = ["Pieces", "regrouped"]

_WORTH_A_TASK = 1 << 20  # bytes of a block that a task does not need: to cut them off costs less than to send them


def regrouped(
    x: da.Array,
    chunks: tuple[tuple[int, ...], ...],
    function: Callable[[Pieces, Region], NDArray[np.int64]],
    *,
    name: str,
    n_results: int,
) -> da.Array:
    """Return `function` mapped over the blocks that `x` has when it is cut by `chunks`.

    Parameters
    ----------
    function
        Called with the pieces of a block and the region that it covers; returns `n_results` numbers along a last axis
        behind those of `x`, each of length 1.
    """
    call = Carried(_Call(function))
    axes = [list(_cuts(old, new)) for old, new in zip(x.chunks, chunks, strict=True)]
    graph: dict[Any, Any] = {}
    for index in np.ndindex(*map(len, axes)):
        cuts = tuple(axis[i] for axis, i in zip(axes, index, strict=True))
        is_cut, references = [], []
        for numbers, part in _parts(cuts):
            piece: Any = (x.name, *numbers)
            shape = tuple(lengths[number] for lengths, number in zip(x.chunks, numbers, strict=True))
            is_cut.append(_is_worth_cutting(shape, region_shape(part), x.dtype.itemsize))
            if is_cut[-1]:
                key = (f"cut-{name}", *index, *numbers)
                graph[key] = Task(key, _cut, TaskRef(piece), part)
                piece = key
            references.append(TaskRef(piece))
        key = (name, *index, 0)
        graph[key] = Task(key, call, cuts, tuple(is_cut), *references)
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[x]),  # type: ignore[list-item]  # dask's own protocol does not fit dask.array
        name,
        (*((1,) * len(axis) for axis in axes), (n_results,)),
        meta=np.empty((0,) * (x.ndim + 1), np.int64),
    )


@dataclass(frozen=True, slots=True)
class _Cut:
    """What one axis of a block is made of.

    Attributes
    ----------
    within
        Where it lies.
    numbers
        The blocks of the source that hold some of it.
    borders
        Where each of them begins, counted from `within`; then the end.
    n_skipped
        Elements of the first of them that lie before it.
    """

    within: slice
    numbers: tuple[int, ...]
    borders: tuple[int, ...]
    n_skipped: int


def _cuts(old: Sequence[int], new: Sequence[int]) -> Iterator[_Cut]:
    ends = accumulate(old)
    blocks = [(number, end - length, end) for number, (length, end) in enumerate(zip(old, ends, strict=True)) if length]
    starts, stops = [start for _, start, _ in blocks], [stop for _, _, stop in blocks]
    for start, stop in pairwise(accumulate(new, initial=0)):
        own = blocks[bisect_right(stops, start) : bisect_left(starts, stop)]
        borders = (*(max(begin - start, 0) for _, begin, _ in own), stop - start)
        yield _Cut(slice(start, stop), tuple(n for n, _, _ in own), borders, start - own[0][1] if own else 0)


def _parts(cuts: Sequence[_Cut]) -> Iterator[tuple[tuple[int, ...], Region]]:
    """Yield the numbers of each block of the source, and the part of it that is needed, in C order."""
    axes = []
    for cut in cuts:
        axis = []
        for i, (number, (start, stop)) in enumerate(zip(cut.numbers, pairwise(cut.borders), strict=True)):
            n_skipped = 0 if i else cut.n_skipped
            axis.append((number, slice(n_skipped, n_skipped + stop - start)))
        axes.append(axis)
    for parts in product(*axes):
        yield tuple(number for number, _ in parts), tuple(part for _, part in parts)


def _is_worth_cutting(shape: Sequence[int], part: Sequence[int], itemsize: int) -> bool:
    n, needed = prod(shape), prod(part)
    return 2 * needed <= n and (n - needed) * itemsize > _WORTH_A_TASK


# --------------------------------------------------------------------------------------------------------------------
# In the process that runs a task


def _cut(block: NDArray[Any], part: Region) -> NDArray[Any]:
    return block[part].copy()  # not a view, which would keep the whole block in memory


class _Call:
    """Calls a function with pieces instead of a block."""

    def __init__(self, function: Callable[[Pieces, Region], NDArray[np.int64]]) -> None:
        self._function = function

    def __call__(self, cuts: tuple[_Cut, ...], is_cut: Sequence[bool], *pieces: NDArray[Any]) -> NDArray[np.int64]:
        return self._function(Pieces(cuts, is_cut, pieces), tuple(cut.within for cut in cuts))


class Pieces:
    """A block that is not put together: only what is asked for of it is, unless it lies in one piece."""

    def __init__(self, cuts: tuple[_Cut, ...], is_cut: Sequence[bool], pieces: Sequence[NDArray[Any]]) -> None:
        self._borders = [cut.borders for cut in cuts]
        self._pieces = {}
        self._dtype = pieces[0].dtype if pieces else None  # a block without elements has none
        for index, piece, alone in zip(np.ndindex(*(len(cut.numbers) for cut in cuts)), pieces, is_cut, strict=True):
            start = [0 if alone or i else cut.n_skipped for i, cut in zip(index, cuts, strict=True)]
            self._pieces[index] = piece, start

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._borders)

    def __getitem__(self, place: tuple[Any, ...]) -> NDArray[Any]:
        """Return the values in a region, the dots behind it aside: a view where they lie in one piece."""
        region = place[: self.ndim]
        found = list(product(*(_overlaps(borders, cut) for borders, cut in zip(self._borders, region, strict=True))))
        if len(found) == 1:
            return self._piece(found[0])
        block = np.empty(region_shape(region), self._dtype)
        for parts in found:
            block[tuple(to for _, _, to in parts)] = self._piece(parts)
        return block

    def _piece(self, parts: Sequence[tuple[int, slice, slice]]) -> NDArray[Any]:
        piece, start = self._pieces[tuple(i for i, _, _ in parts)]
        values: NDArray[Any] = piece[
            tuple(slice(cut.start + s, cut.stop + s) for (_, cut, _), s in zip(parts, start, strict=True))
        ]
        return values


def _overlaps(borders: Sequence[int], cut: slice) -> Iterator[tuple[int, slice, slice]]:
    """Yield each piece that `cut` touches, the part within the piece, and where it belongs."""
    for i in range(bisect_right(borders, cut.start) - 1, bisect_left(borders, cut.stop)):
        start, stop = max(borders[i], cut.start), min(borders[i + 1], cut.stop)
        yield i, slice(start - borders[i], stop - borders[i]), slice(start - cut.start, stop - cut.start)
