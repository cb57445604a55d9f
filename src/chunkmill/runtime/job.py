"""Run whole-store jobs on the scheduler that dask is set to: stages of tasks, journal, resume, progress, preflight.

A job is a few stages, one after the other: the client is the barrier between them, so that nothing of a stage that is
done is kept alive or computed again. A stage is a function over many small task specs, and what they share. Not here:
what a task does (`chunkmill.conversion.convert_job`, `chunkmill.conversion.rechunking.job`), plans
(`chunkmill.conversion.plan`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError
from chunkmill.runtime.attempts import Attempt
from chunkmill.runtime.cancellation import abandon, remove_partial_files, remove_partial_files_beside
from chunkmill.runtime.journal import Journal
from chunkmill.runtime.journal_names import new_run
from chunkmill.runtime.preflight import Needs, check_client_workers, check_scheduler, describe_needs
from chunkmill.runtime.progress import JobProgress
from chunkmill.runtime.record_files import GROUP
from chunkmill.runtime.reference_shipping import ReferenceSender
from chunkmill.runtime.resumed import ResumedTasks
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, TaskResult, count_tasks, tasks_to_run
from chunkmill.runtime.stage_task import LocalStage, PackedStage, add_counts, compare_records, run_task
from chunkmill.runtime.unfinished_jobs import check_no_job
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush

__all__ = ["Job", "JobResult", "Stage", "StageResult", "TaskResult", "run_job", "run_once", "run_stages"]


@dataclass(frozen=True, slots=True)
class Job:
    """Description of a job for `run_job`.

    Attributes
    ----------
    name
        For messages: ``"convert to 'a' in file:///x"``.
    store, path
        Of the target. The journal is stored in `store`, named after `path`.
    fingerprint
        Of the plan, by `chunkmill.runtime.journal_names.fingerprint`.
    sources, targets
        Arrays that tasks read and write: workers are checked for their codecs and stores first.
    prepare
        Makes room in the target and returns the documents that `publish` writes. Called when the job begins, not
        when it is resumed. It may raise (`NodeExists`): nothing is recorded then.
    stages
        Returns the stages of the run of that name, which stands in the names of all temporary values; called after
        `prepare`, and when the job is resumed.
    publish
        Makes the result visible; called with the documents when all tasks are done; returns the keys that it wrote. May
        be called again when the process ends before the journal is deleted.
    check_free
        Called with the name of the run when the job has begun: raises `NodeExists` where a node was made since
        `prepare`, whose chunks the job would write over.
    writes
        Further stores (a temporary one) that tasks write to.
    overwrite
        ``True``: `prepare` deletes what is there; ``False``: it refuses; ``None``: that is written into.
    beside
        Returns, for the name of a run, the same job writing beside the node that it replaces (see `old_prefix`): that
        node stays until the new one is whole. Its `prepare` returns ``None`` where the store cannot hold both.
    keeps_old
        Returns whether the store can hold both, as it is now.
    old_prefix
        Of a job that `beside` returned: prefix of the keys of the node that it replaces. It writes below
        `chunkmill.runtime.journal_names.staged_prefix`, and `publish` calls
        `chunkmill.stores.capabilities.replace_prefix`.
    """

    name: str
    store: Store
    path: str
    fingerprint: str
    sources: Sequence[StoredArray]
    targets: Sequence[StoredArray]
    prepare: Callable[[], Mapping[str, bytes] | None]
    stages: Callable[[str], Sequence[Stage]]
    publish: Callable[[Mapping[str, bytes]], Iterable[str] | None]
    writes: Sequence[Store] = ()
    check_free: Callable[[str], object] | None = None
    overwrite: bool | None = False
    beside: Callable[[str], Job] | None = None
    keeps_old: Callable[[], bool] | None = None
    old_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of a stage in this run; tasks that an earlier client had done are counted in `n_resumed` only."""

    name: str
    n_tasks: int
    n_resumed: int
    seconds: float
    counts: Mapping[str, int]
    details: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job, stage by stage."""

    stages: tuple[StageResult, ...]
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """The counts of all stages together."""
        total: dict[str, int] = {}
        for stage in self.stages:
            add_counts(total, stage.counts)
        return total

    @property
    def n_tasks(self) -> int:
        """Tasks of all stages, those that an earlier run had done included."""
        return sum(stage.n_tasks for stage in self.stages)

    @property
    def n_resumed(self) -> int:
        """Tasks that an earlier run had done."""
        return sum(stage.n_resumed for stage in self.stages)


def run_job(job: Job, *, resume: bool = True, progress: bool | str | None = None) -> JobResult:
    """Run a job on the current dask scheduler or Client; in threads where none is set.

    When it succeeds, only the target stays. When it fails, or is interrupted, the journal stays, too, and the same job
    resumes from there; tasks that are still at work on other processes then stop before they write another value.

    Parameters
    ----------
    resume
        Resume an unfinished job of the same plan; ``False``: discard it and begin again.
    progress
        Show bars; ``None``: as ``chunkmill.progress`` in dask's config says.

    Raises
    ------
    JobError
        There is an unfinished job of another plan, or with ``resume=False`` one that is running; or a worker lacks
        something, or this run was discarded meanwhile.
    """
    start = time.perf_counter()
    scheduler = Scheduler()
    journal = Journal(job.store, job.path, job.name, job.fingerprint)
    documents = journal.resume() if resume else None
    if job.beside is not None and journal.old_prefix is not None:
        job = job.beside(journal.run)
    if journal.is_over or (documents is not None and journal.is_exchanged):
        return _already_done(job, journal, documents or {}, start)
    interrupted, needs = documents is not None, None
    if not scheduler.in_process:
        needs = describe_needs(job.name, sources=job.sources, targets=job.targets, writes=(job.store, *job.writes))
        check_workers(scheduler, needs)
    begins = documents is None
    if documents is None:
        if not resume:
            journal.check_dead()
            interrupted = journal.discard()  # before the values that it records are deleted
        job, documents = _prepare(job, journal)
    try:
        with journal.running():  # before it begins: others take a job without a heartbeat for an interrupted one
            if begins:
                journal.begin(documents)
                _check_begun(job, journal)
            done, unchecked = (set(), set()) if begins else journal.recorded()
            with remove_partial_files(job.targets, after_death=interrupted):
                results = run_stages(
                    job.stages(journal.run),
                    name=job.name,
                    scheduler=scheduler,
                    needs=needs,
                    journal=journal,
                    done=done,
                    unchecked=unchecked,
                    progress=progress,
                )
            journal.check(now=True)
            written = job.publish(documents)
    except JobError:
        journal.tidy()
        raise
    if interrupted:
        remove_partial_files_beside(job.store, written or ())
    journal.finish()
    flush(job.store)
    return JobResult(tuple(results), time.perf_counter() - start)


def _prepare(job: Job, journal: Journal) -> tuple[Job, dict[str, bytes]]:
    """Make room; return the job, or the one that writes beside what it replaces, and the documents to publish."""
    journal.run = new_run()
    beside = None if job.beside is None else job.beside(journal.run)
    documents = None if beside is None else beside.prepare()
    if beside is None or documents is None:
        return job, dict(job.prepare() or {})
    journal.old_prefix = beside.old_prefix
    return beside, dict(documents)


def _already_done(job: Job, journal: Journal, documents: Mapping[str, bytes], start: float) -> JobResult:
    """Finish a job of which an earlier run, or another client, had put the result in place."""
    results = []
    with suppress(JobError):  # a source that has changed since
        for stage in job.stages(journal.run):
            n_tasks = count_tasks(stage)
            results.append(StageResult(stage.name, n_tasks, n_tasks, 0.0, {}))
    if not journal.is_over:
        with journal.running():
            job.publish(documents)
        journal.finish()
        flush(job.store)
    return JobResult(tuple(results), time.perf_counter() - start)


def _check_begun(job: Job, journal: Journal) -> None:
    """Give a job that has begun up where another writer has reserved or taken the target since room was made.

    Others look for jobs after they have reserved a place: of two that begin at once, at least one sees the other.
    """
    try:
        waits = job.check_free is not None  # what it says afterwards is true after waiting, too
        check_no_job(job.store, job.path, own_run=journal.run, below=job.overwrite is not None, waits=waits)
        if job.check_free is not None:
            job.check_free(journal.run)
    except BaseException:
        journal.discard()
        raise


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
    scheduler = Scheduler()
    needs = None
    if not scheduler.in_process and any(len(stage.tasks) for stage in stages):
        needs = describe_needs(name, sources=list(arrays))
        check_workers(scheduler, needs)
    return run_stages(stages, name=title, scheduler=scheduler, needs=needs, progress=progress)


def check_workers(scheduler: Scheduler, needs: Needs) -> None:
    """Check that the workers have what they need; `JobError` says which lacks what."""
    if scheduler.client is not None:
        check_client_workers(scheduler.client, needs)
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
    """
    scheduler = scheduler or Scheduler()
    results: list[StageResult] = []
    n_redone = 0
    with JobProgress(progress) as bars:
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
            with _tasks_running(scheduler, stage, journal, number, name=name, needs=needs) as run:
                run(run_task, tasks_to_run(stage, frozenset(resumed.on_record)), total.add)
                total.add_compared((0, [*resumed.check_listed()]))
                if resumed.n_settled < len(resumed.on_record):
                    run(compare_records, resumed.comparisons(), total.add_compared)
                if total.untrue:
                    resumed.off_record(total.untrue)
                    run(run_task, tasks_to_run(stage, only=total.untrue), total.add)
            seconds = time.perf_counter() - begun
            n_resumed = len(resumed.on_record)
            n_redone += len(own | later) - n_resumed
            results.append(StageResult(stage.name, n_tasks, n_resumed, seconds, total.counts, total.details))
    return results


