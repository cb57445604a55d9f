"""Clusters that change while a job runs: work is stolen, workers come, pause and restart, the scheduler dies.

Each time all values are right, and how often each key was written is counted: nothing is repeated but what was at work.
"""

import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from support.clusters import cluster_of, scheduler_of_its_own
from support.recording import LoggedStore

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.slow

SHAPE = (64, 40)
VALUES = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")
N_KEYS = 64
KEYS_OF_A_TASK = 2


@pytest.fixture(scope="module")
def cluster():
    config = {
        "distributed.scheduler.worker-saturation": "inf",  # tasks that wait in the scheduler are never stolen
        "distributed.scheduler.allowed-failures": 100,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": 0.6,
        "distributed.worker.memory.terminate": 0.9,
    }
    with cluster_of(1, 1, config, memory_limit="1 GiB") as client:
        yield client.cluster


@pytest.fixture
def source(tmp_path):
    store = LocalStore(tmp_path / "source")
    cm.create_array(store, "a", shape=SHAPE, dtype="i4", chunks=(4, 10), format="zarr2")[...] = VALUES
    return store


@pytest.fixture
def target(tmp_path):
    return LoggedStore(LocalStore(tmp_path / "target"), tmp_path / "log", 0.05)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Watch(threading.Thread):
    """Looks at the workers of a cluster, and what state they are in, as long as a job runs."""

    def __init__(self, cluster):
        super().__init__()
        self.scheduler = cluster.scheduler
        self.numbers, self.addresses, self.states = [], set(), set()
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.01):
            workers = dict(self.scheduler.workers)
            self.numbers.append(len(workers))
            self.addresses |= workers.keys()
            self.states |= {worker.status.name for worker in workers.values()}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def check(target, values=VALUES, *, n_keys=N_KEYS, n_repeated=0, keys_of_a_task=KEYS_OF_A_TASK):
    """All values are right, each key was written, and at most `n_repeated` tasks were done twice."""
    np.testing.assert_array_equal(cm.open_array(target.below, "a")[...], values)
    assert cm.check(target.below).ok
    counts = {key: n for key, n in target.counts().items() if key.startswith("a/c/")}
    assert len(counts) == n_keys
    assert sum(counts.values()) - n_keys <= n_repeated * keys_of_a_task


def test_stolen_tasks_run_once(cluster, source, target):
    """All tasks are one worker's when the second one comes."""
    stealing = cluster.scheduler.extensions["stealing"]
    before = stealing.count
    more = threading.Timer(0.5, cluster.scale, [2])
    more.start()
    with Watch(cluster) as watch:
        cm.convert(source, target, format="zarr3")
    more.join()
    assert watch.numbers[0] == 1
    assert stealing.count > before
    check(target)


def test_a_scheduler_that_dies_is_one_error_and_another_one_resumes(source, target, tmp_path):
    plan = cm.plan_convert(source, target, format="zarr3")
    with scheduler_of_its_own(tmp_path) as scheduler:

        def kill():
            wait_for(lambda: len(target.counts()) >= N_KEYS // 4)
            scheduler.kill()
            killed.append(time.monotonic())

        killed = []
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(JobError, match=r"^convert: the scheduler at tcp://.* is gone.*run it again"):
            plan.run()
        assert time.monotonic() - killed[0] < 25  # Dask's clients wait for 30 s
        killer.join()
    n_before = len(target.counts())
    assert n_before < N_KEYS
    with cluster_of(2, 1):
        report = plan.run()
    assert report.n_resumed >= n_before // KEYS_OF_A_TASK - 2
    check(target, n_repeated=2)


@pytest.mark.parametrize(
    ("writes", "method"),
    [
        pytest.param("convert", "sync", id="before the first question"),
        pytest.param("to_store", "gather", id="while results are gathered"),
    ],
)
def test_a_scheduler_that_dies_at_any_moment_is_one_error(tmp_path, monkeypatch, writes, method):
    """It was CommClosedError, or KeyError: 'workers'."""
    values = np.arange(1600).reshape(40, 40)
    cm.to_store(values, tmp_path / "source.zarr", chunks=(10, 10))
    own = getattr(Client, method)
    with dask.config.set({"distributed.comm.timeouts.connect": "3s"}), scheduler_of_its_own(tmp_path) as scheduler:

        def call(*arguments, **options):
            if scheduler.poll() is None:
                scheduler.kill()
                scheduler.wait()
            return own(*arguments, **options)

        monkeypatch.setattr(Client, method, call)
        with pytest.raises(JobError, match=r"^.*: the scheduler.* is gone, and the tasks with it; run it again with a"):
            write(writes, values, tmp_path)
    monkeypatch.undo()
    write(writes, values, tmp_path)
    np.testing.assert_array_equal(cm.open_array(tmp_path / "target")[...], values)


def write(how, values, folder):
    if how == "convert":
        cm.convert(folder / "source.zarr", folder / "target", format="n5")
    else:
        cm.to_store(da.from_array(values, chunks=(7, 40)), folder / "target", chunks=(10, 10), mode="w", resume=True)
