"""Tasks of a conversion: the stages that they are in, and what a run lists of its sources (P9).

A source array that is mostly empty is listed once when a run begins: groups of store keys without any that is listed
are not run, the others ask only for listed keys, and before the result is published the source is listed again. Several
tasks read slices of one chunk: where it is replaced in between, the target would hold rows of both, so versions are
compared. They are asked for file by file, or listed where requests cost latency; stores without versions are believed.
Not here: planning (`chunkmill.conversion.convert_job`), running stages (`chunkmill.jobs.job`), listing
(`chunkmill.array.present_keys`), other changes of a source (`chunkmill.jobs.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from chunkmill.array.present_keys import (
    NO_BLOCKS,
    Numbers,
    TouchedBlocks,
    count_touched,
    list_present,
    list_present_if_sparse,
    touch,
)
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import ChosenAction, n_groups
from chunkmill.conversion.coarsen import block_grid
from chunkmill.conversion.convert_tasks import (
    ArrayTransfer,
    transfer_group,
    transfer_inputs,
    transfer_share,
    transfer_shows,
)
from chunkmill.conversion.estimate import TaskMemory, itemsize
from chunkmill.conversion.rechunking.intermediate_files import write_inputs, write_intermediate_file
from chunkmill.conversion.rechunking.plan import RechunkPlan
from chunkmill.conversion.rechunking.source_chunks import ArrayRechunk, spill_inputs, spill_shows, write_shows
from chunkmill.conversion.rechunking.target_chunks import write_target_block
from chunkmill.errors import ChunkError, JobError
from chunkmill.jobs.sources import SeenSource
from chunkmill.jobs.work import Tasks
from chunkmill.journal.records import Listings, StoreKeys, digest_now
from chunkmill.model.grid import ChunkGrid
from chunkmill.nodes.target import Target
from chunkmill.runtime.stage import MAX_TASK_BYTES, MAX_TASK_KEYS, Stage, TaskSpecs
from chunkmill.stores.base import Store

Listed = Mapping[int, tuple[Numbers, Numbers]]
"""By number of the array: numbers of the store keys of source and target that a listing named."""


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """One array of a job.

    Attributes
    ----------
    seen
        The source's documents when the job was planned.
    action
        The action for its chunks.
    rechunk
        The tasks that read and write the array, where its chunks change; ``None`` where they stay.
    memory
        Memory of one task, where the chunks stay.
    share
        Fraction of one task's budget that a group of its store keys uses: small arrays share tasks.
    """

    source: StoredArray
    target: StoredArray
    seen: SeenSource
    action: ChosenAction
    rechunk: RechunkPlan | None = None
    memory: TaskMemory = field(default_factory=lambda: TaskMemory(0))
    share: float = 1.0

    @property
    def n_groups(self) -> int:
        """Groups of store keys that keep their chunks."""
        return 0 if self.rechunk is not None else n_groups(self.target.write_layout.grid, self.action.group)

    @property
    def n_intermediate_files(self) -> int:
        """Intermediate files to write."""
        return 0 if self.rechunk is None or self.rechunk.reads is None else self.rechunk.reads.n_chunks

    @property
    def n_target_blocks(self) -> int:
        """Blocks of the target that get other chunks."""
        return 0 if self.rechunk is None else self.rechunk.writes.n_chunks

    def task_bytes(self, n_threads: int) -> int:
        """Return the memory of one task, of an array that was planned for workers of that many threads."""
        return self.memory.n_bytes if self.rechunk is None else -(-self.rechunk.estimate.peak_bytes // n_threads)

    @property
    def strategy(self) -> str:
        """The action, or the strategy of a rechunk."""
        return self.action.name if self.rechunk is None else self.rechunk.estimate.strategy


@dataclass(frozen=True, kw_only=True)
class ConversionTasks(Tasks):
    """Tasks of a conversion.

    Attributes
    ----------
    job
        Name of the job, for messages.
    store
        Of the target.
    plans
        The target's arrays.
    prefix
        Start of the keys of intermediate files, in the store that `writes` names, or the target's.
    ahead_bytes
        Bytes that a task may fetch ahead of their use, from stores whose requests cost latency.
    listed
        What was listed when the run began.
    sliced
        Digests of the sources that are read by slices, of the same time.
    """

    job: str
    store: Store
    plans: Sequence[ArrayPlan]
    prefix: str
    ahead_bytes: int
    listed: dict[int, tuple[Numbers, Numbers]] = field(default_factory=dict, compare=False, repr=False)
    sliced: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def stages(self, target: Target, *, fresh: bool) -> list[Stage]:
        """Return the stages of a run, whose tasks leave out what a listing of the sources lacks.

        Intermediate files are named after the run: tasks of an interrupted one may still be writing theirs.
        """
        for intermediate in self.writes:  # of jobs that were abandoned: their place is this run's by now
            for name in intermediate.list_dir(self.prefix):
                if name != f"{target.run}/":
                    intermediate.delete_prefix(self.prefix + name)
        pairs = zip(self.plans, target.arrays, strict=True)
        tasks = replace(self, plans=[replace(plan, target=array) for plan, array in pairs])
        self.listed.clear()
        self.listed.update(list_sources(tasks.plans, fresh=fresh))
        self.sliced.clear()
        self.sliced.update(see_slices(self.plans))
        return stages_of(tasks, target.run, fresh=fresh, listed=self.listed)

    def check_result(self) -> None:
        """Raise where chunks were written that were listed as absent, or are read by slices."""
        check_still_absent(self.plans, self.listed)
        check_slices(self.job, self.plans, self.sliced)
        self.listed.clear()
        self.sliced.clear()

    def publish(self, target: Target) -> Sequence[str]:
        """Publish the target, and delete intermediate files that are not in the journal, which is deleted with its."""
        written = target.publish()
        for intermediate in self.writes:
            intermediate.delete_prefix(self.prefix)
        return written


def stages_of(tasks: ConversionTasks, run: str, *, fresh: bool, listed: Listed = MappingProxyType({})) -> list[Stage]:
    """Return the stages of a job: one for the arrays whose chunks stay, and those of the arrays that are rechunked.

    Parameters
    ----------
    run
        Name of the run, which its intermediate files are named after.
    fresh
        Whether there is nothing at the target yet, so that absent chunks need not be deleted.
    listed
        Store keys that there are, of mostly empty arrays: nothing is done for the others.
    """
    plans = tasks.plans
    stages = []
    is_rechunked = any(plan.rechunk is not None for plan in plans)
    if not is_rechunked or any(plan.rechunk is None for plan in plans):
        transfers = tuple(ArrayTransfer(p.source, p.target, p.action, fresh, p.memory, p.share, p.seen) for p in plans)
        specs = TaskSpecs.counted([plan.n_groups for plan in plans])
        grids = {
            i: block_grid(plans[i].target.write_layout.grid.axes, plans[i].action.group)
            for i in listed
            if plans[i].rechunk is None
        }
        touched = touched_blocks(plans, listed, grids)
        stages.append(
            Stage(
                "convert",
                transfer_group,
                transfers,
                specs,
                transfer_shows,
                transfer_share,
                touched=touched,
                left_out=_left_out(plans, grids, touched),
                inputs=transfer_inputs,
            )
        )
    if is_rechunked:
        rechunks = [_rechunk(tasks, run, i, plan, fresh=fresh) for i, plan in enumerate(plans)]
        stages += rechunk_stages(plans, rechunks, listed)
    return stages


def _left_out(
    plans: Sequence[ArrayPlan], grids: Mapping[int, ChunkGrid], touched: Mapping[int, TouchedBlocks]
) -> dict[str, int]:
    """Return the counts of absent store keys, and of their chunks, in groups that have nothing to do."""
    n_keys = n_absent = 0
    for which, each in touched.items():
        target, copies = plans[which].target, plans[which].action.name == "copy"
        n_keys += n_left_out(each, grids[which], target.write_layout.grid)
        n_absent += n_left_out(each, grids[which], (target.write_layout if copies else target.read_layout).grid)
    return {"n_keys": n_keys, "action_absent": n_absent} if n_keys else {}


def _rechunk(tasks: ConversionTasks, run: str, number: int, plan: ArrayPlan, *, fresh: bool) -> ArrayRechunk | None:
    if plan.rechunk is None:
        return None
    return ArrayRechunk(
        plan.source,
        plan.target,
        plan.rechunk,
        next(iter(tasks.writes), tasks.store),
        f"{tasks.prefix}{run}/{number}/",
        tasks.ahead_bytes,
        plan.action.materialize,
        fresh,
        plan.seen,
    )


def rechunk_stages(
    plans: Sequence[ArrayPlan], rechunks: Sequence[ArrayRechunk | None], listed: Listed = MappingProxyType({})
) -> list[Stage]:
    """Return the stages that rechunk arrays: one that spills, where an array does, and one that writes.

    `rechunks` has an entry for each array of `plans`, ``None`` for those whose chunks stay; `listed` names the store
    keys that there are of some arrays.
    """
    by_key = {
        which for which in listed if rechunks[which] is not None and reads_little_twice(plans[which], listed[which])
    }
    common = tuple(
        each if each is None else replace(each, by_key=which in by_key) for which, each in enumerate(rechunks)
    )
    files, blocks = [plan.n_intermediate_files for plan in plans], [plan.n_target_blocks for plan in plans]
    grids = {i: plan.rechunk for i, plan in enumerate(plans) if plan.rechunk is not None}
    into_files = {i: plan.files for i, plan in grids.items() if plan.reads is not None}
    filled = touched_blocks(plans, listed, into_files, of_target=False)
    filled |= dict.fromkeys(by_key & into_files.keys(), NO_BLOCKS)
    written = touched_blocks(plans, listed, {i: plan.writes for i, plan in grids.items()})
    filled = {i: each for i, each in filled.items() if i in written}  # blocks of all of an array need all its files
    n_absent = sum(n_left_out(each, grids[i].writes, plans[i].target.write_layout.grid) for i, each in written.items())
    spill = Stage(
        "rechunk-spill",
        write_intermediate_file,
        common,
        TaskSpecs.counted(files),
        spill_shows,
        _share(into_files, plans),
        touched=filled,
        inputs=spill_inputs,
        files=next((each.intermediate for each in rechunks if each is not None), None),
    )
    write = Stage(
        "rechunk-write",
        write_target_block,
        common,
        TaskSpecs.counted(blocks),
        write_shows,
        _share({i: plan.writes for i, plan in grids.items()}, plans),
        touched=written,
        left_out={"n_keys": n_absent, "action_absent": n_absent} if n_absent else {},
        inputs=write_inputs,
    )
    return [spill, write] if any(files) else [write]


def _share(blocks: Mapping[int, ChunkGrid], plans: Sequence[ArrayPlan]) -> Callable[[object, Any], float] | None:
    """Return the fraction of one task's budget that a block uses, where there are so many that small ones share tasks.

    As of 10^5 small arrays: a scheduler takes some 3 ms for a task, such a block 1 ms.
    """
    per_task = min(MAX_TASK_KEYS, sum(grid.n_chunks for grid in blocks.values()) // _MANY_TASKS)
    if per_task <= 1:
        return None
    budget = MAX_TASK_BYTES // 4
    shares = {
        which: max(prod(grid.chunk_shape) * itemsize(plans[which].source) / budget, 1 / per_task)
        for which, grid in blocks.items()
    }
    return lambda _, spec: shares[spec[0]]


_MANY_TASKS = 1024


# --------------------------------------------------------------------------------------------------------------------
# What a run lists


def list_sources(plans: Sequence[ArrayPlan], *, fresh: bool) -> dict[int, tuple[Numbers, Numbers]]:
    """List the store keys of each mostly empty source, and of its target where something is there already.

    Not of arrays whose absent chunks are written out, nor of those that raise for absent chunks.
    """
    listed = {}
    for which, plan in enumerate(plans):
        if plan.action.materialize or plan.source.read_missing == "error":
            continue
        if (present := list_present_if_sparse(plan.source)) is None:
            continue
        there = np.zeros(0, np.int64) if fresh else list_present(plan.target)
        if there is not None:
            listed[which] = present, there
    return listed


def check_still_absent(plans: Sequence[ArrayPlan], listed: Listed) -> None:
    """Raise `ChunkError` where a chunk of a source that was absent when the run began is present now."""
    for which, (present, _) in listed.items():
        array = plans[which].source
        now = list_present(array)
        appeared = np.zeros(1, np.int64) if now is None else np.setdiff1d(now, present, assume_unique=True)
        if len(appeared):
            coords = array.write_layout.grid.coords_of(int(appeared[0]))
            reason = "it was absent when the run began, and is present now: the source is being written, or its file "
            reason += "system fails now and then; call `plan.run(resume=False)` when it is at rest"
            key = array.write_layout.locator.key(coords)
            raise ChunkError(url=array.url, key=key, coords=coords, step="get", reason=reason)


def touched_blocks(
    plans: Sequence[ArrayPlan], listed: Listed, blocks: Mapping[int, ChunkGrid], *, of_target: bool = True
) -> dict[int, TouchedBlocks]:
    """Return the blocks of each listed array that have anything to do.

    Parameters
    ----------
    blocks
        Grid of the blocks, by number of the array.
    of_target
        Whether blocks with keys of the target have: absent chunks are deleted there.
    """
    found = {}
    for which, grid in blocks.items():
        if which not in listed:
            continue
        (present, there), plan = listed[which], plans[which]
        touched = touch(present, plan.source.write_layout.grid, grid)
        others = touch(there if of_target else there[:0], plan.target.write_layout.grid, grid)
        if touched is not None and others is not None:
            found[which] = touched.with_blocks(others.numbers)
    return found


def reads_little_twice(plan: ArrayPlan, listed: tuple[Numbers, Numbers]) -> bool:
    """Return whether the target's store keys may be read from the source one by one, by what is listed of both."""
    source, target = plan.source.write_layout.grid, plan.target.write_layout.grid
    return count_touched(listed[0], source, target) <= _MOST_READS * len(listed[0])


