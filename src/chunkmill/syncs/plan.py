"""Plan a sync as a job: what has changed in each array, what is written again, what that costs.

Not here: the arguments (`chunkmill.syncs.sync`), the callbacks of the job (`chunkmill.syncs.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from chunkmill.array.present_keys import Numbers
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import see_sources
from chunkmill.conversion.lineage import ArrayPair, KeyVersions, Lineage, TracedArray
from chunkmill.conversion.plan import JobCounts, Plan, PlannedStage, Report
from chunkmill.conversion.region_option import whole
from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.journal.names import fingerprint
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.runtime.job import Job, JobResult
from chunkmill.runtime.job_handle import RunningJob
from chunkmill.runtime.stage import Stage, count_tasks
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store
from chunkmill.syncs.blocks import TransformedAgain
from chunkmill.syncs.changes import (
    all_keys,
    at_old_ends,
    changed_keys,
    check_layouts,
    check_longer,
    check_unchanged_target,
    left_by_a_sync,
    touched_keys,
    with_shapes,
)
from chunkmill.syncs.derived import Derived, stored_target
from chunkmill.syncs.tasks import DerivedArray, SyncedArray, SyncWriter, stage_of

__all__ = ["SyncPlan", "SyncRequest"]


@dataclass(frozen=True, repr=False)
class SyncPlan(Plan):
    """Plan of a sync: the store keys that `run` will write, and why.

    Attributes
    ----------
    writer
        The callbacks of its job.
    n_changed
        Store keys of the source that were changed, came or went; ``None``: values are compared.
    """

    writer: SyncWriter = field(kw_only=True, repr=False)
    n_changed: int | None = field(kw_only=True)

    def run(self, resume: bool = False, progress: bool | str | None = None) -> Report:
        """Run the job on the current dask scheduler or Client; in threads where none is set.

        Parameters
        ----------
        resume : bool
            Resume an interrupted run of this very plan. A plan that is made again finds what is left to do, so that
            by default an interrupted sync is discarded.
        progress : bool, str or None
            As in `Plan.run`.

        Returns
        -------
        Report
            Measured counts, bytes and seconds.

        Raises
        ------
        JobError
            Another job writes to the target, or the source was deleted or replaced since the plan was made.
        """
        return super().run(resume=resume, progress=progress)

    def start(self, resume: bool = False, progress: bool | str | None = False) -> RunningJob[Report]:
        """Run the job in a thread of this process (see `Plan.start`)."""
        return super().start(resume=resume, progress=progress)

    def _traced(self) -> Callable[[JobResult], Report]:
        return self._report_synced

    def _report_synced(self, result: JobResult) -> Report:
        self.writer.trace()
        return self.report(result)


@dataclass(frozen=True)
class SyncRequest:
    """Request of a sync.

    Attributes
    ----------
    job
        Name of the job, for messages.
    store, path
        The target.
    lineage
        Where its lineage is kept; ``None``: nowhere.
    made, traced
        How the target was made, and of what, as its lineage says; ``None``: there is no lineage.
    compares, overwrite
        Whether values are compared, and whether changes of others are written over.
    """

    job: str
    store: Store
    path: str
    lineage: Lineage | None
    made: Mapping[str, Any]
    traced: Sequence[TracedArray] | None
    compares: bool
    overwrite: bool

    # ----------------------------------------------------------------------------------------------------------------
    # Conversions and pyramids

    def plan_arrays(self, derived: Sequence[Derived], node: StoredNode, worker: Worker) -> SyncPlan:
        """Plan to write what has changed: of each level, what is made of store keys of the level above.

        Raises
        ------
        JobError
            The source is another one, has become shorter or has another layout; others have changed the target; or the
            memory allowed is too little.
        """
        own = {each.path for each in derived}
        inputs = [each.source for each in derived if not self._is_level(each.source, own)]
        seen = dict(zip(map(id, inputs), see_sources([whole(each) for each in inputs]), strict=True))
        arrays: dict[str, DerivedArray] = {}
        pairs, before, old = list[ArrayPair](), list[KeyVersions | None](), list[TracedArray]()
        n_changed = 0
        for each in derived:
            is_level = id(each.source) not in seen
            stored = stored_target(self.job, self.store, each.path)
            above = arrays[each.source.path] if is_level else None
            source = each.source if above is None else above.target
            one = each._replace(source=source)
            check_longer(self.job, source, stored, one.shape)
            grid = stored.metadata.chunk_grid.resized(one.shape)
            new = replace(stored, metadata=replace(stored.metadata, chunk_grid=grid))
            numbers = [np.zeros(0, np.int64) if above is None else _below(above.numbers, one, new)]
            if self.traced is not None:
                pairs.append((source, new))
                old.append(self._traced_now(pairs[-1], stored)[1])
                before.append(None if is_level else self._seen(pairs[-1:])[0])
                changed = changed_keys(old[-1].source, before[-1])
                numbers += [
                    touched_keys(changed, source, new, one.factors),
                    at_old_ends(new, stored, reduced=bool(one.factors)),
                    left_by_a_sync(old[-1].target),
                ]
                n_changed += len(changed)
            else:
                check_layouts(self.job, source, stored, None)
            if self.compares:
                numbers.append(all_keys(source, new, one.factors))
            arrays[each.path] = DerivedArray(
                new, stored, _together(numbers), source, self.compares, one.factors, one.method
            )
            if old and not (self.compares or self.overwrite):
                check_unchanged_target(self.job, old[-1].target, new, arrays[each.path].numbers)
        writer = SyncWriter(
            self.job,
            [(each, seen[id(each)]) for each in inputs],
            [*arrays.values()],
            self._stages([*arrays.values()]),
            None if self.traced is None else self.lineage,
            self.made,
            pairs,
            before,
            old,
        )
        n_keys = sum(each.write_layout.grid.n_chunks for each in inputs)
        memory = max((each.task_bytes for each in arrays.values() if len(each.numbers)), default=0)
        reason = f"{n_changed:,} of {n_keys:,} store keys of the source were changed, came or went"
        shown = f"{node.url}/{node.path}" if node.path else node.url
        at_once = self._tasks_at_once(worker, memory)
        few = at_once if at_once < worker.n_threads else None
        return self._plan(writer, shown, reason, n_changed, memory=at_once * memory, at_once=few)

    def _is_level(self, array: StoredArray, paths: set[str]) -> bool:
        return array.path in paths and array.url == self.store.url

    def _stages(self, arrays: Sequence[DerivedArray]) -> list[Stage]:
        """Return one stage for all arrays; of a pyramid, one for each level, which is made of the one before."""
        if not any(each.factors for each in arrays):
            return [stage_of("sync", arrays)]
        return [stage_of(f"sync-{each.target.path.rpartition('/')[2]}", [each]) for each in arrays]

    def _tasks_at_once(self, worker: Worker, memory: int) -> int:
        at_once = min(worker.n_threads, worker.max_mem // memory) if memory else worker.n_threads
        if not at_once:
            reason = f"{worker.max_mem:,} bytes for a worker are too little: a store key takes {memory:,}"
            raise JobError(job=self.job, reason=reason, hint=Hint("give {}", ("max_mem", memory)))
        return at_once

    # ----------------------------------------------------------------------------------------------------------------
    # Transforms

    def plan_blocks(self, again: TransformedAgain) -> SyncPlan:
        """Plan to make the blocks of a transform again whose sources have changed.

        Raises
        ------
        JobError
            As `plan_arrays`.
        """
        sources = [each.array for each in again.tasks.sources]
        targets = [each.array for each in again.tasks.targets]
        stored, new = [], list[StoredArray]()
        for target in targets:
            there = stored_target(self.job, target.store, target.path)
            check_longer(self.job, sources[0], there, target.shape)
            grid = there.metadata.chunk_grid.resized(target.shape)
            stored.append(there)
            new.append(replace(there, metadata=replace(there.metadata, chunk_grid=grid)))
        at = {(each.url, each.path): number for number, each in enumerate(targets)}
        pairs, old = list[ArrayPair](), list[TracedArray]()
        ends: dict[tuple[str, str], tuple[int, ...]] = {}
        for source, target in again.pairs:
            number = at[target.url, target.path]
            pairs.append((source, new[number]))
            then, was = self._traced_now(pairs[-1], stored[number])
            old.append(was)
            ends[source.url, source.path] = then.source_shape
        before = self._seen(pairs)
        changed = {(s.url, s.path): changed_keys(w.source, n) for (s, _), w, n in zip(pairs, old, before, strict=True)}
        left = {at[t.url, t.path]: left_by_a_sync(was.target) for (_, t), was in zip(pairs, old, strict=True)}
        numbers, n_changed = again.touched(changed, ends, left)
        arrays = [
            SyncedArray(one, there, again.keys_of(numbers, which, one))
            for which, (one, there) in enumerate(zip(new, stored, strict=True))
        ]
        if not self.overwrite:
            for was, (_, target) in zip(old, pairs, strict=True):
                check_unchanged_target(self.job, was.target, target, arrays[at[target.url, target.path]].numbers)
        writer = SyncWriter(
            self.job,
            [(each.array, each.seen) for each in again.tasks.sources],
            arrays,
            [again.stage(numbers, arrays)],
            self.lineage,
            self.made,
            pairs,
            before,
            old,
        )
        n_keys = sum(each.write_layout.grid.n_chunks for each in sources)
        reason = f"{n_changed:,} of {n_keys:,} store keys of the sources were changed, came or went"
        shown = ", ".join(f"{each.url}/{each.path}" for each in sources)
        plan = self._plan(writer, shown, reason, n_changed, memory=again.memory)
        return replace(plan, job=replace(plan.job, leases=again.leases))

    # ----------------------------------------------------------------------------------------------------------------

    def _traced_pair(self, pair: ArrayPair) -> TracedArray:
        source, target = pair
        of, others = f"{source.url}/{source.path}", []
        for each in self.traced or ():
            if each.path == target.path and each.of == of:
                return each
            others += [each.of] if each.path == target.path else []
        if others:
            raise JobError(
                job=self.job, reason=f"{target.path!r} was made of {', '.join(others)}, and the source is {of}"
            )
        raise JobError(job=self.job, reason=f"the lineage has no array {target.path!r}, which the source has")

    def _traced_now(self, pair: ArrayPair, stored: StoredArray) -> tuple[TracedArray, TracedArray]:
        """Return the lineage of a pair, and the same in the shapes of now."""
        traced, (source, new) = self._traced_pair(pair), pair
        check_layouts(self.job, source, stored, traced)
        return traced, with_shapes(traced, source, new)

    def _seen(self, pairs: Sequence[ArrayPair]) -> list[KeyVersions | None]:
        """Return the versions of the sources of all pairs, each listed once; ``None`` of levels that are written."""
        return [] if self.lineage is None or self.traced is None else self.lineage.seen(pairs)

    def _plan(
        self, writer: SyncWriter, source: str, reason: str, n_changed: int, *, memory: int, at_once: int | None = None
    ) -> SyncPlan:
        changed: int | None = n_changed
        if self.compares:
            changed, reason = None, "values are compared, and written where they differ"
        where = f"{self.store.url}/{self.path}" if self.path else self.store.url
        stages = [_planned(stage, writer, compares=self.compares) for stage in writer.sync_stages]
        costs = JobCounts(
            sum(stage.n_tasks for stage in stages),
            sum(stage.bytes_read for stage in stages),
            sum(stage.bytes_written for stage in stages),
            0,
            sum(stage.n_requests for stage in stages),
            memory,
            n_keys=sum(len(each.numbers) for each in writer.arrays),
        )
        job = Job(
            name=self.job,
            store=self.store,
            path=self.path,
            fingerprint=fingerprint("sync", source, [(a.target.path, a.numbers.tobytes()) for a in writer.arrays]),
            sources=[array for array, _ in writer.sources],
            targets=[each.target for each in writer.arrays],
            prepare=writer.prepare,
            stages=writer.stages,
            publish=writer.publish,
            check_result=writer.check_result,
            overwrite=None,
            tasks_at_once=at_once,
            memory_of_tasks=memory,
        )
        rows = [
            {"array": a.target.path or "/", "shape": _shown_shape(a), "store keys": f"{len(a.numbers):,}"}
            for a in writer.arrays
        ]
        return SyncPlan(
            operation="sync",
            source=source,
            target=where,
            strategy="values" if self.compares else "versions",
            reason=reason,
            costs=costs,
            stages=tuple(stages),
            job=job,
            arrays=rows,
            writer=writer,
            n_changed=changed,
        )


def _below(numbers: Numbers, derived: Derived, new: StoredArray) -> Numbers:
    """Return the store keys of a level that are made of some of the level above."""
    return touched_keys(numbers, derived.source, new, derived.factors)


def _together(numbers: Sequence[Numbers]) -> Numbers:
    return np.unique(np.concatenate(numbers))


def _planned(stage: Stage, writer: SyncWriter, *, compares: bool) -> PlannedStage:
    """Return a stage with estimated bytes and requests: those of its arrays; of a transform, of all targets."""
    arrays: Sequence[SyncedArray] = stage.common if isinstance(stage.common, tuple) else writer.arrays
    n_keys = n_read = n_written = 0
    for each in arrays:
        n_bytes = len(each.numbers) * each.key_bytes
        factors = each.factors if isinstance(each, DerivedArray) else ()
        n_keys, n_written = n_keys + len(each.numbers), n_written + n_bytes
        n_read += n_bytes * (prod(factors) + compares)
    return PlannedStage(stage.name, count_tasks(stage), n_read, n_written, n_keys * (3 if compares else 2))


def _shown_shape(array: SyncedArray) -> str:
    return f"{array.stored.shape} → {array.target.shape}" if array.grows else str(array.target.shape)
