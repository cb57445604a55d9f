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


REGISTERED = "print(hasattr(xarray.Dataset, 'chunkmill'), hasattr(xarray.DataTree, 'chunkmill'))"
FOUND_AS_BEFORE = """
import sys, chunkmill
waits = lambda: "xarray" in [getattr(finder, "name", "") for finder in sys.meta_path]
before = waits()
import xarray, inspect
assert "Dataset" in inspect.getsource(xarray)
assert (before, waits(), xarray.__spec__.loader is xarray.__loader__) == (True, False, True)
"""


@pytest.mark.parametrize("imports", [FOUND_AS_BEFORE, "import xarray, chunkmill\n"], ids=["chunkmill", "xarray"])
def test_registered_in_either_order(imports):
    assert run_script(imports + REGISTERED, PYTHONWARNINGS="error") == "True True"
    assert type(DATASET.chunkmill) is type(xr.DataTree().chunkmill) is Accessor
    register_accessors()  # again, as the package does that is reloaded


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
