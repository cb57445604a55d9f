"""Values that are stored while their task continues: so many at once, and no error is lost."""

import threading
import time

import pytest

from chunkmill.array import pending_writes
from chunkmill.array.pending_writes import PendingWrites, with_pending_writes
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def most(monkeypatch):
    """The largest number, and bytes, of calls at once."""
    monkeypatch.setattr(pending_writes, "_limit", pending_writes._Limit())
    now, most, lock = [0, 0], [0, 0], threading.Lock()

    def call(n_bytes):
        with lock:
            now[0], now[1] = now[0] + 1, now[1] + n_bytes
            most[:2] = map(max, most[:2], now)
        time.sleep(0.005)
        with lock:
            now[0], now[1] = now[0] - 1, now[1] - n_bytes

    most.append(call)
    return most  # the third is the call that is counted


def test_so_many_at_once_whatever_began_them(most):
    tasks = [PendingWrites() for _ in range(10)]
    for i in range(100):
        tasks[i % 10].begin(lambda: most[2](1), 1)
    for task in tasks:
        task.wait()
    assert 8 < most[0] <= pending_writes.MAX_PENDING


def test_a_thread_makes_many_calls_and_ends_with_the_last(most, monkeypatch):
    begun, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (begun.append(thread), start(thread)))
    for _ in range(3):
        writes, may_end = PendingWrites(), threading.Event()
        writes.begin(may_end.wait, 1)  # threads end when none has a call: on a busy machine that happens in between
        for _ in range(200):
            writes.begin(lambda: most[2](1), 1)
        may_end.set()
        writes.wait()
        for thread in begun:
            thread.join(60)
    assert not any(thread.is_alive() for thread in begun)
    assert len(begun) <= 3 * 2 * pending_writes.MAX_PENDING  # some are between a call and their next


def test_so_many_bytes_at_once_and_large_values_alone(most, monkeypatch):
    monkeypatch.setattr(pending_writes, "MAX_PENDING_BYTES", 100)
    writes = PendingWrites()
    for n in (30, 60, 40, 250, 10, 90, 100):
        writes.begin(lambda n=n: most[2](n), n)
    writes.wait()
    assert most[1] == 250
    assert most[0] <= 3


def test_all_calls_have_ended_when_an_error_is_raised():
    ended = []

    def fail():
        raise OSError("first")

    writes = PendingWrites()
    writes.begin(fail, 1)
    writes.begin(lambda: (time.sleep(0.05), ended.append(1)), 1)
    with pytest.raises(OSError, match="first"):
        writes.wait()
    assert ended == [1]


def test_a_store_whose_writes_are_begun_and_reads_are_not():
    below, begun = MemoryStore(), []
    store = with_pending_writes(below, begun.append)
    store.set("a", b"1")
    assert store.get("a") is None
    begun.pop()()
    assert store.get("a") == b"1"
    store.delete("a")
    begun.pop()()
    assert store.get("a") is None


def test_without_threads_a_call_is_made_at_once(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", _refuse)
    done = []
    writes = PendingWrites()
    writes.begin(lambda: done.append(1), 1)
    assert done == [1]
    writes.wait()


def _refuse(thread):
    raise RuntimeError("can't start new thread")
