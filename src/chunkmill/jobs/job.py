"""Fit a job to workers, and run it on the scheduler that dask is set to: journal, resume, progress, preflight.

A job is a few stages, one after the other: the client is the barrier between them, so that nothing of a stage that is
done is kept alive or computed again. The plan that is stored is the one that runs (P7): a job that is resumed is fitted
to the workers that it was begun for. Not here: kinds of jobs (`chunkmill.jobs.work`), plans (`chunkmill.jobs.plan`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import at_once
from chunkmill.errors import ChunkmillError, JobCancelled, JobError
from chunkmill.hints import Hint
from chunkmill.jobs.sources import check_sources
from chunkmill.jobs.work import Tasks, Work
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import Plan, fingerprint
from chunkmill.log import LOG
from chunkmill.nodes import delete
from chunkmill.nodes.documents import declare_arrays
from chunkmill.nodes.target import Target
from chunkmill.runtime.cancellation import (
    ended_by_sigterm,
    remove_partial_files,
    remove_partial_files_near,
)
from chunkmill.runtime.preflight import describe_needs
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, count_tasks
from chunkmill.runtime.stage_runner import JobMonitor, StageResult, check_workers, run_stages
from chunkmill.runtime.task import add_counts
from chunkmill.runtime.worker_memory import Worker


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is planned, for `run_job`.

    Attributes
    ----------
    tasks, worker
        The tasks, and the workers that they were fitted to.
    fingerprint
        Of the plan: only a job with the same one resumes what is recorded.
    at_once
        Most tasks that a process may run at the same time, where its memory holds fewer than it has threads.
    call
        The call that began it, for `chunkmill.resume`.
    """

    work: Work
    tasks: Tasks
    worker: Worker
    fingerprint: str
    at_once: int | None = None
    call: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def fitted(cls, work: Work, worker: Worker, choices: Mapping[str, Any] | None = None) -> Job:
        """Return the job of some work on workers of that kind.

        Raises
        ------
        JobError
            Their memory is too little for the smallest tasks (P12); says how much is needed.
        """
        tasks, target = work.fit(worker, choices), work.target
        needed = tasks.task_bytes * worker.n_threads
        if tasks.since and needed > worker.max_mem:
            reason = f"{worker.max_mem} bytes for a worker of {worker.n_threads} threads are too little: the smallest "
            reason += f"that works is {needed} bytes ({needed / 2**20:.1f} MiB), since {tasks.since}"
            hint = Hint("give {} or more, workers of fewer threads, or smaller chunks or shards", ("max_mem", needed))
            raise JobError(job=work.name, reason=reason, hint=hint)
        sources = [(each.array.url, each.array.path, each.array.metadata, each.seen.versions) for each in work.sources]
        nodes = [(array.path, array.metadata) for array in target.arrays]
        known = (sources, target.format, target.groups, nodes, target.overwrite, work.identity(), tasks.numbered)
        return cls(work, tasks, worker, fingerprint(work.operation, work.version, *known))

    @property
    def name(self) -> str:
        """For messages: ``"convert to 'a' in file:///x"``."""
        return self.work.name

    @property
    def target(self) -> Target:
        """The nodes that it writes."""
        return self.work.target

    def journal(self) -> Journal:
        """Return the journal of the job."""
        choices: dict[str, Any] = {"worker": [*astuple(self.worker)], **self.tasks.choices}
        choices["arguments"] = _in_words(self.work)
        choices |= {"call": dict(self.call)} if self.call else {}
        about = self.target.path, self.name, self.fingerprint
        return Journal(self.target.store, Plan(*about, kind=self.work.operation, choices=choices))

    def stages(self, target: Target) -> Sequence[Stage]:
        """Return the stages of a run; `NodeExists` where others have made a node during an interruption (P4)."""
        check_sources(self.name, self.work.sources)
        fresh = target.is_fresh()
        if not fresh:
            target.check_own()
        return self.tasks.stages(target, fresh=fresh)

    def check_result(self) -> None:
        """Raise `JobError` or `ChunkError` where the sources are not those that were planned, and read (P9)."""
        check_sources(self.name, self.work.sources)
        self.tasks.check_result()

    def unfinished(self) -> Job | bool | None:
        """Return the unfinished job at the target as it was begun, ``False`` for another one, ``None`` without one.

        Changes nothing.

        Raises
        ------
        JobError
            One of its tasks needs more memory than a worker has now.
        """
        journal = self.journal()
        found = journal.has_this_plan()
        return (self._begun(journal) or False) if found is False else found and self

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
        except JobError as error:
            begun = self._begun(journal)
            if begun is None and (journal.other is None or not self.work.same_again):
                raise
            if begun is None:
                hint = f"{error.hint}{self.work.same_again}"
                raise JobError(job=error.job, reason=error.reason, hint=hint) from None
        LOG.info("%s: resumes a plan that was made for other workers", self.name)
        journal = begun.journal()
        return begun, journal, journal.resume()

    def _begun(self, journal: Journal) -> Job | None:
        begun = begun_job(self.work, self.worker, journal.other)
        return None if begun is None else replace(begun, call=self.call)


