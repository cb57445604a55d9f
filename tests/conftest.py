"""Fixtures and the hypothesis profiles: `dev` explores, `ci` repeats."""

import os
import signal
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("contracts", "support")

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# begun in the background of a shell, children would inherit that Ctrl-C is ignored, and tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def url(tmp_path):
    """A url of a local store that does not exist yet."""
    return str(tmp_path / "store")


# --------------------------------------------------------------------------------------------------------------------
# Each kind of Dask array as a parameter

KINDS = ["dask.array", "dask-array"]


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param != "dask-array":
        return "dask"
    pytest.importorskip("dask_array")
    return "dask-array"


@pytest.fixture
def xp(kind):
    """Namespace of a kind: what users import as ``da``."""
    return import_module("dask_array" if kind == "dask-array" else "dask.array")


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
