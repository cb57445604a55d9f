"""Transforms in other processes: what is sent to them, what comes back, and jobs that are killed.

They need a cluster, a process that is killed, or one that unpickles what another has sent.
"""

import subprocess
import sys
import threading
import time
import traceback

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import chunkmill as cm
from chunkmill.errors import NodeNotFound, TransformError

ndimage = pytest.importorskip("scipy.ndimage")
pytestmark = pytest.mark.slow


def noise(shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def test_a_function_that_cannot_be_pickled_runs_in_threads_and_has_a_token(tmp_path):
    cm.to_store(noise((8, 8)), str(tmp_path / "a"), chunks=(4, 4))
    lock = threading.Lock()

    def locked(block):
        with lock:
            return block + 1

    locked.__dask_tokenize__ = lambda: "plus one"

    def planned(place):
        return cm.plan_transform(locked, str(tmp_path / "a"), str(tmp_path / place), dtype="f4")

    with dask.config.set(scheduler="threads"):
        assert planned("b").run().n_keys == 4
    with dask.config.set(scheduler="processes"), pytest.raises(TypeError) as caught:
        planned("c").run()
    assert "locked, what it closes over, or params cannot be pickled" in str(caught.value)
    assert "scheduler='threads'" in str(caught.value)
    with dask.config.set(scheduler="threads"):
        assert planned("c").run().n_keys == 4


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first)
        self.lock = threading.Lock()


def raises_odd(block):
    raise Odd("no convergence", 2)


def exits(block):
    sys.exit("no convergence")


@pytest.mark.parametrize("function", [raises_odd, exits], ids=lambda each: each.__name__)
def test_what_a_function_raises_in_another_process_arrives_whatever_it_is(function, tmp_path):
    cm.to_store(noise((8, 8)), str(tmp_path / "a"), chunks=(4, 4))
    with dask.config.set(scheduler="processes", num_workers=1):
        with pytest.raises(TransformError, match=rf"no convergence \(line \d+ of {function.__name__}\)") as caught:
            cm.transform(function, str(tmp_path / "a"), str(tmp_path / "b"), dtype="f4")
        assert function.__name__ in "".join(traceback.format_exception(caught.value.__cause__ or caught.value))


KILLED = """
import time
import chunkmill as cm

def slow(block, block_id):
    time.sleep(0.05)
    with open("called", "a") as file:
        file.write(f"{block_id[0]} ")
    return block + 1

if __name__ == "__main__":
    report = cm.plan_transform(slow, "a.zarr", "b.zarr", dtype="f4", block=(2, 8)).run(progress=False)
    print(report.n_resumed)
"""


def test_a_killed_process_is_resumed_by_another_without_its_finished_blocks(tmp_path):
    values = noise((160, 8))
    cm.to_store(values, str(tmp_path / "a.zarr"), chunks=(2, 8))
    (tmp_path / "job.py").write_text(KILLED)
    called = tmp_path / "called"

    def calls():
        return called.read_text().split() if called.exists() else []

    killed = subprocess.Popen([sys.executable, "job.py"], cwd=tmp_path)
    try:
        give_up = time.monotonic() + 60
        while len(calls()) < 40 and killed.poll() is None and time.monotonic() < give_up:
            time.sleep(0.02)
    finally:
        killed.kill()  # SIGKILL
        killed.wait()
    assert 40 <= len(calls()) < 80
    with pytest.raises(NodeNotFound):
        cm.open_array(str(tmp_path / "b.zarr"))
    ended = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(ended.stdout) >= 25
    assert set(calls()) == {str(i) for i in range(80)}
    # under way, one a thread, and those whose records waited, which took 0.25 s
    assert len(calls()) <= 80 + 15
    np.testing.assert_array_equal(cm.open_array(str(tmp_path / "b.zarr"))[...], values + 1)


def test_workers_of_a_cluster_run_a_function_of_a_script(tmp_path):
    values = noise((40, 30))
    cm.to_store(values, str(tmp_path / "a.zarr"), "v", chunks=(8, 30))
    weight = 3.0

    def filtered(block, sigma):
        return weight * ndimage.gaussian_filter(block, sigma)

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        report = cm.transform(
            filtered, (str(tmp_path / "a.zarr"), "v"), (str(tmp_path / "b.n5"), "v"), format="n5", halo=8,
            params={"sigma": 2}, block=(8, 30),
        )  # fmt: skip
        assert report.n_tasks == 5

        def fails(block):
            raise ValueError("on a worker")

        with pytest.raises(TransformError, match="on a worker") as caught:
            cm.transform(fails, (str(tmp_path / "a.zarr"), "v"), str(tmp_path / "c.zarr"), dtype="f4")
        assert caught.value.keys
    np.testing.assert_array_equal(
        cm.open_array(str(tmp_path / "b.n5"), "v")[...], 3 * ndimage.gaussian_filter(values, 2)
    )
