"""Graphs that write dask arrays."""

import time
from typing import ClassVar

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from support.cases import cases

import chunkmill as cm
from chunkmill.array.selection import full_region
from chunkmill.array.threads import local_lock
from chunkmill.dask_arrays.write import report, run, write_graph
from chunkmill.dask_arrays.write_task import WriteCounts
from chunkmill.errors import ChunkError, StoreError
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def array():
    return cm.create_array(MemoryStore(), "a", shape=(12, 8), dtype="i4", chunks=(4, 4))


VALUES = np.arange(96, dtype="i4").reshape(12, 8)


@pytest.mark.parametrize(("chunks", "n_regrouped"), [(4, 0), ((8, 4), 0), ((12, 8), 0), (3, 12), ((4, 3), 9)], ids=str)
def test_counts_and_regrouped_blocks(array, chunks, n_regrouped):
    counts, n = write_graph(
        da.from_array(VALUES, chunks=chunks), array.stored, full_region(array.shape), lock=local_lock
    )
    assert n == n_regrouped
    done = run([counts], lambda each: report(array.stored, each, n), compute=True, arrays=[array])
    assert (done.n_keys, done.n_partial, done.n_empty, done.n_regrouped) == (6, 0, 0, n_regrouped)
    assert done.bytes_written == sum(len(array.store.get(key)) for key in array.stored.keys(full_region(array.shape)))
    np.testing.assert_array_equal(array[...], VALUES)


def test_partial_and_empty_keys_are_counted(array):
    region = (slice(2, 8), slice(0, 8))
    values = np.zeros((6, 8), "i4")
    values[0] = 7
    counts, _ = write_graph(da.from_array(values, chunks=(6, 4)), array.stored, region, lock=local_lock)
    done = run([counts], lambda each: report(array.stored, each, 0), compute=True)
    assert (done.n_keys, done.n_partial, done.n_empty) == (4, 2, 2)


def test_many_counts_are_summed_in_steps(array):
    wide = cm.create_array(MemoryStore(), "wide", shape=(200,), dtype="u1", chunks=(1,))
    counts, _ = write_graph(da.ones(200, chunks=1, dtype="u1"), wide.stored, full_region((200,)), lock=local_lock)
    sums = [key for key in counts.dask if str(key[0]).endswith("-partial")]
    assert len(sums) == 4  # of at most 64 blocks each
    assert WriteCounts.of(counts.compute(scheduler="sync")).n_keys == 200


def test_the_report_says_what_guards_partial_writes(array):
    assert report(array.stored, WriteCounts(1, 2, 3, 4), 5).to_dict() == {
        "n_keys": 1, "n_partial": 2, "n_empty": 3, "bytes_written": 4, "n_regrouped": 5, "guard": "version",
        "n_resumed": 0,
    }  # fmt: skip


class Far(MemoryStore):
    is_remote = True
    bad = ""
    under_way: ClassVar[set[str]] = set()

    def set(self, key, value):
        self.under_way.add(key)
        time.sleep(0.0005)
        self.under_way.remove(key)
        if key == self.bad:
            raise StoreError(url=self.url, key=key, reason="refused")
        super().set(key, value)


@cases(("scheduler", "kind"), [("sync", MemoryStore), ("threads", MemoryStore), ("threads", Far)])
def test_many_small_writes(scheduler, kind):
    store = kind()
    array = cm.create_array(store, shape=(300, 2), dtype="i4", chunks=(1, 2))
    x = da.from_array(np.arange(600, dtype="i4").reshape(300, 2), chunks=(1, 2))
    seen = []
    with dask.config.set(scheduler=scheduler, num_workers=2), Callback(posttask=lambda key, *_: seen.append(key)):
        counts, _ = write_graph(x, array.stored, full_region(array.shape), lock=local_lock)
        assert len(counts.dask) > 300  # as a user holds it: a task a key
        assert run([counts], WriteCounts.of, compute=True, arrays=[array.stored]).n_keys == 300
    assert len(seen) > 300 if kind is Far else len(seen) <= 300 / 4 + 10  # neighbours share a task
    np.testing.assert_array_equal(array[...], np.arange(600).reshape(300, 2))
    if kind is Far:  # whose values are stored while tasks encode the next ones
        store.bad = "c/7/0"
        with pytest.raises(ChunkError, match=r"chunk \(7, 0\).*refused"):
            cm.store(x, array)
        assert not store.under_way
