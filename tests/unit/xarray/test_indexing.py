"""Lazy indexing of the xarray engine: each kind of indexer; xarray's own tests compose them."""

import asyncio
import pickle

import dask
import numpy as np
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases
from support.datasets import needs_xarray, read, read_by_xarray, write_temperatures
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.array.scattered import read_outer, read_points
from chunkmill.errors import RegionError
from chunkmill.stores.memory import MemoryStore

pytest.importorskip("zarr")


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def written_by_xarray(request, tmp_path_factory):
    return write_temperatures(str(tmp_path_factory.mktemp("zarr") / "t.zarr"), request.param)


INDEXERS = {
    "full": lambda a: a,
    "strided_slice": lambda a: a.isel(t=slice(None, None, 3), x=slice(1, None, 2)),
    "negative_stride_slice": lambda a: a.isel(t=slice(None, None, -1)),
    "array_unsorted": lambda a: a.isel(t=[8, 0, 4]),
    "oindex_with_stride": lambda a: a.isel(t=[9, 0, 9], y=slice(None, None, -2), x=[3, 0]),
    "vindex_2d": lambda a: a.isel(
        t=xr.DataArray([[1, 8], [3, 0]], dims=["p", "q"]), x=xr.DataArray([[0, 3], [3, 3]], dims=["p", "q"])
    ),
    "vindex_with_stride": lambda a: a.isel(
        t=slice(None, None, -3), y=xr.DataArray([1, 5], dims="p"), x=xr.DataArray([3, 0], dims="p")
    ),
    "vindex_empty": lambda a: a.isel(
        t=xr.DataArray(np.zeros(0, int), dims="p"), y=xr.DataArray(np.zeros(0, int), dims="p")
    ),
    "vindex_then_oindex": lambda a: a.isel(
        t=xr.DataArray([1, 8, 3], dims="p"), y=xr.DataArray([0, 5, 5], dims="p")
    ).isel(p=[2, 0], x=[3, 1]),
    "transpose_then_index": lambda a: a.transpose("x", "t", "y").isel(x=[2, 0], t=slice(3, 6)),
}
LAYOUTS = {
    "sharded": {"chunks": (1, 2, 2), "shards": (4, 4, 4)},
    "rectilinear": {"chunks": ((1, 4, 2, 3), (2, 4), (3, 1))},
}


@pytest.fixture(scope="module", params=LAYOUTS)
def indexed(request):
    """A store and what is in it, of a layout; formats have their contract."""
    store = MemoryStore()
    values = np.random.default_rng(5).integers(0, 1000, (10, 6, 4)).astype("i4")
    dims = ["t", "y", "x"]
    filled(values, store, "a", dimension_names=dims, **LAYOUTS[request.param])
    filled(np.arange(10, dtype="i4") * 10, store, "t", dimension_names=["t"])
    return store, xr.DataArray(values, dims=dims, coords={"t": np.arange(10, dtype="i4") * 10}, name="a")


@cases("name", INDEXERS)
def test_lazy_indexing(indexed, name):
    (store, expected), index = indexed, INDEXERS[name]
    a = read(store, mask_and_scale=False).a
    actual = index(a)
    assert not a.variable._in_memory
    xr.testing.assert_identical(actual.drop_attrs(), index(expected))
    with dask.config.set(scheduler="sync"):
        of_dask = index(read(store, mask_and_scale=False, chunks={}).a)
        xr.testing.assert_identical(of_dask.drop_attrs(), index(expected))


def test_only_the_chunks_that_hold_the_selection_are_read():
    recording = RecordingStore(MemoryStore())
    cm.create_array(
        recording, "a", shape=(1000, 1000), dtype="i2", chunks=(10, 10), dimension_names=["y", "x"], fill_value=1
    )
    a = read(recording).a
    for index, n in [
        ({"y": [0, 999], "x": [0, 999]}, 4),
        ({"y": slice(None, None, 500), "x": 3}, 2),
        ({"y": xr.DataArray([0, 999, 3], dims="p"), "x": xr.DataArray([0, 999, 5], dims="p")}, 2),
        ({"y": slice(5, 15), "x": slice(0, 0)}, 0),
    ]:
        recording.clear()
        a.isel(index).load()
        keys = recording.keys("get")
        assert sum("/c/" in key for key in keys) == n
        assert keys.count("a/zarr.json") <= 1  # where chunks are absent: is the array still there?


def test_gathering_out_of_bounds_says_where():
    a = cm.create_array(MemoryStore(), shape=(4, 3), dtype="i2", chunks=(2, 2))
    for gather in (read_outer, read_points):
        with pytest.raises(RegionError, match="axis 1 of length 3"):
            gather(a, (np.array([0, 1]), np.array([0, 3])))
    a[...] = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(read_outer(a.stored, (slice(None, None, -1), [2, 0])), a[...][::-1, [2, 0]])


def test_lazy_variables_pickle_and_load_asynchronously(written_by_xarray):
    needs_xarray("2026.9", "load_async is not implemented for booleans")
    ours = pickle.loads(pickle.dumps(read(written_by_xarray)))
    assert not ours.temperature.variable._in_memory
    xr.testing.assert_identical(asyncio.run(ours.load_async()), read_by_xarray(written_by_xarray).load())
