"""Transforms in other processes: what is sent to them, what comes back, and jobs that are killed.

They need a cluster, a process that is killed, or one that unpickles what another has sent.
"""

import sys
import threading
import traceback

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import chunkmill as cm
from chunkmill.errors import TransformError

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
    assert "a function, what it closes over, or its arguments cannot be pickled" in str(caught.value)
    assert "scheduler='threads'" in str(caught.value)


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
