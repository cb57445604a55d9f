"""Run stages of tasks one after the other on the scheduler that dask is set to; the client is the barrier between them.

When a job is resumed, tasks on record are run again where their values are not as recorded, or their inputs have
changed. A few are compared before the stage begins, many after all new tasks: by tasks, or by the client, which lists
inputs once where their requests cost latency. Not here: begin and end of the journal (`chunkmill.runtime.job`), what
a task does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from distributed import Client

from chunkmill.array.stored_array import StoredArray
from chunkmill.journal.heartbeat import Heartbeat
from chunkmill.journal.inputs import Listings, digest_now, inputs_of
from chunkmill.journal.journal import Journal
from chunkmill.journal.record_batch import RecordBatch
from chunkmill.journal.record_files import GROUP
from chunkmill.journal.records import read_record
from chunkmill.log import LOG
from chunkmill.runtime.cancellation import abandon
from chunkmill.runtime.cluster_tasks import scheduler_needed, warn_of_memory
from chunkmill.runtime.computed import BlockInputs
from chunkmill.runtime.machines import run_and_say_where, sync_other_machines
from chunkmill.runtime.preflight import Needs, check_client_workers, check_scheduler, describe_needs
from chunkmill.runtime.progress import JobMonitor, JobProgress
from chunkmill.runtime.reference_shipping import ReferenceSender
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, count_tasks, tasks_to_run
from chunkmill.runtime.task import AtOnce, LocalStage, PackedStage, add_counts, compare_records, run_task
from chunkmill.runtime.worker_memory import peak_memory
from chunkmill.stores.read_versions import has_versions
from chunkmill.stores.transactions import Changes

__all__ = ["ResumedTasks", "StageResult", "check_workers", "run_once", "run_stages"]


_FEW_RECORDS = 256  # whose inputs the client itself compares with what is stored


class ResumedTasks:
    """The tasks of one stage that are on record.

    Attributes
    ----------
    on_record
        Those that are not done again, as far as is known.
    """

    def __init__(
        self, journal: Journal | None, stage: Stage, number: int, done: Collection[int], unchecked: Collection[int]
    ) -> None:
        unchecked = {*done, *unchecked} if stage.files is not None else unchecked
        self.on_record = {*done, *unchecked}
        self._journal, self._stage, self._number = journal, stage, number
        self._values, self._inputs = set(unchecked), set[int]()  # to be compared by tasks
        self._listed = False

    def check(self, *, redone: bool) -> None:
        """Compare the inputs of a few with what there is now; leave many to the end.

        With `redone`, tasks of an earlier stage were done again: those that may depend on it, and cannot tell, are.
        """
        stage = self._stage
        if self._journal is None or stage.inputs is None or not self.on_record:
            return
        stores = [each.store for each in inputs_of(stage.inputs, stage.common, stage.tasks[:1])]
        if redone:
            self.forget(self._changed(unknown=True))
        elif not all(map(has_versions, stores)):
            return
        elif any(store.is_remote for store in stores):
            self._listed = True
        elif len(self.on_record) > _FEW_RECORDS:
            self._inputs = set(self.on_record)
        else:
            self.forget(self._changed())

    @property
    def n_settled(self) -> int:
        """Number of those that no task compares."""
        return len(self.on_record - self._values - self._inputs)

    def forget(self, tasks: Collection[int]) -> None:
        """Take tasks off the record, which are to be done again."""
        if self._journal is not None and tasks:
            self._journal.records.forget(self._number, tasks)
        self.off_record(tasks)

    def off_record(self, tasks: Collection[int]) -> None:
        """Note that tasks are off the record."""
        for each in (self.on_record, self._values, self._inputs):
            each.difference_update(tasks)

    def check_listed(self) -> set[int]:
        """Compare the inputs with a listing of them; return the tasks that are to be done again."""
        changed = self._changed() if self._listed else set[int]()
        self.forget(changed)
        return changed

    def comparisons(self) -> Iterator[tuple[list[int], list[Sequence[Any]] | None, bool]]:
        """Yield the arguments of each task that compares records, of neighbours: they may be in one object."""
        for _, group in groupby(sorted(self._values | self._inputs), lambda task: task // GROUP):
            for (of_inputs, of_values), tasks in groupby(
                group, lambda task: (task in self._inputs, task in self._values)
            ):
                numbers = [*tasks]
                specs = [each for _, each in tasks_to_run(self._stage, only=numbers)] if of_inputs else None
                yield numbers, specs, of_values

    def _changed(self, *, unknown: bool = False) -> set[int]:
        """Return those that have read something else than there is now; with `unknown`, or may have."""
        stage, listings, changed = self._stage, Listings(), set[int]()
        if self._journal is None or stage.inputs is None:
            return changed
        for _, group in groupby(sorted(self.on_record), lambda task: task // GROUP):
            numbers = [*group]
            values = self._journal.records.read_many(self._number, numbers)
            for (task, specs), (_, value) in zip(tasks_to_run(stage, only=numbers), values, strict=True):
                record = read_record(value or b"")
                digest = None if record is None else record.reads
                now = None if digest is None else digest_now(stage.inputs, stage.common, specs, listings)
                if unknown if now is None else now != digest:
                    changed.add(task)
        return changed


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of a stage in this run; tasks that an earlier client had done are counted in `n_resumed` only."""

    name: str
    n_tasks: int
    n_resumed: int
    seconds: float
    counts: Mapping[str, int]
    details: Sequence[Any] = ()


