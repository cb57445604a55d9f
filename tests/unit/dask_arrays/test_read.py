"""Blocks that read stored arrays: their values, their lengths, which keys are requested."""

import pickle
from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task
from dask.graph_manipulation import bind, clone
from support.arrays import filled
from support.cases import cases
from support.recording import FarStore, RecordingStore, contents

import chunkmill as cm
from chunkmill.array.selection import full_region
from chunkmill.dask_arrays.blocks import BlockRegions
from chunkmill.dask_arrays.read import block_chunks, read_graph, run_length
from chunkmill.errors import ChunkError, RegionError
from chunkmill.stores.memory import MemoryStore


@cases(
    ("chunks", "expected"),
    [((5, -1), ((5, 5), (6,))), (-1, ((10,), (6,))), ({0: 3}, ((3, 3, 3, 1), (6,))), ((10, (1, 5)), ((10,), (1, 5)))],
)
def test_chunks_as_dask_takes_them(chunks, expected):
    array = cm.create_array(MemoryStore(), shape=(10, 6), dtype="i4", chunks=(4, 3))
    assert block_chunks(array.stored, chunks, full_region((10, 6))) == expected


def test_automatic_blocks_are_whole_store_keys_within_the_limit():
    array = cm.create_array(MemoryStore(), shape=(1 << 14, 1 << 14), dtype="u1", chunks=(1 << 10, 1 << 10))
    with dask.config.set({"array.chunk-size": "8MiB"}):
        rows, columns = block_chunks(array.stored, "auto", full_region(array.shape))
    assert set(rows) == {4 << 10}  # 4 MiB: 64 blocks of a 256 MiB array, along the first axis first
    assert set(columns) == {1 << 10}


def test_the_graph_is_one_layer_whose_name_tells_the_metadata():
    array = filled(values((10, 6)), path="a", chunks=(4, 3))
    x = read_graph(array.stored)
    assert len(x.dask.layers) == 1
    assert x.name == read_graph(array.stored).name
    assert x.name != read_graph(array.stored, region=(slice(0, 4), slice(0, 3))).name
    assert x.name != read_graph(array.stored.with_read_missing("error")).name
    (layer,) = x.dask.layers.values()
    assert {"url": array.url, "path": "a", "format": "zarr3"}.items() <= layer.collection_annotations.items()
    np.testing.assert_array_equal(x.compute(scheduler="sync"), array[...])


def values(shape=(7, 5), dtype="i4"):
    return (np.arange(np.prod(shape)) * 7 % 101).astype(dtype).reshape(shape)


LAYOUTS = {
    "plain": {"chunks": (3, 2)},
    "sharded": {"chunks": (1, 2), "shards": (3, 4)},
    "rectilinear": {"chunks": ((3, 1, 3), (2, 3))},
}


@pytest.fixture(params=LAYOUTS, ids=str)
def small(request):
    return filled(values(), **LAYOUTS[request.param])


def test_values_of_any_blocks_and_regions(small):
    assert small.to_dask().chunks == small.write_layout.grid.dask_chunks  # one block a store key
    for chunks in (None, "auto", -1, (2, 5), {0: 4}, ((1, 6), (5,))):
        np.testing.assert_array_equal(small.to_dask(chunks).compute(scheduler="sync"), values())
    for region in (np.s_[2:, 1:4], np.s_[..., 3:3], np.s_[4:5, -1:]):
        for chunks in (None, "auto", (2, 5)):
            x = small.to_dask(chunks, region=region)
            np.testing.assert_array_equal(x.compute(scheduler="sync"), values()[region])
    for region in (np.s_[::2], 3, [[0, 2]], "auto", np.s_[:, :, :]):
        with pytest.raises(RegionError):
            small.to_dask(region=region)


def test_blocks_of_a_region_end_where_store_keys_end(small):
    x = small.to_dask(region=np.s_[2:, 1:4])
    borders = [set(np.cumsum(axis)) for axis in small.write_layout.grid.dask_chunks]
    for blocks, start, stop, ends in zip(x.chunks, (2, 1), (7, 4), borders, strict=True):
        assert set(np.cumsum(blocks) + start) - {stop} == {end for end in ends if start < end < stop}


def test_a_part_of_a_shard_costs_one_index_and_its_ranges():
    store = RecordingStore(MemoryStore())
    array = filled(values((64, 64), "i2"), store, "a", chunks=(8, 8), shards=(64, 64), codecs="raw")
    store.clear()
    np.testing.assert_array_equal(array[0:16, 8:16], values((64, 64), "i2")[0:16, 8:16])
    ranges = [r for _, key, r in store.log if key == "a/c/0/0"]
    assert len(ranges) == 3
    assert ranges[0].start == -(64 * 16 + 4)
    assert all(r.length == 128 for r in ranges[1:])
    store.clear()
    array[...]
    assert [r for _, _, r in store.log] == [None]  # the whole shard at once


