"""Jobs over stores that fail now and then, each run goes on where the last one stopped (P7), or that cost latency."""

import dask.array as da
import numpy as np
import pytest
from support.recording import FailingStore, FarStore

import chunkmill as cm
from chunkmill.errors import ChunkError, NodeNotFound, StoreError
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


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


VALUES = np.arange(60 * 40).reshape(60, 40)  # 15 x 10 chunks
SECONDS = 0.01


@pytest.fixture
def source():
    far = FarStore()
    cm.to_store(da.from_array(VALUES, chunks=(4, 4)), far.below)
    far.seconds = SECONDS
    return far


@pytest.mark.parametrize(
    ("job", "options", "n_keys"),
    [
        (cm.convert, {"format": "zarr2"}, 150),
        (cm.convert, {"format": "zarr3", "codecs": "gzip"}, 150),
        (cm.convert, {"format": "zarr3", "shards": (8, 8)}, 40),
        (cm.rechunk, {"chunks": (5, 5)}, 96),
        (cm.rechunk, {"chunks": (60, 1)}, 40),
        (cm.rechunk, {"chunks": (60, 1), "strategy": "spill", "max_mem": "16 MiB"}, 40),
    ],
    ids=["copy", "recode", "shards", "rechunk", "lines", "spill"],
)
def test_jobs(source, job, options, n_keys):
    target = FarStore(seconds=SECONDS)
    job(source, target, **options)
    np.testing.assert_array_equal(cm.open_array(target.below)[...], VALUES)
    assert set(source.chunks("get").values()) == {1}
    if options.get("format") != "zarr2":  # whose keys the log does not tell from others
        stored = target.chunks("set", "set_if")
        assert len(stored) == n_keys
        assert set(stored.values()) == {1}
    assert source.most_at_once >= 8
    assert target.most_at_once >= 8  # of 16 to 32, as the machine is busy