def run_once(
    stages: Sequence[Stage],
    *,
    name: str,
    arrays: Iterable[StoredArray],
    title: str = "",
    progress: bool | str | None = None,
) -> list[StageResult]:
    """Run stages that only read: without a journal, and checking first that the workers can read `arrays`.

    Parameters
    ----------
    name
        Of the job, in errors: ``"verify"``.
    title
        Of the job on the dashboard; the stages' names by default.
    """
    scheduler = Scheduler(of_job=True)
    scheduler.check_may_wait(name)
    needs = None
    if not scheduler.in_process and any(len(stage.tasks) for stage in stages):
        needs = describe_needs(name, sources=list(arrays))
        check_workers(scheduler, needs)
    return run_stages(stages, name=title, scheduler=scheduler, needs=needs, progress=progress)


def check_workers(
    scheduler: Scheduler, needs: Needs, memory_of_tasks: int = 0, waiting: Callable[[str], object] | None = None
) -> None:
    """Check that the workers have what they need; `JobError` says which lacks what. Warn where memory is short."""
    if scheduler.client is not None:
        used = check_client_workers(scheduler.client, needs, waiting=waiting)
        if memory_of_tasks:
            warn_of_memory(scheduler.client, needs.job, memory_of_tasks, used)
    else:
        check_scheduler(scheduler.get, needs)


def run_stages(
    stages: Sequence[Stage],
    *,
    name: str = "",
    scheduler: Scheduler | None = None,
    needs: Needs | None = None,
    journal: Journal | None = None,
    done: Collection[tuple[int, int]] = (),
    unchecked: Collection[tuple[int, int]] = (),
    progress: bool | str | None = None,
    monitor: JobMonitor | None = None,
    tasks_at_once: int | None = None,
) -> list[StageResult]:
    """Run stages one after the other: for `run_job`, and without a journal for `run_once`.

    Parameters
    ----------
    name
        Of the job, for the dashboard; the stages' names where there is none.
    needs
        Checked once in every process that takes part.
    journal, done
        Where tasks are recorded, and stage and number of those that are not run again.
    unchecked
        Stage and number of those that are on record: after the others, their records are compared with what is stored,
        many by a task, and those that do not hold are run.
    monitor
        Hears of the progress, and may cancel.
    tasks_at_once
        Most tasks that a process may run at the same time; ``None``: as many as it has threads.
    """
    at_once = None if tasks_at_once is None else AtOnce(tasks_at_once)
    scheduler = scheduler or Scheduler(of_job=True)
    results: list[StageResult] = []
    n_redone = 0
    ran: dict[str, set[str]] = {}
    with scheduler_needed(scheduler.client, name or "job"), JobProgress(progress, monitor) as bars:
        for number, stage in enumerate(stages):
            begun = time.perf_counter()
            own, later = ({task for of, task in each if of == number} for each in (done, unchecked))
            resumed = ResumedTasks(journal, stage, number, own, later)
            resumed.check(redone=n_redone > 0)
            n_tasks = count_tasks(stage)
            if stage.narrow is not None:
                n_tasks = len(own | later) + sum(1 for _ in tasks_to_run(stage, own | later))
            bars.begin(stage.name, n_tasks, resumed.n_settled)
            total = _Total(bars, dict(stage.left_out), journal, number)
            here = LocalStage(stage.function, stage.common, journal, number, stage.inputs, stage.files, at_once=at_once)
            with _tasks_running(scheduler, stage, here, ran, name=name, needs=needs, monitor=monitor) as run:
                run(run_task, tasks_to_run(stage, frozenset(resumed.on_record)), total.add)
                total.add_compared((0, [*resumed.check_listed()]))
                if resumed.n_settled < len(resumed.on_record):
                    run(compare_records, resumed.comparisons(), total.add_compared)
                if total.untrue:
                    resumed.off_record(total.untrue)
                    run(run_task, tasks_to_run(stage, only=total.untrue), total.add)
            if total.n_run and scheduler.in_process:  # it never falls: the tasks need not ask
                add_counts(total.counts, {"peak_memory_bytes": peak_memory()})
            seconds = time.perf_counter() - begun
            n_resumed = len(resumed.on_record)
            n_redone += len(own | later) - n_resumed
            if monitor is not None:
                text = "%s: stage %s ends after %.1f s: %d of %d tasks were done by an earlier run"
                LOG.info(text, monitor.job, stage.name, seconds, n_resumed, n_tasks)
            results.append(StageResult(stage.name, n_tasks, n_resumed, seconds, total.counts, total.details))
    if journal is not None and scheduler.client is not None:
        sync_other_machines([journal.store] if needs is None else needs.writes, scheduler.client, name, ran)
    return results


