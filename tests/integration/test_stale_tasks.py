"""Tasks of a run that is over, still at work (P10): nothing that they write is met by the next run, or by users."""

import _thread
import json
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from support.clusters import cluster_of, cluster_without_nannies
from support.recording import FailingStore, RecordingStore, SlowStore, SuspendingStore
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

SHAPE = (64, 40)
OLD = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")


def make_source(values=OLD, chunks=(4, 10)):
    store = MemoryStore()
    cm.create_array(store, "a", shape=SHAPE, dtype="i4", chunks=chunks, format="zarr2")[...] = values
    return store


def content(folder):
    return {key: LocalStore(folder).get(key) for key in LocalStore(folder).list_prefix("") if not key.startswith(".")}


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def source(tmp_path):
    url = str(tmp_path / "source.zarr")
    cm.create_array(url, "a", shape=SHAPE, dtype="i4", chunks=(4, 10), format="zarr2")[...] = OLD
    return url


def test_intermediate_files_of_another_run():
    """The source is corrected, the plan stays: tasks of the run before spill the values that were there then."""
    source, target = make_source(), MemoryStore()
    plan = cm.plan_rechunk(source, target, chunks=(64, 4), strategy="spill")
    with pytest.raises((ChunkError, StoreError)):
        cm.rechunk(source, FailingStore(target, every=3, methods=["set", "set_if"]), chunks=(64, 4), strategy="spill")
    (old,) = [key for key in target.list_prefix("") if key.endswith("plan.json")]
    spill, _ = stages_of(plan, json.loads(target.get(old))["run"])
    stale = tuple(replace(rechunk, source=rechunk.source.with_store(make_source())) for rechunk in spill.common)

    class Meanwhile(RecordingStore):
        def _before(self, method, key, byte_range=None):
            super()._before(method, key, byte_range)
            if (method == "get" and "-intermediate/" in key) or (
                "/intermediate/" in key and not spilled
            ):  # the second stage begins
                spilled.append(key)
                for spec in spill.tasks:
                    spill.function(stale, spec)

    spilled = []
    cm.open_array(source, "a", mode="r+")[...] = OLD + 1
    cm.plan_rechunk(source, Meanwhile(target), chunks=(64, 4), strategy="spill").run(resume=False)
    assert spilled
    np.testing.assert_array_equal(cm.open_array(target, "a")[...], OLD + 1)


def test_a_run_that_is_replaced_stops_with_one_error(source, tmp_path, monkeypatch):
    """What it writes before it learns of that, where its successor writes nothing, is met by nobody."""
    target = str(tmp_path / "target.zarr")
    errors = []

    def first():
        try:
            cm.convert(source, SlowStore(LocalStore(target), 0.1, ["set_if"]), format="zarr3")
        except JobError as error:
            errors.append(str(error))

    thread = threading.Thread(target=first)
    thread.start()
    wait_for(lambda: sum(1 for _ in LocalStore(target).list_prefix("a/c/")) >= 3)
    cm.open_array(source, "a", mode="r+")[...] = 0  # all chunks are absent now
    running = r"a job with another plan .* is running: 'convert to .*', begun .* s ago, with codecs .*gzip.*; wait"
    with pytest.raises(JobError, match=running):
        cm.plan_convert(source, target, format="zarr3", codecs="gzip", overwrite=True).run(resume=False)
    # of a client that was suspended for a minute
    monkeypatch.setattr("chunkmill.journal.heartbeat.is_live", lambda _: False)
    cm.plan_convert(source, target, format="zarr3", overwrite=True).run(resume=False)
    thread.join()
    (error,) = errors
    assert error.endswith(
        "the job has ended, was interrupted, or was replaced by another one; this result is discarded"
    )
    assert not cm.open_array(target, "a")[...].any()
    assert [key for key in LocalStore(target).list_prefix("") if key.startswith(".")] == []


# --------------------------------------------------------------------------------------------------------------------
# Clusters


WRITES = {
    "job": lambda source, store: cm.convert(source, store, format="zarr3"),
    "blocks on record": lambda source, store: cm.to_store(
        cm.open_array(source, "a").to_dask() + 0, store, "a", resume=True
    ),
    "blocks": lambda source, store: cm.to_store(cm.open_array(source, "a").to_dask() + 0, store, "a"),
}


@pytest.mark.slow
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
    wait_for(lambda: sum(1 for _ in LocalStore(target).list_prefix("a/c/")) >= n)
    _thread.interrupt_main()


@pytest.mark.slow
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
