"""What a conversion holds in memory: as much as its plan says, whatever the stores can and the chunks are (P12)."""

import tracemalloc

import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPE = (1200, 1600)

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
START = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [300, 400], "codecs": [LITTLE, GZIP], "index_location": "start"},
}
SOURCES = {
    "gzip": {"format": "zarr2", "chunks": (300, 400), "codecs": [GZIP]},
    "raw, big-endian": {"format": "zarr2", "chunks": (300, 400), "codecs": "raw", "dtype": ">f8"},
    "transposed blosc": {
        "chunks": (300, 400),
        "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "blosc"}],
    },
    "N5 with odd ends": {"format": "n5", "chunks": (300, 700), "codecs": [GZIP]},
    "shards": {"chunks": (150, 200), "shards": (600, 800), "codecs": [GZIP]},
    "shards, index first": {"chunks": (1200, 1600), "codecs": [START]},
    "fill value": {"format": "zarr2", "chunks": (500, 700), "codecs": "raw", "fill_value": 7},
}


def shards(array):
    return tuple(2 * n for n in array.chunks)


TARGETS = {
    "zarr3": {"format": "zarr3"},
    "zarr3 in shards": {"format": "zarr3", "shards": shards},
    "zarr3 in shards, checksums": {"format": "zarr3", "shards": shards, "codecs": [LITTLE, GZIP, {"name": "crc32c"}]},
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
CASES = [
    *((*pair, "files") for pair in PAIRS),
    *((*pair, stores) for pair in ELSEWHERE for stores in ("whole values", "far away")),
]


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


VALUES = np.random.default_rng(0).random(SHAPE)


def noise(options, path):
    array = cm.create_array(path, shape=SHAPE, **{"dtype": "f8"} | options)
    array[...] = VALUES
    if array.fill_value:
        array.store.delete(array.write_layout.locator.key((0, 0)))
    return array


@pytest.mark.parametrize(("old", "new", "stores"), CASES)
def test_a_job_holds_no_more_than_planned(old, new, stores, tmp_path):
    array = noise(SOURCES[old], tmp_path / "a")
    source, target = LocalStore(tmp_path / "a"), LocalStore(tmp_path / "b")
    if stores != "files":
        source, target = (Far(store, is_remote=stores == "far away") for store in (source, target))
    plan = cm.plan_convert(source, target, **TARGETS[new])
    peak, report = peak_of(plan)
    planned = plan.peak_memory_bytes - THREAD_OVERHEAD
    assert peak < planned + (1 << 19)  # of what a thread has by itself
    if "shards" not in new or stores == "files":
        assert planned < 3 * peak + (1 << 20) or stores == "far away"  # not out of all proportion
    assert report.bytes_read <= 1.01 * plan.bytes_read
    assert report.bytes_written <= 1.01 * plan.bytes_written
    assert report.n_requests <= plan.n_requests
    found = cm.open_array(tmp_path / "b")
    assert found[...].astype(array.dtype).tobytes() == array[...].tobytes()


def peak_of(plan):
    """Run a plan; return the most bytes that Python's allocators held, and the report."""
    tracemalloc.start()
    try:
        report = plan.run()
        return tracemalloc.get_traced_memory()[1], report
    finally:
        tracemalloc.stop()


def smallest(planned, max_mem=1):
    """The `max_mem` that the error says would do, and the plan that it does for."""
    with pytest.raises(JobError, match="smallest that works") as caught:
        planned(max_mem)
    needed = int(str(caught.value).partition("max_mem=")[2].split(maxsplit=1)[0])
    with pytest.raises(JobError, match="smallest that works"):
        planned(needed - 1)
    return needed, planned(needed)


def test_a_shard_in_memory_is_not_asked_for_where_it_is_written_as_it_comes(tmp_path):
    noise({"chunks": (300, 400), "codecs": [GZIP]}, tmp_path / "a")
    options = {"format": "zarr3", "shards": (1200, 1600), "max_mem": THREAD_OVERHEAD + (4 << 20)}
    plan = cm.plan_convert(tmp_path / "a", tmp_path / "b", **options)
    assert plan.peak_memory_bytes < options["max_mem"]
    with pytest.raises(JobError, match="a shard where its store takes it in one piece"):
        cm.plan_convert(tmp_path / "a", Far(LocalStore(tmp_path / "c"), is_remote=False), **options)


def test_arrays_whose_chunks_stay_are_part_of_a_rechunk_s_memory(tmp_path):
    source = str(tmp_path / "a")
    for name, chunks in (("large", (1200, 1600)), ("small", (100, 100))):
        array = cm.create_array(source, name, shape=SHAPE, dtype="f8", chunks=chunks, codecs="gzip")
        array[...] = np.random.default_rng(0).random(SHAPE)
    plan = cm.plan_rechunk(source, tmp_path / "b", chunks={"small": (200, 50)})
    assert plan.peak_memory_bytes > array.nbytes
    report = plan.run()
    assert report.bytes_read <= 1.05 * plan.bytes_read
    assert report.bytes_written <= 1.05 * plan.bytes_written
    options = {"chunks": {"small": (200, 50)}}
    _, plan = smallest(lambda n: cm.plan_rechunk(source, tmp_path / "c", max_mem=n, **options), 16 << 20)
    assert plan.peak_memory_bytes > array.nbytes


BLOCKS = {
    "pyramid of blocks of Dask": lambda a, to: cm.plan_pyramid(a.to_dask(chunks=(600, 800)), to, chunks=(100, 100)),
    "transform of them": lambda a, to: cm.plan_transform(
        np.negative, a.to_dask(chunks=(600, 800)), to, chunks=(100, 100)
    ),
    "transform with halos": lambda a, to: cm.plan_transform(
        np.negative, a, to, chunks=(600, 800), block=(600, 800), halo=4
    ),
}


@pytest.mark.parametrize("job", BLOCKS)
def test_blocks_that_tasks_hold_or_depend_on_are_counted(tmp_path, job):
    plan = BLOCKS[job](noise({"chunks": (300, 400)}, tmp_path / "a"), tmp_path / "b.zarr")
    peak, _ = peak_of(plan)
    planned = plan.peak_memory_bytes - THREAD_OVERHEAD
    assert 0.25 * planned < peak < planned + (1 << 19)


def test_large_chunks_of_the_source_are_part_of_a_pyramid_s_memory(tmp_path):
    noise({"chunks": (1200, 1600), "codecs": "gzip"}, tmp_path / "a")
    options = {"chunks": (300, 400), "levels": 2}
    needed, plan = smallest(lambda n: cm.plan_pyramid(tmp_path / "a", tmp_path / "b", max_mem=n, **options))
    peak, _ = peak_of(plan)
    assert peak < needed
