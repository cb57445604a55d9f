"""Variables against existing arrays."""

import numpy as np
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases

from chunkmill.errors import DatasetError
from chunkmill.xarray.stored_variable import StoredVariable, find_region


def stored(name="t", dtype="i4", values=(0, 1, 2), **attributes):
    options = {"chunks": (2,), "dimension_names": [name], "attributes": attributes}
    return filled(np.array(values, dtype), None, name, **options).stored


def variable(array, like=None):
    return StoredVariable.of(array.path, array, like)


def test_numbers_with_other_units_are_refused():
    array = stored(units="days since 2000-01-01")
    with pytest.raises(DatasetError, match="pass times and decoded values"):
        variable(array, xr.Variable("t", [1, 2], {"units": "hours since 2000-01-01"}))
    same = variable(array, xr.Variable("t", [1, 2], {"units": "days since 2000-01-01"}))
    assert same.encode(np.array([5])).tolist() == [5]


def dates(calendar, year=2000):
    cftime = pytest.importorskip("cftime")
    return np.array([cftime.datetime(year, 1, 1 + day, calendar=calendar) for day in range(2)], object)


@cases(
    ("array", "values"),
    [
        (stored(dtype="m8[s]"), np.array([0.5, 1.5])),
        (stored(dtype="i4", _FillValue=-1), np.array([1, 0.5])),  # decoded to floats
        (stored(dtype="i4"), np.array(["a", "b"])),
        (stored(dtype="i4"), np.array([{}, {}], object)),
        (stored(units="days since 2000-01-01", calendar="noleap"), dates("360_day")),
        (stored(units="days since 2000-01-01"), np.array([*dates("noleap")[:1], "a"], object)),
    ],
)
def test_values_of_another_kind_are_one_error(array, values):
    with pytest.raises(DatasetError, match="variable 't'"):
        variable(array, xr.Variable("t", values)).encode(values)


def test_dates_of_another_calendar_are_not_located():
    array = stored(values=(0, 1), units="days since 2000-01-01", calendar="noleap")
    dataset = xr.Dataset({"v": ("t", [1, 2])}, {"t": xr.Variable("t", dates("360_day"))})
    with pytest.raises(DatasetError, match="not of the kind of those in the store"):
        find_region(dataset, "auto", {"t": array}, "memory://")


def test_elements_out_of_the_range_of_dates_are_one_error():
    array = stored(dtype="i8", units="days since 2000-01-01", calendar="noleap")
    with pytest.raises(DatasetError, match="cannot be decoded by units='days since 2000-01-01', calendar='noleap'"):
        variable(array, xr.Variable("t", dates("noleap"))).decode(np.array([0, 2**60]))
