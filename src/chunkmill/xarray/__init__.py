"""Xarray backend ``engine="chunkmill"``, and `write_dataset`.

The accessors ``Dataset.chunkmill`` and ``DataTree.chunkmill`` are registered when xarray is imported, before
chunkmill or after it: importing chunkmill imports neither xarray nor dask.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from chunkmill.config import when_imported

__all__ = ["register_accessors"]

_NAME = "chunkmill"


def register_accessors() -> None:
    """Register the accessors now, or when xarray is imported."""
    when_imported("xarray", _register)


def _register(xarray: ModuleType) -> None:
    if hasattr(xarray.Dataset, _NAME):
        return
    xarray.register_dataset_accessor(_NAME)(_accessor)
    xarray.register_datatree_accessor(_NAME)(_accessor)


def _accessor(data: Any) -> Any:
    """Return the accessor of a dataset or a tree, imported when it is first used."""
    return import_module("chunkmill.xarray.write").Accessor(data)
