"""What conversions are planned to take: tasks, requests, and memory, which is what they hold (P12)."""

from functools import cache

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.memory import peak_of
from support.rechunks import smallest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion import convert
from chunkmill.conversion.estimate import chunk_bytes, most_encoded
from chunkmill.errors import JobError
from chunkmill.jobs.job import Job
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD, Worker
from chunkmill.stores.local import LocalStore
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


LARGE = (400, 1200)

GZIP = {"name": "gzip", "configuration": {"level": 1}}
TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
INNER = {"chunk_shape": [200, 400], "codecs": ["bytes", GZIP], "index_location": "start"}
SOURCES = {
    "gzip": {"format": "zarr2", "chunks": (200, 400), "codecs": [GZIP]},
    "raw, big-endian": {"format": "zarr2", "chunks": (200, 400), "codecs": "raw", "dtype": ">f8"},
    "transposed blosc": {"chunks": (200, 400), "codecs": [TRANSPOSE, "blosc"]},
    "N5 with odd ends": {"format": "n5", "chunks": (200, 700), "codecs": [GZIP]},
    "shards": {"chunks": (100, 200), "shards": (400, 800), "codecs": [GZIP]},
    "shards, index first": {"chunks": LARGE, "codecs": [{"name": "sharding_indexed", "configuration": INNER}]},
    "fill value": {"format": "zarr2", "chunks": (200, 700), "codecs": "raw", "fill_value": 7},
}


def shards(array):
    return tuple(2 * n for n in array.chunks)


TARGETS = {
    "zarr3": {"format": "zarr3"},
    "zarr3 in shards": {"format": "zarr3", "shards": shards},
    "zarr3 in shards, checksums": {"format": "zarr3", "shards": shards, "codecs": [GZIP, "crc32c"]},
    "zarr2": {"format": "zarr2", "shards": None},
    "n5": {"format": "n5", "shards": None, "allow": {"codecs", "fill_value"}},
    "zstd": {"format": "zarr3", "shards": None, "codecs": "zstd"},
    "zstd in shards": {"format": "zarr3", "shards": shards, "codecs": "zstd"},
}


# every source and every target once; the values of a store that takes them whole, or sends them ahead, are held in
# addition, by how much does not depend on what is on the other side
PAIRS = [("gzip", "zarr3 in shards, checksums"), ("raw, big-endian", "zstd"), ("transposed blosc", "zarr3 in shards"),
    ("N5 with odd ends", "zarr3"), ("shards", "zarr2"), ("shards", "zstd in shards"),
    ("shards, index first", "zarr3 in shards"), ("fill value", "n5")]  # fmt: skip

ELSEWHERE = [("gzip", "zarr3 in shards, checksums"), ("raw, big-endian", "zstd"), ("shards", "zstd in shards")]
EVERY = [(*pair, "files") for pair in PAIRS]
EVERY += [(*pair, stores) for pair in ELSEWHERE for stores in ("whole values", "far away")]


class Far(RecordingStore):
    """Files that have to be stored whole, and that are fetched far ahead: what is on its way is held."""

    def __init__(self, below, *, is_remote):
        super().__init__(below)
        self.is_remote = is_remote

    def get_many(self, spans):
        if not self.is_remote:
            yield from super().get_many(spans)
            return
        spans = list(spans)
        ahead = [None if span is None else self.get(span.key, span.byte_range) for span in spans]
        while ahead:
            yield ahead.pop(0)


VALUES = np.random.default_rng(0).random(LARGE)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Array and values of a source, which is stored when it is first asked for."""

    @cache
    def array_and_values(name):
        array = filled(VALUES, tmp_path_factory.mktemp("source"), **SOURCES[name])
        if array.fill_value:
            array.store.delete(array.write_layout.locator.key((0, 0)))
        return array, array[...].tobytes()

    return array_and_values


@pytest.mark.parametrize(("old", "new", "stores"), EVERY)
def test_a_job_holds_no_more_than_planned(old, new, stores, stored, tmp_path):
    array, values = stored(old)
    source, target = array.store, LocalStore(tmp_path / "b")
    if stores != "files":
        source, target = (Far(store, is_remote=stores == "far away") for store in (source, target))
    plan = cm.plan_convert(source, target, **TARGETS[new])
    peak, report = peak_of(plan.run)
    planned = plan.peak_memory_bytes - THREAD_OVERHEAD
    assert peak < planned + (1 << 19)  # of what a thread has by itself
    if "shards" not in new or stores == "files":
        assert planned < 3 * peak + (1 << 20) or stores == "far away"  # not out of all proportion
    assert report.bytes_read == pytest.approx(plan.bytes_read, rel=0.01)
    assert (0.5 if array.fill_value else 0.9) * plan.bytes_written <= report.bytes_written <= 1.01 * plan.bytes_written
    assert report.n_requests == plan.n_requests
    found = cm.open_array(tmp_path / "b")
    assert found[...].astype(array.dtype).tobytes() == values


def test_a_shard_in_memory_is_not_asked_for_where_it_is_written_as_it_comes(stored, tmp_path):
    array, _ = stored("gzip")
    options = {"format": "zarr3", "shards": LARGE, "max_mem": THREAD_OVERHEAD + (4 << 20)}
    plan = cm.plan_convert(array, tmp_path / "b", **options)
    assert plan.peak_memory_bytes < options["max_mem"]
    with pytest.raises(JobError, match="a shard where its store takes it in one piece"):
        cm.plan_convert(array, Far(LocalStore(tmp_path / "c"), is_remote=False), **options)


def test_arrays_whose_chunks_stay_are_part_of_a_rechunk_s_memory(tmp_path):
    source = str(tmp_path / "a")
    large = filled(VALUES, source, "large", chunks=LARGE, codecs="gzip")
    filled(VALUES[:200, :200], source, "small", chunks=(100, 100), codecs="gzip")
    plan = cm.plan_rechunk(source, tmp_path / "b", chunks={"small": (200, 50)})
    assert plan.peak_memory_bytes > large.nbytes
    report = plan.run()
    assert report.bytes_read <= 1.05 * plan.bytes_read
    assert report.bytes_written <= 1.05 * plan.bytes_written
    options = {"chunks": {"small": (200, 50)}}
    _, plan = smallest(lambda n: cm.plan_rechunk(source, tmp_path / "c", max_mem=n, **options), 4 << 20)
    assert plan.peak_memory_bytes > large.nbytes
