"""Run whole-store jobs on the scheduler that dask is set to: stages of tasks, journal, resume, progress, preflight.

A job is a few stages, one after the other: the client is the barrier between them, so that nothing of a stage that is
done is kept alive or computed again. A stage is a function over many small task specs, and what they share. Not here:
what a task does (`chunkmill.conversion.convert_job`, `chunkmill.conversion.rechunking.job`), plans
(`chunkmill.jobs.plan`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import at_once
from chunkmill.config import setting
from chunkmill.errors import ChunkmillError, JobCancelled, JobError, NodeExists
from chunkmill.journal.journal import Journal
from chunkmill.journal.lease import check_no_job
from chunkmill.journal.recovery import withdraw_published
from chunkmill.log import LOG
from chunkmill.nodes.documents import declare_arrays
from chunkmill.runtime.cancellation import (
    ended_by_sigterm,
    hint_of_resuming,
    remove_partial_files,
    remove_partial_files_near,
)
from chunkmill.runtime.preflight import describe_needs
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, count_tasks
from chunkmill.runtime.stage_runner import JobMonitor, StageResult, check_workers, run_stages
from chunkmill.runtime.task import add_counts
from chunkmill.stores.base import Store

__all__ = ["Job", "JobResult", "run_job"]


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
        Of the plan, by `chunkmill.journal.names.fingerprint`.
    sources, targets
        Arrays that tasks read and write: workers are checked for their codecs and stores first.
    prepare
        Makes room in the target and returns the documents that `publish` writes. Called when the job begins, not
        when it is resumed, with the name of the run where that holds the target's path, and whether it follows one
        that was interrupted. It may raise (`NodeExists`): nothing is recorded then.
    stages
        Returns the stages of the run of that name, which stands in the names of all temporary values; called after
        `prepare`, and when the job is resumed.
    publish
        Makes the result visible; called with the documents when all tasks are done; returns the keys that it wrote. May
        be called again when the process ends before the journal is deleted.
    check_free
        Called with the name of the run when the job has begun: raises `NodeExists` where a node was made since
        `prepare`, whose chunks the job would write over.
    check_result
        Called before `publish`: raises where the result must not be published.
    leases
        Holds the paths of further targets, in the run of that name, while tasks run and the result is published.
    writes
        Further stores (a temporary one) that tasks write to.
    overwrite
        ``True``: `prepare` deletes what is there; ``False``: it refuses; ``None``: that is written into.
    staged
        Returns, for the name of a run, the same job writing to a staging prefix (see `old_prefix`): that
        node stays until the new one is complete. Called as ``staged(run, replaced)`` with what the plan says, of a job
        that is resumed; with ``None`` when it begins: returns ``None`` then where the store cannot hold both.
    keeps_old
        Returns whether a node that is there stays until then; ``None`` where there is none.
    old_prefix
        Of a job that `staged` returned: prefix of the keys of the node that it replaces. It writes below
        `chunkmill.journal.names.staged_prefix`, and `publish` calls
        `chunkmill.stores.base.Store.replace_prefix`.
    choices
        What the planner chose for the workers, for the plan: see `chunkmill.journal.plans.Plan`.
    adopt
        Returns, for fingerprint and choices of the unfinished job at the target, that job as it was planned for other
        workers; ``None`` where it is another one.
    tasks_at_once
        Most tasks that a process may run at the same time, where its memory holds fewer than it has threads.
    memory_of_tasks
        Bytes that the tasks of one worker hold.
    replaced
        Of such a job: what was seen of that node when it began, for the plan.
    """

    name: str
    store: Store
    path: str
    fingerprint: str
    sources: Sequence[StoredArray]
    targets: Sequence[StoredArray]
    prepare: Callable[[str, bool], Mapping[str, bytes]]
    stages: Callable[[str], Sequence[Stage]]
    publish: Callable[[Mapping[str, bytes]], Iterable[str] | None]
    writes: Sequence[Store] = ()
    check_free: Callable[[str], object] | None = None
    check_result: Callable[[], object] | None = None
    leases: Callable[[str], AbstractContextManager[object]] = nullcontext
    overwrite: bool | None = False
    staged: Callable[[str, Mapping[str, str] | None], Job | None] | None = None
    keeps_old: Callable[[], bool | None] | None = None
    old_prefix: str | None = None
    replaced: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    adopt: Callable[[str, Mapping[str, Any]], Job | None] | None = None
    tasks_at_once: int | None = None
    memory_of_tasks: int = 0

    def journal(self) -> Journal:
        """Return the journal of the job."""
        return Journal(self.store, self.path, self.name, self.fingerprint, choices=self.choices)

    def is_unfinished(self) -> bool | None:
        """Return whether the unfinished job at the target is this one; ``None`` without one. Changes nothing."""
        journal = self.journal()
        found = journal.has_this_plan()
        if found is False and self.adopt is not None and (other := journal.other) is not None:
            with suppress(JobError):
                return self.adopt(other.fingerprint, other.choices) is not None
        return found

    def resumed(self) -> tuple[Job, Journal, dict[str, bytes] | None]:
        """Return the job, as it was begun, with its journal and its documents; ``None`` where none is unfinished.

        Raises
        ------
        JobError
            There is an unfinished job with another plan.
        """
        journal = self.journal()
        try:
            return self, journal, journal.resume()
        except JobError:
            other = journal.other
            begun = self.adopt(other.fingerprint, other.choices) if self.adopt and other and other.choices else None
            if begun is None:
                raise
        LOG.info("%s: resumes a plan that was made for other workers", self.name)
        journal = begun.journal()
        return begun, journal, journal.resume()


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


