"""Clusters that change while a job runs: a worker comes and steals work, the scheduler dies."""

import threading

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

VALUES = np.random.default_rng(0).integers(1, 1000, (64, 40)).astype("i4")


def test_stolen_tasks_run_once(tmp_path):
    """All tasks are one worker's when the second one comes; how often each key is written is counted."""
    source = LocalStore(tmp_path / "source")
    cm.create_array(source, "a", shape=(64, 40), dtype="i4", chunks=(4, 10), format="zarr2")[...] = VALUES
    target = LoggedStore(LocalStore(tmp_path / "target"), tmp_path / "log", 0.05)
    never_queued = {"distributed.scheduler.worker-saturation": "inf"}  # tasks that wait in the scheduler are not stolen
    with cluster_of(1, 1, never_queued) as client:
        more = threading.Timer(0.5, client.cluster.scale, [2])
        more.start()
        cm.convert(source, target, format="zarr3")
        more.join()
        assert client.cluster.scheduler.extensions["stealing"].count > 0
    np.testing.assert_array_equal(cm.open_array(target.below, "a")[...], VALUES)
    assert cm.check(target.below).ok
    assert sorted(n for key, n in target.counts().items() if key.startswith("a/c/")) == [1] * 64


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
