"""Jobs over stores that fail now and then: each run goes on where the last one stopped (P7)."""

import dask
import numpy as np
import pytest
from support.recording import FailingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, NodeNotFound, StoreError
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.memory import MemoryStore

JOBS = {
    "convert": lambda source, store: cm.convert(source, store, format="n5"),
    "rechunk": lambda source, store: cm.rechunk(
        (source, "a"), (store, "a"), chunks=(64, 4), strategy="spill", max_mem="9 MB"
    ),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("methods", "every", "step"), [(["set", "set_if"], 9, 4), (["get", "get_versioned"], 3, 1)], ids=["set", "get"]
)
def test_a_store_that_fails_again_and_again(job, methods, every, step):
    source, store = MemoryStore(), MemoryStore()
    values = np.random.default_rng(0).integers(1, 1000, (64, 40)).astype("i4")
    values[8:12] = 0  # absent
    cm.to_store(values, source, "a", chunks=(4, 10), format="zarr2")
    n_failed, report = 0, None
    while report is None and n_failed < 150:
        failing = FailingStore(store, every=every + step * n_failed, methods=methods, times=1)
        try:
            with dask.config.set(scheduler="threads", num_workers=2):
                report = JOBS[job](source, failing)
        except (StoreError, ChunkError) as error:
            n_failed += 1
            # all chunks are there before the first document is, and the plan is read when all are
            if unfinished_jobs(store) and not error.key.endswith((".json", "plan.json")):
                with pytest.raises(NodeNotFound):
                    cm.open_array(store, "a")
    assert n_failed > 1
    assert report.n_resumed > 0
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], values)
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]
