"""Requests begun before their values are asked for: each is made once, and what nobody takes is given up."""

import gc
import pickle
import threading

import pytest
from support.recording import FailingStore, RecordingStore

from chunkmill.array import begun_reads
from chunkmill.array.begun_reads import BegunReads, with_begun_reads
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore

KEYS = [f"c/{i}" for i in range(40)]


@pytest.fixture
def store():
    store = RecordingStore(MemoryStore())
    for key in KEYS:
        store.below.set(key, key.encode())
    return store


@pytest.fixture
def budget(monkeypatch):
    budget = begun_reads._Budget()
    monkeypatch.setattr(begun_reads, "_budget", budget)
    return budget


def _ended():
    for thread in threading.enumerate():
        if thread.name == "chunkmill-reads":
            thread.join(10)


def test_values_are_taken_in_any_order_and_requested_once(store, budget):
    reads = BegunReads(store, KEYS, value_bytes=4)
    through = with_begun_reads(store, reads)
    assert [through.get(key) for key in reversed(KEYS)] == [key.encode() for key in reversed(KEYS)]
    assert sorted(store.keys("get")) == sorted(KEYS)
    _ended()
    assert budget._n_bytes == 0


def test_absent_keys_ranges_and_other_keys(store, budget):
    through = with_begun_reads(store, BegunReads(store, ["c/0", "absent"], value_bytes=4))
    spans = [ByteSpan("absent"), None, ByteSpan("c/0"), ByteSpan("c/1"), ByteSpan("c/2", ByteRange(2))]
    assert list(through.get_many(spans)) == [None, None, b"c/0", b"c/1", b"2"]
    assert through.get("c/0") == b"c/0"  # a second time: by a request of its own
    assert through.url == store.url


def test_what_exceeds_the_limit_is_not_begun(store, budget, monkeypatch):
    monkeypatch.setattr(begun_reads, "MAX_BEGUN_BYTES", 100)
    first = BegunReads(store, KEYS[:20], value_bytes=5)
    refused = BegunReads(store, KEYS[20:], value_bytes=5)
    assert first
    assert not refused
    assert with_begun_reads(store, refused) is store
    _ended()
    assert sorted(store.keys("get")) == sorted(KEYS[:20])
    for key in KEYS[:20]:
        first.take(key)
    assert BegunReads(store, KEYS[20:], value_bytes=5)


def test_what_nobody_takes_is_released(store, budget):
    reads = BegunReads(store, KEYS, value_bytes=5)
    reads.take(KEYS[3])
    del reads
    gc.collect()
    _ended()
    assert budget._n_bytes == 0


def test_a_request_that_fails_is_made_again_by_who_wants_the_value(store, budget):
    failing = FailingStore(store, every=5, methods=["get"], times=1)
    through = with_begun_reads(failing, BegunReads(failing, KEYS, value_bytes=4))
    assert [through.get(key) for key in KEYS] == [key.encode() for key in KEYS]
    _ended()
    assert budget._n_bytes == 0


def test_an_error_is_raised_for_its_key(store, budget):
    failing = FailingStore(store, every=1, methods=["get"])
    through = with_begun_reads(failing, BegunReads(failing, KEYS, value_bytes=4))
    with pytest.raises(OSError, match="injected"):
        through.get("c/7")


def test_pickled_it_has_no_values(store, budget):
    reads = BegunReads(store, KEYS, value_bytes=1 << 18)
    assert reads.__sizeof__() > 40 << 18  # so that tasks follow it
    sent = pickle.dumps(reads)
    assert len(sent) < 200
    assert not pickle.loads(sent)
    assert pickle.loads(sent).take("c/0") is None


def test_a_forked_process_reads_for_itself(store, budget, monkeypatch):
    reads = BegunReads(store, KEYS, value_bytes=4)
    monkeypatch.setattr(begun_reads.os, "getpid", lambda: -1)
    assert not reads
    assert with_begun_reads(store, reads) is store


def test_without_threads_nothing_is_begun(store, budget, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    reads = BegunReads(store, KEYS, value_bytes=4)
    assert with_begun_reads(store, reads).get("c/3") == b"c/3"
    assert budget._n_bytes == 0
