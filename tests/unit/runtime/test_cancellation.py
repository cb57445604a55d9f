"""Tasks of cancelled writes: stopped before the next store key, and waited for."""

import signal
import threading
import time

import pytest

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.runtime import cancellation
from chunkmill.runtime.cancellation import abandon, remove_partial_files, remove_partial_files_near, unless_cancelled
from chunkmill.stores.local import LocalStore
from chunkmill.stores.posix_file import PARTIAL_SUFFIX
from chunkmill.stores.wrapper import write_guard


def test_a_task_writes_until_its_write_is_abandoned():
    with unless_cancelled("write-x") as guard:
        assert write_guard.get() is guard
        guard()
        cancellation._writes.abandoned.add("write-x")
        with pytest.raises(JobError, match="write-x: this task belongs to a write that was cancelled or has failed"):
            guard()
    assert write_guard.get() is None
    with pytest.raises(JobError), unless_cancelled("write-x"):
        pytest.fail("it began")
    with unless_cancelled("write-y") as guard:
        guard()


def test_abandoning_waits_for_what_is_writing():
    begun, ended = threading.Event(), []

    def task():
        with unless_cancelled("write-slow"):
            begun.set()
            time.sleep(0.1)
            ended.append(True)

    thread = threading.Thread(target=task)
    thread.start()
    begun.wait(10)
    abandon(["write-slow"])
    assert ended
    thread.join()


def test_a_write_that_hangs_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(cancellation, "_PATIENCE", 0.05)
    with unless_cancelled("write-hangs"):
        abandon(["write-hangs"])


def test_forked_children_begin_with_no_writes():
    """They have no threads that would end them."""
    writes = cancellation._Writes()
    writes.n_writing["x"] += 1
    writes.changed.acquire()
    writes.__init__()
    assert writes.changed.acquire(blocking=False)
    assert not writes.n_writing


@pytest.fixture
def array(tmp_path):
    return cm.create_array(tmp_path, "g/a", shape=(4,), dtype="i4").stored


@pytest.fixture
def partial(array, tmp_path):
    """A partial file of a process that is gone, below the array."""
    file = tmp_path / "g" / "a" / f".0.0.host-1.{'0' * 32}{PARTIAL_SUFFIX}"
    file.touch()
    return file


@pytest.fixture(autouse=True)
def all_are_abandoned(monkeypatch):
    monkeypatch.setattr("chunkmill.stores.posix_file.is_abandoned", lambda _: True)


@pytest.mark.parametrize("died", [True, False])
def test_partial_files_go_where_somebody_died(array, partial, died):
    with remove_partial_files([array], after_death=died):
        assert partial.exists()
    assert partial.exists() is not died


def test_partial_files_go_when_a_worker_is_lost(array, partial, monkeypatch):
    workers = iter([{"one", "two"}, {"one", "three"}])
    monkeypatch.setattr(cancellation, "_workers", lambda: next(workers))
    with remove_partial_files([array]):
        pass
    assert not partial.exists()


def test_partial_files_beside_keys(tmp_path, partial):
    staged = tmp_path / "g" / partial.name
    staged.touch()
    top = tmp_path / partial.name
    top.touch()
    remove_partial_files_near(LocalStore(tmp_path), ["g/zarr.json"])
    assert (partial.exists(), staged.exists(), top.exists()) == (True, False, False)


@pytest.mark.parametrize("over", [True, False])
def test_what_fails_since_the_run_is_over_is_said_so(over):
    """The next run deletes directories while a task of this one writes there."""

    def check(*, now=False):
        if over and now:
            raise JobError(job="put it", reason="over")

    with pytest.raises(JobError if over else FileNotFoundError), unless_cancelled("write-over", check):
        raise FileNotFoundError


def test_a_job_that_was_done_when_sigterm_came_ends_its_process_too(monkeypatch):
    cancelled, ends, send = threading.Event(), [], signal.raise_signal
    monkeypatch.setattr(signal, "raise_signal", ends.append)
    with cancellation.ended_by_sigterm("put it", cancelled.set, "resume"):
        send(signal.SIGTERM)
        assert cancelled.wait(10)
    assert (ends, signal.getsignal(signal.SIGTERM)) == ([signal.SIGTERM], signal.SIG_DFL)
