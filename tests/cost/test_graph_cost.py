"""What a graph costs before anything is read, in counts that do not depend on the machine."""

import pickle
from collections import Counter

import dask
import numpy as np
import pytest
import xarray as xr
from dask.blockwise import Blockwise
from dask.core import flatten
from support.arrays import filled
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.dask_arrays import read
from chunkmill.stores.memory import MemoryStore

PART = np.s_[100:140, 5:6, 20:60]  # 4 x 1 x 4 blocks


@pytest.fixture
def array():
    """Ten million chunks, of which those of a part are there."""
    store = MemoryStore()
    array = cm.create_array(store, "a", shape=(10_000, 1000, 1000), dtype="u1", chunks=(10, 10, 10))
    array[PART] = 1
    return cm.open_array(store, "a", mode="r+")


@pytest.fixture
def keys_made(monkeypatch):
    """Numbers of keys that layers name, each time that Dask asks for them."""
    made, keys_of = [], Blockwise.get_output_keys

    def counted(layer):
        keys = keys_of(layer)
        made.append(len(keys))
        return keys

    monkeypatch.setattr(Blockwise, "get_output_keys", counted)
    return made


def test_a_graph_is_one_small_layer_that_touches_no_chunk(array, monkeypatch):
    """It computes a block's region from its index: building asks for none of them."""
    monkeypatch.setattr(read, "read_block", pytest.fail)
    x = array.to_dask()
    assert x.npartitions == array.nchunks
    assert len(x.dask.layers) == 1
    assert len(pickle.dumps(x.dask)) < 20_000


def test_a_region_knows_of_no_other_block(array, keys_made):
    """Dask names all blocks of all layers for a reduction over a slice; of a region there are no others."""
    x = array.to_dask(region=PART)
    assert int(x.sum().compute(scheduler="sync")) == 40 * 40
    assert sum(keys_made) == 4 * 4


def of_from_store(array):
    return array.to_dask()[PART]


def of_from_array(array):
    return dask.array.from_array(array, chunks=(10, 10, 10))[PART]


def of_isel(array):
    z, y, x = PART
    opened = xr.open_dataset(array.store, engine="chunkmill", chunks={})
    return opened[next(iter(opened.data_vars))].isel(a_dim_0=z, a_dim_1=y, a_dim_2=x).data


@pytest.mark.parametrize("part", [of_from_store, of_from_array, of_isel])
def test_of_ten_million_blocks_a_slice_names_its_own(array, part, keys_made):
    x = part(array)
    assert int(x.sum().compute(scheduler="sync")) == 40 * 40
    assert int(x[3, 0, 7:9].sum().compute(scheduler="sync")) == 2
    assert max(keys_made, default=0) <= 16


@pytest.mark.parametrize("part", [of_from_store, of_from_array, of_isel])
def test_a_partial_write_of_a_slice_names_its_own_blocks(array, part, keys_made):
    cm.to_store(part(array) + 1, array, region=PART)
    assert max(keys_made, default=0) <= 16
    np.testing.assert_array_equal(array[PART], np.full((40, 1, 40), 2, "u1"))


def test_slices_of_one_array_share_the_blocks_that_they_read():
    store = RecordingStore(MemoryStore())
    x = filled(np.ones(400, "u1"), store, chunks=(4,)).to_dask()
    store.clear()
    a, b = dask.compute(x[40:60].sum(), x[50:70].sum(), scheduler="sync")
    assert (a, b) == (20, 20)
    assert sorted(Counter(key for key in store.keys("get") if "c/" in key).values()) == [1] * 8


def test_the_array_is_inlined_and_not_a_task_of_its_own():
    x = cm.create_array(MemoryStore(), shape=(40, 40), dtype="u1", chunks=(10, 10)).to_dask()
    assert set(flatten(x.__dask_keys__())) == set(dict(x.dask))
