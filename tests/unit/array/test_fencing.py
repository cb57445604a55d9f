"""The loop of partial writes: whoever is overtaken reads again, and `set_if` decides (P3)."""

import time
from contextlib import AbstractContextManager

import numpy as np
import pytest
from support.cases import cases
from support.recording import RecordingStore, UnfencedStore

import chunkmill as cm
from chunkmill.array import chunk_io, threads
from chunkmill.errors import ChunkError
from chunkmill.runtime.locks import no_lock
from chunkmill.stores.memory import MemoryStore


class Interfering(RecordingStore):
    """Another writer changes `key` before each of the first `n` conditional writes."""

    def __init__(self, below, n, change):
        super().__init__(below)
        self.n, self.change = n, change

    def set_if(self, key, value, version):
        if self.n > 0:
            self.n -= 1
            self.change()
        return super().set_if(key, value, version)


def without_lock(array, region, values):
    """Write as another process does: it does not know of this one's locks."""
    chunk_io.write_region(array.stored, region, np.asarray(values, array.dtype), lock=no_lock)


def an_array(store, **kwargs):
    return cm.create_array(store, shape=(8,), dtype="i4", chunks=(8,), **kwargs)


class SlowLock(AbstractContextManager):
    def __enter__(self):
        time.sleep(0.01)

    def __exit__(self, *_): ...


def test_a_report_says_how_often_others_were_met_and_how_long_locks_were_waited_for():
    below = MemoryStore()
    other = an_array(below)
    store = Interfering(below, 2, lambda: without_lock(other, (slice(7, 8),), [len(store.log)]))
    array = cm.open_array(store, mode="r+")
    report = cm.to_store(np.ones(3, "i4"), array, region=slice(0, 3), lock=SlowLock())
    assert (report.n_partial, report.n_retried) == (1, 2)
    assert report.seconds_waited >= 3 * 0.01
    assert "versions compared; 2 retried, " in " ".join(str(report).split())


@cases("n", [1, 2, 150])
def test_whoever_is_overtaken_reads_again(n):
    """However often: what is changed by others is no reason to give up."""
    below = MemoryStore()
    other = an_array(below)
    numbers = iter(range(1, 1000))

    def change():
        without_lock(other, (slice(7, 8),), [next(numbers)])

    store = Interfering(below, n, change)
    cm.open_array(store, mode="r+")[0] = 5
    assert list(other[...]) == [5, 0, 0, 0, 0, 0, 0, n]
    assert len(store.keys("get_versioned")) == n + 1


def test_a_chunk_that_others_empty_meanwhile():
    below = MemoryStore()
    other = an_array(below)
    other[...] = 3

    def change():
        without_lock(other, (slice(0, 8),), np.zeros(8))

    cm.open_array(Interfering(below, 1, change), mode="r+")[0] = 5
    assert list(other[...]) == [5] + [0] * 7


def test_a_store_that_never_agrees_is_an_error():
    """Not an endless loop: the version that it gives out is not the one that it compares."""

    class Stubborn(RecordingStore):
        def set_if(self, key, value, version):
            super().set_if("another", value, "no such version")
            return False

    store = Stubborn(MemoryStore())
    an_array(store.below)
    with pytest.raises(ChunkError, match="refused 100 times"):
        cm.open_array(store, mode="r+")[0] = 5


def test_the_lock_is_asked_for_firmly_once_others_are_met():
    """And at once where the store cannot compare."""
    asked = []

    def lock(name, contended):
        asked.append((name, contended))
        return threads.local_lock(name)

    below = MemoryStore()
    other = an_array(below)
    store = Interfering(below, 1, lambda: without_lock(other, (slice(7, 8),), [1]))
    array = cm.open_array(store, mode="r+")
    (overlap,) = array.write_layout.grid.overlaps((slice(0, 1),))
    chunk_io.update_chunk(array.stored, overlap, np.ones(1, "i4"), lock=lock)
    assert asked == [(f"{below.url}/c/0", False), (f"{below.url}/c/0", True)]
    asked.clear()
    unfenced = cm.open_array(UnfencedStore(below), mode="r+")
    chunk_io.update_chunk(unfenced.stored, overlap, np.ones(1, "i4"), lock=lock)
    assert asked == [(f"{below.url}/c/0", True)]
