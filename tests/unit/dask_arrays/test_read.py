"""Blocks of dask arrays that read stored arrays."""

import dask
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.array.selection import full_region
from chunkmill.dask_arrays.read import begun_bytes, begun_reads, block_chunks, read_block, read_graph, sized
from chunkmill.errors import RegionError
from chunkmill.stores.memory import MemoryStore


def stored(shape=(10, 6), chunks=(4, 3), **kwargs):
    array = cm.create_array(MemoryStore(), "a", shape=shape, dtype="i4", chunks=chunks, **kwargs)
    array[...] = np.arange(np.prod(shape)).reshape(shape)
    return array


def test_a_block_for_each_store_key():
    assert block_chunks(stored().stored, None, full_region((10, 6))) == ((4, 4, 2), (3, 3))
    sharded = stored(chunks=(2, 3), shards=(4, 6))
    assert block_chunks(sharded.stored, None, full_region((10, 6))) == ((4, 4, 2), (6,))
    assert block_chunks(stored().stored, None, (slice(3, 9), slice(2, 3))) == ((1, 4, 1), (1,))


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [((5, -1), ((5, 5), (6,))), (-1, ((10,), (6,))), ({0: 3}, ((3, 3, 3, 1), (6,))), ((10, (1, 5)), ((10,), (1, 5)))],
    ids=str,
)
def test_chunks_as_dask_takes_them(chunks, expected):
    assert block_chunks(stored().stored, chunks, full_region((10, 6))) == expected


def test_chunks_that_do_not_fit_are_named():
    with pytest.raises(RegionError, match=r"chunks=\(\(3, 3\), 6\)"):
        block_chunks(stored().stored, ((3, 3), 6), full_region((10, 6)))


def test_automatic_blocks_are_whole_store_keys_within_the_limit():
    array = cm.create_array(MemoryStore(), shape=(1 << 14, 1 << 14), dtype="u1", chunks=(1 << 10, 1 << 10))
    with dask.config.set({"array.chunk-size": "8MiB"}):
        rows, columns = block_chunks(array.stored, "auto", full_region(array.shape))
    assert set(rows) == {4 << 10}  # 4 MiB: 64 blocks of a 256 MiB array, along the first axis first
    assert set(columns) == {1 << 10}


def test_more_blocks_than_dask_can_hold_are_refused():
    array = cm.create_array(MemoryStore(), shape=(10**12,), dtype="u1", chunks=(1,))
    with pytest.raises(RegionError, match="larger blocks"):
        block_chunks(array.stored, None, full_region(array.shape))


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


def test_a_task_reads_its_region():
    array = stored()
    np.testing.assert_array_equal(read_block(array.stored, (slice(3, 5), slice(2, 4))), array[3:5, 2:4])


def test_sizes_of_strings_are_known():
    assert sized(np.dtype(np.dtypes.StringDType())).itemsize == 16
    assert sized(np.dtype("i4")) == np.dtype("i4")


def test_all_store_keys_of_the_regions_are_requested():
    array = cm.create_array(MemoryStore(), shape=(10, 10), dtype="u2", chunks=(2, 2), shards=(4, 4))
    array[...] = 1
    reads = begun_reads(array.stored, [np.s_[0:4, 0:8], np.s_[8:10, 8:10]])
    assert all(reads.take(f"c/{key}") not in {None, (None,)} for key in ("0/0", "0/1", "2/2"))
    assert reads.take("c/1/1") is None
    assert begun_bytes(array.stored) == 32
