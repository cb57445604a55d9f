"""Jobs that are repeated (P7): after failing stores, killed workers and clients, Ctrl-C; workers that are not fit."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import dask
import numcodecs
import numpy as np
import pytest
from distributed import Client, LocalCluster
from support.recording import FailingStore, SlowStore

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.runtime import task as stage_task
from chunkmill.runtime.preflight import describe_needs
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

SHAPE, CHUNKS = (64, 40), (4, 10)


def make_source(url, **options):
    cm.create_array(url, "a", shape=SHAPE, dtype="i4", chunks=CHUNKS, format="zarr2", **options)
    values = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")
    values[8:12] = 0  # absent
    cm.open_array(url, "a", mode="r+")[...] = values
    return values


@pytest.fixture
def source(tmp_path):
    url = str(tmp_path / "source.zarr")
    return url, make_source(url)


@pytest.fixture
def target(tmp_path):
    return str(tmp_path / "target.zarr")


def check(target, values):
    """The target is whole, and nothing else is there."""
    store = LocalStore(target) if isinstance(target, str) else target
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], values)
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]
    assert not unfinished_jobs(store)
    if isinstance(target, str):
        assert sorted(path.name for path in Path(target).iterdir()) == ["a", "zarr.json"]


# --------------------------------------------------------------------------------------------------------------------
# Stores that fail


@pytest.mark.parametrize(
    ("methods", "every", "step"), [(["set", "set_if"], 23, 4), (["get", "get_versioned"], 3, 1)], ids=["set", "get"]
)
def test_a_store_that_fails_again_and_again(source, target, methods, every, step):
    url, values = source
    store = LocalStore(target)
    n_failed, report = 0, None
    while report is None and n_failed < 150:
        failing = FailingStore(store, every=every + step * n_failed, methods=methods, times=1)
        try:
            report = cm.convert(url, failing, format="zarr3")
        except (StoreError, ChunkError) as error:
            n_failed += 1
            if left := unfinished_jobs(store):
                assert left[0].job == f"convert to {store.url}"
                # all chunks are there before the first document is, and the plan is read when all are
                if not error.key.endswith(("zarr.json", "plan.json")):
                    with pytest.raises(cm.errors.NodeNotFound):
                        cm.open_array(store, "a")
    assert n_failed > 1
    assert report.n_resumed > 0
    check(target, values)


def test_a_full_disk_loses_nothing(source):
    url, values = source
    store = MemoryStore()
    with pytest.raises((ChunkError, StoreError), match="No space left"):
        cm.convert(
            url, FailingStore(store, every=40, methods=["set", "set_if"], reason="No space left on device"), format="n5"
        )
    report = cm.convert(url, store, format="n5")
    assert 0 < report.n_resumed < report.n_tasks
    check(store, values)


def test_a_job_with_other_arguments_is_refused(source):
    url, values = source
    store = MemoryStore()
    with pytest.raises((ChunkError, StoreError)):
        cm.convert(url, FailingStore(store, every=40, methods=["set", "set_if"]), format="zarr3")
    with pytest.raises(JobError, match="another plan"):
        cm.convert(url, store, format="zarr3", codecs="zstd")
    with pytest.raises(JobError, match="another plan"):
        cm.convert(url, store, format="zarr2")
    cm.plan_convert(url, store, format="zarr3", codecs="zstd", overwrite=True).run(resume=False)
    check(store, values)


def test_an_overwriting_job_resumes_without_deleting(source):
    url, values = source
    store = MemoryStore()
    cm.create_array(store, "old", shape=(1,), dtype="i1", chunks=(1,))
    with pytest.raises((ChunkError, StoreError)):
        cm.convert(url, FailingStore(store, every=40, methods=["set", "set_if"]), format="zarr3", overwrite=True)
    n_before = len([key for key in store.list_prefix("") if key.startswith(JOB_PREFIX) and "/a/" in key])
    assert cm.open_array(store, "old").shape == (1,)
    report = cm.convert(url, store, format="zarr3", overwrite=True)
    assert n_before > 0
    assert report.n_resumed > 0
    assert not [key for key in store.list_prefix("") if key.startswith(("old", "."))]
    assert report.n_keys < 64
    check(store, values)


def test_rechunking_goes_on(source):
    url, values = source
    store = MemoryStore()
    with pytest.raises((ChunkError, StoreError)):
        cm.convert(url, FailingStore(store, every=5, methods=["set", "set_if"]), format="zarr3", chunks=(64, 4))
    assert unfinished_jobs(store)
    cm.convert(url, store, format="zarr3", chunks=(64, 4))
    check(store, values)


# --------------------------------------------------------------------------------------------------------------------
# Errors, and workers that are not fit


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_errors_are_what_they_were(source, target, scheduler):
    url, _ = source
    LocalStore(url).set("a/1.1", b"rubbish")
    with dask.config.set(scheduler=scheduler, num_workers=1), pytest.raises(ChunkError) as caught:
        cm.convert(url, target, format="zarr3", codecs="gzip")
    assert type(caught.value) is ChunkError
    assert (caught.value.key, caught.value.coords) == ("a/1.1", (1, 1))


@pytest.mark.slow
def test_a_store_of_one_process_is_no_target_for_others(source):
    store = MemoryStore()
    with dask.config.set(scheduler="processes"), pytest.raises(JobError, match="in the memory of another process"):
        cm.convert(source[0], store, format="zarr3")
    assert not list(store.list_prefix(""))


@pytest.mark.slow
def test_processes(source, target):
    url, values = source
    with dask.config.set(scheduler="processes", num_workers=2):
        report = cm.convert(url, target, format="zarr3")
    assert report.actions["copy"] == 60
    check(target, values)


def test_a_worker_that_joins_late_is_checked(source, tmp_path):
    array = cm.open_array(source[0], "a")
    needs = describe_needs("convert", sources=[array], writes=[LocalStore(str(tmp_path / "t"))])
    packed = stage_task.PackedStage.of(stage_task.LocalStage(len, None, None, 0), needs)
    assert packed.open().number == 0
    other = stage_task.PackedStage.of(
        stage_task.LocalStage(len, None, None, 1), describe_needs("convert", sources=[array])
    )
    LocalStore(source[0]).set("a/.zarray", b"{}")
    with pytest.raises(JobError, match=r"finds something else under 'a/.zarray'"):
        other.open()
    LocalStore(source[0]).delete("a/.zarray")
    with pytest.raises(JobError, match=r"finds nothing under 'a/.zarray'"):
        other.open()
    assert not list(LocalStore(str(tmp_path / "t")).list_prefix(""))


def test_versions_must_be_equal(source, monkeypatch):
    needs = describe_needs("convert", sources=[cm.open_array(source[0], "a")])
    monkeypatch.setattr("chunkmill.runtime.preflight.package_version", lambda package: f"{package}-0.0")
    with pytest.raises(JobError, match=r"numcodecs numcodecs-0\.0 instead of"):
        stage_task.PackedStage.of(stage_task.LocalStage(len, None, None, 2), needs).open()


# --------------------------------------------------------------------------------------------------------------------
# Clusters


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.slow
def test_cluster(client, source, target):
    url, values = source
    report = cm.convert(url, target, format="zarr3")
    assert report.actions["copy"] == 60
    assert cm.verify(url, target).equal
    check(target, values)
    stages = {"n_tasks": report.n_tasks, "n_keys": report.n_keys}
    assert stages["n_keys"] == 64


@pytest.mark.slow
def test_cluster_errors(client, source, target):
    url, values = source
    good = LocalStore(url).get("a/1.1")
    LocalStore(url).set("a/1.1", b"rubbish")
    with pytest.raises(ChunkError) as caught:
        cm.convert(url, target, format="zarr3", codecs="gzip")
    assert (caught.value.key, caught.value.coords) == ("a/1.1", (1, 1))
    LocalStore(url).set("a/1.1", good)
    cm.convert(url, target, format="zarr3", codecs="gzip")
    check(target, values)


@pytest.mark.slow
def test_cluster_does_not_take_memory_for_a_target(client, source):
    with pytest.raises(JobError, match=r"worker tcp://.*in the memory of another process"):
        cm.convert(source[0], MemoryStore(), format="zarr3")


class ClientOnly(numcodecs.abc.Codec):
    """A codec that is registered in this process alone."""

    codec_id = "client-only"

    def encode(self, buf):
        return bytes(buf)

    def decode(self, buf, out=None):
        return buf


@pytest.mark.slow
def test_a_codec_that_workers_lack(client, tmp_path, target):
    numcodecs.register_codec(ClientOnly)
    url = str(tmp_path / "odd.zarr")
    make_source(url, codecs=[{"id": "client-only"}])
    with pytest.raises(JobError, match=r"worker tcp://.*cannot run the tasks.*client-only") as caught:
        cm.convert(url, target, format="zarr2", codecs="zstd")
    assert "(so do 1 more)" in str(caught.value)  # both workers, in one line
    assert not list(LocalStore(target).list_prefix(""))


def kill_a_worker(client, target, after):
    """Kill -9 a worker when `after` keys are written."""
    store = LocalStore(target)
    pids = client.run(os.getpid)

    def kill():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if sum(1 for _ in store.list_prefix("a/")) >= after:
                os.kill(next(iter(pids.values())), signal.SIGKILL)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread, set(pids.values())


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 25])
@pytest.mark.parametrize("chunks", ["keep", (64, 4)], ids=["copy", "rechunk"])
def test_a_worker_is_killed(source, target, after, chunks):
    url, values = source
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        slow = SlowStore(LocalStore(target), 0.05, ["set", "set_if"])
        killer, pids = kill_a_worker(client, target, after if chunks == "keep" else 1)
        cm.convert(url, slow, format="zarr3", chunks=chunks)
        killer.join()
        client.wait_for_workers(2, timeout=60)
        assert set(client.run(os.getpid).values()) != pids  # one was
    check(target, values)


SCRIPT = """
from contextlib import nullcontext
import chunkmill as cm
from chunkmill.stores.local import LocalStore
from distributed import Client
from support.recording import SlowStore

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") if {cluster} else nullcontext():
        cm.convert({url!r}, SlowStore(LocalStore({target!r}), 0.05, ["set", "set_if"]), format="zarr3")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "cluster"),
    [
        pytest.param(signal.SIGKILL, False, id="SIGKILL"),
        pytest.param(signal.SIGINT, False, id="SIGINT"),
        pytest.param(signal.SIGINT, True, id="SIGINT, with workers"),
    ],
)
def test_the_client_is_killed(source, target, tmp_path, number, cluster):
    url, values = source
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(SCRIPT.format(url=url, target=target, cluster=cluster)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])}
    process = subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while sum(1 for _ in LocalStore(target).list_prefix("")) <= 20:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    if number == signal.SIGINT:
        assert b"KeyboardInterrupt" in errors
    assert [job.job for job in unfinished_jobs(LocalStore(target))] == [f"convert to file://{target}"]
    with pytest.raises(cm.errors.NodeNotFound):
        cm.open_array(target, "a")
    report = cm.convert(url, target, format="zarr3")
    assert 0 < report.n_resumed < report.n_tasks
    np.testing.assert_array_equal(cm.open_array(target, "a")[...], values)
    assert not unfinished_jobs(LocalStore(target))


