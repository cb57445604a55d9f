"""Handles of jobs: of this process, and as another process sees them."""

import asyncio
import pickle
import threading

import dask
import pytest
from support.small_jobs import journal_keys, make_job, put

from chunkmill.errors import JobCancelled, JobError
from chunkmill.journal import heartbeat
from chunkmill.runtime.job import run_job
from chunkmill.runtime.job_handle import _found, start_job
from chunkmill.stores.memory import MemoryStore


class Held:
    """A task that waits until it is let go; each task asks its attempt, as writes do."""

    def __init__(self):
        self.at_work, self.go = threading.Event(), threading.Event()

    def __call__(self, store, number):
        self.at_work.set()
        assert self.go.wait(10)
        return put(store, number)


@pytest.fixture(autouse=True)
def scheduler(monkeypatch):
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.02)
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def held():
    held = Held()
    yield held
    held.go.set()


def _start(job):
    return start_job(job, lambda result: result.counts["n_keys"], {"put-0": 4}, resume=True, progress=False)


def _elsewhere(handle, run=""):
    """Return the handle as another process unpickles it."""
    return _found("not of this process", handle._job, handle._finish, {}, run)


def test_a_job_runs_in_a_thread_until_its_result(held):
    store = MemoryStore()
    handle = _start(make_job(store, n=3, function=held))
    assert held.at_work.wait(10)
    status = handle.status()
    assert (status.state, status.stage, status.n_tasks_done, status.n_tasks) == ("running", "put-0", 0, 3)
    assert not handle.wait(0.01)
    assert not handle.done()
    with pytest.raises(TimeoutError):
        handle.result(0.01)
    assert pickle.loads(pickle.dumps(_pickled(handle))) is handle
    held.go.set()
    assert handle.result(10) == 3
    assert (handle.done(), handle.status().state, handle.cancel()) == (True, "done", False)
    assert "put-0: 3 of 3 tasks, 3 B" in str(handle.status())
    assert "<progress value='3' max='3'>" in handle._repr_html_()


class _pickled:  # noqa: N801 - stands for a function
    """Pickles the handle by its token: the functions of these tests cannot be pickled."""

    def __init__(self, handle):
        self.token = handle.__reduce__()[1][0]

    def __reduce__(self):
        return _found, (self.token, None, None, {}, "")


def test_errors_are_raised_by_the_result():
    def fail(_store, _number):
        raise OSError("disk")

    handle = _start(make_job(MemoryStore(), function=fail))
    assert handle.wait(10)
    assert handle.status().state == "failed"
    with pytest.raises(OSError, match="disk"):
        handle.result()


def test_a_cancelled_job_stops_and_is_resumed(held):
    store, first = MemoryStore(), []

    def one_then_wait(store, number):
        return held(store, number) if first else (first.append(number), put(store, number))[1]

    job = make_job(store, n=5, function=one_then_wait)
    handle = _start(job)
    assert held.at_work.wait(10)
    assert handle.cancel()
    held.go.set()
    assert handle.wait(10)
    with pytest.raises(JobCancelled, match="the same plan resumes it"):
        handle.result()
    assert handle.status().state == "cancelled"
    assert _elsewhere(handle).status().state == "interrupted"
    assert store.get("zarr.json") is None
    result = run_job(job)
    assert result.n_resumed >= 1
    assert store.get("zarr.json") == b"there"
    assert not journal_keys(store)


def test_another_process_sees_waits_and_cancels(held):
    store = MemoryStore()
    handle = _start(make_job(store, n=2, function=held))
    assert held.at_work.wait(10)
    other = _elsewhere(handle, handle._monitor.run)
    assert not other.wait(0.1)
    status = other.status()
    assert (status.state, status.stage, status.n_tasks) == ("running", "put-0", 2)
    assert _elsewhere(handle, "another run").status().state == "ended"
    assert other.cancel()
    held.go.set()
    assert other.wait(10)
    assert handle.wait(10)
    with pytest.raises(JobError, match="the job has ended, was interrupted, or was replaced"):
        handle.result()
    with pytest.raises(JobError, match="it was interrupted"):
        other.result()
    assert not other.cancel()
    run_job(handle._job)
    assert other.status().state == "ended"
    with pytest.raises(JobError, match="known in the process that ran it"):
        other.result()


def test_jobs_are_awaited(held):
    handle = _start(make_job(MemoryStore(), n=2, function=held))

    async def await_it():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle, 0.05)  # which cancels what waits, not the job
        held.go.set()
        return await handle

    assert asyncio.run(await_it()) == 2
