"""That a lock which two hold loses nothing: `set_if` is what keeps partial writes apart (P3).

A lease of the scheduler's ends when its holder is silent, and one that holds the GIL is. With leases of 2 s, and a
codec in which each of two tasks waits for the other, both are inside at once. The first test shows that this loses data
where nothing but the lock guards; the others that it does not where the store compares versions.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.clusters import cluster_of
from support.gil_codec import HoldsTheGil, make_fifos, register
from support.recording import RecordingStore, UnfencedStore
from support.servers import WARNINGS, s3_server  # noqa: F401

import chunkmill as cm
from chunkmill.array import chunk_io, threads
from chunkmill.errors import ChunkError
from chunkmill.runtime.cluster_locks import no_lock
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store

pytestmark = WARNINGS

LEASE = 2.0  # seconds


class LockedStore(UnfencedStore):
    """Has its partial writes locked from the first attempt, like one that cannot compare; and compares."""

    def set_if(self, key, value, version):
        return self.below.set_if(key, value, version)


@pytest.fixture(scope="module")
def client():
    config = {
        "distributed.scheduler.locks.lease-timeout": f"{LEASE}s",
        "distributed.scheduler.locks.lease-validation-interval": "500ms",
    }
    with cluster_of(2, 1, config) as client:
        client.run(register)
        client.run(_set_config, config)
        yield client


def _set_config(config):
    import dask

    dask.config.set(config)  # of the worker, which tells the scheduler how long leases are


@pytest.fixture(params=["local", "s3"])
def store(request, tmp_path):
    if request.param == "local":
        return LocalStore(tmp_path / "store")
    server = request.getfixturevalue("s3_server")
    return open_store(server.new_bucket() + "/x.zarr", server.storage_options)


def write_both(client, store, folder):
    """Write the two halves of one chunk by two workers that are inside at the same time; return the chunk."""
    codecs = HoldsTheGil(make_fifos(folder))
    array = cm.create_array(store, shape=(8,), dtype="i4", chunks=(8,), format="zarr2", codecs=codecs)
    workers = list(client.scheduler_info()["workers"])
    client.gather([client.submit(_write_half, array, i, workers=[w], pure=False) for i, w in enumerate(workers)])
    return array[...]


def _write_half(array, i):
    array[4 * i : 4 * i + 4] = i + 1


EXPECTED = np.repeat([1, 2], 4)


@pytest.mark.slow
class TestWithOverbookedLeases:
    def test_without_the_fence_data_is_lost(self, client, store, tmp_path):
        found = write_both(client, UnfencedStore(store), tmp_path)
        assert not np.array_equal(found, EXPECTED)
        assert np.count_nonzero(found) == 4

    def test_with_it_nothing_is(self, client, store, tmp_path):
        np.testing.assert_array_equal(write_both(client, store, tmp_path), EXPECTED)

    def test_nor_when_two_hold_the_lock(self, client, tmp_path):
        store = LockedStore(LocalStore(tmp_path / "store"))
        np.testing.assert_array_equal(write_both(client, store, tmp_path), EXPECTED)


# --------------------------------------------------------------------------------------------------------------------
# In one process: the loop itself


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


@pytest.mark.parametrize("n", [1, 2, 150])
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
