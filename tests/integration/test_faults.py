"""Accidents: processes killed at random moments, full disks, stores that fail, dawdle or are too busy.

After each: what the serial run gives, nothing lost, nothing torn, nothing left behind.
"""

import errno
import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from support.clusters import cluster_of, kill_worker, worker_pids
from support.recording import FailingStore, SlowStore
from support.servers import WARNINGS, s3_server, serve_flaky  # noqa: F401 - a fixture

import chunkmill as cm
from chunkmill.errors import ChunkError, ChunkmillError, NodeNotFound, StoreError
from chunkmill.stores import local
from chunkmill.stores.local import LocalStore
from chunkmill.stores.open import open_store
from chunkmill.stores.posix_file import PARTIAL_SUFFIX

pytestmark = [*WARNINGS, pytest.mark.slow]

SHAPE, CHUNKS = (48, 40), (4, 5)
VALUES = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")


def check(folder, values=VALUES, path="a"):
    """The array is whole, and nothing else is there."""
    np.testing.assert_array_equal(cm.open_array(str(folder), path)[...], values)
    report = cm.check(str(folder))
    assert report.ok, report
    assert not [p for p in Path(folder).rglob("*") if "chunkmill" in p.name]


def slow_source(seconds, log=None, name="slow", chunks=CHUNKS):
    """A dask array whose blocks take time, and which notes in a folder which of them are computed."""

    def block(block_info=None):
        time.sleep(seconds)
        where = block_info[None]["array-location"]
        if log is not None:
            (log / f"{where}-{time.time_ns()}").touch()
        return VALUES[tuple(slice(*cut) for cut in where)]

    dask_chunks = tuple((n,) * (size // n) for size, n in zip(SHAPE, chunks, strict=True))
    return da.map_blocks(block, chunks=dask_chunks, dtype="i4", meta=np.empty((0, 0), "i4"), name=name)


# --------------------------------------------------------------------------------------------------------------------
# Workers are killed


class Killer(threading.Thread):
    """Kills random workers at random moments, `times` times."""

    def __init__(self, client, seed, times=2, between=(0.4, 1.2)):
        super().__init__()
        self.client, self.times, self.between = client, times, between
        self.random = random.Random(seed)
        self.killed: list[int] = []
        self.over = threading.Event()

    def run(self):
        while len(self.killed) < self.times and not self.over.wait(self.random.uniform(*self.between)):
            pids = [pid for pid in worker_pids(self.client).values() if pid not in self.killed]
            if pids:
                self.killed.append(self.random.choice(sorted(pids)))
                kill_worker(self.killed[-1])

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def __enter__(self):
        self.start()
        return self


@pytest.fixture(scope="module")
def client():
    # a task is not to blame for the death of its worker here
    with cluster_of(2, 2, {"distributed.scheduler.allowed-failures": 100}) as client:
        yield client


@pytest.fixture
def source(tmp_path):
    cm.to_store(da.from_array(VALUES, chunks=CHUNKS), tmp_path / "source", "a", format="zarr2", codecs="zstd")
    return str(tmp_path / "source")


def store_each(sources, array, regions):
    """Store each region by itself: where one call is told of all, they share the tasks of their store keys."""
    writes = [
        cm.store([x], [array], regions=[region], compute=False) for x, region in zip(sources, regions, strict=True)
    ]
    return [report for (report,) in dask.compute(*writes)]


class TestWorkersAreKilled:
    @pytest.mark.parametrize(("seed", "resume"), [(1, False), (2, True)], ids=["plain", "on record"])
    def test_to_store(self, client, tmp_path, seed, resume):
        with Killer(client, seed) as killer:
            cm.to_store(slow_source(0.1), tmp_path / "x", "a", chunks=CHUNKS, resume=resume)
        assert killer.killed
        check(tmp_path / "x")

    def test_partial_writes(self, client, tmp_path):
        """Each region cuts the chunks of its neighbours."""
        array = cm.create_array(tmp_path / "x", "a", shape=SHAPE, dtype="i4", chunks=(7, 9))
        slow = cm.open_array(SlowStore(array.store, 0.02, ["set_if"]), "a", mode="r+")
        regions = [(slice(i, i + 4), slice(j, j + 5)) for i in range(0, 48, 4) for j in range(0, 40, 5)]
        sources = [da.from_array(VALUES[region], chunks=-1) for region in regions]
        with Killer(client, 3) as killer:
            store_each(sources, slow, regions)
        assert killer.killed
        sweep_of_the_slow(slow.store, tmp_path / "x")
        check(tmp_path / "x")

    @pytest.mark.parametrize("job", ["rechunk", "convert"])
    def test_jobs(self, client, source, tmp_path, job):
        target = SlowStore(LocalStore(tmp_path / "x"), 0.05, ["set", "set_if"])
        with Killer(client, 4) as killer:
            if job == "rechunk":
                cm.rechunk(source, target, chunks=(48, 1))
            else:
                cm.convert(source, target, format="zarr3")
        assert killer.killed
        sweep_of_the_slow(target, tmp_path / "x")
        check(tmp_path / "x")

    def test_finished_blocks_are_not_computed_again(self, client, tmp_path):
        """Of those that were written, and whose counts are here, none; of the others those that their worker took."""
        log = tmp_path / "log"
        log.mkdir()
        with Killer(client, 5, times=1, between=(1.5, 1.5)) as killer:
            cm.to_store(slow_source(0.1, log), tmp_path / "x", "a", chunks=CHUNKS, resume=True)
        assert killer.killed
        n_again = sum(1 for _ in log.iterdir()) - 96
        assert n_again <= 16  # two threads, and what they had ready: more on a busy machine; 50 were finished
        check(tmp_path / "x")

    def test_what_was_cancelled_writes_nothing(self, client, tmp_path):
        array = cm.create_array(tmp_path / "x", "a", shape=SHAPE, dtype="i4", chunks=CHUNKS)
        log = tmp_path / "log"
        log.mkdir()
        later = cm.store(slow_source(2.0, log), array, compute=False)
        future = client.compute(later)
        time.sleep(1.0)
        future.cancel()
        time.sleep(2.5)
        assert list(log.iterdir())  # those that were at work could not be stopped
        assert not (array[...]).any()


def sweep_of_the_slow(slow, folder):
    """Writes go through a wrapper, whose class the library does not know: sweep what it would have."""
    assert isinstance(slow, SlowStore)
    LocalStore(folder).sweep()


# --------------------------------------------------------------------------------------------------------------------
# The client is killed

SCRIPT = """
import sys
from pathlib import Path

import dask
from support.clusters import cluster_of
from test_faults import CHUNKS, slow_source

import chunkmill as cm

if __name__ == "__main__":
    folder, scheduler = Path(sys.argv[1]), sys.argv[2]
    if scheduler == "threads":
        with dask.config.set(scheduler="threads", num_workers=2):
            report = cm.to_store(slow_source(0.03), folder / "x", "a", chunks=CHUNKS, resume=True)
    else:
        with cluster_of(2):
            report = cm.to_store(slow_source(0.03), folder / "x", "a", chunks=CHUNKS, resume=True)
    print(report.n_resumed)
"""


@pytest.mark.parametrize("scheduler", ["threads", "cluster"])
def test_the_client_is_killed_and_goes_on(tmp_path, scheduler):
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(SCRIPT))
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), str(tests / "integration")])}
    chance = random.Random(6)
    store = LocalStore(tmp_path / "x")
    n_runs = 3 if scheduler == "threads" else 2
    for run in range(n_runs):
        process = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), scheduler],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        if run < n_runs - 1:
            wait_for_keys(store, len(list(store.list_prefix("a/"))) + chance.randint(5, 25), process)
            process.kill()  # the workers notice, and end
            process.communicate()
            with pytest.raises(NodeNotFound):
                cm.open_array(store, "a")
            assert "unfinished" in [p.kind for p in cm.check(store).problems]
        else:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err.decode()
            assert int(out.split()[-1]) > 5
    check(tmp_path / "x")