JOBS = {
    "copy": lambda url, target: cm.convert(url, target, format="zarr3"),
    "repack": lambda url, target: cm.convert(url, target, format="zarr3", shards=(16, 20)),
    "spill": lambda url, target: cm.rechunk(url, target, chunks=(64, 4), strategy="spill"),
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_job_is_killed_at_any_moment(source, tmp_path, kind):
    url, values = source
    random = np.random.default_rng(0)
    n_kills = 0
    begin = time.monotonic()
    JOBS[kind](url, str(tmp_path / "whole.zarr"))
    seconds = time.monotonic() - begin  # of all of it here, or the job would never come to its end
    for attempt in range(8):
        target = tmp_path / f"target-{attempt}.zarr"
        while True:
            pid = os.fork()
            if not pid:
                try:
                    with dask.config.set(scheduler="threads", num_workers=3):
                        JOBS[kind](url, str(target))
                except cm.errors.NodeExists:  # it was killed when all was done
                    os._exit(0)
                except BaseException:  # noqa: BLE001 - nothing of pytest may run here
                    os._exit(1)
                os._exit(0)
            time.sleep(seconds * random.uniform(0.05, 1.5))
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            if not os.WIFSIGNALED(status):
                break
            n_kills += 1
        assert os.WEXITSTATUS(status) == 0
        np.testing.assert_array_equal(cm.open_array(str(target), "a")[...], values)
        assert not [path for path in target.rglob("*") if "chunkmill" in path.name]
    assert n_kills > 0