@contextmanager
def _tasks_running(
    scheduler: Scheduler,
    stage: Stage,
    here: LocalStage,
    ran: dict[str, set[str]],
    *,
    name: str,
    needs: Needs | None,
    monitor: JobMonitor | None,
) -> Iterator[Callable[..., None]]:
    """Yield what runs tasks of a stage: called with their function, their arguments, and what takes their results."""
    journal, number = here.journal, here.number
    blocks = BlockInputs.of(stage.inputs, stage.common, stage.tasks)
    if scheduler.in_process:
        with nullcontext() if journal is None else RecordBatch(journal, number) as batch:
            own = replace(here, in_client=True, batch=batch)

            def run_here(function: Callable[..., Any], tasks: Iterable[Any], on_result: Callable[[Any], None]) -> None:
                needed = blocks if function is run_task else None
                scheduler.run(stage.name, function, own, tasks, on_result, blocks=needed)

            yield run_here
        return
    sender = None if stage.reads is None else ReferenceSender(stage.reads, stage.common)
    packed = PackedStage.of(here, needs, sender)
    attempt = None if journal is None else journal.heartbeat
    with scheduler.span(name or stage.name), _ending(attempt, scheduler.client) as end:

        def run(function: Callable[..., Any], tasks: Iterable[Any], on_result: Callable[[Any], None]) -> None:
            shown, more = None, dict[str, Any]()
            if function is run_task:
                shown, tasks = stage.show, sender.with_references(tasks) if sender else tasks
                more["blocks"] = blocks
            check, waiting = (None, None) if monitor is None else (monitor.check, monitor.wait_for)
            more |= {"shown": shown, "before_cancel": end, "check": check, "waiting": waiting}

            def take(result: tuple[Any, str, str | None]) -> None:
                found, machine, worker = result
                ran.setdefault(machine, set()).add(worker or "")
                on_result(found)

            scheduler.run(stage.name, partial(run_and_say_where, function), packed, tasks, take, **more)

        yield run


@contextmanager
def _ending(attempt: Heartbeat | None, client: Client | None) -> Iterator[Callable[[], None] | None]:
    """Run tasks of an attempt in other processes; after an error, return when none of them is at work.

    What this yields is to be called before they are cancelled.
    """
    try:
        yield None if attempt is None else attempt.end
    except BaseException:
        if attempt is not None:
            abandon([attempt.key], client)
        raise


class _Total:
    """Sums of the results of a stage's tasks, as they come; their records are merged now and then."""

    def __init__(self, bars: JobProgress, counts: dict[str, int], journal: Journal | None, stage: int) -> None:
        self.bars = bars
        self.counts = counts
        self.details: list[Any] = []
        self.untrue: list[int] = []
        self._journal, self._stage = journal, stage
        self.n_run = 0

    def add(self, result: tuple[Mapping[str, int], Sequence[Any], Changes | None]) -> None:
        counts, details, changes = result
        if changes is not None:
            changes.apply()
        add_counts(self.counts, counts)
        self.details.extend(details)
        self.bars.advance(counts)
        self.n_run += 1
        if self._journal is not None and not self.n_run % _MERGED_AFTER:
            self._journal.merge(self._stage)

    def add_compared(self, result: tuple[int, list[int]]) -> None:
        n_tasks, untrue = result
        self.untrue.extend(untrue)
        self.bars.advance({}, n_tasks=n_tasks - len(untrue))


_MERGED_AFTER = 2 * GROUP  # tasks: reading and writing their records once more costs some 60 µs each