def test_blocks_that_do_not_fit_are_refused_at_once():
    array = cm.create_array(MemoryStore(), shape=(6, 4), dtype="f4", chunks=(2, 2))
    for chunks in ((3, 3, 3), ((3, 2), 4)):
        with pytest.raises(RegionError, match=r"chunks=\("):
            array.to_dask(chunks)
    array = cm.create_array(MemoryStore(), shape=(10**18,), dtype="i1", chunks=(1,))  # dask cannot name them all
    with pytest.raises(RegionError, match="larger blocks"):
        array.to_dask()
    with pytest.raises(RegionError):
        array[...]
    assert array[10**18 - 1] == 0


VALUES = np.arange(32 * 40 * 4).reshape(32, 40, 4)  # in 8 x 10 x 2 chunks


WRITTEN = contents(filled(VALUES, chunks=(4, 4, 2)).store)


@pytest.fixture
def store():
    return FarStore(MemoryStore(dict(WRITTEN)))


@pytest.fixture
def x(store):
    return cm.from_store(store)


@pytest.mark.parametrize(
    ("function", "n_keys"),
    [
        (lambda x: x[:, 5:6, 0], 8),
        (lambda x: x[8:12, :, 2:], 10),
        (lambda x: (x.T + 1)[:, :8, 28:].sum(), 4),
        (lambda x: (x[None] * np.ones((3, 1, 1, 1), int)).transpose(2, 0, 3, 1)[20:28].sum(axis=0), 32),
        (lambda x: (x + x[::-1])[:4], 40),
        (lambda x: da.tensordot(x[:8, :, 0], x[:8, :, 1], axes=((1,), (1,))), 20),
        (lambda x: x.rechunk((32, 5, 4))[:, :5].max(axis=0), 32),
    ],
    ids=["line", "slab", "transposed", "broadcast", "twice", "contracted", "rechunked"],
)
def test_what_culling_left_is_requested_and_nothing_else(store, x, function, n_keys):
    want, y = function(da.from_array(VALUES, chunks=(4, 4, 2))).compute(), function(x)
    dict(y.dask)  # all of its tasks, before it is culled
    store.clear()
    np.testing.assert_array_equal(y.compute(scheduler="threads", num_workers=2), want)
    assert set(store.chunks("get").values()) <= {1}
    assert len(store.chunks("get")) == n_keys


def test_a_culled_graph_is_computed_again_with_new_requests(store, x):
    (y,) = dask.optimize(x[:8])
    for value in (0, 7):
        cm.open_array(store.below, mode="r+")[:8] = value
        assert (y.compute(scheduler="threads") == value).all()


def test_few_runs_are_not_begun_on_a_cluster(x):
    (here,), (there,) = (dask.optimize(each) for each in (x[:4, :, 0], pickle.loads(pickle.dumps(x))[:4, :, 0]))
    begun = [sum(isinstance(t, Task) and t.data_producer for t in dict(each.dask).values()) for each in (here, there)]
    assert begun == [1, 0]
    assert run_length(300, 1, 1 << 25, 1 << 25) == 0  # of one block
    assert len(x.dask) == len(dict(x.dask)) == 160 + 5  # of 32 blocks each
    np.testing.assert_array_equal(there.compute(scheduler="threads"), VALUES[:4, :, 0])


def test_shards_whose_absent_chunks_are_errors_are_requested_one_by_one():
    store = FarStore()
    filled(VALUES, store.below, chunks=(2, 2, 2), shards=(4, 4, 2))
    for missing, n_first in (("fill", 1), ("error", 10)):  # one task that begins the requests of all, or each block
        x = cm.from_store(cm.open_array(store, read_missing=missing))[:4, :, 0]
        (y,) = dask.optimize(x)
        assert sum(isinstance(t, Task) and not t.dependencies for t in dict(y.dask).values()) == n_first
        np.testing.assert_array_equal(x.compute(scheduler="threads"), VALUES[:4, :, 0])


def test_a_clone_beside_its_original(x):
    assert (clone(x) - x).any().compute(scheduler="threads") == 0
    assert (clone(clone(x)) - x).any().compute(scheduler="threads") == 0
    assert clone(x + 1)[3:, :5].sum().compute(scheduler="threads") == (VALUES + 1)[3:, :5].sum()


def test_what_is_bound_to_a_write_is_read_after_it(store, x):
    cm.open_array(store.below, mode="r+")[...] = 0
    written = cm.to_store(da.from_array(VALUES, chunks=(4, 4, 2)), store, region=..., mode="r+", compute=False)
    assert bind(x, [written, x.sum()])[1:].sum().compute(scheduler="threads") == VALUES[1:].sum()


def test_a_key_that_fails_is_named_and_the_others_are_read(store, x):
    store.below.set("c/3/2/1", b"damaged")
    with pytest.raises(ChunkError, match="c/3/2/1"):
        x.sum().compute(scheduler="threads")
    assert x[16:].sum().compute(scheduler="threads") == VALUES[16:].sum()


@cases("lengths", [(4, 4, 3), (4, 4, 3, 3), (4, 3, 3), (4, 5), (3, 4, 4), (7,), (0,)])
def test_blocks_of_any_lengths_follow_each_other(lengths):
    regions = BlockRegions((lengths,), start=(2,))
    ends = [2, *(2 + np.cumsum(lengths))]
    assert regions.chunks == (lengths,)
    assert [regions.region((i,))[0] for i in range(len(lengths))] == [slice(*cut) for cut in pairwise(ends)]
