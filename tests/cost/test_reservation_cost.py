"""Requests and file operations that the guards of plain writes cost."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("way", "most", "most_of_lease"), [("new", 22, 8), ("replace", 35, 13), ("transform", 60, 41)])
def test_file_operations(tmp_path, way, most, most_of_lease):
    """Of an array of 4 chunks; of its lease, or its journal, among them, without what is staged below it."""
    code = """
import sys

import dask
import dask.array as da
import numpy as np

import chunkmill as cm
from chunkmill.journal import heartbeat

assert heartbeat.CHECK_SECONDS < heartbeat.HEARTBEAT_SECONDS < 3600
heartbeat.CHECK_SECONDS = heartbeat.HEARTBEAT_SECONDS = 3600  # none of both comes due on a machine that is busy
dask.config.set(scheduler="sync")
NAMES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}
found = []
x = da.ones((16, 16), chunks=8)
folder, way = sys.argv[1:]
cm.to_store(x, folder, "source")
write = {
    "new": lambda path: cm.to_store(x, f"{folder}/{path}"),
    "replace": lambda path: cm.to_store(x, folder, path, mode="w"),
    "transform": lambda path: cm.transform(np.sqrt, (folder, "source"), f"{folder}/{path}"),
}[way]
for path in ("warm", "new") if way == "replace" else ("warm",):
    write(path)
if way == "replace":
    write("warm")
sys.addaudithook(lambda name, given: name in NAMES and found.append(str(given[0])))
write("new")
found = [path for path in found if path.startswith(folder) and not path.startswith(folder + "/source")]
print(len(found), len([path for path in found if ".chunkmill-job-" in path and "/new-" not in path]))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "x"), way]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # an audit hook stays
    every, of_lease = map(int, done.stdout.split())
    assert every <= most
    assert of_lease <= most_of_lease
