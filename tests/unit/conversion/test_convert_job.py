"""Planning a job: what tasks own, what is estimated, which places are refused."""

import pytest
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion import convert
from chunkmill.errors import JobError
from chunkmill.nodes.array import Array
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore


def array_of(**options):
    return cm.create_array(MemoryStore(), **{"dtype": "u1", "codecs": "raw"} | options)


def plan_of(source, *, max_mem=None, n_threads=2):
    worker = Worker(max_mem or 1 << 30, n_threads, 1, is_asked=max_mem is not None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "current_worker", lambda _: worker)
        return cm.plan_convert(source, MemoryStore(), format="zarr3")


@cases(("shape", "chunks"), [((10**6,), (1,)), ((10**5, 2**20), (1, 2**20)), ((640,), (10,)), ((3,), (1,))])
def test_tasks_own_neither_too_much_nor_too_little(shape, chunks):
    array = array_of(shape=shape, chunks=chunks)
    plan = plan_of(array)
    (one,) = plan.job.tasks.plans
    n_keys = one.action.group[0] * (one.action.group[1] if len(shape) > 1 else 1)
    assert n_keys <= MAX_TASK_KEYS
    assert n_keys * chunks[-1] <= MAX_TASK_BYTES
    assert plan.n_tasks >= min(LEAST_TASKS, plan.n_keys)
    assert plan.n_tasks * n_keys >= plan.n_keys


def test_memory_is_that_of_all_threads():
    array = array_of(shape=(640,), chunks=(10,))
    one, four = (plan_of(array, n_threads=n).peak_memory_bytes for n in (1, 4))
    assert four == 4 * one
    with pytest.raises(JobError, match=r"convert to .*1 bytes for a worker of 2 threads are too little"):
        plan_of(array, max_mem=1)


@pytest.mark.parametrize("chunks", ["keep", (7,)])
def test_of_a_group_the_array_that_needs_most_memory_is_named(chunks):
    group = cm.create_group(MemoryStore())
    for name, n in (("small", 10), ("large", 1000)):
        group.create_array(name, shape=(2000,), dtype="f8", chunks=(n,))
    with pytest.raises(JobError, match=r"each thread holds a whole .*, of 'large'; give max_mem="):
        cm.plan_convert(group, MemoryStore(), format="zarr2", chunks=chunks, max_mem=1)


def test_the_fingerprint_is_that_of_the_plan():
    array = array_of(shape=(640,), chunks=(10,))
    first, again = plan_of(array), plan_of(array)
    assert first.job.fingerprint == again.job.fingerprint
    other = plan_of(Array(array.stored.with_store(RecordingStore(array.store))))
    assert other.job.fingerprint == first.job.fingerprint
    array.store.set("zarr.json", array.store.get("zarr.json"))  # made again: chunks may be others
    assert plan_of(array).job.fingerprint != first.job.fingerprint


def test_rows_and_strategies_of_a_group():
    cm.create_group(store := MemoryStore())
    cm.create_array(store, "x", shape=(8, 8), chunks=(2, 2), dtype="u1")
    cm.create_array(store, "y", shape=(8,), chunks=(2,), dtype="u1")
    plan = cm.plan_convert(store, MemoryStore(), format="zarr2", chunks={"x": (8, 8)})
    assert plan.strategy == "direct + copy"
    assert plan.reason == "2 arrays in 1 group: direct 1, copy 1"
    assert [(row["array"], row["action"]) for row in plan.arrays] == [("x", "direct"), ("y", "copy")]
    assert plan._repr_html_().count("<svg") == 2
    assert plan.actions == {"rechunk": 1, "copy": 4}
