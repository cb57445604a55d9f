"""The handle of a job that runs in a thread of this process, or that another process runs.

Of another process the journal has the state: its heartbeats carry the progress. Not here: running a job
(`chunkmill.runtime.job`), counting its progress (`chunkmill.runtime.progress`).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Generic, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from chunkmill.errors import JobCancelled, JobError
from chunkmill.journal.heartbeat import heartbeats_below, is_live
from chunkmill.journal.journal import Journal
from chunkmill.journal.names import RUNNING
from chunkmill.journal.plans import Plan
from chunkmill.runtime.job import Job, JobResult, run_job
from chunkmill.runtime.progress import JobMonitor, JobState, JobStatus
from chunkmill.runtime.scheduler import Scheduler

__all__ = ["RunningJob", "end_attempts", "start_job", "stored_status"]

R = TypeVar("R")

_POLL_SECONDS = 1.0  # between two looks at a job of another process


class RunningJob(Generic[R]):
    """Handle of a job that runs; made by ``plan.start()``.

    The job does not end with the handle, nor when waiting for it is interrupted; it ends with its process, and then the
    same plan resumes it. ``await job`` waits in an event loop, and returns the result. A handle can be pickled: in
    another process it finds the job by its journal, which is in the target's store.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-running", shape=(8,), dtype="i4", chunks=(2,))
    >>> job = cm.plan_rechunk("memory://doc-running", "memory://doc-rechunked", chunks=(4,)).start()
    >>> job.wait(timeout=60)
    True
    >>> job.result().n_keys
    2
    """

    def __init__(
        self, job: Job, finish: Callable[[JobResult], R], expected: Mapping[str, int], *, run: str = "", token: str = ""
    ) -> None:
        self._job, self._finish, self._expected = job, finish, expected
        self._token = token or uuid4().hex
        self._run = run
        self._monitor: JobMonitor | None = None
        self._future: Future[R] = Future()

    def status(self) -> JobStatus:
        """Return state and progress: of another process's job as of its last heartbeat, every ten seconds."""
        return stored_status(self._job, self._run) if self._monitor is None else self._monitor.status()

    def done(self) -> bool:
        """Return whether the job has ended, however that came."""
        if self._monitor is not None:
            return self._future.done()
        return self.status().state not in {"begins", "running"}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended, at most `timeout` seconds; return whether it has. Raises no error of the job.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Returns
        -------
        bool
            Whether the job has ended.
        """
        self._check_may_wait()
        if self._monitor is not None:
            try:
                self._future.exception(timeout)
            except TimeoutError:
                return False
            return True
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            left = _POLL_SECONDS if end is None else min(_POLL_SECONDS, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        return True

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job, and return its result: the `Report` of a plan.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Returns
        -------
        Report
            Measured counts, bytes and seconds.

        Raises
        ------
        TimeoutError
            The job still runs.
        JobCancelled
            The job was cancelled; the same plan resumes it.
        JobError
            As in `Plan.run`; or the job is another process's, where alone its result is known.
        """
        self._check_may_wait()
        if self._monitor is not None:
            return self._future.result(timeout)
        if not self.wait(timeout):
            raise TimeoutError(f"{self._job.name} still runs")
        status = self.status()
        reason = f"its result is known in the process that ran it; here it is seen to have {status.state}"
        if status.state == "interrupted":
            reason = "it was interrupted"
        raise JobError(job=self._job.name, reason=reason, hint="`plan.run()` resumes, or `verify` compares the result")

    def cancel(self) -> bool:
        """Make the job stop, and return whether it was still running; `wait` returns when it has stopped.

        What is done stays on record: the same plan resumes there, or starts again with ``resume=False``. Tasks that are
        at work stop before they write another store key.

        Returns
        -------
        bool
            Whether the job was running.
        """
        if self._monitor is None:
            return end_attempts(self._job, self._run)
        if self._future.done():
            return False
        self._monitor.cancel()
        return True

    def __await__(self) -> Generator[Any, None, R]:
        if self._monitor is not None:
            return asyncio.shield(asyncio.wrap_future(self._future)).__await__()
        return asyncio.to_thread(self.result).__await__()

    def __repr__(self) -> str:
        return f"<RunningJob {self.status()}>"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        run = self._run if self._monitor is None else self._monitor.run
        return _found, (self._token, self._job, self._finish, dict(self._expected), run)

    def start(self, *, resume: bool, progress: bool | str | None) -> None:
        """Run the job in a thread, on the scheduler that dask is set to now."""
        scheduler, self._monitor = Scheduler(), JobMonitor(self._job.name, self._expected)
        _RUNNING[self._token] = self
        self._future.set_running_or_notify_cancel()
        run = (scheduler, self._monitor, resume, progress)
        thread = threading.Thread(
            target=copy_context().run, args=(self._run_here, *run), name=f"chunkmill: {self._job.name}", daemon=True
        )
        thread.start()

    def _run_here(self, scheduler: Scheduler, monitor: JobMonitor, resume: bool, progress: bool | str | None) -> None:
        try:
            result = run_job(self._job, resume=resume, progress=progress, scheduler=scheduler, monitor=monitor)
            report = self._finish(result)
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            if monitor.is_cancelled and not isinstance(error, JobCancelled):  # a task has learned of it first
                cancelled = JobCancelled(job=self._job.name, reason="it was cancelled", hint="the same plan resumes it")
                cancelled.__cause__ = error
                error = cancelled
            monitor.end("cancelled" if monitor.is_cancelled else "failed")
            self._future.set_exception(error)
        else:
            monitor.end("done")
            self._future.set_result(report)

    def _check_may_wait(self) -> None:
        if not self._future.done():
            Scheduler().check_may_wait(self._job.name)


