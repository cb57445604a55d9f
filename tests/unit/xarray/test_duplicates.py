"""An append of labels that are stored already is an error."""

import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.errors import DatasetError
from chunkmill.stores.memory import MemoryStore


def days(start, n, value=0.0):
    times = np.datetime64(start, "ns") + np.arange(n) * np.timedelta64(1, "D")
    return xr.Dataset(
        {"t": (("time", "x"), value + np.arange(2.0 * n).reshape(n, 2)), "fixed": ("x", [1, 2])},
        {"time": times, "x": [5, 6]},
    )


@pytest.fixture(params=["zarr2", "zarr3"])
def store(request):
    store = MemoryStore()
    first = days("2020-01-01", 4)
    cm.write_dataset(
        first,
        store,
        format=request.param,
        encoding={"t": {"chunks": (3, 2)}, "time": {"units": "hours since 2000-01-01", "dtype": "i4"}},
    )
    return store


def test_the_same_day_twice_is_an_error(store):
    before = {k: store.get(k) for k in store.list_prefix("")}
    with pytest.raises(DatasetError, match=r"2 of 3 labels are stored already: 2020-01-03T.*region='auto'"):
        cm.write_dataset(days("2020-01-03", 3), store, append_dim="time")
    assert {k: store.get(k) for k in store.list_prefix("")} == before


def test_labels_are_compared_as_they_are_stored(store):
    """Other units, and text."""
    later = days("2020-01-04", 1)
    later["time"] = later["time"].astype("M8[s]")
    with pytest.raises(DatasetError, match="1 of 1 labels"):
        cm.write_dataset(later, store, append_dim="time")
    texts = MemoryStore()
    cm.write_dataset(xr.Dataset({"v": ("run", [1, 2])}, {"run": ["a", "bé"]}), texts)
    with pytest.raises(DatasetError, match="1 of 2 labels are stored already: bé"):
        cm.write_dataset(xr.Dataset({"v": ("run", [3, 4])}, {"run": ["c", "bé"]}), texts, append_dim="run")


def test_trees(store):
    tree = xr.DataTree.from_dict({"/": days("2020-01-04", 2)})
    with pytest.raises(DatasetError, match="1 of 2 labels"):
        cm.write_dataset(tree, store, append_dim="time")
    tree = xr.DataTree.from_dict({"/": days("2020-01-05", 2), "/a": days("2020-01-05", 2, 9)})
    nested = MemoryStore()
    cm.write_dataset(tree, nested)
    with pytest.raises(DatasetError, match=r"2 of 2 labels"):
        cm.write_dataset(tree, nested, append_dim="time")
