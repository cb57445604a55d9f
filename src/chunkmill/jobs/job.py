"""Run whole-store jobs on the scheduler that dask is set to: stages of tasks, journal, resume, progress, preflight.

A job is a few stages, one after the other: the client is the barrier between them, so that nothing of a stage that is
done is kept alive or computed again. A stage is a function over many small task specs, and what they share. Not here:
what a task does (`chunkmill.conversion.convert_job`, `chunkmill.conversion.rechunking.job`), plans
(`chunkmill.jobs.plan`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import at_once
from chunkmill.config import setting
from chunkmill.errors import ChunkmillError, JobCancelled, JobError, NodeExists
from chunkmill.journal.journal import Journal
from chunkmill.log import LOG
from chunkmill.nodes import placement
from chunkmill.nodes.documents import declare_arrays
from chunkmill.nodes.target import Target
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


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """Description of a job for `run_job`.

    Attributes
    ----------
    name
        For messages: ``"convert to 'a' in file:///x"``.
    target
        The nodes that it writes; the journal is stored in its store, named after its path.
    fingerprint
        Of the plan, by `chunkmill.journal.names.fingerprint`.
    sources
        Arrays that tasks read: workers are checked for their codecs and stores first.
    stages
        Returns the stages that write the target of a run, of which the name stands in the names of all temporary
        values; called when room is made, and when the job is resumed.
    writes
        Further stores (a temporary one) that tasks write to.
    check_result
        Called before anything is deleted, and before the target is published: raises where the result must not be.
    publish
        Makes the result visible, and deletes what is temporary; returns the keys of the documents. May be called again
        when the process ends before the journal is deleted.
    choices
        What the planner chose for the workers, for the plan: see `chunkmill.journal.plans.Plan`.
    adopt
        Returns, for fingerprint and choices of the unfinished job at the target, that job as it was planned for other
        workers; ``None`` where it is another one.
    tasks_at_once
        Most tasks that a process may run at the same time, where its memory holds fewer than it has threads.
    memory_of_tasks
        Bytes that the tasks of one worker hold.
    """

    name: str
    target: Target
    fingerprint: str
    sources: Sequence[StoredArray]
    stages: Callable[[Target], Sequence[Stage]]
    writes: Sequence[Store] = ()
    check_result: Callable[[], object] = _nothing
    publish: Callable[[Target], Sequence[str]] = Target.publish
    choices: Mapping[str, Any] = field(default_factory=dict)
    adopt: Callable[[str, Mapping[str, Any]], Job | None] | None = None
    tasks_at_once: int | None = None
    memory_of_tasks: int = 0

    @property
    def store(self) -> Store:
        """Store of the target."""
        return self.target.store

    @property
    def path(self) -> str:
        """Path of the target."""
        return self.target.path

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

    def resumed(self) -> tuple[Job, Journal, bool]:
        """Return the job, as it was begun, with its journal, and whether it is unfinished.

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
    job, journal, resumes = job.resumed() if resume else (job, job.journal(), False)
    if journal.is_over or (resumes and journal.is_in_place):
        return _already_done(job, journal, start)
    interrupted, needs = resumes or journal.keeps_records, None
    if not scheduler.in_process:
        writes = (job.store, *job.writes)
        needs = describe_needs(job.name, sources=job.sources, targets=job.target.arrays, writes=writes)
        check_workers(scheduler, needs, monitor.wait_for)
    if not resume:
        journal.check_dead()
        placement.withdraw_below(job.store, job.path)
        interrupted = journal.discard()  # before the values that it records are deleted
    monitor.check()
    # before it begins: without a heartbeat others take it for interrupted
    with journal.running(monitor.shown), ExitStack() as held:
        target = job.target.resumed(journal) if resumes else job.target.prepared(journal, job.check_result)
        held.enter_context(target.leases(job.name))
        stages = _resumed_stages(job, journal, target) if resumes else _begun_stages(job, journal, target, scheduler)
        declare_arrays(target.arrays)
        recorded = journal.records.names() if interrupted else []
        monitor.begin(journal.run, journal.heartbeat, resumes=resumes)
        if not job.store.compares_versions:
            LOG.warning("%s: the store cannot compare versions, and guards what writers share by a lock", job.name)
        with remove_partial_files(target.arrays, after_death=interrupted):
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
        look = partial(job.store.get_versioned, journal.plan_key)
        check = _nothing if journal.is_in_place else job.check_result  # by another client of the run
        *_, plan = at_once(job.store, lambda: journal.check(now=True), check, look)
        job.store.sync()  # the chunks before their documents, and those before the journal goes
        written = job.publish(target)
        commit()
        job.store.sync()
        if interrupted:
            remove_partial_files_near(job.store, written)
        held.close()  # while the same job can still be resumed
        journal.finish(plan)
    job.store.flush()
    return JobResult(tuple(results), time.perf_counter() - start)


def _begun_stages(job: Job, journal: Journal, target: Target, scheduler: Scheduler) -> Sequence[Stage]:
    journal.begin()
    journal.asks_for_records = journal.keeps_records or not scheduler.in_process
    is_free, stages = at_once(job.store, lambda: target.stays_free(journal), lambda: job.stages(target))
    return stages if is_free else _resumed_stages(job, journal, target)


def _resumed_stages(job: Job, journal: Journal, target: Target) -> Sequence[Stage]:
    """Return the stages; where others have made a node since, forget a job that has done nothing yet."""
    try:
        return job.stages(target)
    except NodeExists:
        if not journal.records.names():
            journal.discard()
        raise


def _already_done(job: Job, journal: Journal, start: float) -> JobResult:
    """Finish a job of which an earlier run, or another client, had put the result in place."""
    results, target = [], job.target.resumed(journal)
    with suppress(JobError):  # a source that has changed since
        for stage in job.stages(target):
            n_tasks = count_tasks(stage)
            results.append(StageResult(stage.name, n_tasks, n_tasks, 0.0, {}))
    if not journal.is_over:
        with journal.running(), target.leases(job.name):
            job.publish(target)
        journal.finish()
        job.store.flush()
    return JobResult(tuple(results), time.perf_counter() - start)
