"""The demo: what it installs, how it makes its data larger, and where its maps are."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _demo():
    spec = importlib.util.spec_from_file_location("demo", ROOT / "notebooks" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo = _demo()


def packages(requirements):
    return {re.split(r"[<>=!\[]", one)[0] for one in requirements}


def test_make_demo_installs_the_extra_and_no_more():
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile[makefile.index("$(DEMO)/.made:") : makefile.index("\n\n", makefile.index("$(DEMO)/.made:"))]
    installed = re.findall(r"--editable \. (.*)", recipe)[0].split() + re.findall(r"--no-deps (.*)", recipe)
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["demo"]
    assert set(installed) == packages(extra) | {"nibabel"}  # which nilearn requires, installed there without the rest


@pytest.mark.slow
def test_the_demo_runs(tmp_path):
    pytest.importorskip("kerchunk.hdf", exc_type=ImportError)
    for package in ("iris_sample_data", "nilearn"):
        pytest.importorskip(package)
    done = demo.run_demo(tmp_path)
    assert len(done["steps"]) == 13
    assert all(n_tasks > 0 and seconds > 0 for _, n_tasks, seconds, _ in done["steps"])
    assert max(len(name) for name, *_ in done["steps"]) <= 45  # a line each on 80 columns
    assert Path(done["plot"]).read_bytes().startswith(b"\x89PNG")
