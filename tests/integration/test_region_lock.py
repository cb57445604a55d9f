"""zarr-python's writes to shared chunks lose nothing under `Array.lock` or by `zarr_store`, and much without.

Needs processes and a cluster: the lock is what they have in common.
"""

import subprocess
import sys
import time

import numpy as np
import pytest
from support.recording import UnfencedStore

import chunkmill as cm
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.slow

N = 90

WRITER = """
import sys, time
from contextlib import nullcontext
import zarr
import chunkmill as cm

place, first, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ours = cm.open_array(place, mode="r+")
theirs = zarr.open_array(cm.zarr_store(place, mode="r+") if way == "store" else place, mode="r+")
print("ready", flush=True)
sys.stdin.readline()
for i in range(first, ours.shape[0], 3):
    with ours.lock(slice(i, i + 1), timeout=60) if way == "lock" else nullcontext():
        theirs[i] = i + 1
"""


@pytest.mark.parametrize("way", ["lock", "store", "none"])
def test_three_processes_that_write_by_zarr(tmp_path, way):
    pytest.importorskip("zarr")
    place = tmp_path / "a.zarr"
    cm.create_array(place, shape=(N,), dtype="i4", chunks=(N,))
    command = [sys.executable, "-c", WRITER, str(place)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, str(i), way], **pipes) for i in range(3)]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 3
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.close()
        writer.stdout.close()
    codes = [writer.wait(120) for writer in writers]
    lost = int((cm.open_array(place)[...] != np.arange(1, N + 1)).sum())
    assert (codes, lost) == ([0, 0, 0], 0) if way != "none" else lost > 0
    assert [path.name for path in place.iterdir() if "lock" in path.name] == []


def test_what_a_killed_process_held_is_taken_over(tmp_path):
    place = tmp_path / "a.zarr"
    array = cm.create_array(place, shape=(4,), dtype="i4", chunks=(2,))
    text = f"import chunkmill as cm, time\nwith cm.open_array({str(place)!r}).lock(): print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(TimeoutError, match="another process"), array.lock(slice(0, 1), timeout=0.3):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    began = time.monotonic()
    with array.lock(timeout=30):
        assert time.monotonic() - began < 5
    assert [path.name for path in place.iterdir() if "lock" in path.name] == []


def test_workers_of_a_cluster_where_the_store_compares_no_versions(client, tmp_path):
    """Others must wait for the scheduler's lock, the store has none."""
    array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(60,), dtype="i4", chunks=(60,), codecs="raw")

    def add(i):
        with array.lock(slice(i, i + 1), timeout=60):
            whole = array[...]  # as other libraries write a part of a chunk
            whole[i] += i + 1
            array.store.set("c/0", whole.astype("<i4").tobytes())

    client.gather(client.map(add, range(60)))
    np.testing.assert_array_equal(array[...], np.arange(1, 61))
