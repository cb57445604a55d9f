"""`transform` as users call it: on clusters, from reference sets, started and cancelled."""

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import ndimage

import chunkmill as cm
from chunkmill.errors import JobCancelled, NodeNotFound, TransformError
from chunkmill.stores.memory import MemoryStore


def noise(shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def test_a_reference_set_is_a_source(tmp_path):
    values = noise((20, 12))
    cm.to_store(values, str(tmp_path / "a.zarr"), "v", chunks=(5, 4), format="zarr2")
    cm.to_references(str(tmp_path / "a.zarr"), str(tmp_path / "a.json"))
    cm.transform(np.exp, (str(tmp_path / "a.json"), "v"), (str(tmp_path / "b.zarr"), "v"))
    np.testing.assert_array_equal(cm.open_array(str(tmp_path / "b.zarr"), "v")[...], np.exp(values))


def test_a_group_is_no_source(tmp_path):
    cm.create_group(str(tmp_path / "a.zarr"))
    with pytest.raises(NodeNotFound, match="a transform reads arrays"):
        cm.plan_transform(np.exp, str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr"))


def test_a_function_that_fails_for_the_small_block_names_the_way_out():
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))

    def picky(block):
        if block.max() == 1:
            raise ValueError("all ones")
        return block

    with pytest.raises(TransformError, match="all ones") as caught:
        cm.plan_transform(picky, a, (MemoryStore(), "b"))
    assert "give dtype=" in caught.value.__notes__[0]


def test_a_job_is_started_cancelled_and_resumed():
    store, values = MemoryStore(), noise((64, 8))
    cm.to_store(values, store, "a", chunks=(2, 8))
    jobs, calls = [], []

    def slow(block):
        calls.append(1)
        if len(calls) == 5:
            jobs[0].cancel()
        return block + 1

    with dask.config.set(scheduler="threads", num_workers=1):
        plan = cm.plan_transform(slow, (store, "a"), (store, "b"), dtype="f4", block=(2, 8))
        jobs.append(plan.start())
        with pytest.raises(JobCancelled):
            jobs[0].result(60)
        report = plan.run()
    assert report.n_resumed > 0
    np.testing.assert_array_equal(cm.open_array(store, "b")[...], values + 1)


@pytest.mark.slow
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
