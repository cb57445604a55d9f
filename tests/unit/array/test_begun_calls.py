"""Values that are stored while their task continues: so many at once, and no error is lost."""

import gc
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.recording import FailingStore, RecordingStore

from chunkmill.array import threads
from chunkmill.array.threads import BegunReads, Limit, PendingWrites, TakingReads
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def most(monkeypatch):
    """The largest number, and bytes, of calls at once."""
    monkeypatch.setattr(threads._here, "writes", Limit(threads.MAX_PENDING, threads.MAX_PENDING_BYTES))
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
    assert 8 < most[0] <= threads.MAX_PENDING


def test_so_many_bytes_at_once_and_large_values_alone(most, monkeypatch):
    monkeypatch.setattr(threads._here, "writes", Limit(threads.MAX_PENDING, 100))
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


KEYS = [f"c/{i}" for i in range(40)]


@pytest.fixture
def store():
    store = RecordingStore(MemoryStore())
    for key in KEYS:
        store.below.set(key, key.encode())
    return store


@pytest.fixture
def budget(monkeypatch):
    budget = Limit(None, threads.MAX_BEGUN_BYTES)
    monkeypatch.setattr(threads._here, "reads", budget)
    monkeypatch.setattr(threads._here, "readers", ThreadPoolExecutor(4))
    return budget


def _ended():
    threads._here.readers.shutdown()


def test_values_are_taken_in_any_order_and_requested_once(store, budget):
    reads = BegunReads(store, KEYS, value_bytes=4)
    through = TakingReads(store, reads)
    assert [through.get(key) for key in reversed(KEYS)] == [key.encode() for key in reversed(KEYS)]
    assert sorted(store.keys("get")) == sorted(KEYS)
    _ended()
    assert (budget.n, budget.n_bytes) == (0, 0)


def test_absent_keys_ranges_and_other_keys(store, budget):
    through = TakingReads(store, BegunReads(store, ["c/0", "absent"], value_bytes=4))
    spans = [ByteSpan("absent"), None, ByteSpan("c/0"), ByteSpan("c/1"), ByteSpan("c/2", ByteRange(2))]
    assert list(through.get_many(spans)) == [None, None, b"c/0", b"c/1", b"2"]
    assert through.get("c/0") == b"c/0"  # a second time: by a request of its own
    assert through.url == store.url


def test_what_exceeds_the_limit_is_not_begun(store, budget, monkeypatch):
    monkeypatch.setattr(threads._here, "reads", Limit(None, 100))
    first = BegunReads(store, KEYS[:20], value_bytes=5)
    refused = BegunReads(store, KEYS[20:], value_bytes=5)
    assert first
    assert not refused
    for key in KEYS[:20]:
        first.take(key)
    assert sorted(store.keys("get")) == sorted(KEYS[:20])
    assert BegunReads(store, KEYS[20:], value_bytes=5)


def test_what_nobody_takes_is_released(store, budget):
    reads = BegunReads(store, KEYS, value_bytes=5)
    reads.take(KEYS[3])
    del reads
    gc.collect()
    _ended()
    assert (budget.n, budget.n_bytes) == (0, 0)


def test_a_request_that_fails_is_made_again_by_who_wants_the_value(store, budget):
    failing = FailingStore(store, every=5, methods=["get"], times=1)
    through = TakingReads(failing, BegunReads(failing, KEYS, value_bytes=4))
    assert [through.get(key) for key in KEYS] == [key.encode() for key in KEYS]
    _ended()
    assert (budget.n, budget.n_bytes) == (0, 0)


def test_an_error_is_raised_for_its_key(store, budget):
    failing = FailingStore(store, every=1, methods=["get"])
    through = TakingReads(failing, BegunReads(failing, KEYS, value_bytes=4))
    with pytest.raises(OSError, match="injected"):
        through.get("c/7")


def test_pickled_it_has_no_values(store, budget):
    reads = BegunReads(store, KEYS, value_bytes=1 << 18)
    assert reads.__sizeof__() > 40 << 18  # so that tasks follow it
    sent = pickle.dumps(reads)
    assert len(sent) < 200
    assert not pickle.loads(sent)
    assert pickle.loads(sent).take("c/0") is None