def wait_for_keys(store, n, process):
    deadline = time.monotonic() + 60
    while len(list(store.list_prefix("a/"))) < n:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_while_writing(tmp_path):
    """What is read is always one of the values that were written whole."""
    store = LocalStore(tmp_path)
    store.set("a/c/0", bytes(3_000_000))
    chance = random.Random(7)
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            for i in itertools.count():
                store.set("a/c/0", bytes([i % 251]) * 3_000_000)
        time.sleep(chance.uniform(0.02, 0.2))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        value = store.get("a/c/0")
        assert len(value) == 3_000_000
        assert len(set(value)) == 1
        assert set(store.list_prefix("")) == {"a/c/0"}
    store.sweep()
    assert [p.name for p in (tmp_path / "a/c").iterdir()] == ["0"]


# --------------------------------------------------------------------------------------------------------------------
# Stores that fail


def full_after(n_bytes, monkeypatch):
    """Let the disk take so many bytes more, the last write in part."""
    left = [n_bytes]
    write = os.write

    def limited(fd, data):
        room = left[0]
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= min(room, len(data))
        return write(fd, data[:room])

    monkeypatch.setattr(local.os, "write", limited)
    return left


@pytest.mark.parametrize("resume", [False, True])
def test_a_full_disk(tmp_path, monkeypatch, resume):
    x = da.from_array(VALUES, chunks=CHUNKS)
    left = full_after(4000, monkeypatch)
    with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(ChunkmillError) as caught:
        cm.to_store(x, tmp_path, "a", codecs="raw", resume=resume)
    assert "No space left on device" in str(caught.value)
    error = caught.value if isinstance(caught.value, StoreError) else caught.value.__cause__
    assert error.errno == errno.ENOSPC
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(PARTIAL_SUFFIX)]
    for key in LocalStore(tmp_path).list_prefix("a/"):
        assert LocalStore(tmp_path).size(key) == 80  # whole, or not there
    left[0] = 1 << 30
    report = cm.to_store(x, tmp_path, "a", codecs="raw", resume=resume)
    assert bool(report.n_resumed) == resume
    check(tmp_path)


