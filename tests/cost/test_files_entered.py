"""How many files of chunkmill a warm call enters: each is one more that a reader of the way has to open."""

import sys
import threading
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

import chunkmill as cm

MOST = {
    "read": 17,
    "open_array": 18,
    "to_store": 55,  # one of them only on a slow machine
    "replace": 58,  # the same one
    "rechunk": 69,
    "convert": 63,
    "transform": 67,
}  # aims: 20, 50, 70, 65, 60; figures that only shrink
PACKAGE = str(Path(cm.__file__).parent)


def files_entered(call):
    """Files of the package of which functions run in a second call of `call`, in any thread."""
    call()
    entered = set()

    def trace(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.add(frame.f_code.co_filename.removeprefix(PACKAGE).lstrip("/"))

    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


@pytest.fixture
def place(tmp_path):
    cm.create_array(tmp_path / "a", shape=(16, 16), dtype="f8", chunks=(8, 8))[...] = 1
    return tmp_path / "a"


def test_read(place):
    array = cm.open_array(place)
    assert len(files_entered(lambda: array[0:8, 0:8])) <= MOST["read"]


def test_open(place):
    assert len(files_entered(lambda: cm.open_array(place))) <= MOST["open_array"]


def test_write(tmp_path):
    """Of four new local chunks, each time to a new place."""
    values = da.from_array(np.ones((16, 16)), chunks=(8, 8))
    places = iter(tmp_path / f"{n}" for n in range(2))
    with dask.config.set(scheduler="sync"):
        assert len(files_entered(lambda: cm.to_store(values, next(places)))) <= MOST["to_store"]


def test_replace(tmp_path):
    """By ``mode="w"``, below a group: the old node stays until the new one takes its name."""
    values = da.from_array(np.ones((16, 16)), chunks=(8, 8))
    with dask.config.set(scheduler="sync"):
        entered = files_entered(lambda: cm.to_store(values, tmp_path, "a", mode="w"))
    assert len(entered) <= MOST["replace"], sorted(entered)


@pytest.mark.parametrize(("name", "options"), [("rechunk", {"chunks": (16, 4)}), ("convert", {"format": "n5"})])
def test_a_job_of_one_task(place, tmp_path, name, options):
    places = iter(tmp_path / f"{n}" for n in range(2))
    with dask.config.set(scheduler="sync"):
        entered = files_entered(lambda: getattr(cm, name)(place, next(places), **options))
    assert len(entered) <= MOST[name], sorted(entered)


def test_a_transform_of_one_task(place, tmp_path):
    places = iter(tmp_path / f"{n}" for n in range(2))
    with dask.config.set(scheduler="sync"):
        entered = files_entered(lambda: cm.transform(np.sqrt, place, next(places)))
    assert len(entered) <= MOST["transform"], sorted(entered)
