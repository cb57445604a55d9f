"""Write regions of stored datasets, by slices and by coordinates."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.datasets import read, refused, series
from support.recording import UnfencedStore

from chunkmill.errors import DatasetError, NodeNotFound, StoreError
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.write import write_dataset


@cases("cut", [slice(0, 5), slice(1, 3), slice(4, 5), slice(2, 2), slice(-3, None)])
def test_region(store, cut):
    write_dataset(series(), store, encoding={"v": {"chunks": (2, 3)}})
    expected = read(store).load()
    part = series().isel(time=cut).drop_vars("mask") + 1000
    for given in (part, part.chunk(time=1) + 1):
        expected["v"][cut] = given.v
        report = write_dataset(given, store, region={"time": cut})
        assert set(report.unchanged) == {"time", "x"}
        np.testing.assert_array_equal(read(store).v, expected.v)


@cases("region", ["auto", {"time": "auto"}, {"time": "auto", "x": slice(1, 3)}])
def test_region_by_coordinates(store, region):
    write_dataset(series(), store)
    assert write_dataset(series().isel(time=[]).drop_vars("mask"), store, region="auto").n_keys == 0
    part = (
        series().isel(time=slice(1, 4), x=slice(1, 3))
        if region != {"time": "auto"}
        else series().isel(time=slice(1, 4))
    )
    part = part[["v"]] * 0 - 7
    write_dataset(part, store, region=region)
    expected = series().v.copy()
    expected.loc[{"time": part.time, "x": part.x}] = -7
    np.testing.assert_array_equal(read(store).v, expected)


def test_region_that_cannot_be_found(store):
    write_dataset(series(), store)
    part = series()[["v"]]
    with pytest.raises(DatasetError, match=r"'time'.*2 values are not in the store: 2000-01-06.*append_dim="):
        write_dataset(series(3, "2000-01-05")[["v"]], store, region="auto")
    refused("not next to each other", part.isel(time=[0, 2]), store, region="auto")
    refused("not next to each other", part.isel(time=[1, 0]), store, region="auto")
    with pytest.raises(DatasetError, match=r"without a coordinate 'time', 2 of 5.*slice"):
        write_dataset(part.isel(time=slice(2)).drop_vars("time"), store, region="auto")
    refused("region names 'y', which is not a dimension of the dataset", part, store, region={"y": slice(0, 1)})
    with pytest.raises(DatasetError, match="region names 'z', which is not a dimension of the store"):
        write_dataset(part.expand_dims("z"), store, region={"z": slice(0, 1)})
    refused(r"is 2 of 5 in the store, got 5", part, store, region={"time": slice(0, 2)})
    refused("expected a slice of step 1", part, store, region={"time": slice(0, 5, 2)})
    refused("expected 'auto'", part, store, error=TypeError, region=slice(0, 5))
    with pytest.raises(NodeNotFound):
        write_dataset(part, store, "other", region="auto")
    write_dataset(series().assign_coords(x=[7, 7, 8, 9]), store, "twice")
    with pytest.raises(DatasetError, match=r"'x'.*not unique: 7 is there more than once; pass region="):
        write_dataset(part.assign_coords(x=[7, 7, 8, 9]), store, "twice", region="auto")
    refused(r"'w'.*not in the store", part.assign(w=part.v), store, region="auto")


def test_a_region_is_where_its_coordinates_say(store):
    write_dataset(series(), store)
    moved = series().isel(time=slice(0, 2))[["v"]]
    refused(r"'time'.*at \[1\]: 2000-01-02.* is stored, got 2000-01-01", moved, store, region={"time": slice(1, 3)})
    write_dataset(moved.drop_vars("time"), store, region={"time": slice(1, 3)})
    np.testing.assert_array_equal(read(store).v[1:3], moved.v)


def test_regions_of_a_store_whose_metadata_came_first(store):
    """xarray's way to write in parallel: metadata and coordinates at once, data by region."""
    full = series(6)
    template = full.assign(v=(("time", "x"), da.zeros((6, 4), chunks=(2, 4), dtype="f4"), {"units": "K"}))
    later = write_dataset(template, store, compute=False)
    xr.testing.assert_identical(read(store).drop_vars("v"), full.drop_vars("v"))
    for start in range(0, 6, 3):  # borders that are none of chunks
        write_dataset(full.isel(time=slice(start, start + 3))[["v"]], store, region="auto")
    xr.testing.assert_identical(read(store).load(), full)
    report = later.compute()
    assert report.variables["v"].n_keys == 3
    assert report.bytes_written == sum(each.bytes_written for each in report.variables.values()) > 0
    np.testing.assert_array_equal(read(store).v, 0)


def test_parts_of_chunks_in_memory_need_a_guard_too():
    """Written from this process, as part of a dataset."""
    store = UnfencedStore(MemoryStore())
    write_dataset(xr.Dataset({"v": ("x", np.arange(6))}), store, encoding={"v": {"chunks": (4,)}})
    part = xr.Dataset({"v": ("x", np.array([7, 8]))})
    with pytest.raises(StoreError, match="lock=None leaves partial writes unguarded"):
        write_dataset(part, store, region={"x": slice(1, 3)}, lock=None)
    write_dataset(part, store, region={"x": slice(1, 3)})
    np.testing.assert_array_equal(read(store).v, [0, 7, 8, 3, 4, 5])
