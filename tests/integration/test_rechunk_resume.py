"""A rechunk that fails or is killed, and the run that resumes it; on clusters, too."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import dask
import numpy as np
import pytest
from support.clusters import cluster_of, kill_worker, worker_pids
from support.rechunks import check, make, planned_tightly
from support.recording import FailingStore, FarStore, RecordingStore, SlowStore

import chunkmill as cm
from chunkmill.conversion.convert import plan_rechunk, rechunk
from chunkmill.errors import (
    ChunkError,
    JobError,
    NodeNotFound,
    StoreError,
)
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(autouse=True)
def two_threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


# --------------------------------------------------------------------------------------------------------------------
# Failing and going on


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_goes_on_where_it_failed(tmp_path, strategy):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40), absent=[(3, 0)])
    store = LocalStore(tmp_path / "b.zarr")
    arguments = {"chunks": (40, 1), "strategy": strategy}
    n_tasks = planned_tightly(array, store, **arguments).n_tasks
    n_resumed = 0
    for _ in range(60):
        failing = FailingStore(store, every=17, methods=["set", "set_if"], times=1)
        try:
            report = planned_tightly(array, failing, **arguments).run()
        except (StoreError, ChunkError):
            with suppress(NodeNotFound):  # nothing, or all, when what failed was to say that it is over
                np.testing.assert_array_equal(cm.open_array(store)[...], values)
            continue
        n_resumed = report.n_resumed
        break
    assert 0 < n_resumed <= n_tasks  # all, when what failed last was the publishing
    check(store, values, "")


def test_a_temporary_file_that_was_lost_is_not_taken_for_absent_chunks(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40), absent=[(0, 0)])
    store = LocalStore(tmp_path / "b.zarr")
    arguments = {"chunks": (40, 1), "strategy": "spill"}

    class Losing(RecordingStore):
        def set_if(self, key, value, version):
            if "/c/" in f"/{key}":
                (lost, *_) = (k for k in store.list_prefix("") if "/intermediate/" in k and not k.endswith(".absent"))
                store.delete(lost)
            return super().set_if(key, value, version)

    with pytest.raises(StoreError, match="intermediate file was written and is gone; run the job again"):
        planned_tightly(array, Losing(store), **arguments).run()
    planned_tightly(array, store, **arguments).run()
    check(store, values, "")


@pytest.mark.parametrize("kind", ["folder", "separate", "memory", "far"])
@pytest.mark.parametrize("damage", [lambda _: b"", lambda value: value[: len(value) // 2]], ids=["empty", "half"])
def test_intermediate_files_that_are_not_as_on_record_are_written_again(tmp_path, kind, damage):
    """Files of another size than is on record failed at every resume."""
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40), absent=[(0, 0)])
    store = LocalStore(tmp_path / "b.zarr") if kind in {"folder", "separate"} else MemoryStore()
    store = FarStore(store) if kind == "far" else store
    arguments = {"chunks": (40, 1), "strategy": "spill"}
    if kind == "separate":
        arguments |= {"temp": tmp_path / "temp"}
    planned = partial(plan_rechunk, max_mem="18 MiB") if kind == "far" else planned_tightly
    files = LocalStore(tmp_path / "temp") if kind == "separate" else store

    class Failing(RecordingStore):
        def set_if(self, key, value, version):
            if "/c/" in f"/{key}":
                raise StoreError(url="x", key=key, reason="broken")
            return super().set_if(key, value, version)

    with pytest.raises((StoreError, ChunkError), match="broken"):
        planned(array, Failing(store), **arguments).run()
    own = [key for key in files.list_prefix("") if "intermediate/" in key and files.get(key)]
    assert own
    for key in own:
        files.set(key, damage(files.get(key)))
    report = planned(array, store, **arguments).run()
    assert report.n_resumed == (0 if kind == "far" else 1)  # the file of the absent chunk, which is an empty one
    check(store, values, "")


def test_a_job_of_another_plan_is_not_gone_on_with(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40))
    store = LocalStore(tmp_path / "b.zarr")
    with pytest.raises((StoreError, ChunkError)):
        rechunk(
            array, FailingStore(store, every=9, methods=["set", "set_if"], times=1), chunks=(40, 1), strategy="spill"
        )
    assert unfinished_jobs(store)
    with pytest.raises(JobError, match="another plan"):
        rechunk(array, store, chunks=(10, 10))
    plan_rechunk(array, store, chunks=(10, 10)).run(resume=False)
    assert check(store, values, "").chunks == (10, 10)


# --------------------------------------------------------------------------------------------------------------------
# Clusters


@pytest.mark.slow
def test_on_a_cluster(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(64, 64, 8), chunks=(1, 64, 8))
    with cluster_of():
        plan = plan_rechunk(array, str(tmp_path / "b.zarr"), chunks=(64, 5, 5), strategy="spill", max_mem="5 MiB")
        report = plan.run()
    check(str(tmp_path / "b.zarr"), values, "")
    assert report.n_tasks == plan.n_tasks


MANY_TASKS = {"chunks": (96, 4, 4), "strategy": "spill"}
"""Some 15 files and 30 boxes for (96, 96, 8), within:"""


def little_memory(n_threads):
    return n_threads * (THREAD_OVERHEAD + 30_000)


def wait_for(store, part, n_keys, process=None):
    """Wait until `n_keys` keys that contain `part` are there."""
    deadline = time.monotonic() + 60
    while sum(part in key for key in store.list_prefix("")) < n_keys:
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "n_keys"), [("/intermediate/", 3), ("c/", 3)], ids=["while spilling", "while writing"]
)
def test_a_killed_worker_costs_nothing_but_its_tasks(tmp_path, part, n_keys):
    array, values = make(str(tmp_path / "a.zarr"), shape=(96, 96, 8), chunks=(1, 96, 8))
    target = LocalStore(tmp_path / "b.zarr")
    with cluster_of() as client:
        pids = worker_pids(client)
        victim = next(iter(pids.values()))
        killer = threading.Thread(target=lambda: (wait_for(target, part, n_keys), kill_worker(victim)))
        killer.start()
        slow = SlowStore(target, 0.05, ["set", "set_if"])
        report = rechunk(array, slow, max_mem=little_memory(1), **MANY_TASKS)
        killer.join()
        client.wait_for_workers(2, timeout=60)
        assert victim not in worker_pids(client).values()
    check(target, values, "")
    assert report.n_tasks > 30


SCRIPT = """
import dask
from chunkmill.conversion.convert import rechunk
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from support.recording import SlowStore

