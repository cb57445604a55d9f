"""The accessors wait for xarray, which stays as it is."""

import subprocess
import sys


def test_xarray_is_found_as_before():
    script = """
import sys, chunkmill
waits = lambda: "xarray" in [getattr(finder, "name", "") for finder in sys.meta_path]
before = waits()
import xarray, inspect
assert "Dataset" in inspect.getsource(xarray)
print(before, waits(), xarray.__spec__.loader is xarray.__loader__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]
