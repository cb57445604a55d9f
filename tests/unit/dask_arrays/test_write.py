"""Graphs that write dask arrays: their tasks, the blocks that are written by one, the parts of symbolic layers."""

import pickle
import sys
import time
from functools import partial
from itertools import accumulate

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.utils import key_split
from support.cases import cases
from support.recording import FarStore

import chunkmill as cm
from chunkmill.array.selection import full_region
from chunkmill.array.threads import PendingWrites, local_lock
from chunkmill.dask_arrays.blocks import SharedFunction, _unpack
from chunkmill.dask_arrays.regroup import regroup, write_chunks
from chunkmill.dask_arrays.write import report, run, write_graph
from chunkmill.dask_arrays.write_task import UnfinishedWrite, WriteCounts, finished
from chunkmill.errors import ChunkError, NodeNotFound, StoreError
from chunkmill.model.grid import ChunkGrid
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


# blocks that are store keys, several of them, and misaligned ones; in shards; one key; blocks and axes that are empty
SHAPES = [
    ((12, 8), (4, 4), None, (4, 4)),
    ((12, 8), (4, 4), None, (12, 8)),
    ((12, 8), (4, 4), None, (5, 3)),
    ((12, 8), (2, 2), (4, 4), (5, 8)),
    ((7,), (7,), None, ((3, 0, 4),)),
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


def graph_of(x, chunks, function=None):
    return dict(regroup(x, chunks, function, name="write-x", n_results=1).dask)


def test_one_task_a_block():
    x = da.from_array(np.zeros((40, 40)), chunks=4)
    graph = graph_of(x, ((18, 22), (18, 22)))
    assert sum(key_split(key) == "write-x" for key in graph) == 4
    assert not any("extract" in key_split(key) for key in graph)


def test_of_large_blocks_parts_are_sent():
    x = da.zeros((3 << 20, 2), chunks=(1 << 20, 2), dtype="u1")
    graph = graph_of(x, ((1 << 18, 1 << 20, 1 << 20, 3 << 18), (2,)))
    # a block: a quarter to one task (worth a task to cut), three quarters to the other (sent whole)
    assert sum(key_split(key).startswith("extract") for key in graph) == 3


def test_what_lies_in_one_piece_is_not_copied():
    views = []

    def first_rows(pieces, within):
        views.append(pieces[slice(0, 2), slice(0, 8)].base is not None)
        return np.ones((1, 1, 1), np.int64)

    graph = graph_of(da.from_array(np.zeros((8, 8)), chunks=(4, 8)), ((2, 4, 2), (8,)), first_rows)
    dask.get(graph, [("write-x", i, 0, 0) for i in range(3)])
    assert views == [True] * 3


def test_other_names_of_a_block_are_no_tasks():
    x = da.arange(12, chunks=4).map_blocks(np.negative)
    y = x.blocks[::-1].blocks[1:]  # dask gives each step a name of its own
    cm.to_store(y, store := MemoryStore(), chunks=3)
    np.testing.assert_array_equal(cm.open_array(store)[...], y.compute())
    graph = graph_of(y, ((2, 4, 2),))
    needed = set().union(*(task.dependencies for key, task in graph.items() if key[0] == "write-x"))
    assert {key[0] for key in needed} == {x.name}
    assert not [key for key in graph if key_split(key) == "blocks"]


def test_a_layer_that_has_not_the_name_of_its_keys():
    """A graph made by hand: what is not known to be of names alone stays."""
    tasks = {("x", i): (np.full, 3, i) for i in range(4)}
    x = da.Array(HighLevelGraph({"odd": MaterializedLayer(tasks)}, {"odd": set()}), "x", ((3,) * 4,), dtype=int)
    cm.to_store(x, store := MemoryStore(), chunks=4)
    np.testing.assert_array_equal(cm.open_array(store)[...], np.repeat(np.arange(4), 3))


# --------------------------------------------------------------------------------------------------------------------
# Boundaries

KIB = 2**10


def borders(lengths):
    return set(accumulate(lengths))


def test_small_blocks_are_written_together():
    grid = ChunkGrid.regular((64 * 66, 32 * 66), (64, 32))  # 4 KiB
    region = slice(32, 32 + 64 * 64), slice(16, 16 + 32 * 64)
    rows, columns = write_chunks(grid, region, ((64,) * 64, (32,) * 64), 2)
    assert sum(rows) == 64 * 64
    assert sum(columns) == 32 * 64
    assert (rows[1], columns[1]) == (16 * 64, 16 * 32)  # 1 MiB, as many of both
    assert borders(rows[:-1]) <= set(range(32, 64 * 66, 64))


def test_a_carried_function_is_unpickled_once():
    _unpack.cache_clear()
    sent = cloudpickle.dumps(SharedFunction(lambda x: x + 1))
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first is second
    assert first(1) == 2
    assert pickle.loads(pickle.dumps(first)) is first  # as the scheduler sends it on


def test_what_a_script_defines_is_sent_whole(monkeypatch):
    def double(x):
        return 2 * x

    double.__module__, double.__qualname__ = "__main__", "double"
    with monkeypatch.context() as script:
        script.setattr(sys.modules["__main__"], "double", double, raising=False)
        sent = pickle.dumps(SharedFunction(partial(map, double)))
    assert list(pickle.loads(sent)([1, 2])) == [2, 4]  # where no script has it
