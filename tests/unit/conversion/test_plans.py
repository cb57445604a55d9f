"""Plans before and after they run: nothing is touched, they can be pickled, and their figures are those of the run."""

import pickle

import dask
import pytest
from support.rechunks import check, make, planned_tightly
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(autouse=True)
def two_threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


JOBS = {
    "direct": lambda a, b: cm.plan_rechunk(a, b, chunks=(20, 7, 4), strategy="direct"),
    "spill": lambda a, b: cm.plan_rechunk(a, b, chunks=(20, 7, 4), strategy="spill"),
    "chunks stay": lambda a, b: cm.plan_rechunk(a, b, chunks=(3, 30, 10)),
    "copy": lambda a, b: cm.plan_convert(a, b, format="zarr2"),
    "other chunks": lambda a, b: cm.plan_convert(a, b, format="n5", chunks=(20, 7, 4)),
    "repack": lambda a, b: cm.plan_convert(a, b, format="zarr3", shards=(6, 30, 10)),
}


@pytest.mark.parametrize("job", ["spill", "copy", "repack"])
def test_a_plan_is_run_after_unpickling(job, tmp_path):
    array, values = make(str(tmp_path / "a"))
    recording = RecordingStore(MemoryStore())
    JOBS[job](array, recording)
    assert not recording.keys("list_dir", "list_prefix", "set", "set_if", "delete", "delete_prefix")
    plan = JOBS[job](array, str(tmp_path / "b"))
    copy = pickle.loads(pickle.dumps(plan))
    assert repr(copy) == repr(plan)
    assert copy.job.fingerprint == plan.job.fingerprint
    assert copy.run().n_tasks == plan.n_tasks
    check(str(tmp_path / "b"), values, "")


def test_a_pickled_plan_knows_its_unfinished_job(tmp_path):
    array, values = make(str(tmp_path / "a"))
    target = LocalStore(tmp_path / "b")
    plan = cm.plan_rechunk(array, target, chunks=(20, 7, 4), max_mem="16 MiB")
    broken = LocalStore(tmp_path / "a")
    gone = cm.open_array(broken, "a").write_layout.locator.key((6, 0, 0))
    value = broken.get(gone)
    broken.set(gone, b"damaged")
    with pytest.raises(cm.errors.ChunkError):
        plan.run()
    broken.set(gone, value)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.at_target() == "an unfinished job of this plan, which will be resumed"
    copy.run()
    check(target, values, "")


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_read_amplification_is_measured(strategy):
    """Rows of 3 against rows of 2: a third of the source's elements are read twice, unless they are spilled."""
    array, values = make(store := MemoryStore(), shape=(12, 4), chunks=(3, 4))
    plan = planned_tightly(array, (store, "b"), chunks=(2, 4), strategy=strategy)
    report = plan.run()
    assert report.read_amplification == plan.read_amplification == (2.0 if strategy == "direct" else 1.0)
    check(store, values)


@pytest.mark.parametrize(("n_axes", "strategy"), [(33, "spill"), (64, "direct")])
def test_as_many_axes_as_numpy_has(n_axes, strategy):
    shape, chunks = (4, 8, *(1,) * (n_axes - 2)), (1, 8, *(1,) * (n_axes - 2))
    array, values = make(store := MemoryStore(), shape=shape, chunks=chunks)
    plan = planned_tightly(array, (store, "b"), chunks=(4, 4, *(1,) * (n_axes - 2)), strategy=strategy)
    plan.run()
    check(store, values)