_MOST_READS = 8  # of a store key of a mostly empty source, on average


def n_left_out(touched: TouchedBlocks, blocks: ChunkGrid, counted: ChunkGrid) -> int:
    """Return how many chunks of the grid `counted` the blocks have that are not touched."""
    return counted.n_chunks - count_touched(touched.numbers, blocks, counted)


def see_slices(plans: Sequence[ArrayPlan]) -> dict[int, int]:
    """Return the fingerprint of all store keys of each source that is read by slices, by number of the array."""
    listings, seen = Listings(), {}
    for which, plan in enumerate(plans):
        is_sliced = plan.rechunk is not None and plan.rechunk.source.sliced is not None
        if is_sliced and (found := _fingerprint(plan.source, listings)) is not None:
            seen[which] = found
    return seen


def check_slices(job: str, plans: Sequence[ArrayPlan], seen: Mapping[int, int]) -> None:
    """Raise `JobError` where chunks of such a source were written since."""
    listings = Listings()
    for which, before in seen.items():
        array = plans[which].source
        if _fingerprint(array, listings) != before:
            reason = f"chunks of the source {array.path!r} in {array.url} were written while tasks read slices of them"
            hint = "run the plan again when the source is at rest: what has changed is read again"
            raise JobError(job=job, reason=reason, hint=hint)


def _fingerprint(array: StoredArray, listings: Listings) -> int | None:
    """Return the fingerprint of all store keys; ``None`` where versions are not known, or not by listing."""
    store = array.store.uncached
    if not store.has_versions:
        return None
    if not store.is_remote:
        return digest_now(lambda _, keys: iter((keys,)), None, _batches(array))
    digests = [listings.digest(keys) for keys in _batches(array)]
    return None if None in digests else sum(each for each in digests if each is not None) % 2**64


_BATCH = 1 << 14  # keys that are held at once


def _batches(array: StoredArray) -> Iterator[StoreKeys]:
    layout, store = array.write_layout, array.store.uncached
    coords = layout.grid.all_coords()
    while keys := [layout.locator.key(each) for each in islice(coords, _BATCH)]:
        yield StoreKeys(store, array.prefix, keys)
