"""Each kind of Dask array as a parameter: a process has dask.array with query planning, or without."""

from importlib import import_module

import pytest
from dask.array import array_expr_enabled

KINDS = ["query-planning"] if array_expr_enabled() else ["dask.array", "dask-array"]


@pytest.fixture(params=KINDS)
def kind(request):
    return "dask-array" if request.param == "dask-array" else "dask"


@pytest.fixture
def xp(kind):
    """Namespace of a kind: what users import as ``da``."""
    return pytest.importorskip("dask_array") if kind == "dask-array" else import_module("dask.array")


@pytest.fixture
def registered(kind):
    """Let xarray make arrays of the kind."""
    from xarray.namedarray.parallelcompat import list_chunkmanagers

    managers = list_chunkmanagers()
    before = managers["dask"]
    if kind == "dask-array":
        import_module("dask_array.xarray").register()
    yield
    managers["dask"] = before
