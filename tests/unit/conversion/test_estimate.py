"""What conversions are planned to take: tasks, and the memory of all threads."""

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.rechunks import smallest

import chunkmill as cm
from chunkmill.conversion import convert
from chunkmill.conversion.estimate import chunk_bytes, most_encoded
from chunkmill.errors import JobError
from chunkmill.jobs.job import Job
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_by_default_arrays_that_are_rechunked_must_fit_next_to_larger_ones_that_are_copied():
    group = cm.create_group(MemoryStore())
    for name, n in (("copied", 1000), ("rechunked", 10)):
        group.create_array(name, shape=(2000,), dtype="f8", chunks=(n,))
    work = cm.plan_convert(group, MemoryStore(), format="zarr2", chunks={"rechunked": (7,)}).job.work
    with pytest.raises(JobError, match=r"each thread holds a whole source chunk .*, of 'rechunked'"):
        Job.fitted(work, Worker(1, 1, 1))


@cases("options", [{}, {"codecs": "zstd"}, {"shards": (8, 8)}])
def test_of_little_memory_tasks_own_less(options):
    array = array_of(shape=(16, 16), chunks=(4, 4), dtype="i4")
    target = {"format": "zarr3", **options}
    needed, plan = smallest(lambda n: cm.plan_convert(array, MemoryStore(), max_mem=n, **target))
    assert plan.n_tasks == plan.n_keys
    assert plan.peak_memory_bytes <= needed < cm.plan_convert(array, MemoryStore(), **target).peak_memory_bytes


CASES = {
    "raw": {"codecs": "raw"}, "gzip": {"codecs": "gzip"}, "zstd": {"codecs": "zstd"}, "blosc": {"codecs": "blosc"},
    "checksum": {"codecs": ["crc32c"]}, "shards": {"codecs": "zstd", "shards": (8, 8)},
    "n5": {"format": "n5", "codecs": "gzip"},
}  # fmt: skip


@cases("case", CASES)
def test_no_chunk_is_larger_than_the_bound(case):
    array = filled(np.random.default_rng(0).random((16, 16)), chunks=(4, 8), **CASES[case])
    layout = array.write_layout
    sizes = [array.store.size(layout.locator.key(coords)) for coords in layout.grid.all_coords()]
    assert max(sizes) <= most_encoded(array.stored, layout) <= 2 * max(sizes) + 1024
    assert chunk_bytes(array.stored, array.read_layout) == 4 * 8 * 8
