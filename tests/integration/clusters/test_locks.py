"""Locks of partial writes across a cluster, and when their holders die (P3)."""

import os
import signal
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, get_worker
from support.clusters import cluster_of
from support.recording import UnfencedStore

import chunkmill as cm
from chunkmill.array import chunk_io
from chunkmill.array.threads import N_STRIPES
from chunkmill.runtime.locks import ClusterLock, automatic_lock, no_lock
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.slow

KEY = "file:///data/x.zarr/a/c/0/0"


def interleaved(array, n, lock):
    """A job for each element, all in one chunk."""
    return [
        cm.store(da.full(1, i + 1, dtype="i4"), array, regions=(slice(i, i + 1),), lock=lock, compute=False)
        for i in range(n)
    ]


def write_slowly(array, i, lock):
    """Change one element, dawdling between reading and writing."""
    array = cm.open_array(array.store, array.path, mode="r+")
    get = array.store.get_versioned

    def slow(key):
        found = get(key)
        time.sleep(0.05)
        return found

    array.store.get_versioned = slow
    chunk_io.update_chunk(
        array.stored, next(array.write_layout.grid.overlaps((slice(i, i + 1),))), np.full(1, i + 1, "i4"), lock=lock
    )


class TestOnACluster:
    def test_without_a_lock_it_is(self, client, tmp_path):
        """So the test above tests something."""
        array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(12,), dtype="i4", chunks=(12,))
        client.gather([client.submit(write_slowly, array, i, no_lock) for i in range(12)])
        assert np.count_nonzero(array[...]) < 12
        client.gather([client.submit(write_slowly, array, i, automatic_lock) for i in range(12)])
        np.testing.assert_array_equal(array[...], np.arange(12) + 1)

    def test_nothing_is_lost_by_two_clients(self, client, shared_cluster, tmp_path):
        array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(32,), dtype="i4", chunks=(32,))
        jobs = interleaved(array, 32, "auto")
        with Client(shared_cluster, set_as_default=False) as other:
            futures = client.compute(jobs[::2])
            others = other.compute(jobs[1::2])
            other.gather(others)
            client.gather(futures)
        np.testing.assert_array_equal(array[...], np.arange(32) + 1)

    def test_few_names_are_left_on_the_scheduler_and_no_lease(self, client, tmp_path):
        array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(3000,), dtype="i1", chunks=(2,))
        cm.store(da.ones(2900, chunks=200, dtype="i1"), array, regions=(slice(1, 2901),))

        def take(names):
            for name in names:
                with automatic_lock(name, True):
                    pass

        client.gather(client.map(take, [[f"k{i}" for i in range(j, 2000, 4)] for j in range(4)]))
        names, leases = client.run_on_scheduler(
            lambda dask_scheduler: (
                list(dask_scheduler.extensions["semaphores"].max_leases),
                sum(map(len, dask_scheduler.extensions["semaphores"].leases.values())),
            )
        )
        assert 0 < len(names) <= N_STRIPES
        assert leases == 0


def die_holding(name):
    ClusterLock(get_worker(), name).__enter__()
    os.kill(os.getpid(), signal.SIGKILL)


def take(name):
    with ClusterLock(get_worker(), name):
        pass


class TestTheDead:
    """Their leases end by themselves: here after two seconds, by default after half a minute (P3)."""

    @pytest.fixture
    def client(self):
        leases = {"lease-timeout": "2s", "lease-validation-interval": "500ms"}
        with cluster_of(3, config={"distributed.scheduler.locks": leases}) as client:
            yield client

    def test_the_lock_of_a_dead_holder_is_free_in_the_end(self, client):
        workers = list(client.scheduler_info()["workers"])
        with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
            dying = client.submit(die_holding, KEY, workers=[workers[0]], allow_other_workers=False, pure=False)
            time.sleep(1.0)
            client.submit(take, KEY, workers=[workers[1]], pure=False).result(timeout=120)
        dying.cancel(force=True)
