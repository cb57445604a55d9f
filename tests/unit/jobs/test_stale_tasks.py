"""Tasks of a run that is over, still at work (P10): nothing that they write is met by the next run, or by users."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from support.kills import wait_for
from support.recording import FailingStore, Meanwhile, SlowStore
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.stores.memory import MemoryStore

SHAPE = (64, 40)
OLD = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")


def make_source(values=OLD, chunks=(4, 10)):
    store = MemoryStore()
    cm.create_array(store, "a", shape=SHAPE, dtype="i4", chunks=chunks, format="zarr2")[...] = values
    return store


def test_intermediate_files_of_another_run():
    """The source is corrected, the plan stays: tasks of the run before spill the values that were there then."""
    source, target = make_source(), MemoryStore()
    plan = cm.plan_rechunk(source, target, chunks=(64, 4), strategy="spill")
    with pytest.raises((ChunkError, StoreError)):
        cm.rechunk(source, FailingStore(target, every=3, methods=["set", "set_if"]), chunks=(64, 4), strategy="spill")
    (old,) = [key for key in target.list_prefix("") if key.endswith("plan.json")]
    spill, _ = stages_of(plan, json.loads(target.get(old))["run"])
    stale = tuple(replace(rechunk, source=rechunk.source.with_store(make_source())) for rechunk in spill.common)

    def spill_again(_):
        for spec in spill.tasks:
            spill.function(stale, spec)

    def begins_to_write(method, key):
        return "/intermediate/" in key or (method == "get" and "-intermediate/" in key)

    cm.open_array(source, "a", mode="r+")[...] = OLD + 1
    watched = Meanwhile(target, begins_to_write, spill_again)
    cm.plan_rechunk(source, watched, chunks=(64, 4), strategy="spill").run(resume=False)
    assert watched.done
    np.testing.assert_array_equal(cm.open_array(target, "a")[...], OLD + 1)


def test_a_run_that_is_replaced_stops_with_one_error(monkeypatch):
    """What it writes before it learns of that, where its successor writes nothing, is met by nobody."""
    source, target, errors = make_source(), MemoryStore(), []

    def first():
        try:
            cm.convert(source, SlowStore(target, 0.1, ["set_if"]), format="zarr3")
        except JobError as error:
            errors.append(str(error))

    thread = threading.Thread(target=first)
    thread.start()
    wait_for(lambda: sum(1 for _ in target.list_prefix("a/c/")) >= 3)
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
    assert [key for key in target.list_prefix("") if key.startswith(".")] == []
