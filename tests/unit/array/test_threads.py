"""Threads of direct reads and writes."""

import threading

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.array.threads import cut_evenly, in_threads, own_threads
from chunkmill.errors import ChunkError
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


def test_threads_of_others_get_no_more():
    """A scheduler's tasks do not multiply its threads."""
    assert own_threads() >= 1
    seen = []
    thread = threading.Thread(target=lambda: seen.append(own_threads()))
    thread.start()
    thread.join()
    assert seen == [1]


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
