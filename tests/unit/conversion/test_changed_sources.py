"""Sources may not change unseen, while a job runs or between two runs of it."""

from types import SimpleNamespace

import pytest
from support.cases import cases
from support.rechunks import check, make, planned_tightly
from support.recording import FailingStore, FarStore, RecordingStore

import chunkmill as cm
from chunkmill.conversion import stages
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


class Listing(FarStore):
    """A store whose requests cost latency, and whose listings tell versions."""

    def list_versions(self, prefix):
        self._before("list_versions", prefix)
        return ((key, self.below.version(key)) for key in self.below.list_prefix(prefix))


@cases("kind", [MemoryStore, Listing])
def test_a_chunk_that_is_written_again_while_slices_are_read_is_named(kind, monkeypatch):
    monkeypatch.setattr(stages, "_BATCH", 2)
    array, _ = make(kind(), shape=(10,), chunks=(2,), absent=[(3,)])
    plans = [SimpleNamespace(source=array.stored, rechunk=SimpleNamespace(source=SimpleNamespace(sliced=0)))]
    seen = stages.see_slices(plans)
    stages.check_slices("rechunk", plans, seen)
    array[9:] = 4
    with pytest.raises(JobError, match=r"chunks of the source 'a' .* while tasks read slices of them"):
        stages.check_slices("rechunk", plans, seen)
    plans[0].source, _ = make(MemoryStore({}), shape=(10,), chunks=(2,))  # without versions nothing is known
    assert stages.see_slices(plans) == {}


PLANS = {
    "copy": lambda a, b: cm.plan_convert(a, (b, "b"), format="zarr3"),
    "repack": lambda a, b: cm.plan_convert(a, (b, "b"), format="zarr3", shards=(2, 40)),
    "direct": lambda a, b: planned_tightly(a, (b, "b"), chunks=(2, 20), strategy="direct"),
    "spill": lambda a, b: planned_tightly(a, (b, "b"), chunks=(40, 1), strategy="spill"),
}


def interrupted(plan, target, *, after):
    """Run until as many values were written."""
    with pytest.raises((ChunkError, StoreError)):
        plan(FailingStore(target, after, ["set", "set_if"], times=1)).run()


def written_in_place(array, values):
    """One chunk has other values than before, one is gone, one has come."""
    for row in (0, 7):
        cm.open_array(array.store, "a", mode="r+")[row, 2:4] = values[row, 2:4] = -1
    array.store.delete(array.write_layout.locator.key((1, 0)))
    values[1] = 0


@pytest.mark.parametrize(("job", "n_left"), [("copy", 12), ("repack", 1), ("direct", 12), ("spill", 1), ("files", 12)])
def test_what_was_read_before_is_read_again(tmp_path, job, n_left):
    source, plan = LocalStore(tmp_path) if job == "files" else MemoryStore(), PLANS.get(job, PLANS["spill"])
    array, values = make(source, shape=(40, 40), chunks=(1, 40), absent=[(7, 0)])
    whole = FailingStore(MemoryStore(), 10**9, ["set", "set_if"])
    n_tasks = plan(array, whole).run().n_tasks
    target = MemoryStore()
    interrupted(lambda b: plan(array, b), target, after=whole.n_requests - n_left - 4)
    written_in_place(array, values)
    report = plan(array, target).run()
    check(target, values)
    assert 0 < report.n_resumed < n_tasks


@pytest.mark.parametrize("is_far", [True, False])
def test_of_many_records_too(is_far):
    """The client compares them, by one listing where each request costs latency."""
    source = Listing() if is_far else MemoryStore()
    array, values = make(source, shape=(200, 2), chunks=(1, 2), absent=[(7, 0)])
    target = MemoryStore()
    interrupted(lambda b: PLANS["copy"](array, b), target, after=180)
    written_in_place(array, values)
    source = RecordingStore(source) if not is_far else source
    source.log.clear()
    report = PLANS["copy"](cm.open_array(source, "a"), target).run()
    check(target, values)
    assert report.n_resumed > 1
    assert report.n_keys < 100
    assert source.keys("list_versions") == (["a/"] if is_far else [])
    assert ("version" in {method for method, *_ in source.log}) != is_far