def test_a_full_disk_for_partial_writes(tmp_path, monkeypatch):
    array = cm.create_array(tmp_path, "a", shape=SHAPE, dtype="i4", chunks=(7, 9), codecs="raw")
    array[...] = 5
    left = full_after(600, monkeypatch)
    x = da.from_array(VALUES[1:-1, 1:-1], chunks=-1)
    # in this process, whose writes fail, and not on a cluster that another test may have
    with dask.config.set(scheduler="threads"), pytest.raises(ChunkError, match="No space left"):
        cm.store(x, array, regions=(slice(1, -1), slice(1, -1)))
    found = cm.open_array(tmp_path, "a")[...]
    assert np.isin(found, [5]).sum() + (found == VALUES).sum() >= found.size  # each element is old or new
    left[0] = 1 << 30
    cm.store(x, array, regions=(slice(1, -1), slice(1, -1)))
    expected = np.full(SHAPE, 5, "i4")
    expected[1:-1, 1:-1] = VALUES[1:-1, 1:-1]
    check(tmp_path, expected)


def test_a_store_that_fails_now_and_then(tmp_path):
    x = da.from_array(VALUES, chunks=CHUNKS)
    chance = random.Random(8)
    n_failed, report = 0, None
    while report is None:
        failing = FailingStore(LocalStore(tmp_path), chance.randint(5, 200), times=1)
        try:
            with dask.config.set(scheduler="threads", num_workers=2):
                report = cm.to_store(x, failing, "a", resume=True)
        except (ChunkmillError, OSError):
            n_failed += 1
            assert n_failed < 100
    assert n_failed > 1
    assert report.n_resumed > 0
    check(tmp_path)


def test_partial_writes_to_a_store_that_fails(tmp_path):
    """What failed is there or not, and nothing of others' is lost."""
    store = LocalStore(tmp_path)
    cm.create_array(store, "a", shape=(40,), dtype="i4", chunks=(40,))
    failing = cm.open_array(FailingStore(store, 5, ["set_if", "get_versioned"]), "a", mode="r+")
    failed = []

    def write(i):
        try:
            failing[i] = i + 1
        except ChunkError:
            failed.append(i)

    threads = [
        threading.Thread(target=lambda part=part: [write(i) for i in part]) for part in np.arange(40).reshape(4, 10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed
    expected = np.arange(40) + 1
    expected[failed] = 0
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], expected)


def test_a_slow_store(tmp_path):
    slow = SlowStore(LocalStore(tmp_path), 0.005)
    with dask.config.set(scheduler="threads", num_workers=4):
        report = cm.to_store(da.from_array(VALUES, chunks=(5, 7)), slow, "a", chunks=CHUNKS)
    assert report.n_keys == 96
    check(tmp_path)


class TestBusyS3:
    """503 is answered to some requests; obstore waits and asks again."""

    SHAPE = (12, 10)

    def store(self, s3_server, proxy):  # noqa: F811
        options = s3_server.storage_options
        options = {**options, "client_kwargs": {**options["client_kwargs"], "endpoint_url": proxy.url}}
        return open_store(s3_server.new_bucket() + "/x.zarr", options)

    @pytest.mark.parametrize("after", [False, True], ids=["refused", "done, and not said"])
    def test_writes(self, s3_server, after):  # noqa: F811
        values = VALUES[:12, :10]
        with serve_flaky(s3_server.endpoint_url, every=6, methods=("GET", "PUT"), after=after) as proxy:
            store = self.store(s3_server, proxy)
            with dask.config.set(scheduler="threads", num_workers=4):
                cm.to_store(da.from_array(values, chunks=(3, 5)), store, "a")
                array = cm.open_array(store, "a", mode="r+")
                regions = [(slice(i, i + 2), slice(j, j + 5)) for i in range(0, 12, 2) for j in (0, 5)]
                parts = [da.from_array(-values[region], chunks=-1) for region in regions]
                reports = store_each(parts, array, regions)
            assert sum(report.n_partial for report in reports) > 8
            assert reports[0].guard == "version"
            np.testing.assert_array_equal(array[...], -values)
            assert proxy.n_failures > 5
        assert cm.check(store.url, storage_options=s3_server.storage_options).ok
