"""How many files of chunkmill a warm call enters: each is one more that a reader of the way has to open."""

import gc
import sys
import threading
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from support.arrays import filled

import chunkmill as cm

MOST = {
    "read": 17,
    "open_array": 18,
    "to_store": 55,  # 54, and one only on a slow machine
    "replace": 56,  # 55, and the same one
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

    gc.disable()  # what others have left is not finalized while this call runs
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
    return entered


VALUES = da.from_array(np.ones((16, 16)), chunks=(8, 8))
CALLS = {
    "read": lambda array, new: array[0:8, 0:8],
    "open_array": lambda place, new: cm.open_array(place),
    "to_store": lambda place, new: cm.to_store(VALUES, next(new)),
    "replace": lambda place, new: cm.to_store(VALUES, place.parent, place.name, mode="w"),
    "rechunk": lambda place, new: cm.rechunk(place, next(new), chunks=(16, 4)),
    "convert": lambda place, new: cm.convert(place, next(new), format="n5"),
    "transform": lambda place, new: cm.transform(np.sqrt, place, next(new)),
}


@pytest.mark.parametrize("name", CALLS)
def test_files_entered(tmp_path, name):
    """Of a local array of four chunks; what is new has a place of its own each time."""
    array = filled(np.ones((16, 16)), tmp_path / "a", chunks=(8, 8))
    new = iter(tmp_path / f"{n}" for n in range(2))
    with dask.config.set(scheduler="sync", array_plugins=()):  # as before an array is read by da.from_array
        entered = files_entered(lambda: CALLS[name](array if name == "read" else tmp_path / "a", new))
    assert len(entered) <= MOST[name], sorted(entered)
