"""The public function, where zarr-python is not installed."""

import sys

import pytest

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore
from chunkmill.zarr_python.zarr_store import zarr_store


def test_without_zarr_python_the_error_names_the_extra(monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == "zarr"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "chunkmill.zarr_python.view", raising=False)
    monkeypatch.setitem(sys.modules, "zarr", None)
    store = MemoryStore()
    cm.create_group(store)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'chunkmill\[zarr\]'"):
        zarr_store(store)


def test_another_package_that_is_missing_is_named_itself(monkeypatch):
    monkeypatch.delitem(sys.modules, "chunkmill.zarr_python.view", raising=False)
    monkeypatch.setitem(sys.modules, "chunkmill.zarr_python.view", None)
    with pytest.raises(ModuleNotFoundError, match=r"chunkmill\.zarr_python\.view"):
        zarr_store(MemoryStore())
