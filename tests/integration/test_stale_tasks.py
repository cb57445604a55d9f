"""Tasks of a run that is over, still at work somewhere: nothing that they write is met by the next run, or by users."""

import json
from dataclasses import replace

import numpy as np
import pytest
from recording import FailingStore, RecordingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, StoreError
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
    spill, _ = plan.job.stages(json.loads(target.get(old))["run"])
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
    cm.rechunk(source, Meanwhile(target), chunks=(64, 4), strategy="spill", resume=False)
    assert spilled
    np.testing.assert_array_equal(cm.open_array(target, "a")[...], OLD + 1)