@contextmanager
def _tasks_running(
    scheduler: Scheduler, stage: Stage, journal: Journal | None, number: int, *, name: str, needs: Needs | None
) -> Iterator[Callable[..., None]]:
    """Yield what runs tasks of a stage: called with their function, their arguments, and what takes their results."""
    here = LocalStage(stage.function, stage.common, journal, number, stage.inputs)
    if scheduler.in_process:
        yield lambda function, tasks, on_result: scheduler.run(stage.name, function, here, tasks, on_result)
        return
    sender = None if stage.reads is None else ReferenceSender(stage.reads, stage.common)
    packed = PackedStage.of(here, needs, sender)
    attempt = None if journal is None else journal.attempt
    with scheduler.span(name or stage.name), _ending(attempt, scheduler.client) as end:

        def run(function: Callable[..., Any], tasks: Iterable[Any], on_result: Callable[[Any], None]) -> None:
            shown = None
            if function is run_task:
                shown, tasks = stage.show, sender.with_references(tasks) if sender else tasks
            scheduler.run(stage.name, function, packed, tasks, on_result, shown=shown, before_cancel=end)

        yield run


@contextmanager
def _ending(attempt: Attempt | None, client: Client | None) -> Iterator[Callable[[], None] | None]:
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
        self._journal, self._stage, self._n_recorded = journal, stage, 0

    def add(self, result: tuple[Mapping[str, int], Sequence[Any]]) -> None:
        counts, details = result
        add_counts(self.counts, counts)
        self.details.extend(details)
        self.bars.advance(counts)
        self._n_recorded += 1
        if self._journal is not None and not self._n_recorded % _MERGED_AFTER:
            self._journal.merge(self._stage)

    def add_compared(self, result: tuple[int, list[int]]) -> None:
        n_tasks, untrue = result
        self.untrue.extend(untrue)
        self.bars.advance({}, n_tasks=n_tasks - len(untrue))


_MERGED_AFTER = 2 * GROUP  # tasks: reading and writing their records once more costs some 60 µs each
