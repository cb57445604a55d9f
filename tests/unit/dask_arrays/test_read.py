"""Blocks of dask arrays that read stored arrays: values, blocks, names, and which keys are asked for.

Of other kinds of dask arrays: test_kinds. How a region of a format is read: the contract of formats.
"""

import dask
import numpy as np
import pytest
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.array.selection import full_region
from chunkmill.dask_arrays.read import block_chunks, read_graph
from chunkmill.errors import RegionError
from chunkmill.stores.memory import MemoryStore


def stored(shape=(10, 6), chunks=(4, 3), **kwargs):
    array = cm.create_array(MemoryStore(), "a", shape=shape, dtype="i4", chunks=chunks, **kwargs)
    array[...] = np.arange(np.prod(shape)).reshape(shape)
    return array


@cases(
    ("chunks", "expected"),
    [((5, -1), ((5, 5), (6,))), (-1, ((10,), (6,))), ({0: 3}, ((3, 3, 3, 1), (6,))), ((10, (1, 5)), ((10,), (1, 5)))],
)
def test_chunks_as_dask_takes_them(chunks, expected):
    assert block_chunks(stored().stored, chunks, full_region((10, 6))) == expected


def test_automatic_blocks_are_whole_store_keys_within_the_limit():
    array = cm.create_array(MemoryStore(), shape=(1 << 14, 1 << 14), dtype="u1", chunks=(1 << 10, 1 << 10))
    with dask.config.set({"array.chunk-size": "8MiB"}):
        rows, columns = block_chunks(array.stored, "auto", full_region(array.shape))
    assert set(rows) == {4 << 10}  # 4 MiB: 64 blocks of a 256 MiB array, along the first axis first
    assert set(columns) == {1 << 10}


def test_the_graph_is_one_layer_whose_name_tells_the_metadata():
    array = stored()
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
def filled(request):
    array = cm.create_array(MemoryStore(), "a", shape=(7, 5), dtype="i4", **LAYOUTS[request.param])
    array[...] = values()
    return array


def test_values_of_any_blocks_and_regions(filled):
    assert filled.to_dask().chunks == filled.write_layout.grid.dask_chunks  # one block a store key
    for chunks in (None, "auto", -1, (2, 5), {0: 4}, ((1, 6), (5,))):
        np.testing.assert_array_equal(filled.to_dask(chunks).compute(scheduler="sync"), values())
    for region in (np.s_[2:, 1:4], np.s_[..., 3:3], np.s_[4:5, -1:]):
        for chunks in (None, "auto", (2, 5)):
            x = filled.to_dask(chunks, region=region)
            np.testing.assert_array_equal(x.compute(scheduler="sync"), values()[region])
    for region in (np.s_[::2], 3, [[0, 2]], "auto", np.s_[:, :, :]):
        with pytest.raises(RegionError):
            filled.to_dask(region=region)


def test_blocks_of_a_region_end_where_store_keys_end(filled):
    x = filled.to_dask(region=np.s_[2:, 1:4])
    borders = [set(np.cumsum(axis)) for axis in filled.write_layout.grid.dask_chunks]
    for blocks, start, stop, ends in zip(x.chunks, (2, 1), (7, 4), borders, strict=True):
        assert set(np.cumsum(blocks) + start) - {stop} == {end for end in ends if start < end < stop}


def test_a_part_of_a_shard_costs_one_index_and_its_ranges():
    store = RecordingStore(MemoryStore())
    array = cm.create_array(store, "a", shape=(64, 64), dtype="i2", chunks=(8, 8), shards=(64, 64), codecs="raw")
    array[...] = values((64, 64), "i2")
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
