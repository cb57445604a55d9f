"""What keeps partial writes apart: versions where the store compares them, else a lock, which a report names (P3)."""

import dask
import dask.array as da
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.memory import MemoryStore


def region(store, **options):
    return cm.to_store(da.ones(6, chunks=3, dtype="i4"), store, "a", region=(slice(2, 8),), **options)


def make(store):
    cm.create_array(store, "a", shape=(12,), dtype="i4", chunks=(4,), fill_value=7)
    return store


def test_versions_need_no_lock():
    assert region(make(MemoryStore()), lock=None).guard == "version"


def test_plain_files_need_one_that_writers_share(tmp_path):
    """Through fsspec, they cannot compare versions; nothing is written where no lock is shared."""
    store = make(FsspecStore(f"file://{tmp_path}"))
    with pytest.raises(StoreError, match=r"lock=None leaves .* cannot compare|check versions; give lock='auto'"):
        region(store, lock=None)
    with dask.config.set(scheduler="processes"), pytest.raises(StoreError, match="process"):
        region(store)
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], np.full(12, 7))
    report = region(store)
    assert (report.n_partial, report.guard) == (1, "lock")
    report = cm.to_store(da.ones(8, chunks=3, dtype="i4"), store, "a", region=(slice(4, 12),), lock=None)
    assert (report.n_keys, report.n_partial) == (2, 0)
