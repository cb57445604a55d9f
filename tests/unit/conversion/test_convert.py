"""Signatures of the public functions, the store of intermediate files, and plans that are pickled before they run."""

import inspect
import pickle

import dask
import pytest
from support.rechunks import check, make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion.convert import intermediate_store
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize(("plan", "run"), [(cm.plan_convert, cm.convert), (cm.plan_rechunk, cm.rechunk)])
def test_signatures_are_spelled_out_and_alike(plan, run):
    planned, ran = inspect.signature(plan).parameters, dict(inspect.signature(run).parameters)
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in ran.values())
    assert list(ran) == [*planned]
    for name, parameter in planned.items():
        assert (ran[name].default, ran[name].kind) == (parameter.default, parameter.kind)


def test_where_intermediate_files_are_stored(tmp_path):
    assert intermediate_store(None, None) is None
    own = MemoryStore()
    assert intermediate_store(own, None) is own
    with dask.config.set({"chunkmill.temp": str(tmp_path)}):
        assert intermediate_store(None, None).url == f"file://{tmp_path}"
        assert intermediate_store(own, None) is own


JOBS = {
    "spill": lambda a, b: cm.plan_rechunk(a, b, chunks=(20, 7, 4), strategy="spill"),
    "copy": lambda a, b: cm.plan_convert(a, b, format="zarr2"),
    "repack": lambda a, b: cm.plan_convert(a, b, format="zarr3", shards=(6, 30, 10)),
}


@pytest.mark.parametrize("job", JOBS)
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
