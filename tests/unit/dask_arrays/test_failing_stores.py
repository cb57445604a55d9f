"""Disks that are full, stores that fail now and then (P7), or that compare no versions: what guards partial writes (P3)."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np
import pytest
from support.recording import FailingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, ChunkmillError, StoreError
from chunkmill.stores import local
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.posix_file import PARTIAL_SUFFIX

SHAPE, CHUNKS = (48, 40), (4, 5)
VALUES = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")


def check(store, values=VALUES):
    """The array is whole, and nothing else is there."""
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], values)
    report = cm.check(store)
    assert report.ok, report


def full_after(n_bytes, monkeypatch):
    """Let the disk take so many bytes more, the last write in part."""
    left = [n_bytes]
    write = os.write

    def limited(fd, data):
        room = left[0]
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= min(room, len(data))
        return write(fd, data[:room])

    monkeypatch.setattr(local.os, "write", limited)
    return left


def test_a_full_disk(tmp_path, monkeypatch):
    x = da.from_array(VALUES, chunks=CHUNKS)
    left = full_after(4000, monkeypatch)
    with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(ChunkmillError) as caught:
        cm.to_store(x, tmp_path, "a", codecs="raw", resume=True)
    assert "No space left on device" in str(caught.value)
    error = caught.value if isinstance(caught.value, StoreError) else caught.value.__cause__
    assert error.errno == errno.ENOSPC
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(PARTIAL_SUFFIX)]
    for key in LocalStore(tmp_path).list_prefix("a/"):
        assert LocalStore(tmp_path).size(key) == 80  # whole, or not there
    left[0] = 1 << 30
    report = cm.to_store(x, tmp_path, "a", codecs="raw", resume=True)
    assert report.n_resumed
    check(tmp_path)


def test_partial_writes_to_a_store_that_fails():
    """What failed is there or not, and nothing of others' is lost."""
    store = MemoryStore()
    cm.create_array(store, "a", shape=(40,), dtype="i4", chunks=(40,))
    failing = cm.open_array(FailingStore(store, 5, ["set_if", "get_versioned"]), "a", mode="r+")
    failed = []

    def write(i):
        try:
            failing[i] = i + 1
        except ChunkError:
            failed.append(i)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(40)))
    assert failed
    expected = np.arange(40) + 1
    expected[failed] = 0
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], expected)


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
        region(store, compute=False)
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], np.full(12, 7))
    report = region(store)
    assert (report.n_partial, report.guard) == (1, "lock")
    report = cm.to_store(da.ones(8, chunks=3, dtype="i4"), store, "a", region=(slice(4, 12),), lock=None)
    assert (report.n_keys, report.n_partial) == (2, 0)
