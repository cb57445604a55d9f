"""Clients and schedulers that are not of dask or distributed: they return results, and have no lock that we know of."""

import dask
import dask.array as da
import dask.local
import numpy as np
import pytest
from support.recording import UnfencedStore

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.local import LocalStore

VALUES = np.arange(400).reshape(20, 20)


def without_callbacks(graph, keys, **_):
    return dask.local.get_sync(graph, keys, callbacks=[])


@pytest.fixture(autouse=True)
def get():
    with dask.config.set(scheduler=without_callbacks):
        yield


def test_counts_come_back_as_results(tmp_path):
    x, first, second = da.from_array(VALUES, chunks=5), str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")
    written = cm.to_store(x, first, chunks=(4, 4))
    assert (written.n_keys, written.n_regrouped, written.bytes_written > 0) == (25, 16, True)
    part = cm.to_store(x[:10, :10], cm.open_array(first, mode="r+"), region=(slice(3, 13), slice(3, 13)))
    assert (part.n_keys, part.n_partial, part.guard) == (16, 12, "version")
    job = cm.plan_rechunk(first, second, chunks=(10, 10)).run(progress=False)
    assert (job.actions, job.bytes_written > 0, job.n_requests > 4) == ({"rechunk": 4}, True, True)
    np.testing.assert_array_equal(cm.open_array(second)[...], cm.open_array(first)[...])


def test_no_lock_is_taken_for_one_of_the_cluster(tmp_path):
    array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(8,), dtype="i4", chunks=(4,))
    with pytest.raises(StoreError, match="have no lock in common, and the store cannot check versions"):
        cm.to_store(da.ones(4, chunks=2, dtype="i4"), array, region=slice(2, 6))
