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
from support.recording import UnfencedStore

import chunkmill as cm
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.slow

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


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "store")


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


class TestWithOverbookedLeases:
    def test_without_the_fence_data_is_lost(self, client, store, tmp_path):
        found = write_both(client, UnfencedStore(store), tmp_path)
        assert not np.array_equal(found, EXPECTED)
        assert np.count_nonzero(found) == 4

    def test_with_it_nothing_is(self, client, store, tmp_path):
        np.testing.assert_array_equal(write_both(client, store, tmp_path), EXPECTED)

    def test_nor_when_two_hold_the_lock(self, client, store, tmp_path):
        np.testing.assert_array_equal(write_both(client, LockedStore(store), tmp_path), EXPECTED)