def start_job(
    job: Job,
    finish: Callable[[JobResult], R],
    expected: Mapping[str, int],
    *,
    resume: bool,
    progress: bool | str | None,
) -> RunningJob[R]:
    """Run a job in a thread and return its handle.

    Parameters
    ----------
    finish
        Makes the handle's result.
    expected
        Stage -> bytes that it is expected to read and write.
    """
    handle = RunningJob(job, finish, expected)
    handle.start(resume=resume, progress=progress)
    return handle


_RUNNING: WeakValueDictionary[str, RunningJob[Any]] = WeakValueDictionary()  # of this process, by token


def _found(
    token: str, job: Job, finish: Callable[[JobResult], R], expected: Mapping[str, int], run: str
) -> RunningJob[R]:
    """Return the handle of this process, or one of the job of another process."""
    return _RUNNING.get(token) or RunningJob(job, finish, expected, run=run, token=token)


def stored_status(job: Job, run: str = "") -> JobStatus:
    """Return the state of a job from its journal, and the progress that its last heartbeat says.

    Parameters
    ----------
    run
        Name of the run; any one of this plan where it is empty.
    """
    journal = Journal(job.store, job.path, job.name, job.fingerprint)
    if not _is_there(journal, run):
        return JobStatus(job.name, "ended")
    said: Mapping[str, Any] = {}
    state: JobState = "interrupted"
    for _, heartbeat in _heartbeats(journal):
        if is_live(heartbeat):
            state, said = "running", json.loads(heartbeat)
    known = {name: said[name] for name in JobStatus.__slots__ if name in said}
    return JobStatus(job.name, state, **known)


def end_attempts(job: Job, run: str = "") -> bool:
    """End the attempts at a job, so that its tasks stop wherever they run; return whether there was a live one."""
    journal = Journal(job.store, job.path, job.name, job.fingerprint)
    if not _is_there(journal, run):
        return False
    found = list(_heartbeats(journal))
    for key, _ in found:
        job.store.delete(key)
    return any(is_live(heartbeat) for _, heartbeat in found)


def _is_there(journal: Journal, run: str) -> bool:
    """Return whether the journal at the target is of this plan, and of that run."""
    value = journal.store.get(journal.plan_key)
    if value is None:
        return False
    plan = Plan.parsed(value) or Plan()
    is_it = (
        plan.run == run if run else plan.fingerprint == journal.fingerprint
    )  # begun for other workers, it has another
    return is_it and not plan.over


def _heartbeats(journal: Journal) -> Iterator[tuple[str, bytes]]:
    for key in heartbeats_below(journal.store, journal.prefix + RUNNING):
        if (heartbeat := journal.store.get(key)) is not None:
            yield key, heartbeat