def run_job(
    job: Job,
    *,
    resume: bool = True,
    progress: bool | str | None = None,
) -> JobResult:
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
        something, or this run was discarded since; or this would block the event loop of an asynchronous Client.
    """
    scheduler, monitor = Scheduler(of_job=True), JobMonitor(job.name)
    scheduler.check_may_wait(job.name)
    try:
        with (
            hint_of_resuming(job.name),
            ended_by_sigterm(job.name, monitor.cancel, f"`chunkmill resume {job.store.url}`"),
            ExitStack() as transaction,
        ):
            shown = setting("progress", progress)
            transaction.enter_context(job.store.transaction(job.name))
            result = _run(job, scheduler, monitor, transaction.close, resume=resume, progress=shown)
    except BaseException as error:
        LOG.warning("%s: %s: %s", job.name, "cancelled" if monitor.is_cancelled else "ends with an error", error)
        if monitor.is_cancelled and isinstance(error, ChunkmillError) and not isinstance(error, JobCancelled):
            # a task has learned of it first
            raise JobCancelled(job=job.name, reason="it was cancelled", hint="the same plan resumes it") from error
        raise
    LOG.info("%s: done in %.1f s", job.name, result.seconds)
    return result


def _run(
    job: Job,
    scheduler: Scheduler,
    monitor: JobMonitor,
    commit: Callable[[], None],
    *,
    resume: bool,
    progress: bool | str | None,
) -> JobResult:
    start = time.perf_counter()
    resume = resume and not (job.store.has_transactions or job.store.is_archive)
    job, journal, documents = job.resumed() if resume else (job, job.journal(), None)
    if job.staged is not None and journal.old_prefix is not None:
        job = job.staged(journal.run, journal.replaced) or job
    if journal.is_over or (documents is not None and journal.is_in_place):
        return _already_done(job, journal, documents or {}, start)
    interrupted, needs = documents is not None, None
    if not scheduler.in_process:
        needs = describe_needs(job.name, sources=job.sources, targets=job.targets, writes=(job.store, *job.writes))
        check_workers(scheduler, needs, monitor.wait_for)
    begins = documents is None
    if documents is None:
        interrupted = journal.keeps_records
        if not resume:
            journal.check_dead()
            withdraw_published(job.store, job.path)
            interrupted = journal.discard()  # before the values that it records are deleted
    monitor.check()
    # before it begins: without a heartbeat others take it for interrupted
    with journal.running(monitor.shown), ExitStack() as held:
        if documents is None:
            job, documents = _prepare(job, journal)
        held.enter_context(job.leases(journal.name_run()))
        stages = _begun_stages(job, journal, documents, scheduler) if begins else _resumed_stages(job, journal)
        declare_arrays(job.targets)
        recorded = journal.records.names() if journal.keeps_records or not begins else []
        monitor.begin(journal.run, journal.heartbeat, resumes=not begins)
        if not job.store.compares_versions:
            LOG.warning("%s: the store cannot compare versions, and guards what writers share by a lock", job.name)
        with remove_partial_files(job.targets, after_death=interrupted):
            results = run_stages(
                stages,
                name=job.name,
                scheduler=scheduler,
                needs=needs,
                journal=journal,
                done=[(stage, task) for stage, task, _ in recorded],
                progress=progress,
                monitor=monitor,
                tasks_at_once=job.tasks_at_once,
            )
        check = job.check_result or _nothing
        look = partial(job.store.get_versioned, journal.plan_key)
        *_, plan = at_once(job.store, lambda: journal.check(now=True), check, look)
        job.store.sync()  # the chunks before their documents, and those before the journal goes
        written = job.publish(documents)
        commit()
        job.store.sync()
        if interrupted:
            remove_partial_files_near(job.store, written or ())
        held.close()  # while the same job can still be resumed
        journal.finish(plan)
    job.store.flush()
    return JobResult(tuple(results), time.perf_counter() - start)


def _nothing() -> None: ...


def _prepare(job: Job, journal: Journal) -> tuple[Job, dict[str, bytes]]:
    """Make room; return the job, or the one that stages what it writes, and the documents to publish."""
    staged = None if job.staged is None else job.staged(journal.name_run(), None)
    if staged is not None:
        job, journal.old_prefix, journal.replaced = staged, staged.old_prefix, staged.replaced
    if staged is not None or not job.overwrite:
        return job, dict(job.prepare("", False))
    with journal.reserving() as run:
        return job, dict(job.prepare(run, bool(journal.interrupted)))


def _begun_stages(job: Job, journal: Journal, documents: Mapping[str, bytes], scheduler: Scheduler) -> Sequence[Stage]:
    journal.begin(documents)
    journal.asks_for_records = journal.keeps_records or not scheduler.in_process
    is_free, stages = at_once(job.store, lambda: _is_free(job, journal), lambda: job.stages(journal.run))
    return stages if is_free else _resumed_stages(job, journal)


def _resumed_stages(job: Job, journal: Journal) -> Sequence[Stage]:
    """Return the stages; where others have made a node since, forget a job that has done nothing yet."""
    try:
        return job.stages(journal.run)
    except NodeExists:
        if not journal.records.names():
            journal.discard()
        raise


def _already_done(job: Job, journal: Journal, documents: Mapping[str, bytes], start: float) -> JobResult:
    """Finish a job of which an earlier run, or another client, had put the result in place."""
    results = []
    with suppress(JobError):  # a source that has changed since
        for stage in job.stages(journal.run):
            n_tasks = count_tasks(stage)
            results.append(StageResult(stage.name, n_tasks, n_tasks, 0.0, {}))
    if not journal.is_over:
        with journal.running():
            if job.check_result is not None:
                job.check_result()
            job.publish(documents)
        journal.finish()
        job.store.flush()
    return JobResult(tuple(results), time.perf_counter() - start)


def _is_free(job: Job, journal: Journal) -> bool:
    """Give a job that has begun up where another writer has reserved or taken the target since room was made.

    Others look for jobs after they have reserved a place: of two that begin at once, at least one sees the other.
    Returns ``False`` where another client, which has resumed this job, may have made the node that is there.
    """
    try:
        waits = job.check_free is not None  # what it says afterwards is true after waiting, too
        check_no_job(job.store, job.path, own_run=journal.run, below=job.overwrite is not None, waits=waits)
        if job.check_free is not None:
            job.check_free(journal.run)
    except BaseException as error:
        if isinstance(error, NodeExists) and journal.is_joined():
            return False
        journal.discard()
        raise
    return True
