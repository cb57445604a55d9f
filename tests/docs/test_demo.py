"""The demo: what it installs, how it makes its data larger, and where its maps are."""

import importlib.util
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("iris_sample_data")


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


@pytest.mark.parametrize(("name", "times"), [(name, times) for _, name, times in demo._SOURCES])
def test_a_finer_grid_has_the_values_of_the_file(name, times):
    values, refined = demo._values(name), demo._refined(name, times)
    assert refined.shape == tuple(n * t for n, t in zip(values.shape, times, strict=True))
    assert refined.chunks[0] == (1,) * refined.shape[0]
    first = refined[: times[0]].compute()
    np.testing.assert_array_equal(first[-1, :: times[1], :: times[2]], values[0])
    np.testing.assert_array_equal(first[0, times[1] - 1 :: times[1], times[2] - 1 :: times[2]], values[0])


def test_maps_reach_half_a_cell_beyond_their_points():
    np.testing.assert_allclose(demo._extent("air_temperature"), (224.0625, 315.9375, 14.375, 60.625))
    west, east, south, north = demo._extent("surface_temperature")
    assert east - west == pytest.approx(360, abs=1e-3)  # once around the world
    assert (south, north) == (pytest.approx(-5.28, abs=0.01), pytest.approx(4.72, abs=0.01))


@pytest.mark.slow
def test_the_demo_runs(tmp_path):
    pytest.importorskip("kerchunk.hdf", exc_type=ImportError)
    pytest.importorskip("nilearn")
    done = demo.run_demo(tmp_path)
    assert len(done["steps"]) == 13
    assert all(n_tasks > 0 and seconds > 0 for _, n_tasks, seconds, _ in done["steps"])
    assert max(len(name) for name, *_ in done["steps"]) <= 45  # a line each on 80 columns
    assert Path(done["plot"]).read_bytes().startswith(b"\x89PNG")
