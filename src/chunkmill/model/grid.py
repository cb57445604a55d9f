"""The chunk grid: chunk coords <-> regions of the array.

Not here: bytes, keys. Pure integers, nothing walks the grid unless asked to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, product
from math import prod
from typing import Any

from chunkmill.errors import RegionError

Shape = tuple[int, ...]
ChunkCoords = tuple[int, ...]
DaskChunks = tuple[tuple[int, ...], ...]  # the length of each chunk along each axis
Region = tuple[slice, ...]  # steps are 1, bounds are ints, inside the array


MOST_AXES = 64
"""Axes that an array of numpy may have."""

_MAX_LISTED = 10_000_000  # lengths along an axis: dask's tuples of them take 80 MB


@dataclass(frozen=True, slots=True)
class RegularAxis:
    """An axis of `size` elements cut every `chunk` elements; the last chunk may overhang."""

    size: int
    chunk: int

    def __reduce__(self) -> tuple[Any, ...]:
        return RegularAxis, (self.size, self.chunk)  # a grid takes less than half the time of dataclasses

    @property
    def n_chunks(self) -> int:
        """Number of chunks; a property because ``len`` cannot say 10**20."""
        return -(-self.size // self.chunk)

    def length(self, index: int) -> int:  # noqa: ARG002 - the same for every chunk, unlike RunsAxis
        """Return the declared length of chunk `index`, overhang included."""
        return self.chunk

    def start(self, index: int) -> int:
        """Return the first element of chunk `index`."""
        return index * self.chunk

    def index(self, element: int) -> int:
        """Return the chunk that holds `element`."""
        return element // self.chunk

    def chunk_at(self, element: int) -> tuple[int, int, int]:
        """Return the chunk that holds `element`, its first element, and its declared length."""
        index = element // self.chunk
        return index, index * self.chunk, self.chunk

    @property
    def widest(self) -> int:
        """Length of the longest chunk."""
        return self.chunk


@dataclass(frozen=True, slots=True)
class RunsAxis:
    """An axis of `size` elements cut by runs ``(length, count)``, kept as runs: 10**12 equal edges cost one pair.

    Runs past the end of the axis are allowed and hold no chunk of the grid (Zarr v3, rectilinear grid).
    """

    size: int
    runs: tuple[tuple[int, int], ...]
    _starts: tuple[int, ...] = ()  # first element of each run
    _firsts: tuple[int, ...] = ()  # first chunk of each run

    def __post_init__(self) -> None:
        lengths = accumulate((length * count for length, count in self.runs), initial=0)
        counts = accumulate((count for _, count in self.runs), initial=0)
        object.__setattr__(self, "_starts", tuple(lengths))
        object.__setattr__(self, "_firsts", tuple(counts))

    @property
    def n_chunks(self) -> int:
        """Number of chunks that hold elements of the array."""
        return self.index(self.size - 1) + 1 if self.size else 0

    def length(self, index: int) -> int:
        """Return the declared length of chunk `index`, overhang included."""
        return self.runs[bisect_right(self._firsts, index) - 1][0]

    def start(self, index: int) -> int:
        """Return the first element of chunk `index`."""
        run = bisect_right(self._firsts, index) - 1
        return self._starts[run] + (index - self._firsts[run]) * self.runs[run][0]

    def index(self, element: int) -> int:
        """Return the chunk that holds `element`."""
        return self.chunk_at(element)[0]

    def chunk_at(self, element: int) -> tuple[int, int, int]:
        """Return the chunk that holds `element`, its first element, and its declared length."""
        run = bisect_right(self._starts, element) - 1
        first, length = self._starts[run], self.runs[run][0]
        i = (element - first) // length
        return self._firsts[run] + i, first + i * length, length

    @property
    def widest(self) -> int:
        """Length of the longest chunk."""
        return max((length for length, _ in self.runs), default=1)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Overlap of one chunk with a region.

    Attributes
    ----------
    coords
        The chunk.
    in_chunk, in_region
        The shared part, counted from the start of the chunk and from the start of the region.
    whole
        Whether the region covers all of the chunk's extent inside the array.
    """

    coords: ChunkCoords
    in_chunk: Region
    in_region: Region
    whole: bool


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """Division of an array into chunks.

    Examples
    --------
    >>> grid = ChunkGrid.regular((7, 5), (3, 2))
    >>> grid.grid_shape
    (3, 3)
    >>> grid.region((2, 2))
    (slice(6, 7, None), slice(4, 5, None))
    """

    axes: tuple[RegularAxis | RunsAxis, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkGrid, (self.axes,)

    @classmethod
    def regular(cls, shape: Sequence[int], chunk_shape: Sequence[int]) -> ChunkGrid:
        """Cut `shape` into chunks of `chunk_shape`."""
        return cls(tuple(RegularAxis(n, max(c, 1)) for n, c in zip(shape, chunk_shape, strict=True)))

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return tuple([axis.size for axis in self.axes])  # a generator takes twice as long

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def is_regular(self) -> bool:
        """True when every chunk has the same declared shape."""
        return all(isinstance(axis, RegularAxis) for axis in self.axes)

    @property
    def chunk_shape(self) -> Shape:
        """Declared shape of a chunk; of the largest one, when the grid is rectilinear."""
        return tuple(axis.widest for axis in self.axes)

    @property
    def grid_shape(self) -> Shape:
        """Number of chunks along each axis."""
        return tuple(axis.n_chunks for axis in self.axes)

    @property
    def n_chunks(self) -> int:
        """Number of chunks; 1 for a 0-d array, 0 when an axis has no elements."""
        return prod(self.grid_shape)

    @property
    def dask_chunks(self) -> DaskChunks:
        """Extents along each axis as dask writes them; an axis without elements has one chunk of length 0.

        `RegionError` where there are too many to list: a few numbers in a document can mean 10**12 chunks.
        """
        if max(self.grid_shape, default=0) > _MAX_LISTED:
            reason = f"the lengths of {self.grid_shape} chunks are too many to list"
            raise RegionError(index="chunks=", shape=self.shape, reason=reason)
        return tuple(_dask_axis(axis) for axis in self.axes)

    def shape_of(self, coords: ChunkCoords) -> Shape:
        """Return the declared shape of one chunk, overhang included."""
        return tuple(axis.length(i) for axis, i in zip(self.axes, coords, strict=True))

    def region(self, coords: ChunkCoords) -> Region:
        """Return the part of the array that one chunk covers, cropped to the array."""
        return tuple(
            slice(start := axis.start(i), min(start + axis.length(i), axis.size))
            for axis, i in zip(self.axes, coords, strict=True)
        )

    def extent(self, coords: ChunkCoords) -> Region:
        """Return the extent of one chunk inside the array, counted from the chunk's start."""
        return tuple(slice(0, cut.stop - cut.start) for cut in self.region(coords))

    def overlaps(self, region: Region) -> Iterator[Overlap]:
        """Yield the overlap of every chunk with `region`, in C order; together they cover it exactly once."""
        if any(cut.start >= cut.stop for cut in region):
            return  # also spares walking a long axis where another is empty
        if not self.axes:
            yield Overlap((), (), (), whole=True)
            return
        first, *others = map(_axis_overlaps, self.axes, region)
        others_listed = [list(axis) for axis in others]
        for head in first:  # never a list of them all: along one axis there may be 10**12
            for parts in product(*others_listed):
                coords, in_chunk, in_region, whole = zip(head, *parts, strict=True)
                yield Overlap(coords, in_chunk, in_region, all(whole))

    def only_overlap(self, region: Region) -> Overlap | None:
        """Return the part of the one chunk that `region` touches; ``None`` when it touches none or several."""
        # as `overlaps` would yield it, without what several take: this is on the path of every chunk read by itself
        coords, in_chunk, in_region, whole = [], [], [], True
        for axis, cut in zip(self.axes, region, strict=True):
            begin, end = cut.start, cut.stop
            if begin >= end:
                return None
            i, start, length = axis.chunk_at(begin)
            stop = min(start + length, axis.size)
            if end > stop:
                return None
            coords.append(i)
            in_chunk.append(slice(begin - start, end - start))
            in_region.append(slice(0, end - begin))
            whole = whole and begin == start and end == stop
        return Overlap(tuple(coords), tuple(in_chunk), tuple(in_region), whole)

    def aligned(self, region: Region) -> bool:
        """Return whether `region` covers every chunk that it overlaps."""
        return all(_axis_aligned(axis, cut) for axis, cut in zip(self.axes, region, strict=True))

    def within(self, region: Region) -> ChunkGrid:
        """Return how `region`, taken as an array of its own, is cut by the borders of this grid.

        Examples
        --------
        >>> ChunkGrid.regular((12,), (5,)).within((slice(3, 12),)).dask_chunks
        ((2, 5, 2),)
        """
        return ChunkGrid(tuple(_axis_within(axis, cut) for axis, cut in zip(self.axes, region, strict=True)))

    def resized(self, shape: Sequence[int]) -> ChunkGrid:
        """Return the grid of an array of another shape and the same chunks; past its runs, an axis repeats the last.

        Examples
        --------
        >>> ChunkGrid((RunsAxis(5, ((2, 1), (3, 1))),)).resized((9,)).dask_chunks
        ((2, 3, 3, 1),)
        """
        return ChunkGrid(tuple(_axis_resized(axis, size) for axis, size in zip(self.axes, shape, strict=True)))

    def coords_of(self, number: int) -> ChunkCoords:
        """Return the coords of chunk `number`, counted in C order.

        Examples
        --------
        >>> ChunkGrid.regular((4, 6), (2, 2)).coords_of(4)
        (1, 1)
        """
        coords = []
        for axis in reversed(self.axes):
            number, i = divmod(number, axis.n_chunks)
            coords.append(i)
        return tuple(reversed(coords))

    def number_of(self, coords: ChunkCoords) -> int:
        """Return the number of a chunk in C order: the inverse of `coords_of`.

        Examples
        --------
        >>> ChunkGrid.regular((4, 6), (2, 2)).number_of((1, 1))
        4
        """
        number = 0
        for axis, i in zip(self.axes, coords, strict=True):
            number = number * axis.n_chunks + i
        return number

    def first_touched(self, region: Region) -> ChunkCoords:
        """Return the coords of the chunk that holds the first element of `region`."""
        return tuple(axis.index(cut.start) for axis, cut in zip(self.axes, region, strict=True))

    def all_coords(self) -> Iterator[ChunkCoords]:
        """Yield the coords of every chunk in C order, lazily."""
        return _counted(self.grid_shape)


def run_lengths(lengths: Iterable[int]) -> list[tuple[int, int]]:
    """Return ``(length, count)`` of each run of equal lengths.

    Examples
    --------
    >>> run_lengths([3, 3, 2])
    [(3, 2), (2, 1)]
    """
    return [(length, sum(1 for _ in group)) for length, group in groupby(lengths)]


def _counted(grid_shape: Shape) -> Iterator[ChunkCoords]:
    # not itertools.product, which holds every axis in memory before it yields
    if not grid_shape:
        yield ()
        return
    for i in range(grid_shape[0]):
        for rest in _counted(grid_shape[1:]):
            yield (i, *rest)


def _dask_axis(axis: RegularAxis | RunsAxis) -> tuple[int, ...]:
    n = axis.n_chunks
    if n == 0:
        return (0,)
    if isinstance(axis, RegularAxis):
        return (axis.chunk,) * (n - 1) + (axis.size - (n - 1) * axis.chunk,)
    return tuple(min(axis.length(i), axis.size - axis.start(i)) for i in range(n))


def _axis_overlaps(axis: RegularAxis | RunsAxis, cut: slice) -> Iterator[tuple[int, slice, slice, bool]]:
    for i in range(axis.index(cut.start), axis.index(cut.stop - 1) + 1):
        start = axis.start(i)
        stop = min(start + axis.length(i), axis.size)
        lo, hi = max(start, cut.start), min(stop, cut.stop)
        yield (
            i,
            slice(lo - start, hi - start),
            slice(lo - cut.start, hi - cut.start),
            lo == start and hi == stop,
        )


def _axis_aligned(axis: RegularAxis | RunsAxis, cut: slice) -> bool:
    if cut.start >= cut.stop:
        return True
    last = axis.index(cut.stop - 1)
    stop = min(axis.start(last) + axis.length(last), axis.size)
    return bool(cut.start == axis.start(axis.index(cut.start)) and cut.stop == stop)


def _axis_resized(axis: RegularAxis | RunsAxis, size: int) -> RegularAxis | RunsAxis:
    if isinstance(axis, RegularAxis):
        return RegularAxis(size, axis.chunk)
    runs = axis.runs
    if (missing := size - sum(length * count for length, count in runs)) > 0:
        runs = (*runs, (runs[-1][0], -(-missing // runs[-1][0])))
    return RunsAxis(size, runs)


def _axis_within(axis: RegularAxis | RunsAxis, cut: slice) -> RegularAxis | RunsAxis:
    if (cut.start, cut.stop) == (0, axis.size):
        return axis
    if cut.start >= cut.stop:
        return RegularAxis(0, axis.widest)
    first, last = axis.index(cut.start), axis.index(cut.stop - 1)
    begin, end = max(axis.start(first), cut.start), axis.start(last)
    if first == last:
        return RegularAxis(cut.stop - begin, cut.stop - begin)
    lengths = map(axis.length, range(first + 1, last))
    between = [(axis.widest, last - first - 1)] if isinstance(axis, RegularAxis) else run_lengths(lengths)
    runs = (axis.start(first + 1) - begin, 1), *between, (cut.stop - end, 1)
    return RunsAxis(cut.stop - cut.start, tuple(run for run in runs if run[1]))
