"""Threads of direct reads and writes."""

import gc
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.cases import cases
from support.recording import FailingStore, RecordingStore
from support.servers import FORK_WARNING

import chunkmill as cm
from chunkmill.array import threads
from chunkmill.array.threads import BegunReads, Limit, PendingWrites, TakingReads, cut_evenly, in_threads, local_lock
from chunkmill.errors import ChunkError
from chunkmill.runtime.locks import automatic_lock, lock_factory
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore


@cases(("n_items", "n_parts"), [(0, 3), (1, 4), (5, 2), (16, 16), (17, 16)])
def test_slices_cover_everything_once(n_items, n_parts):
    parts = cut_evenly(n_items, n_parts)
    assert [i for part in parts for i in range(n_items)[part]] == list(range(n_items))
    assert len(parts) <= n_parts


def test_results_come_in_order():
    assert in_threads(lambda part: part.start, cut_evenly(100, 8), 4) == [part.start for part in cut_evenly(100, 8)]


def test_the_first_error_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda part: 1 // part.start, cut_evenly(10, 10), 2)


def test_a_child_of_a_process_that_has_not_loaded_the_scheduler_of_dask(monkeypatch):
    monkeypatch.delitem(sys.modules, "dask.threaded", raising=False)
    threads._forget_dask_pools()
    assert "dask.threaded" not in sys.modules


def test_threads_of_others_get_no_more(monkeypatch):
    """A scheduler's tasks do not multiply its threads."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(7 - pid), raising=False)
    assert threads.own_threads() == 7
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(threads.own_threads).result() == 1


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr("chunkmill.nodes.array.own_threads", lambda: 3)
    return cm.create_array(MemoryStore(), shape=(1000, 700), dtype="i4", chunks=(100, 70), shards=(200, 140))


def test_threaded_reads_and_writes(large):
    before = set(threading.enumerate())
    values = np.arange(700_000, dtype="i4").reshape(1000, 700)
    large[...] = values
    np.testing.assert_array_equal(large[...], values)
    np.testing.assert_array_equal(large[3:997, 1:699], values[3:997, 1:699])
    large[5:995, 5:695] = -values[5:995, 5:695]  # shards at the rim are changed in part
    np.testing.assert_array_equal(large[5:995, 5:695], -values[5:995, 5:695])
    np.testing.assert_array_equal(large[:5], values[:5])
    assert not [t for t in set(threading.enumerate()) - before if "ThreadPool" in t.name]


def test_a_broken_chunk_among_many_is_named(large):
    large[...] = 1
    large.store.set("c/2/3", large.store.get("c/2/3")[:-1])
    with pytest.raises(ChunkError) as caught:
        large[...]
    assert caught.value.key == "c/2/3"


# --------------------------------------------------------------------------------------------------------------------
# Values that are stored while their task continues: so many at once, and no error is lost


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


def given_back(budget):
    threads._here.readers.shutdown()
    return (budget.n, budget.n_bytes) == (0, 0)


def test_values_are_taken_in_any_order_and_requested_once(store, budget):
    reads = BegunReads(store, KEYS, value_bytes=4)
    through = TakingReads(store, reads)
    assert [through.get(key) for key in reversed(KEYS)] == [key.encode() for key in reversed(KEYS)]
    assert sorted(store.keys("get")) == sorted(KEYS)
    assert given_back(budget)


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
    assert given_back(budget)


def test_a_request_that_fails_is_made_again_by_who_wants_the_value(store, budget):
    failing = FailingStore(store, every=5, methods=["get"], times=1)
    through = TakingReads(failing, BegunReads(failing, KEYS, value_bytes=4))
    assert [through.get(key) for key in KEYS] == [key.encode() for key in KEYS]
    assert given_back(budget)


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


# --------------------------------------------------------------------------------------------------------------------
# The lock of a key in a process, and when a cluster's is asked for instead (P3)


KEY = "file:///data/x.zarr/a/c/0/0"


def test_outside_a_cluster_it_is_the_automatic_one():
    assert lock_factory("auto") is automatic_lock
    assert automatic_lock(KEY) is automatic_lock(KEY, True) is local_lock(KEY)
    assert type(local_lock(KEY)) is type(threading.Lock())


def test_stripes_are_few_and_the_same_everywhere():
    found = {threads.stripe(f"file:///x/c/{i}") for i in range(20 * threads.N_STRIPES)}
    assert found == set(range(threads.N_STRIPES))
    assert threads.stripe(KEY) == 367


@FORK_WARNING
def test_a_forked_child_does_not_wait_for_threads_that_it_has_not():
    inside, done = threading.Event(), threading.Event()

    def hold():
        with local_lock(KEY):
            inside.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)  # a child that hangs dies
        with local_lock(KEY):
            os._exit(0)
    done.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
