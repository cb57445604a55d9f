"""What conversions are planned to take: tasks, requests, memory of all threads, buffers that codecs need for noise."""

from dataclasses import replace

import numpy as np
import pytest
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion import convert
from chunkmill.conversion.actions import choose_action
from chunkmill.conversion.estimate import (
    TransferEstimate,
    chunk_bytes,
    estimate_transfers,
    fit_memory,
    most_encoded,
    n_decoding,
    n_encoding,
    task_memory,
)
from chunkmill.errors import JobError
from chunkmill.jobs.job import Job
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


def test_by_default_arrays_that_are_rechunked_must_fit_next_to_larger_ones_that_are_copied():
    group = cm.create_group(MemoryStore())
    for name, n in (("copied", 1000), ("rechunked", 10)):
        group.create_array(name, shape=(2000,), dtype="f8", chunks=(n,))
    work = cm.plan_convert(group, MemoryStore(), format="zarr2", chunks={"rechunked": (7,)}).job.work
    with pytest.raises(JobError, match=r"each thread holds a whole source chunk .*, of 'rechunked'"):
        Job.fitted(work, Worker(1, 1, 1))


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


def pair(target=None, **source):
    options = {"shape": (16, 16), "dtype": "i4", "chunks": (4, 4), "codecs": "raw"}
    old = cm.create_array(MemoryStore(), **options | source)
    old[...] = np.arange(256).reshape(16, 16) + 1
    new = cm.create_array(MemoryStore(), **options | source | (target or {}))
    action = choose_action(old.metadata, new.metadata, max_bytes=1 << 20, max_keys=16)
    return old, new, action


def test_a_copy_reads_and_writes_what_is_stored():
    assert estimate_transfers([pair()]) == [TransferEstimate(1024, 1024, 32)]


def test_indexes_of_shards_are_read_and_written():
    into = estimate_transfers([pair({"shards": (8, 8)})])[0]
    assert into.bytes_written == 1024 + 4 * (4 * 16 + 4)
    out = estimate_transfers([pair({"shards": None}, shards=(8, 8))])[0]
    assert (out.bytes_read, out.bytes_written) == (1024 + 4 * 68, 1024)


def test_few_sizes_are_asked_for():
    old = cm.create_array(store := RecordingStore(MemoryStore()), shape=(10**6,), chunks=(1,), dtype="u1")
    new = cm.create_array(MemoryStore(), shape=(10**6,), chunks=(1,), dtype="u1")
    action = choose_action(old.metadata, new.metadata, max_bytes=1 << 20, max_keys=1024)
    store.clear()
    estimate_transfers([(old, new, action)])
    assert len(store.keys("size")) == 1024


@cases("target", [{}, {"codecs": "zstd"}, {"shards": (8, 8)}])
def test_smaller_groups_need_less_memory(target):
    old, new, action = pair(target)
    whole = task_memory(old.stored, new.stored, action).n_bytes
    smallest = task_memory(old.stored, new.stored, replace(action, group=(1, 1))).n_bytes
    assert smallest <= whole
    fitted, memory = fit_memory(old.stored, new.stored, action, smallest)
    assert memory.n_bytes <= smallest
    assert task_memory(old.stored, new.stored, fitted, smallest).n_bytes <= smallest
    assert fit_memory(old.stored, new.stored, action, 1 << 40)[0] == action


def test_stores_with_latency_fetch_ahead_as_far_as_the_budget_allows():
    old, new, action = pair()
    remote = RecordingStore(old.store)
    remote.is_remote = True
    far = old.stored.with_store(remote)
    assert task_memory(old.stored, new.stored, action).n_ahead == 0
    least = task_memory(far, new.stored, action, 1)
    assert (least.n_ahead, task_memory(far, new.stored, action, least.n_bytes + 3 * 64).n_ahead) == (1, 4)


LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
CASES = {
    "raw": {"codecs": "raw"},
    "gzip": {"codecs": "gzip"},
    "zstd": {"codecs": "zstd"},
    "blosc": {"codecs": "blosc"},
    "checksum": {"codecs": [LITTLE, {"name": "crc32c"}]},
    "shards": {"codecs": "zstd", "shards": (8, 8)},
    "n5": {"format": "n5", "codecs": "gzip"},
}


def noise(**options):
    array = cm.create_array(MemoryStore(), shape=(16, 16), dtype="f8", chunks=(4, 8), **options)
    array[...] = np.random.default_rng(0).random((16, 16))
    return array


@cases("case", CASES)
def test_no_chunk_is_larger_than_the_bound(case):
    array = noise(**CASES[case])
    layout = array.write_layout
    sizes = [array.store.size(layout.locator.key(coords)) for coords in layout.grid.all_coords()]
    assert max(sizes) <= most_encoded(array.stored, layout) <= 2 * max(sizes) + 1024
    assert chunk_bytes(array.stored, array.read_layout) == 4 * 8 * 8


@cases(
    ("codecs", "decoding", "encoding"),
    [([LITTLE], 0, 1), ([BIG], 1, 2), ([LITTLE, "gzip"], 1, 3), ([LITTLE, "gzip", {"name": "crc32c"}], 2, 4)],
)
def test_buffers_alive_at_once(codecs, decoding, encoding):
    layout = noise(codecs=codecs).write_layout
    assert (n_decoding(layout.codecs), n_encoding(layout.codecs)) == (decoding, encoding)