if __name__ == "__main__":
    with dask.config.set(scheduler="threads", num_workers=2):
        slow = SlowStore(LocalStore({target!r}), 0.05, ["set", "set_if"])
        rechunk(({source!r}, "a"), slow, max_mem={max_mem}, **{arguments})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "n_keys"), [("/intermediate/", 9), ("c/", 10)], ids=["while spilling", "while writing"]
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_goes_on_where_a_killed_client_stopped(tmp_path, number, part, n_keys):
    _, values = make(str(tmp_path / "a.zarr"), shape=(96, 96, 8), chunks=(1, 96, 8))
    source, target = str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(source=source, target=target, max_mem=little_memory(2), arguments=MANY_TASKS))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])}
    process = subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.PIPE)
    try:
        wait_for(LocalStore(target), part, n_keys, process)
        process.send_signal(number)
    finally:
        process.communicate(timeout=60)
    assert process.returncode != 0
    with pytest.raises(NodeNotFound):
        cm.open_array(target)
    report = rechunk((source, "a"), target, max_mem=little_memory(2), **MANY_TASKS)
    assert 0 < report.n_resumed < report.n_tasks
    check(target, values, "")


def slow_down():
    """Make every file that this process writes take a while."""
    fast = LocalStore.set
    LocalStore.set = lambda store, key, value: (time.sleep(0.05), fast(store, key, value))[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "n_keys"), [("/intermediate/", 3), ("c/", 3)], ids=["while spilling", "while writing"]
)
def test_ctrl_c_on_a_cluster(tmp_path, part, n_keys):
    """The command line stops with its exit code; what is there is whole; the same command goes on and ends right."""
    _, values = make(str(tmp_path / "a.zarr"), shape=(96, 96, 8), chunks=(1, 96, 8))
    source, target = str(tmp_path / "a.zarr"), LocalStore(tmp_path / "b.zarr")
    with cluster_of() as client:
        client.run(slow_down)
        address = client.scheduler.address
        command = [
            *(str(Path(sys.executable).parent / "chunkmill"), "rechunk", source, str(tmp_path / "b.zarr"), "--path=a"),
            *(
                "--chunks=96,4,4",
                "--strategy=spill",
                f"--max-mem={little_memory(1)}",
                f"--scheduler={address}",
                "--json",
            ),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(target, part, n_keys, process)
            process.send_signal(signal.SIGINT)
        finally:
            printed, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert errors.strip().splitlines()[-1] == "interrupted; run the command again to resume an unfinished job"
        assert "Traceback" not in errors
        assert not printed
        wait_until(lambda: not any(client.run(n_running).values()))  # what was begun is done
        assert [job.job.partition(" ")[0] for job in unfinished_jobs(target)] == ["rechunk"]
        assert not target.sweep(remove=False)
        with pytest.raises(NodeNotFound):
            cm.open_array(target)
        written = [key for key in target.list_prefix("c/") if key]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert 0 < report["n_resumed"] < report["n_tasks"]
    assert set(written) <= set(target.list_prefix("c/"))
    check(target, values, "")


def n_running(dask_worker):
    return len(dask_worker.state.all_running_tasks)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
