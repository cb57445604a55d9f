"""The two strategies of a rechunk: the cost of each with given blocks, and the search for the cheapest blocks.

Pure integers, and plain values of grids, limits, unit costs and estimates. Not here: the plan
(`chunkmill.conversion.rechunking.plan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import Literal, TypeAlias

from chunkmill.conversion.coarsen import Axis, MeasuredAxis, Meeting, coarsen, meet, most_met, multiples
from chunkmill.model.grid import ChunkGrid

State: TypeAlias = tuple[int, ...]
"""Index of the option chosen for each axis of each grid of blocks."""


_ALIGNMENT = 16
"""Sections of a file begin at multiples of this (as far as the itemsize allows): numpy copies them word by word."""


LEAST_SLICE = 1 << 16
"""Bytes that slices of chunks have at least, on average: where disks seek, smaller ones cost more than a spill."""

Strategy: TypeAlias = Literal["direct", "spill"]


@dataclass(frozen=True, slots=True)
class Side:
    """Source or target of a rechunk.

    Attributes
    ----------
    keys
        The grid of store keys, which are written whole: of shards, when sharded.
    chunks
        The grid of chunks that can be read by themselves: of inner chunks, when sharded.
    working_bytes
        Memory to fetch and decode one of `chunks` (source), or to encode and store one of `keys` (target), without the
        block that it is copied to or from.
    ahead_bytes
        Memory for chunks that are fetched ahead of their use: none where a request costs no latency.
    is_sharded
        Whether `chunks` are found through the index of their shard, even where a shard has one chunk only.
    sliced
        The axis along which any slice of one of `chunks` can be read by itself, as a range of bytes. `working_bytes`
        are those of the whole length then, of which tasks with shorter blocks need a fraction.
    """

    keys: ChunkGrid
    chunks: ChunkGrid
    working_bytes: int
    ahead_bytes: int = 0
    is_sharded: bool = False
    sliced: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a plan.

    Attributes
    ----------
    max_mem
        Bytes for one worker, all its threads together.
    n_threads, n_workers
        Tasks that run at once in a worker, and workers: `max_mem` is divided among the threads.
    max_tasks
        More tasks than this in a stage are only planned when memory leaves no choice.
    overhead_bytes
        Of each thread, on top of all buffers.
    """

    max_mem: int
    n_threads: int = 1
    n_workers: int = 1
    max_tasks: int = 100_000
    overhead_bytes: int = 0


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds of a thread for a byte, a request, a copy between two blocks (and each of its bytes), a task.

    The defaults are those of local disks and fast codecs; only their ratios matter, and those only where strategies are
    close.
    """

    decoded_byte: float = 1.5e-9  # fetched and decoded
    written_byte: float = 2e-9  # encoded and written
    intermediate_byte: float = 1e-9  # written once and fetched once
    source_request: float = 30e-6
    intermediate_request: float = 30e-6
    target_request: float = 60e-6
    copy: float = 3e-6
    copied_byte: float = 0.5e-9
    task: float = 3e-3


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated cost of a strategy.

    Attributes
    ----------
    n_tasks
        Tasks of each stage.
    decoded_bytes
        Decoded bytes of all source chunks read; `amplification` times the array's own.
    written_bytes, intermediate_bytes
        Decoded bytes of all target chunks; bytes of all intermediate files.
    n_chunk_reads, n_index_reads
        Source chunks decoded, and indexes of shards fetched for them.
    n_requests
        Reads and writes of all stores together, when all chunks are present.
    peak_bytes
        Memory of a worker, all its threads together.
    through_block
        Whether target chunks are cut out of a task's block when it is complete. Otherwise each is assembled in memory
        of its own, which copies every byte once less, in more and smaller copies.
    seconds
        Cost: comparable among plans of one array, not a prediction.
    """

    strategy: Strategy
    n_tasks: tuple[int, ...]
    decoded_bytes: int
    written_bytes: int
    intermediate_bytes: int
    n_chunk_reads: int
    n_index_reads: int
    n_requests: int
    peak_bytes: int
    amplification: float
    through_block: bool
    seconds: float


