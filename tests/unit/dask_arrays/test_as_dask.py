"""User input as dask arrays."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.dask_arrays.as_dask import as_dask
from chunkmill.stores.memory import MemoryStore

pytest.importorskip("pyarrow")
import dask.dataframe as dd
from support.cases import cases

VALUES = np.arange(6).reshape(2, 3)


class Lazy:
    """An array-like that can only be sliced."""

    shape, dtype, ndim = VALUES.shape, VALUES.dtype, VALUES.ndim

    def __getitem__(self, index):
        return VALUES[index]


@cases(
    "x",
    [
        VALUES,
        VALUES.tolist(),
        pd.DataFrame(VALUES),
        xr.DataArray(VALUES),
        xr.Variable(("y", "x"), da.from_array(VALUES)),
        dd.from_pandas(pd.DataFrame(VALUES), npartitions=1),
        Lazy(),
    ],
)
def test_values(x):
    found = as_dask(x)
    assert isinstance(found, da.Array)
    np.testing.assert_array_equal(found.compute(scheduler="sync"), VALUES)


def test_dask_arrays_and_stored_arrays_stay_lazy():
    x = da.from_array(VALUES)
    assert as_dask(x) is x
    array = cm.create_array(MemoryStore(), shape=(4,), dtype="i4", chunks=(2,))
    assert as_dask(array).chunks == ((2, 2),)
