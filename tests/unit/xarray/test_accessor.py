"""`Dataset.chunkmill` writes as `write_dataset` does."""

import inspect

import numpy as np
import pytest
import xarray as xr
from support.datasets import read
from support.scripts import run_script

import chunkmill as cm
from chunkmill.errors import DatasetError
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray import register_accessors
from chunkmill.xarray.write import Accessor

DATASET = xr.Dataset(
    {"t": (("time", "x"), np.arange(24.0).reshape(6, 4)), "w": ("x", np.arange(4))}, {"time": np.arange(6)}
)


WAITS_FOR_XARRAY = """
import sys, chunkmill
waits = lambda: "xarray" in [getattr(finder, "name", "") for finder in sys.meta_path]
before = waits()
import xarray, inspect
assert "Dataset" in inspect.getsource(xarray)
assert (before, waits(), xarray.__spec__.loader is xarray.__loader__) == (True, False, True)
print(hasattr(xarray.Dataset, "chunkmill"), hasattr(xarray.DataTree, "chunkmill"))
"""


def test_registered_when_xarray_is_imported():
    assert run_script(WAITS_FOR_XARRAY, PYTHONWARNINGS="error") == "True True"


def test_registered_where_xarray_is_imported_already(monkeypatch):
    for kind in (xr.Dataset, xr.DataTree):
        monkeypatch.delattr(kind, "chunkmill")
    for _ in range(2):  # again, as the package does that is reloaded
        register_accessors()
        assert type(xr.Dataset().chunkmill) is type(xr.DataTree().chunkmill) is Accessor


def test_write_and_append(store):
    assert DATASET.chunkmill.write(store, format="zarr2", encoding={"t": {"chunks": (3, 2)}}).n_keys > 0
    assert cm.open_array(store, "t").chunks == (3, 2)
    later = DATASET.assign_coords(time=DATASET.time + 4)
    with pytest.raises(DatasetError, match="2 of 6 labels"):
        later.chunkmill.append(store, "time")
    later.isel(time=slice(2, None)).chunkmill.append(store, "time")
    assert read(store).sizes == {"time": 10, "x": 4}


def test_arguments_are_those_of_write_dataset():
    known = list(inspect.signature(cm.write_dataset).parameters.values())
    assert list(inspect.signature(DATASET.chunkmill.write).parameters.values()) == known[1:]
    with pytest.raises(TypeError, match="nope"):
        DATASET.chunkmill.append(MemoryStore(), "time", nope=1)
