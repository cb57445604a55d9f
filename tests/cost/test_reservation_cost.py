"""Requests and file operations that the guards of plain writes cost."""

import json

from support.scripts import run_script

# of an array of 4 chunks: all, and those of its lease or its journal, without what is staged below it
MOST = {"new": (22, 8), "replace": (35, 8), "transform": (60, 41)}
CODE = """
import json
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
x, folder, heard, counts = da.ones((16, 16), chunks=8), sys.argv[1], [], {}
cm.to_store(x, folder, "source")
WRITES = {
    "new": lambda path: cm.to_store(x, f"{folder}/{path}"),
    "replace": lambda path: cm.to_store(x, f"{folder}/in", path, mode="w"),
    "transform": lambda path: cm.transform(np.sqrt, (folder, "source"), f"{folder}/t-{path}"),
}
sys.addaudithook(lambda name, given: name in NAMES and heard.append(str(given[0])))
for way, write in WRITES.items():
    for path in ("warm", "warm", "cold", "cold") if way == "replace" else ("warm", "cold"):
        heard.clear()
        write(path)
    found = [path for path in heard if path.startswith(folder) and not path.startswith(folder + "/source")]
    counts[way] = len(found), len([path for path in found if ".chunkmill-job-" in path and "/new-" not in path])
print(json.dumps(counts))
"""


def test_file_operations(tmp_path):
    counts = json.loads(run_script(CODE, tmp_path / "x"))
    assert counts.keys() == MOST.keys()
    assert not {way: n for way, n in counts.items() if any(map(int.__gt__, n, MOST[way]))}
