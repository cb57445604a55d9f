"""Locks of partial writes across a cluster, and when their holders die (P3)."""

import os
import signal
import time

import numpy as np
import pytest
from distributed import get_worker
from support.clusters import cluster_of
from support.recording import UnfencedStore

import chunkmill as cm
from chunkmill.array import chunk_io
from chunkmill.array.threads import N_STRIPES
from chunkmill.runtime.locks import ClusterLock, automatic_lock, no_lock
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.slow

KEY = "file:///data/x.zarr/a/c/0/0"


def write_slowly(array, i, lock):
    """Change one element, dawdling between reading and writing."""
    get = array.store.get_versioned
    array.store.get_versioned = lambda key: (get(key), time.sleep(0.05))[0]
    (overlap,) = array.write_layout.grid.overlaps((slice(i, i + 1),))
    chunk_io.update_chunk(array.stored, overlap, np.full(1, i + 1, "i4"), lock=lock)


def test_workers_that_write_one_chunk_lose_nothing(client, tmp_path):
    array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(12,), dtype="i4", chunks=(12,))
    client.gather([client.submit(write_slowly, array, i, no_lock) for i in range(12)])
    assert np.count_nonzero(array[...]) < 12  # so that what follows shows something
    client.gather([client.submit(write_slowly, array, i, automatic_lock) for i in range(12)])
    np.testing.assert_array_equal(array[...], np.arange(12) + 1)


def test_few_names_are_left_on_the_scheduler_and_no_lease(client):
    def take_all(names):
        for name in names:
            with automatic_lock(name, True):
                pass

    client.gather(client.map(take_all, [[f"k{i}" for i in range(j, 2000, 4)] for j in range(4)]))
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


def test_the_lock_of_a_dead_holder_is_free_in_the_end():
    """Its lease ends by itself: here after two seconds, by default after half a minute."""
    config = {
        "distributed.scheduler.locks": {"lease-timeout": "2s", "lease-validation-interval": "500ms"},
        "distributed.scheduler.allowed-failures": 0,
    }
    with cluster_of(3, config=config) as client:
        workers = list(client.scheduler_info()["workers"])
        dying = client.submit(die_holding, KEY, workers=[workers[0]], allow_other_workers=False, pure=False)
        time.sleep(1.0)
        client.submit(take, KEY, workers=[workers[1]], pure=False).result(timeout=120)
        dying.cancel(force=True)
