"""Jobs that are killed, and go on: processes are ended for real, as proof of what `tests/interleavings` explores."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.arrays import filled
from support.clusters import cluster_of, kill_worker, worker_pids
from support.kills import script, wait_for, wait_for_keys
from support.rechunks import check, make
from support.recording import SlowStore

import chunkmill as cm
from chunkmill.errors import NodeNotFound
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.slow

MEMORY = THREAD_OVERHEAD + 30_000
"""Of a thread: enough for one of some 45 tasks."""
SPILL = {"chunks": (96, 4, 4), "strategy": "spill"}


@pytest.fixture
def source(tmp_path):
    """An array of distinct numbers in 96 chunks, and the numbers."""
    return make(str(tmp_path / "a.zarr"), shape=(96, 96, 8), chunks=(1, 96, 8))


@pytest.fixture
def target(tmp_path):
    return LocalStore(tmp_path / "b.zarr")


JOBS = {
    "rechunk": lambda array, store: cm.rechunk(array, store, max_mem=MEMORY, **SPILL),
    "write": lambda array, store: cm.to_store(array.to_dask(), store),  # which keeps no journal
}


@pytest.mark.parametrize(("job", "part"), [("rechunk", "/intermediate/"), ("rechunk", "c/"), ("write", "c/")])
def test_a_killed_worker_costs_nothing_but_its_tasks(source, target, job, part):
    array, values = source
    slow = SlowStore(target, 0.05, ["set", "set_if"])
    slow.is_remote = job == "write"  # values that it has not stored yet are in the worker's memory
    with cluster_of() as client:
        victim = next(iter(worker_pids(client).values()))
        killer = threading.Thread(target=lambda: (wait_for_keys(target, part, 3), kill_worker(victim)))
        killer.start()
        JOBS[job](array, slow)
        killer.join()
        client.wait_for_workers(2, timeout=60)
        assert victim not in worker_pids(client).values()
    check(target, values, "")


@pytest.mark.parametrize("part", ["/intermediate/", "c/"])
def test_a_job_goes_on_where_its_killed_client_stopped(source, target, tmp_path, part):
    array, values = source
    call = f"cm.rechunk(({str(tmp_path / 'a.zarr')!r}, 'a'), SlowStore(LocalStore({str(tmp_path / 'b.zarr')!r}), 0.05,"
    with script(tmp_path, f"{call} ['set', 'set_if']), max_mem={2 * MEMORY}, **{SPILL})") as process:
        wait_for_keys(target, part, 9, process)
        process.kill()
        process.wait()
    assert [job.job.partition(" ")[0] for job in unfinished_jobs(target)] == ["rechunk"]
    with pytest.raises(NodeNotFound):
        cm.open_array(target)
    report = cm.rechunk(array, target, max_mem=2 * MEMORY, **SPILL)
    assert 0 < report.n_resumed < report.n_tasks
    check(target, values, "")


def slow_down():
    """Make every file that this process writes take a while."""
    import time

    fast = LocalStore.set
    LocalStore.set = lambda store, key, value: (time.sleep(0.05), fast(store, key, value))[1]


def n_running(dask_worker):
    return len(dask_worker.state.all_running_tasks)


def test_ctrl_c_on_a_cluster(source, target, tmp_path):
    """The command line stops with its exit code; what is there is whole; the same command goes on and ends right."""
    _, values = source
    with cluster_of() as client:
        client.run(slow_down)
        command = [Path(sys.executable).with_name("chunkmill"), "rechunk", tmp_path / "a.zarr", tmp_path / "b.zarr"]
        command += ["--path=a", "--chunks=96,4,4", "--strategy=spill", f"--max-mem={MEMORY}", "--json"]
        command += [f"--scheduler={client.scheduler.address}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_for_keys(target, "c/", 3, process)
            process.send_signal(signal.SIGINT)
        finally:
            printed, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert errors.strip().splitlines()[-1] == "interrupted; run the command again to resume an unfinished job"
        assert "Traceback" not in errors
        assert not printed
        wait_for(lambda: not any(client.run(n_running).values()))  # what was begun is done
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


def test_a_killed_job_resumes_on_fewer_and_larger_workers_by_the_same_call(tmp_path):
    """Worker processes that lost their client and their scheduler write nothing over what the next run has written."""
    source, target = tmp_path / "source.zarr", tmp_path / "target.zarr"
    array = filled(np.random.default_rng(0).random((64, 256, 128)), source, chunks=(2, 256, 128))
    call = f"cm.rechunk({str(source)!r}, SlowStore(LocalStore({str(target)!r}), 0.02, ['set', 'set_if']), chunks=(64, 8, 8))"
    with script(tmp_path, call, n_workers=2, max_mem="8 MiB") as process:
        wait_for(lambda: len([*tmp_path.glob("target.zarr/.chunkmill-job-*/[01]/*")]) >= 2, process)
        process.kill()
        process.wait()
    with cluster_of(1, 4, {"chunkmill.max-mem": "64 MiB"}):
        report = cm.rechunk(array, target, chunks=(64, 8, 8))
    assert report.n_resumed >= 2
    assert np.array_equal(cm.open_array(target)[...], array[...])
    assert cm.check(target).ok
    assert not cm.jobs(target)
