"""Graphs that write dask arrays, and the task that writes one block."""

import os
import pickle
import time

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.utils import key_split
from support.cases import cases
from support.recording import FarStore

import chunkmill as cm
from chunkmill.array.selection import full_region
from chunkmill.array.threads import PendingWrites, local_lock
from chunkmill.dask_arrays.write import report, run, write_graph
from chunkmill.dask_arrays.write_task import UnfinishedWrite, WriteCounts, WriteTask, finished
from chunkmill.errors import ChunkError, NodeNotFound, StoreError
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


@cases(("scheduler", "kind"), [("sync", MemoryStore), ("threads", MemoryStore), ("threads", FarStore)])
def test_many_small_writes(scheduler, kind):
    store, seen = kind(), []
    array = cm.create_array(store, shape=(300, 2), dtype="i4", chunks=(1, 2))
    x = da.from_array(np.arange(600, dtype="i4").reshape(300, 2), chunks=(1, 2))
    with dask.config.set(scheduler=scheduler, num_workers=2), Callback(posttask=lambda key, *_: seen.append(key)):
        counts, _ = write_graph(x, array.stored, full_region(array.shape), lock=local_lock)
        assert len(counts.dask) > 300  # as a user holds it: a task a key
        assert run([counts], WriteCounts.of, compute=True, arrays=[array.stored]).n_keys == 300
    assert len(seen) > 300 if kind is FarStore else len(seen) <= 300 / 4 + 10  # neighbours share a task
    np.testing.assert_array_equal(array[...], np.arange(600).reshape(300, 2))


# blocks that are store keys, several of them, and misaligned ones; in shards; one key; of dimensions that are empty
SHAPES = [
    ((12, 8), (4, 4), None, (4, 4)),
    ((12, 8), (4, 4), None, (12, 8)),
    ((12, 8), (4, 4), None, (5, 3)),
    ((12, 8), (2, 2), (4, 4), (5, 8)),
    ((7,), (7,), None, (3,)),
    ((65,), (1,), None, (1,)),
    ((), (), None, ()),
    ((0, 8), (3, 3), None, (3, 3)),
]


@pytest.mark.parametrize("fuse", [None, False], ids=["fused", "unfused"])
@pytest.mark.parametrize(("shape", "chunks", "shards", "blocks"), SHAPES, ids=str)
def test_a_graph_to_compute_later_has_a_task_for_each_store_key(shape, chunks, shards, blocks, fuse):
    store = MemoryStore()
    values = 1 + np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    x = da.from_array(values, chunks=blocks).map_blocks(np.negative)
    with dask.config.set({"optimization.fuse.active": fuse}):
        later = cm.to_store(x, store, "g/a", chunks=chunks, shards=shards, compute=False)
    written = [key for key in later.dask if str(key[0]).startswith("write-a-") and isinstance(key[1], str)]
    with pytest.raises(NodeNotFound):
        cm.open_array(store, "g/a")
    later.compute(scheduler="sync")
    assert sorted(key for _, key in written) == sorted(key for key in store.list_prefix("g/a/") if "/c" in key)
    assert all(key_split(key) == "write-a" for key in written)
    np.testing.assert_array_equal(cm.open_array(store, "g/a")[...], -values)


def test_writes_to_several_regions_name_the_keys_of_each(array):
    regions = [(slice(2, 8), slice(0, 4)), (slice(8, 12), slice(3, 8))]
    later = cm.store([da.ones((6, 4)), da.ones((4, 5), chunks=2)], [array, array], regions=regions, compute=False)
    written = sorted(key[1] for key in later.dask if str(key[0]).startswith("write-a-"))
    assert written == ["a/c/0/0", "a/c/1/0", "a/c/2/0", "a/c/2/1"]
    assert [(each.n_keys, each.n_partial) for each in later.compute(scheduler="sync")] == [(2, 1), (2, 1)]


def test_another_process_is_checked_once_per_block(monkeypatch):
    array = cm.create_array(MemoryStore(), "a", shape=(8, 6), dtype="i2", chunks=(4, 3)).stored
    checked, named = [], {"name": "write-a-1", "stored": None, "write_empty": False}
    monkeypatch.setattr("chunkmill.dask_arrays.write_task.check_process", checked.append)
    for needs, client in ((b"here", os.getpid()), (b"elsewhere", os.getpid() + 1)):
        task = WriteTask(array, (0, 0), array.chunk_grid, local_lock, client_process=client, needs=needs, **named)
        task(np.ones((4, 3), "i2"), (slice(0, 4), slice(0, 3)))
    assert checked == [b"elsewhere"]


MANY = np.arange(1, 60 * 40 + 1).reshape(60, 40)


def blocks():
    return da.from_array(MANY, chunks=(4, 4))


class Refusing(FarStore):
    def set(self, key, value):
        if key == "c/7/3":
            raise StoreError(url=self.url, key=key, reason="no space left")
        super().set(key, value)


def test_a_value_that_is_not_stored_fails_the_write_by_its_key():
    far = Refusing(seconds=0.001)
    with pytest.raises(ChunkError, match=r"c/7/3.*set.*no space left"):
        cm.to_store(blocks(), far)
    n = len(far.log)
    time.sleep(0.05)
    assert len(far.log) == n  # nothing is written after the error
    assert "zarr.json" not in list(far.below.list_prefix(""))


def test_an_unfinished_write_is_finished_when_it_is_pickled():
    writes, done = PendingWrites(), []
    writes.begin(lambda: (time.sleep(0.05), done.append(1)), 1)
    sent = pickle.loads(pickle.dumps(UnfinishedWrite(WriteCounts(1, 0, 0, 9).as_block(1), writes)))
    assert done == [1]
    assert WriteCounts.of(finished(sent)) == (1, 0, 0, 9, 0, 0)
