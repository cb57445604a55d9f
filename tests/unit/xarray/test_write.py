"""Reports of a dataset's variables, and of two writes."""

import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.dask_arrays.write import WriteReport
from chunkmill.xarray.write import DatasetReport


def test_two_writes():
    one, two = WriteReport(3, 1, 0, 30), WriteReport(2, 0, 1, 20, guard="lock")
    joined = DatasetReport({"a": one, "b": one}, ("c", "d")).joined(DatasetReport({"a": two, "d": two}, ("c", "b")))
    assert joined.variables == {"a": WriteReport(5, 1, 1, 50, guard="lock"), "b": one, "d": two}
    assert joined.unchanged == ("c",)
    assert (joined.n_keys, joined.n_partial, joined.bytes_written) == (10, 2, 100)
    assert "store keys" in repr(joined)


@pytest.mark.parametrize("name", [None, "x", "t"])
def test_an_array_is_written_as_xarray_writes_it(name, tmp_path):
    array = xr.DataArray(np.arange(12).reshape(3, 4), dims=("y", "x"), coords={"x": [1, 2, 3, 4]}, name=name)
    if name == "x":
        array = array.drop_vars("x")
    cm.write_dataset(array, str(tmp_path / "ours"), format="zarr2")
    array.to_zarr(tmp_path / "theirs", zarr_format=2)
    for path in ("ours", "theirs"):
        for engine in ("zarr", "chunkmill"):
            with xr.open_dataarray(tmp_path / path, engine=engine) as read:
                xr.testing.assert_identical(read, array)
