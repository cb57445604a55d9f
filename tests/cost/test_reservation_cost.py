"""Requests and file operations that the guards of plain writes cost."""

import subprocess
import sys


def test_file_operations_of_a_lease(tmp_path):
    """Of a new array of 4 chunks; a lease of it took 10 more."""
    code = """
import sys

import dask
import dask.array as da

import chunkmill as cm
from chunkmill.journal import heartbeat

assert heartbeat.CHECK_SECONDS < heartbeat.HEARTBEAT_SECONDS < 3600
heartbeat.CHECK_SECONDS = heartbeat.HEARTBEAT_SECONDS = 3600  # none of both comes due on a machine that is busy
dask.config.set(scheduler="sync")
NAMES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}
found = []
x = da.ones((16, 16), chunks=8)
cm.to_store(x, sys.argv[1] + "/warm.zarr")
sys.addaudithook(lambda name, given: name in NAMES and found.append(str(given[0])))
cm.to_store(x, sys.argv[1] + "/new.zarr")
print(len([path for path in found if "new.zarr" in path]), len([path for path in found if ".chunkmill-job-" in path]))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # an audit hook stays
    every, of_lease = map(int, done.stdout.split())
    assert of_lease <= 15
    assert every <= 29