_MOST_SHOWN = 200  # characters of an argument that a plan stores in words


def _in_words(work: Work) -> dict[str, str]:
    sources, target = [each.array for each in work.sources], work.target
    arrays = {array.path: array for array in target.arrays}

    def of_each(function: Callable[[StoredArray], object]) -> object:
        values = {path: function(array) for path, array in arrays.items()}
        return values if len(values) > 1 else next(iter(values.values()), "")

    known = {
        "operation": work.operation,
        "source": [f"{array.url}/{array.path}" if array.path else array.url for array in sources],
        "format": target.format.name,
        "nodes": len(target.groups) + len(arrays),
        "chunks": of_each(lambda array: array.chunks),
        "shards": of_each(lambda array: array.shards),
        "codecs": of_each(lambda array: [codec.name for codec in array.codecs]),
        "overwrite": target.overwrite,
        **work.arguments(),
    }
    texts = {name: str(value) for name, value in known.items()}
    return {n: v if len(v) <= _MOST_SHOWN else f"{v[:_MOST_SHOWN]}… ({fingerprint(v)[:8]})" for n, v in texts.items()}


def begun_job(work: Work, worker: Worker, plan: Plan | None) -> Job | None:
    """Return the job of a stored plan, fitted to the workers that it was begun for; ``None`` without it.

    Raises
    ------
    JobError
        One of its tasks needs more memory than `worker` has (P12).
    """
    if plan is None:
        return None
    try:
        job = Job.fitted(work, Worker(*plan.choices["worker"]), plan.choices)
    except (KeyError, TypeError, ValueError, ArithmeticError, JobError):  # of another version
        return None
    if job.fingerprint != plan.fingerprint:
        return None
    need = max(job.tasks.task_bytes, 1)
    most = worker.max_mem // need
    if not most and not worker.is_asked:  # not more than is in use before dask writes values to disk
        most = 2 * worker.max_mem // need
    if not most:
        reason = f"a task of the unfinished job holds {need:,} bytes, planned with max_mem {job.worker.max_mem:,}, "
        hint = Hint("give {} or more, or workers of more memory", ("max_mem", need))
        hint = hint.also("{} begins again", ("resume", False))
        raise JobError(job=work.name, reason=f"{reason}and max_mem is {worker.max_mem:,} now", hint=hint)
    return replace(job, at_once=most if most < worker.n_threads else None)


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
    resumes from there; tasks that are still at work on other processes then stop before they write another value (P10).

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
    scheduler, monitor = Scheduler(of_job=True), JobMonitor(job.name, progress)
    scheduler.check_may_wait(job.name)
    try:
        with (
            ended_by_sigterm(job.name, monitor.cancel, f"`chunkmill resume {job.target.store.url}`"),
            monitor.showing(),
            ExitStack() as transaction,
        ):
            transaction.enter_context(job.target.store.transaction(job.name))
            result = _run(job, scheduler, monitor, transaction.close, resume=resume)
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
) -> JobResult:
    start = time.perf_counter()
    resume = resume and not (job.target.store.has_transactions or job.target.store.is_archive)
    job, journal, resumes = job.resumed() if resume else (job, job.journal(), False)
    if journal.plan.over or (resumes and journal.is_in_place):
        return _already_done(job, journal, start)
    interrupted, needs = bool(journal.plan.run), None
    sources, writes = [source.array for source in job.work.sources], (job.target.store, *job.tasks.writes)
    if not scheduler.in_process:
        needs = describe_needs(job.name, sources=sources, targets=job.target.arrays, writes=writes)
        check_workers(scheduler, needs)
    if not resume:
        journal.check_dead()
        delete.withdraw_below(job.target.store, job.target.path)
        interrupted = journal.discard()  # before the values that it records are deleted
    monitor.check()
    # before it begins: without a heartbeat others take it for interrupted
    with journal.running(monitor.shown), ExitStack() as held:
        target = job.target.resumed(journal) if resumes else job.target.prepared(journal, job.check_result)
        held.enter_context(target.leases(job.name))
        stages = _resumed_stages(job, journal, target) if resumes else _begun_stages(job, journal, target)
        declare_arrays(target.arrays)
        recorded = journal.records.names() if interrupted else []
        monitor.begin(journal.heartbeat, resumes=resumes)
        if not job.target.store.compares_versions:
            LOG.warning("%s: the store cannot compare versions, and guards what writers share by a lock", job.name)
        with remove_partial_files(target.arrays, after_death=interrupted):
            results = run_stages(
                stages,
                monitor,
                scheduler,
                needs=needs,
                journal=journal,
                done=[(stage, task) for stage, task, _ in recorded],
                tasks_at_once=job.at_once,
            )
        look = partial(job.target.store.get_versioned, journal.plan_key)
        check = (lambda: None) if journal.is_in_place else job.check_result  # by another client of the run
        *_, plan = at_once(job.target.store, lambda: journal.check(now=True), check, look)
        job.target.store.sync()  # the chunks before their documents, and those before the journal goes (P11)
        with journal.giving_way():
            written = job.tasks.publish(replace(target, again=resumes or journal.is_joined()))
        commit()
        job.target.store.sync()
        if interrupted:
            remove_partial_files_near(job.target.store, written)
        held.close()  # while the same job can still be resumed
        journal.finish(plan)
    job.target.store.flush()
    return JobResult(tuple(results), time.perf_counter() - start)


def _begun_stages(job: Job, journal: Journal, target: Target) -> Sequence[Stage]:
    journal.begin()
    with journal.giving_way():
        is_free, stages = at_once(job.target.store, lambda: target.stays_free(journal), lambda: job.stages(target))
    return stages if is_free else _resumed_stages(job, journal, target)


def _resumed_stages(job: Job, journal: Journal, target: Target) -> Sequence[Stage]:
    """Return the stages; where others have made a node since, forget a job that has done nothing yet (P4)."""
    with journal.giving_way(keeps_records=True):
        return job.stages(target)


def _already_done(job: Job, journal: Journal, start: float) -> JobResult:
    """Finish a job of which an earlier run, or another client, had put the result in place (P7)."""
    results, target = [], job.target.resumed(journal)
    with suppress(JobError):  # a source that has changed since
        for stage in job.stages(target):
            n_tasks = count_tasks(stage)
            results.append(StageResult(stage.name, n_tasks, n_tasks, 0.0, {}))
    if not journal.plan.over:
        with journal.running(), target.leases(job.name):
            job.tasks.publish(target)
        journal.finish()
        job.target.store.flush()
    return JobResult(tuple(results), time.perf_counter() - start)
