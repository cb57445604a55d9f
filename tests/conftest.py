"""Fixtures and the hypothesis profiles: `ci` repeats the same examples, `dev` explores, `nightly` explores more."""

import os
import signal
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("contracts", "support")

_PATIENT = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _PATIENT)
settings.register_profile("ci", _PATIENT, derandomize=True)
settings.register_profile("nightly", _PATIENT, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# begun in the background of a shell, children would inherit that Ctrl-C is ignored, and tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def store():
    """A store in memory, in which is nothing: one for each row of a table of cases."""
    return import_module("chunkmill.stores.memory").MemoryStore()


@pytest.fixture
def url(tmp_path):
    """A url of a local store that does not exist yet."""
    return str(tmp_path / "store")


@pytest.fixture
def all_died(monkeypatch):
    """Who began something before is dead: no heartbeat is one of the living, and no task of theirs is waited for."""
    monkeypatch.setattr("chunkmill.journal.heartbeat.is_live", lambda _: False)
    monkeypatch.setattr("chunkmill.journal.journal.CHECK_SECONDS", 0.0)


@pytest.fixture
def one_thread():
    """Tasks one after the other, in the thread of the test."""
    with import_module("dask").config.set(scheduler="sync"):
        yield


@pytest.fixture
def two_threads():
    with import_module("dask").config.set(scheduler="threads", num_workers=2):
        yield


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
