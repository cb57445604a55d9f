"""Tasks of a run that is over, still at work in processes that were interrupted or suspended (P10): none writes more."""

import _thread
import os
import signal
import threading
import time

import numpy as np
import pytest
from support.clusters import cluster_of, cluster_without_nannies
from support.kills import wait_for_keys
from support.recording import SlowStore, SuspendingStore

import chunkmill as cm
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.slow

SHAPE = (64, 40)
OLD = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")


def content(folder):
    return {key: LocalStore(folder).get(key) for key in LocalStore(folder).list_prefix("") if not key.startswith(".")}


@pytest.fixture
def source(tmp_path):
    url = str(tmp_path / "source.zarr")
    cm.create_array(url, "a", shape=SHAPE, dtype="i4", chunks=(4, 10), format="zarr2")[...] = OLD
    return url


WRITES = {
    "job": lambda source, store: cm.convert(source, store, format="zarr3"),
    "blocks": lambda source, store: cm.to_store(cm.open_array(source, "a").to_dask() + 0, store, "a"),
}


@pytest.mark.parametrize("kind", WRITES)
def test_an_interrupt_returns_when_no_task_writes_any_more(tmp_path, source, kind):
    """4 s after the next job had ended, 192 of 4096 elements were those of the interrupted one."""
    target = str(tmp_path / "target.zarr")
    with cluster_of(2, 2):
        slow = SlowStore(LocalStore(target), 0.2, ["set", "set_if"])
        interrupt = threading.Thread(target=interrupt_at, args=(target,))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            WRITES[kind](source, slow)
        interrupt.join()
        after = content(target)
        if kind != "blocks":
            (job,) = unfinished_jobs(LocalStore(target))
            assert not job.is_running
        time.sleep(2)
        assert content(target) == after
        cm.open_array(source, "a", mode="r+")[...] = OLD + 1
        if kind == "job":
            cm.plan_convert(source, target, format="zarr3", codecs="gzip").run(resume=False)
        else:
            cm.to_store(cm.open_array(source, "a").to_dask() + 0, target, "a", codecs="gzip")
        time.sleep(1)
    np.testing.assert_array_equal(cm.open_array(target, "a")[...], OLD + 1)


def interrupt_at(target, n=6):
    """Interrupt the main thread, as Ctrl-C does, when `n` chunks are there."""
    wait_for_keys(LocalStore(target), "a/c/", n)
    _thread.interrupt_main()


def test_a_worker_that_was_suspended_puts_nothing_back(tmp_path, source):
    """It sleeps between its question and its write, until the job has been done without it and users write."""
    target = str(tmp_path / "target.zarr")
    with cluster_without_nannies(2, {"distributed.scheduler.worker-ttl": "8s"}):
        cm.convert(source, SuspendingStore(LocalStore(target), "a/c/", tmp_path / "pid"), format="zarr3")
        cm.open_array(target, "a", mode="r+")[...] = OLD + 1
        before = content(target)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)
        time.sleep(3)
        assert content(target) == before
    np.testing.assert_array_equal(cm.open_array(target, "a")[...], OLD + 1)
