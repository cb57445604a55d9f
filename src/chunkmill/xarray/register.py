"""Register ``Dataset.chunkmill`` and ``DataTree.chunkmill`` when xarray is imported, before chunkmill or after it.

Importing chunkmill imports neither xarray nor dask: they take a second and a half.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["register_accessors"]

_NAME = "chunkmill"


def register_accessors() -> None:
    """Register the accessors now, or when xarray is imported."""
    if hasattr(sys.modules.get("xarray"), "register_datatree_accessor"):
        _register(sys.modules["xarray"])
    elif not any(isinstance(finder, _XarrayFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _XarrayFinder())


def _register(xarray: ModuleType) -> None:
    if hasattr(xarray.Dataset, _NAME):
        return
    xarray.register_dataset_accessor(_NAME)(_dataset)
    xarray.register_datatree_accessor(_NAME)(_tree)


def _dataset(data: Any) -> Any:
    """Return the accessor of a dataset, imported when it is first used."""
    return import_module("chunkmill.xarray.accessor").DatasetAccessor(data)


def _tree(data: Any) -> Any:
    """Return the accessor of a tree, imported when it is first used."""
    return import_module("chunkmill.xarray.accessor").TreeAccessor(data)


class _XarrayFinder(MetaPathFinder):
    """Finds xarray as others do, and registers the accessors once it has been imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - of the interface
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the module's own specification, whose loader registers the accessors afterwards."""
        if fullname != "xarray":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register(module)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
