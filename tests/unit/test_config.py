"""Settings: what the code reads is what the defaults list, and what users set wins."""

import pickle
import re
import sys
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path

import dask
import numpy as np
import pytest
from support.cases import cases
from support.scripts import run_script
from support.servers import serve_files

import chunkmill as cm
from chunkmill.config import DEFAULTS, when_imported
from chunkmill.stores.base import max_requests

SOURCE = Path(__file__).parents[2] / "src" / "chunkmill"


def test_every_setting_that_is_read_has_a_default_and_the_other_way_round():
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    read = set(re.findall(r"(?:config\.get\(\s*[\"']chunkmill\.|\bsetting\([\"'])([\w.-]+)[\"']", text))
    assert read == set(DEFAULTS["chunkmill"])


@cases(
    ("name", "value", "expected"),
    [
        ("fsync", "maybe", "true or false"),
        ("progress", "sometimes", "auto, true or false"),
        ("remote-requests", "many", "a whole number above 0"),
        ("remote-requests", 0, "a whole number above 0"),
        ("max-mem", "lots", "a number of bytes above 0"),
    ],
)
def test_what_no_setting_can_be_is_said(tmp_path, name, value, expected):
    cm.to_store(np.arange(60), tmp_path / "a", chunks=(1,))
    job = partial(cm.rechunk, tmp_path / "a", tmp_path / "b", chunks=(7,))
    with dask.config.set({f"chunkmill.{name}": value}), pytest.raises(ValueError, match=expected):
        (max_requests if name == "remote-requests" else job)()


@pytest.mark.parametrize("fsync", [True, False])
def test_a_store_syncs_as_was_set_when_it_was_opened(tmp_path, fsync):
    with dask.config.set({"chunkmill.fsync": fsync}):
        a = cm.create_array(tmp_path / "a", shape=(4,), dtype="i4", chunks=(2,))
    assert pickle.loads(pickle.dumps(a)).stored.store.innermost._fsync is fsync


@pytest.mark.parametrize("most", [1, 5])
def test_no_more_requests_than_users_say(tmp_path, most):
    """In a process of its own: the limit is set with the first request."""
    pytest.importorskip("aiohttp")
    cm.to_store(np.arange(60), tmp_path / "a", chunks=(1,))
    code = "import sys, chunkmill as cm; print(cm.open_array(sys.argv[1])[...].sum())"
    with serve_files(tmp_path, latency=0.005) as server:
        printed = run_script(code, f"{server.url}/a", DASK_CHUNKMILL__REMOTE_REQUESTS=str(most))
        assert printed == str(sum(range(60)))
        assert server.most_at_once == most


def test_a_module_is_waited_for_whose_finder_has_one_loader_for_all(monkeypatch):
    """As finders of zip files do, and that of pytest."""

    class Finder:
        def find_spec(self, fullname, path=None, target=None):
            return ModuleSpec(fullname, self) if fullname.startswith("made_up_") else None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            module.is_made = True

    called = []
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    when_imported("made_up_a", lambda module: called.append((module.__name__, module.is_made)))
    for name in ("made_up_a", "made_up_b"):
        monkeypatch.delitem(sys.modules, import_module(name).__name__)
    assert called == [("made_up_a", True)]