class Direct:
    """Each task writes whole target chunks, and reads the source chunks that they overlap, or slices of those.

    Memory of a thread: the block of a block, and either a source chunk that is being decoded into it, or a target chunk
    that is being encoded from it.
    """

    def __init__(self, source: Side, target: Side, itemsize: int, limits: Limits, costs: UnitCosts) -> None:
        self.source, self.target, self.itemsize, self.limits, self.costs = source, target, itemsize, limits, costs
        # for each axis, the ways to divide it, shortest blocks first
        self.options: Sequence[Sequence[MeasuredAxis]] = [
            _ways([own], other) for own, other in _zip(target.keys, source.chunks)
        ]
        self._chunks = _meetings(source.chunks, self.options)
        self._keys = _meetings(source.keys, self.options)
        self._n_pairs = prod(
            meet(MeasuredAxis.of(a), MeasuredAxis.of(b)).n_pairs for a, b in _zip(source.chunks, target.keys)
        )

    def grid(self, state: State) -> ChunkGrid:
        """Return the blocks of the tasks."""
        return ChunkGrid(tuple(ways[i].axis for ways, i in zip(self.options, state, strict=True)))

    def peak_bytes(self, state: State) -> int:
        """Return the memory of one thread."""
        block = self.itemsize * prod(ways[i].longest for ways, i in zip(self.options, state, strict=True))
        reading = self.source.working_bytes
        if (axis := self.source.sliced) is not None:
            length = MeasuredAxis.of(self.source.chunks.axes[axis]).longest
            reading = -(-reading * min(self.options[axis][state[axis]].longest, length) // length)
        return block + max(reading + self.source.ahead_bytes, self.target.working_bytes)

    def estimate(self, state: State) -> Estimate:
        """Estimate the strategy with those blocks."""
        costs, limits = self.costs, self.limits
        n_bytes = self.itemsize * prod(self.target.keys.shape)
        n_tasks = self.grid(state).n_chunks
        under = [meetings(0, i) for meetings, i in zip(self._chunks, state, strict=True)]
        if (axis := self.source.sliced) is not None:  # nothing is read twice along that one
            under[axis] = replace(under[axis], covered=self.source.chunks.shape[axis])
        decoded = self.itemsize * prod(meeting.covered for meeting in under)
        n_reads = prod(meeting.n_pairs for meeting in under)
        n_indexes = 0
        if self.source.is_sharded:  # the index of every shard
            n_indexes = prod(meetings(0, i).n_pairs for meetings, i in zip(self._keys, state, strict=True))
        through_block, work = _assembly_seconds(n_bytes, n_reads, self._n_pairs, self.target.keys.n_chunks, costs)
        work += decoded * costs.decoded_byte + n_bytes * costs.written_byte
        work += (n_reads + n_indexes) * costs.source_request + self.target.keys.n_chunks * costs.target_request
        return Estimate(
            strategy="direct",
            n_tasks=(n_tasks,),
            decoded_bytes=decoded,
            written_bytes=n_bytes,
            intermediate_bytes=0,
            n_chunk_reads=n_reads,
            n_index_reads=n_indexes,
            n_requests=n_reads + n_indexes + self.target.keys.n_chunks,
            peak_bytes=limits.n_threads * (self.peak_bytes(state) + limits.overhead_bytes),
            amplification=decoded / n_bytes if n_bytes else 1.0,
            through_block=through_block,
            seconds=_stage_seconds(n_tasks, limits, costs, work),
        )


class Spill:
    """Each task of stage 1 writes whole source chunks to a file; each of stage 2 makes target chunks from sections.

    Memory of a thread in stage 1: the file that is being filled, and a source chunk that is being decoded into it. In
    stage 2: the block, and either a section that is copied into it, or a target chunk that is being encoded from it.
    """

    def __init__(
        self,
        source: Side,
        target: Side,
        itemsize: int,
        limits: Limits,
        costs: UnitCosts,
        *,
        ahead_bytes: int = 0,
    ) -> None:
        self.source, self.target, self.itemsize, self.limits, self.costs = source, target, itemsize, limits, costs
        self.ahead_bytes = ahead_bytes
        self.ndim = target.keys.ndim
        files = [
            _ways([key, chunk], other)
            for (chunk, other), key in zip(_zip(source.chunks, target.keys), source.keys.axes, strict=True)
        ]
        writes = [_ways([own], other) for own, other in _zip(target.keys, source.chunks)]
        self.options: Sequence[Sequence[MeasuredAxis]] = [*files, *writes]
        self._pieces = [_Meetings(a, b) for a, b in zip(files, writes, strict=True)]
        self._keys = _meetings(source.keys, files)
        self._chunks = _meetings(source.chunks, writes)
        self._units = _meetings(target.keys, files)
        self._source_cuts = [MeasuredAxis.of(axis) for axis in source.chunks.axes]

    def grids(self, state: State) -> tuple[ChunkGrid, ChunkGrid]:
        """Return the blocks of stage 1 and of stage 2."""
        axes = tuple(ways[i].axis for ways, i in zip(self.options, state, strict=True))
        return ChunkGrid(axes[: self.ndim]), ChunkGrid(axes[self.ndim :])

    def _cuts(self, state: State) -> list[MeasuredAxis]:
        return [ways[i] for ways, i in zip(self.options, state, strict=True)]

    def trailer_bytes(self, state: State) -> int:
        """Return the size of a bitmap with a bit for each source chunk of a block."""
        reads = self._cuts(state)[: self.ndim]
        n_chunks = prod(most_met(cut, block.longest) for cut, block in zip(self._source_cuts, reads, strict=True))
        return -(-n_chunks // (8 * _ALIGNMENT)) * _ALIGNMENT

    def peak_bytes(self, state: State) -> int:
        """Return the memory of one thread, in whichever stage it needs more."""
        cuts = self._cuts(state)
        reads, writes = ([cut.longest for cut in each] for each in (cuts[: self.ndim], cuts[self.ndim :]))
        trailer = self.trailer_bytes(state)
        n_sections = prod(most_met(cut, length) for cut, length in zip(cuts[self.ndim :], reads, strict=True))
        file = self.itemsize * prod(reads) + trailer * n_sections
        section = self.itemsize * prod(map(min, reads, writes)) + trailer
        copies = file if self.ahead_bytes else 0  # of a file, while a store with latency writes it
        first = file + max(self.source.working_bytes + self.source.ahead_bytes, copies)
        second = max(section + self.ahead_bytes, self.target.working_bytes)
        return max(first, self.itemsize * prod(writes) + second)

    def estimate(self, state: State) -> Estimate:
        """Estimate the strategy with those blocks."""
        costs, limits = self.costs, self.limits
        n_bytes = self.itemsize * prod(self.target.keys.shape)
        reads, writes = (grid.n_chunks for grid in self.grids(state))
        first, second = state[: self.ndim], state[self.ndim :]
        n_sections = prod(meetings(i, j).n_pairs for meetings, i, j in zip(self._pieces, first, second, strict=True))
        n_reads, n_indexes = self.source.chunks.n_chunks, 0
        if self.source.is_sharded:
            n_indexes = prod(meetings(0, i).n_pairs for meetings, i in zip(self._keys, first, strict=True))
        intermediate = n_bytes + n_sections * self.trailer_bytes(state)
        n_scattered = prod(meetings(0, j).n_pairs for meetings, j in zip(self._chunks, second, strict=True))
        n_pairs = prod(meetings(0, i).n_pairs for meetings, i in zip(self._units, first, strict=True))
        through_block, work_2 = _assembly_seconds(n_bytes, n_sections, n_pairs, self.target.keys.n_chunks, costs)
        work_1 = n_bytes * costs.decoded_byte + (n_reads + n_indexes) * costs.source_request
        work_1 += reads * costs.intermediate_request
        work_1 += intermediate * costs.intermediate_byte / 2 + n_scattered * costs.copy
        work_2 += n_bytes * costs.written_byte + n_sections * costs.intermediate_request
        work_2 += intermediate * costs.intermediate_byte / 2 + self.target.keys.n_chunks * costs.target_request
        return Estimate(
            strategy="spill",
            n_tasks=(reads, writes),
            decoded_bytes=n_bytes,
            written_bytes=n_bytes,
            intermediate_bytes=intermediate,
            n_chunk_reads=n_reads,
            n_index_reads=n_indexes,
            n_requests=n_reads + n_indexes + reads + n_sections + self.target.keys.n_chunks,
            peak_bytes=limits.n_threads * (self.peak_bytes(state) + limits.overhead_bytes),
            amplification=1.0,
            through_block=through_block,
            seconds=_stage_seconds(reads, limits, costs, work_1) + _stage_seconds(writes, limits, costs, work_2),
        )


class _Meetings:
    """`meet` of every two ways to divide an axis, computed when first asked for."""

    def __init__(self, chunks: Sequence[MeasuredAxis], blocks: Sequence[MeasuredAxis]) -> None:
        self._chunks, self._blocks = chunks, blocks
        self._found: dict[tuple[int, int], Meeting] = {}

    def __call__(self, i: int, j: int) -> Meeting:
        if (i, j) not in self._found:
            self._found[i, j] = meet(self._chunks[i], self._blocks[j])
        return self._found[i, j]


def _meetings(grid: ChunkGrid, options: Sequence[Sequence[MeasuredAxis]]) -> list[_Meetings]:
    return [_Meetings([MeasuredAxis.of(axis)], ways) for axis, ways in zip(grid.axes, options, strict=True)]


def _zip(a: ChunkGrid, b: ChunkGrid) -> list[tuple[Axis, Axis]]:
    return list(zip(a.axes, b.axes, strict=True))


def _ways(axes: Sequence[Axis], other: Axis) -> list[MeasuredAxis]:
    """Return the ways to divide an axis into blocks of the chunks of each of `axes`, shortest blocks first."""
    ways = {}
    for axis in axes:
        for multiple in multiples(axis, other):
            way = MeasuredAxis.of(coarsen(axis, multiple))
            ways[way.longest] = way
    return [ways[length] for length in sorted(ways)]


def _assembly_seconds(
    n_bytes: int, n_into_blocks: int, n_into_chunks: int, n_chunks: int, costs: UnitCosts
) -> tuple[bool, float]:
    """Return whether copying through blocks is cheaper than into target chunks directly, and the cheaper cost."""
    through = (n_into_blocks + n_chunks) * costs.copy + n_bytes * costs.copied_byte
    straight = n_into_chunks * costs.copy
    return through < straight, min(through, straight)


def _stage_seconds(n_tasks: int, limits: Limits, costs: UnitCosts, work: float) -> float:
    """Return the seconds of all threads together: at the end some wait, the longer the fewer tasks there are."""
    if not n_tasks:
        return 0.0
    slots = limits.n_threads * limits.n_workers
    too_many = max(1.0, n_tasks / limits.max_tasks)
    return (work + n_tasks * costs.task) * too_many * (1 / slots + 0.5 / n_tasks)


Candidate: TypeAlias = Direct | Spill
"""One strategy, with all block shapes that its tasks could have."""


_WORTH_IT = 1e-3
"""A step must make a plan cheaper by this fraction, so that memory is not spent for nothing."""


def best_blocks(candidate: Candidate, budget: int) -> State:
    """Return the cheapest blocks found that keep one thread's memory within `budget`; the smallest when none do.

    Begins with the smallest blocks and takes, again and again, the step along one axis of one grid that saves most in
    relation to the growth of a block, until memory is used up or nothing is left to save.
    """
    state: State = (0,) * len(candidate.options)
    if candidate.peak_bytes(state) > budget:
        state = smallest_blocks(candidate)
    seconds = candidate.estimate(state).seconds
    while True:
        best, chosen = 0.0, None
        for new, growth in _steps(candidate, state):
            if candidate.peak_bytes(new) > budget:
                continue
            saved = seconds - candidate.estimate(new).seconds
            if saved > seconds * _WORTH_IT and saved / growth > best:
                best, chosen = saved / growth, new
        if chosen is None:
            return state
        state, seconds = chosen, candidate.estimate(chosen).seconds


def smallest_blocks(candidate: Candidate) -> State:
    """Return the blocks that need the least memory: not always the shortest, since more of them have more trailers."""
    state: State = (0,) * len(candidate.options)
    while True:
        steps = (new for new, _ in _steps(candidate, state))
        least = min(steps, key=candidate.peak_bytes, default=state)
        if candidate.peak_bytes(least) >= candidate.peak_bytes(state):
            return state
        state = least


def _steps(candidate: Candidate, state: State) -> Iterator[tuple[State, float]]:
    """Yield the states with longer blocks along one axis, and the growth of those blocks; the last axis first."""
    for axis in reversed(range(len(state))):
        ways = candidate.options[axis]
        for i in range(state[axis] + 1, len(ways)):
            yield (*state[:axis], i, *state[axis + 1 :]), log(ways[i].longest / ways[state[axis]].longest)
