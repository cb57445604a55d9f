"""Jobs where people run them: on workers without the package, in tasks of a cluster."""

from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster, worker_client
from support.clusters import bare_worker

import chunkmill as cm
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.worker_memory import Worker, current_worker

VALUES = np.arange(64.0).reshape(8, 8)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    cm.create_array(folder / "a.zarr", shape=(8, 8), dtype="f8", chunks=(4, 4))[...] = VALUES
    cm.write_dataset(xr.Dataset({"v": (("y", "x"), VALUES)}), folder / "d.zarr", encoding={"v": {"chunks": (4, 4)}})
    cm.to_references(folder / "a.zarr", folder / "refs.json")
    return folder


@pytest.fixture(scope="module")
def bare():
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        bare_worker(client) as worker,
    ):
        yield client, worker


@pytest.mark.parametrize(
    "lazily",
    [
        lambda folder: cm.from_store(folder / "a.zarr"),
        lambda folder: da.from_array(cm.open_array(folder / "a.zarr"), inline_array=True),
        lambda folder: xr.open_dataset(folder / "d.zarr", engine="chunkmill", chunks={}).v.data,
        lambda folder: cm.from_store(folder / "refs.json"),
    ],
    ids=["from_store", "inline", "xarray", "references"],
)
def test_a_graph_on_a_worker_without_chunkmill_is_one_error(stored, bare, lazily):
    """It closed the worker, and the client waited for ever."""
    client, worker = bare
    x = (lazily(stored) + 1).sum()
    assert x.compute(scheduler="threads") == (VALUES + 1).sum()
    for future in (client.compute(x), client.compute(client.persist(x)), client.submit(sum, [client.compute(x)])):
        with pytest.raises(ModuleNotFoundError, match="No module named 'chunkmill': give every worker"):
            future.result(timeout=30)
    assert worker.poll() is None


@contextmanager
def cluster_in_process(n_threads, **options):
    about = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(threads_per_worker=n_threads, **about, **options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def one_thread():
    with cluster_in_process(1) as client:
        yield client


def resumed(a, b):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("chunkmill.runtime.stage_runner.run_task", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cm.convert(a, b, format="zarr2")
    return cm.resume(b)


def scanned(folder, target):
    xr.Dataset({"v": (("y", "x"), VALUES)}).to_netcdf(f"{target}.nc", engine="h5netcdf")
    return cm.scan(f"{target}.nc", f"{target}.json") is not None


def array_job(function):
    def job(folder, target):
        function(folder / "a.zarr", target)
        return cm.open_array(target)[...].shape == (8, 8)

    return job


IN_TASKS = {
    "convert": array_job(lambda a, b: cm.convert(a, b, format="zarr2")),
    "to_store": array_job(lambda a, b: cm.to_store(cm.from_store(a) + 1, b)),
    "to_store, resumable": array_job(lambda a, b: cm.to_store(cm.from_store(a) + 1, b, resume=True)),
    "verify": lambda folder, _: cm.verify(folder / "a.zarr", folder / "refs.json").equal,
    "check": lambda folder, _: cm.check(folder / "a.zarr").ok,
    "resume": array_job(resumed),
    "scan": scanned,
}


@pytest.mark.parametrize("call", IN_TASKS)
def test_a_job_inside_a_task_ends_where_that_holds_the_only_thread(stored, one_thread, tmp_path, call):
    """It waited for tasks that waited for its thread."""
    futures = one_thread.map(IN_TASKS[call], [stored] * 2, [tmp_path / "1.zarr", tmp_path / "2.zarr"], pure=False)
    assert one_thread.gather(futures, direct=False) == [True, True]


def test_a_task_that_left_its_thread_runs_a_job_on_the_cluster(stored, one_thread, tmp_path):
    def spread(target):
        with worker_client():
            assert Scheduler(of_job=True).client is not None
            return cm.rechunk(stored / "a.zarr", target, chunks=(8, 2)).n_keys

    assert one_thread.submit(spread, tmp_path / "b.zarr").result(timeout=60) == 4


def test_a_job_inside_a_task_has_the_memory_of_its_thread():
    unpaused = dask.config.set({"distributed.worker.memory.pause": False})  # this process may hold more than its limit
    with unpaused, cluster_in_process(2, memory_limit="1GB") as client:
        worker = client.submit(current_worker, pure=False).result(timeout=60)
        assert worker == Worker(150_000_000, 1, 1)
        given = client.submit(current_worker, "1 GiB", pure=False).result(timeout=60)
        assert given.max_mem == 1 << 30
