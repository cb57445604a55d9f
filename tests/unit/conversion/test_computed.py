"""Arrays of Dask, numpy and xarray as sources of jobs."""

import pickle

import dask.array as da
import numpy as np
import pytest
import xarray as xr

from chunkmill.array.chunk_io import read_region
from chunkmill.conversion.computed import open_or_compute
from chunkmill.errors import UnsupportedFeature


def test_chunks_are_computed_when_they_are_read():
    calls = []

    def noted(block):
        calls.append(block.shape)
        return block * 2

    x = da.arange(12, chunks=5).map_blocks(noted, dtype="i8", meta=np.zeros(0, "i8"))
    array = open_or_compute(x, None)
    assert (array.shape, array.chunks, calls) == ((12,), (5,), [])
    np.testing.assert_array_equal(read_region(array, (slice(5, 10),)), 2 * np.arange(5, 10))
    assert calls == [(5,)]


def test_xarray_has_names_and_pickles():
    array = open_or_compute(xr.DataArray(np.ones((4, 3)), dims=("y", "x")), None)
    assert array.dimension_names == ("y", "x")
    assert pickle.loads(pickle.dumps(array)).shape == (4, 3)


def test_text_of_variable_length_is_refused():
    with pytest.raises(UnsupportedFeature, match=r"a computed source of dtype StringDType.*write it by to_store"):
        open_or_compute(da.from_array(np.array(["a", "bcd"], np.dtypes.StringDType()), chunks=1), None)
