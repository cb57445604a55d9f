"""Datasets and arrays in memory, as `write_dataset` writes them."""

import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.recording import UnfencedStore

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.write import write_dataset


@cases("name", [None, "x", "t"])
def test_an_array_is_written_as_xarray_writes_it(name, tmp_path):
    pytest.importorskip("zarr")
    array = xr.DataArray(np.arange(12).reshape(3, 4), dims=("y", "x"), coords={"x": [1, 2, 3, 4]}, name=name)
    if name == "x":
        array = array.drop_vars("x")
    cm.write_dataset(array, str(tmp_path / "ours"), format="zarr2")
    array.to_zarr(tmp_path / "theirs", zarr_format=2)
    for path in ("ours", "theirs"):
        for engine in ("zarr", "chunkmill"):
            with xr.open_dataarray(tmp_path / path, engine=engine) as read:
                xr.testing.assert_identical(read, array)


def test_parts_of_chunks_in_memory_need_a_guard_too():
    """Written from this process, as part of a dataset."""
    store = UnfencedStore(MemoryStore())
    write_dataset(xr.Dataset({"v": ("x", np.arange(6))}), store, encoding={"v": {"chunks": (4,)}})
    part = xr.Dataset({"v": ("x", np.array([7, 8]))})
    with pytest.raises(StoreError, match="lock=None leaves partial writes unguarded"):
        write_dataset(part, store, region={"x": slice(1, 3)}, lock=None)
    write_dataset(part, store, region={"x": slice(1, 3)})
    np.testing.assert_array_equal(cm.open_array(store, "v")[...], [0, 7, 8, 3, 4, 5])
