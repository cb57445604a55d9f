"""Join chunks of an axis to blocks, and count how the chunks of one axis overlap the blocks of another.

Pure integers, and lazy: an axis of 10**12 equal chunks costs as much as one of ten. Not here: the cost of a rechunk
(`chunkmill.conversion.rechunking.strategies`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis

Axis = RegularAxis | RunsAxis


@dataclass(frozen=True, slots=True)
class Segment:
    """`count` chunks of `length` elements side by side, the first of them at `start`."""

    start: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        """The element after the last chunk."""
        return self.start + self.length * self.count


@dataclass(frozen=True, slots=True)
class Meeting:
    """Counts of overlaps between the chunks of an axis and blocks along it.

    Attributes
    ----------
    n_pairs
        Pairs of a chunk and a block that share elements.
    covered
        Elements of all chunks that each block overlaps, summed over the blocks: decoded when every block reads its
        chunks.
    """

    n_pairs: int
    covered: int


@dataclass(frozen=True, slots=True)
class MeasuredAxis:
    """An axis, with figures that planning needs often.

    Attributes
    ----------
    longest
        Length of the longest chunk, cropped to the axis.
    shortest
        Declared length of the shortest chunk, overhang included.

    Examples
    --------
    >>> axis = MeasuredAxis.of(RegularAxis(10, 4))
    >>> axis.segments
    (Segment(start=0, length=4, count=2), Segment(start=8, length=2, count=1))
    >>> axis.n_chunks, axis.longest, MeasuredAxis.of(RegularAxis(10, 100)).longest
    (3, 4, 10)
    """

    axis: Axis
    n_chunks: int
    segments: tuple[Segment, ...]
    longest: int
    shortest: int

    @classmethod
    def of(cls, axis: Axis) -> MeasuredAxis:
        """Measure `axis`."""
        found = segments(axis)
        runs = ((axis.chunk, 1),) if isinstance(axis, RegularAxis) else axis.runs
        shortest = min((length for length, count in runs if length and count), default=1)
        return cls(axis, axis.n_chunks, tuple(found), max((s.length for s in found), default=0), shortest)


def segments(axis: Axis) -> list[Segment]:
    """Return the axis as runs of equal chunks, cropped to its elements.

    Examples
    --------
    >>> segments(RegularAxis(10, 4))
    [Segment(start=0, length=4, count=2), Segment(start=8, length=2, count=1)]
    """
    runs = ((axis.chunk, axis.n_chunks),) if isinstance(axis, RegularAxis) else axis.runs
    found: list[Segment] = []
    start = 0
    for length, count in runs:
        if length == 0 or count == 0 or start >= axis.size:
            continue
        whole = min(count, (axis.size - start) // length)
        if whole:
            _append(found, Segment(start, length, whole))
            start += length * whole
        if whole < count and start < axis.size:
            _append(found, Segment(start, axis.size - start, 1))
            start = axis.size
    return found


def _append(found: list[Segment], new: Segment) -> None:
    if found and found[-1].length == new.length:
        found[-1] = Segment(found[-1].start, new.length, found[-1].count + new.count)
    else:
        found.append(new)


def coarsen(axis: Axis, multiple: int) -> Axis:
    """Return the axis divided at every `multiple`-th chunk border only.

    Examples
    --------
    >>> coarsen(RegularAxis(10, 2), 3)
    RegularAxis(size=10, chunk=6)
    >>> coarsen(RunsAxis(10, ((1, 2), (2, 4))), 3).runs
    ((4, 1), (6, 1))
    >>> coarsen(RunsAxis(10, ((1, 1), (2, 1), (3, 1), (4, 1))), 2).runs
    ((3, 1), (7, 1))
    """
    if multiple == 1:
        return axis
    if isinstance(axis, RegularAxis):
        return RegularAxis(axis.size, max(1, min(axis.chunk * multiple, axis.size)))
    runs: list[tuple[int, int]] = []
    begun, n_begun = 0, 0  # length and chunks of the block that is not complete yet
    for segment in segments(axis):
        taken = min(segment.count, multiple - n_begun) if n_begun else 0
        begun, n_begun = begun + taken * segment.length, n_begun + taken
        if n_begun == multiple:
            runs.append((begun, 1))
            n_begun = 0
        n_whole, n_left = divmod(segment.count - taken, multiple)
        if n_whole:
            runs.append((segment.length * multiple, n_whole))
        if n_left:
            begun, n_begun = segment.length * n_left, n_left
    if n_begun:
        runs.append((begun, 1))
    return RunsAxis(axis.size, tuple(runs))


def block_grid(axes: Sequence[Axis], multiples: Sequence[int]) -> ChunkGrid:
    """Return the grid of blocks of that many chunks along each axis."""
    return ChunkGrid(tuple(coarsen(axis, n) for axis, n in zip(axes, multiples, strict=True)))


def meet(chunks: MeasuredAxis, blocks: MeasuredAxis) -> Meeting:
    """Count the overlaps of the chunks of an axis with blocks along it.

    20 elements, divided at every 5th and at every 7th; below, their overlaps::

        chunks   |         |         |         |         |     4 chunks of 5
        blocks   |             |             |           |     3 blocks of 7, the last of 6
        overlaps |         |   |     |       | |         |     6 pairs

    The first block overlaps chunks 0 and 1 (10 elements), the second 1 and 2, the third 2 and 3: 30 elements in all
    are decoded for 20. A block border divides a chunk in two unless it is a chunk border, too: one pair more, and that
    chunk's length more to decode.

    Examples
    --------
    >>> meet(MeasuredAxis.of(RegularAxis(20, 5)), MeasuredAxis.of(RegularAxis(20, 7)))
    Meeting(n_pairs=6, covered=30)
    >>> meet(MeasuredAxis.of(RegularAxis(20, 5)), MeasuredAxis.of(RegularAxis(20, 10)))
    Meeting(n_pairs=4, covered=20)
    """
    n_pairs = covered = 0
    for segment, n_cuts in _cut_segments(chunks.segments, blocks.segments):
        n_pairs += segment.count + n_cuts
        covered += segment.length * (segment.count + n_cuts)
    return Meeting(n_pairs, covered)


def most_met(chunks: MeasuredAxis, length: int) -> int:
    """Return the largest number of chunks that `length` elements in a row overlap (rarely one too many).

    Examples
    --------
    >>> most_met(MeasuredAxis.of(RegularAxis(100, 5)), 7), most_met(MeasuredAxis.of(RegularAxis(100, 1)), 7)
    (3, 7)
    """
    return min(chunks.n_chunks, (length + chunks.shortest - 2) // chunks.shortest + 1)


def _cut_segments(chunks: Sequence[Segment], blocks: Sequence[Segment]) -> Iterator[tuple[Segment, int]]:
    """Yield every segment of chunks with the number of blocks that begin inside one of its chunks."""
    first = 0
    for segment in chunks:
        while blocks[first].stop <= segment.start:
            first += 1
        n_cuts, i = 0, first
        while i < len(blocks) and blocks[i].start < segment.stop:
            n_cuts += _n_starts(blocks[i], segment) - _n_common(blocks[i], segment)
            i += 1
        yield segment, n_cuts


def _n_starts(blocks: Segment, within: Segment) -> int:
    """Count the blocks that begin inside `within`."""
    low, high = max(blocks.start, within.start), min(blocks.stop, within.stop)
    return -(-(high - blocks.start) // blocks.length) + (blocks.start - low) // blocks.length


def _n_common(a: Segment, b: Segment) -> int:
    """Count the elements where a chunk of each begins: the common terms of two arithmetic progressions."""
    divisor = gcd(a.length, b.length)
    if (b.start - a.start) % divisor:
        return 0
    low, high = max(a.start, b.start), min(a.stop, b.stop)
    period = a.length // divisor * b.length
    steps = (b.start - a.start) // divisor * pow(a.length // divisor, -1, b.length // divisor)
    term = a.start + steps % (b.length // divisor) * a.length
    term += -((term - low) // period) * period  # the first one that is not below `low`
    return max(0, -((term - high) // period))


def multiples(axis: Axis, other: Axis) -> list[int]:
    """Return the numbers of chunks of `axis` that a block may hold and that are worth a try, ascending.

    Small ones, powers of two and three times them, all chunks, and those that make both axes' borders meet.

    Examples
    --------
    >>> multiples(RegularAxis(30, 2), RegularAxis(30, 5))
    [1, 2, 3, 4, 5, 6, 8, 10, 12, 15]
    """
    n_chunks = axis.n_chunks
    found = {1, max(1, n_chunks)}
    steps = {1, 3}
    if isinstance(axis, RegularAxis):
        meeting = other.widest // gcd(axis.chunk, other.widest)
        steps |= {meeting, 3 * meeting, 5 * meeting, other.widest // axis.chunk}
    for step in steps:
        while 0 < step < n_chunks:
            found.add(step)
            step *= 2  # noqa: PLW2901 - the powers of two of each step
    return sorted(found)
