"""Reading through dask: values, blocks, names, and which keys are asked for."""

import dask
import numpy as np
import pytest
from dask.base import tokenize
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import RegionError
from chunkmill.stores.memory import MemoryStore

LAYOUTS = {
    "v2": {"format": "zarr2", "chunks": (3, 2)},
    "v3": {"format": "zarr3", "chunks": (3, 2)},
    "sharded": {"format": "zarr3", "chunks": (1, 2), "shards": (3, 4)},
    "rectilinear": {"format": "zarr3", "chunks": ((3, 1, 3), (2, 3))},
    "n5": {"format": "n5", "chunks": (3, 2)},
}


def values(shape=(7, 5), dtype="i4"):
    return (np.arange(np.prod(shape)) * 7 % 101).astype(dtype).reshape(shape)


@pytest.fixture(params=LAYOUTS, ids=str)
def filled(request):
    store = MemoryStore()
    array = cm.create_array(store, "a", shape=(7, 5), dtype="i4", **LAYOUTS[request.param])
    array[...] = values()
    return array


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize(
    "chunks", [None, "auto", -1, (2, 5), {0: 4}, ((1, 6), (5,))], ids=["none", "auto", "whole", "cut", "dict", "odd"]
)
def test_values(filled, chunks, scheduler, kind):
    x = filled.to_dask(chunks, chunked_array_type=kind)
    assert x.dtype == np.dtype("i4")
    with dask.config.set(scheduler=scheduler):
        np.testing.assert_array_equal(x.compute(), values())


def test_one_block_a_store_key(filled, kind):
    assert filled.to_dask(chunked_array_type=kind).chunks == filled.write_layout.grid.dask_chunks


@pytest.mark.parametrize("chunks", [None, "auto", -1, (2, 5)], ids=["none", "auto", "whole", "cut"])
@pytest.mark.parametrize("region", [np.s_[:], np.s_[2:, 1:4], np.s_[..., 3:3], np.s_[4:5, -1:]], ids=str)
def test_a_region(filled, chunks, region, kind):
    x = filled.to_dask(chunks, region=region, chunked_array_type=kind)
    np.testing.assert_array_equal(x.compute(), values()[region])
    assert x.name != filled.to_dask(chunks, region=np.s_[1:, 2:], chunked_array_type=kind).name


def test_blocks_of_a_region_end_where_store_keys_end(filled, kind):
    x = filled.to_dask(region=np.s_[2:, 1:4], chunked_array_type=kind)
    whole = filled.write_layout.grid.dask_chunks
    borders = [set(np.cumsum(axis)) for axis in whole]
    assert [
        set(np.cumsum(axis) + start) - {stop} for axis, start, stop in zip(x.chunks, (2, 1), (7, 4), strict=True)
    ] == [
        {border for border in axis if start < border < stop}
        for axis, start, stop in zip(borders, (2, 1), (7, 4), strict=True)
    ]


@pytest.mark.parametrize("region", [np.s_[::2], 3, [[0, 2]], "auto", np.s_[:, :, :]], ids=str)
def test_what_is_no_region(filled, region, kind):
    with pytest.raises(RegionError):
        filled.to_dask(region=region, chunked_array_type=kind)


def test_from_array(filled, xp):
    x = xp.from_array(filled)
    np.testing.assert_array_equal(x.compute(), values())
    np.testing.assert_array_equal(x[[0, 3, 6], 1:].compute(), values()[[0, 3, 6], 1:])


def test_names_are_deterministic_and_tell_arrays_apart(filled, kind):
    other = cm.create_array(filled.store, "b", shape=(7, 5), dtype="i4", chunks=(3, 2))
    assert filled.to_dask(chunked_array_type=kind).name == filled.to_dask(chunked_array_type=kind).name
    assert filled.to_dask(chunked_array_type=kind).name != filled.to_dask((2, 2), chunked_array_type=kind).name
    assert filled.to_dask(chunked_array_type=kind).name != other.to_dask(chunked_array_type=kind).name
    assert tokenize(filled) == tokenize(cm.open_array(filled.store, "a"))


def test_a_slice_reads_only_its_chunks(kind):
    store = RecordingStore(MemoryStore())
    array = cm.create_array(store, "a", shape=(100, 100), dtype="i2", chunks=(10, 10))
    array[...] = values((100, 100), "i2")
    store.clear()
    x = cm.open_array(store, "a").to_dask(chunked_array_type=kind)
    store.clear()
    (x + 1)[15:25, 30:40].sum().compute(scheduler="sync")
    assert sorted(store.keys("get")) == ["a/c/1/3", "a/c/2/3"]


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


def test_auto_groups_whole_store_keys(kind):
    array = cm.create_array(MemoryStore(), shape=(1000, 1000), dtype="f8", chunks=(10, 20), shards=(50, 100))
    with dask.config.set({"array.chunk-size": "1MiB"}):
        x = array.to_dask("auto", chunked_array_type=kind)
    for axis, shard in zip(x.chunks, (50, 100), strict=True):
        assert all(n % shard == 0 for n in axis[:-1])
    assert np.prod(x.numblocks) < 20
    assert np.prod([max(axis) for axis in x.chunks]) * 8 <= 2**20


def test_absent_chunks_are_fill(kind):
    array = cm.create_array(MemoryStore(), shape=(6,), dtype="f4", chunks=(2,), fill_value=np.nan)
    array[0:2] = 1
    np.testing.assert_array_equal(
        array.to_dask(chunked_array_type=kind).compute(), [1, 1, np.nan, np.nan, np.nan, np.nan]
    )


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_odd_shapes(shape, kind):
    array = cm.create_array(MemoryStore(), shape=shape, dtype="f8", chunks=(2,) * len(shape), fill_value=4)
    x = array.to_dask(chunked_array_type=kind)
    assert x.shape == shape
    np.testing.assert_array_equal(x.compute(), np.full(shape, 4.0))
    assert array[...].shape == shape


def test_strings(kind):
    array = cm.create_array(MemoryStore(), shape=(3,), dtype=str, chunks=(2,))
    array[0] = "snow"
    array[2] = "rain ☂"
    got = array.to_dask(chunked_array_type=kind).compute()
    assert list(got) == ["snow", "", "rain ☂"]
    assert array.dtype == np.dtypes.StringDType()


def test_blocks_are_writable(filled, kind):
    block = filled.to_dask(-1, chunked_array_type=kind).compute()
    block[...] = 0


def test_wrong_chunks_are_named(kind):
    array = cm.create_array(MemoryStore(), shape=(6, 4), dtype="f4", chunks=(2, 2))
    with pytest.raises(RegionError, match=r"chunks=\(3, 3, 3\)"):
        array.to_dask((3, 3, 3), chunked_array_type=kind)


def test_an_array_of_more_chunks_than_dask_can_name_is_refused_at_once(kind):
    array = cm.create_array(MemoryStore(), shape=(10**18,), dtype="i1", chunks=(1,))
    with pytest.raises(RegionError, match="larger blocks"):
        array.to_dask(chunked_array_type=kind)
    with pytest.raises(RegionError):
        array[...]
    assert array[10**18 - 1] == 0


@pytest.mark.parametrize(("dtype", "value"), [("i4", 7), (str, "snow"), ("U3", "abc"), ("S2", b"x")], ids=str)
def test_a_shard_without_axes(dtype, value, kind):
    array = cm.create_array(MemoryStore(), shape=(), dtype=dtype, chunks=(), shards=())
    array[...] = value
    assert cm.open_array(array.store)[...] == value
    assert array.to_dask(chunked_array_type=kind).compute() == value
