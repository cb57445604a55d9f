"""Jobs where people run them: batch scripts, workers of a batch system or without the package, tasks of a cluster."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

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


@pytest.fixture(scope="module")
def single():
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster:
        yield cluster


@pytest.fixture
def one_thread(single):
    with Client(single) as client:
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
    options = {"processes": False, "memory_limit": "1GB", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, threads_per_worker=2, **options) as cluster, Client(cluster) as client:
        worker = client.submit(current_worker, pure=False).result(timeout=60)
        assert worker == Worker(150_000_000, 1, 1)
        given = client.submit(current_worker, "1 GiB", pure=False).result(timeout=60)
        assert given.max_mem == 1 << 30


def source_of(folder, n_rows=400):
    array = cm.create_array(folder / "source.zarr", shape=(n_rows, 8), dtype="i4", chunks=(8, 8))
    array[...] = np.arange(8 * n_rows).reshape(n_rows, 8)
    return array


PAGE = Path(__file__).parents[3] / "docs" / "how_to" / "run_on.md"

JOB = """
import time

import dask

import chunkmill as cm
from chunkmill.conversion import convert_tasks

put = convert_tasks._put


def slowly(*args, **options):
    time.sleep(0.02)
    return put(*args, **options)


convert_tasks._put = slowly
with dask.config.set(scheduler="threads", num_workers=2):
    cm.convert("source.zarr", "target.n5", format="n5", codecs="gzip")
"""


@pytest.mark.skipif(os.name != "posix" or shutil.which("bash") is None, reason="a script of bash")
def test_the_batch_script_of_the_docs_submits_itself_again(tmp_path):
    """SLURM's signal before the walltime, then a second allocation that finishes the job."""
    (script,) = re.findall(r"```text\n(#!/bin/bash.*?)```", PAGE.read_text(), re.DOTALL)
    assert "#SBATCH --signal=B:TERM@" in script
    array = source_of(tmp_path, 4000)
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "rechunk.py").write_text(JOB)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, line in {"sbatch": 'echo "$@" >> submitted', "python": f'exec {sys.executable} "$@"'}.items():
        (commands / name).write_text(f"#!/bin/bash\n{line}\n")
        (commands / name).chmod(stat.S_IRWXU)
    search = f"{commands}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": search, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(["bash", "job.sh"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as job:
        while not any(each.state == "running" for each in cm.jobs(tmp_path / "target.n5")):
            time.sleep(0.05)
        time.sleep(0.5)  # tasks are at work
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=60)
    assert "the same call resumes it" in errors
    assert (tmp_path / "submitted").read_text() == "job.sh\n"
    assert not (tmp_path / "target.n5" / "attributes.json").exists()
    again = subprocess.run(["bash", "job.sh"], cwd=tmp_path, env=environment, timeout=120, check=False)
    assert again.returncode == 0
    assert (tmp_path / "submitted").read_text() == "job.sh\n"
    np.testing.assert_array_equal(cm.open_array(tmp_path / "target.n5")[...], array[...])
