"""Source chunks, and slices of raw ones, that a task reads."""

from types import SimpleNamespace

import google_crc32c
import numpy as np
import pytest
from support.cases import cases
from support.rechunks import check, make
from support.recording import FarStore, Meanwhile, reads_a_chunk

import chunkmill as cm
from chunkmill import create_array
from chunkmill.conversion.rechunking import source_chunks
from chunkmill.conversion.rechunking.source_chunks import Slices, n_ahead, sliced_axes
from chunkmill.errors import ChunkError, JobError, NodeNotFound
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


SHAPE, CHUNKS = (10, 11, 12), (4, 3, 7)


@pytest.fixture
def of_any_length(monkeypatch):
    monkeypatch.setattr(source_chunks, "LEAST_SLICE", 1)


def test_an_array_of_many_store_keys_is_not_sliced():
    """Each would be compared, twice a run: nine hours for 10^9 keys, of which few may be stored."""
    about = {"shape": (10**9, 64), "dtype": "i2", "codecs": "raw"}
    many, fewer = (create_array(MemoryStore(), "a", chunks=(n, 64), **about) for n in (4, 2**14))
    assert not sliced_axes(many.stored)
    assert sliced_axes(fewer.stored)


@cases(
    "options",
    [
        {"codecs": "zstd"},
        {"codecs": ["crc32c"]},
        {"format": "zarr2", "codecs": [{"id": "delta", "dtype": "<i4"}]},
        {"format": "n5", "codecs": "raw"},
        {"codecs": "raw", "chunks": ((4, 6), (11,), (12,))},
    ],
)
def test_of_others_none(options):
    array, _ = make(MemoryStore(), **{"shape": SHAPE, "chunks": CHUNKS, **options})
    assert sliced_axes(array.stored) == ()


@pytest.mark.usefixtures("of_any_length")
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"0"], ids=["short", "long"])
def test_a_value_of_another_size_is_an_error_of_its_last_slice(change):
    array, _ = make(MemoryStore(), shape=(8,), chunks=(8,), codecs="raw")
    array.store.set("a/c/0", change(array.store.get("a/c/0")))
    slices = Slices(array.stored, 0)
    (last,) = slices.overlaps((slice(4, 8),))
    (span,) = slices.locate(array.store, [last])
    with pytest.raises(ChunkError, match=r"chunk \(0,\)|a/c/0"):
        slices.decode(last, array.store.get(span.key, span.byte_range))


@pytest.mark.usefixtures("of_any_length")
def test_a_shard_whose_index_names_another_size_is_an_error():
    array, _ = make(MemoryStore(), shape=(8,), chunks=(4,), shards=(8,), codecs="raw")
    shard = bytearray(array.store.get("a/c/0"))
    index = np.frombuffer(shard, "<u8", 4, len(shard) - 36).copy()
    index[1] -= 4
    shard[-36:-4] = index.tobytes()
    shard[-4:] = google_crc32c.value(index.tobytes()).to_bytes(4, "little")
    array.store.set("a/c/0", bytes(shard))
    slices = Slices(array.stored, 0)
    assert slices.locate(MemoryStore(), list(slices.overlaps((slice(0, 4),)))) == [None]  # no such shard
    with pytest.raises(ChunkError, match=r"12 bytes by the shard's index, expected 16"):
        slices.locate(array.store, list(slices.overlaps((slice(0, 4),))))


def test_requests_under_way_are_bounded_by_bytes():
    def ahead(ahead_bytes, largest):
        plan = SimpleNamespace(source=SimpleNamespace(sliced=None))
        return n_ahead(SimpleNamespace(plan=plan, ahead_bytes=ahead_bytes), largest)

    assert [ahead(1000, 300), ahead(1000, 5000), ahead(0, 300)] == [3, 1, 1024]


BIG = {"name": "bytes", "configuration": {"endian": "big"}}
F_ORDER = {"name": "transpose", "configuration": {"order": [2, 1, 0]}}
IMAGES, SERIES = {"shape": (8, 250, 1024), "chunks": (1, 256, 1024)}, (8, 16, 64)
LAYOUTS = {
    "zarr3": {"codecs": "raw"},
    "zarr2": {"codecs": "raw", "format": "zarr2"},
    "big endian": {"codecs": [BIG]},
    "shards": {"codecs": "raw", "shards": (2, 256, 1024)},
    "thick": {"codecs": "raw", "chunks": (4, 256, 1024)},
    "overhanging": {"codecs": "raw", "shape": (8, 250, 1000)},
    "F order": {"codecs": [F_ORDER]},
    "another order": {"codecs": [{"name": "transpose", "configuration": {"order": [1, 2, 0]}}]},
}


def planned(array, target, **options):
    target_chunks = (1024, 8, 16) if array.shape[0] > SERIES[0] else SERIES
    return cm.plan_rechunk(array, (target, "b"), chunks=target_chunks, max_mem="8 MiB", **options)


@cases("layout", LAYOUTS)
def test_each_byte_is_read_once_and_none_is_spilled(layout):
    is_far = layout in {"zarr3", "shards"}
    options = IMAGES | LAYOUTS[layout]
    if layout.endswith("order"):
        options |= {"shape": (1024, 250, 8), "chunks": (1024, 256, 1)}
    source, target = FarStore() if is_far else MemoryStore(), MemoryStore()
    array, values = make(source, absent=[] if layout == "shards" else [(0, 0, 0)], fill_value=3, **options)
    plan = planned(array, target, format="zarr3", shards=None, strategy="direct" if is_far else None)
    assert [stage.name for stage in plan.stages] == ["rechunk-write"]
    assert "slices of raw chunks" in plan.explain()
    report = plan.run()
    check(target, values)
    n_absent = 0 if layout == "shards" else 1 / (2 if layout == "thick" else 8)
    assert report.bytes_read == pytest.approx((1 - n_absent) * plan.bytes_read, abs=1 << 10)
    assert report.n_requests == plan.n_requests
    n_bytes = values.nbytes * (1024 / 1000 if layout == "overhanging" else 1)
    assert plan.bytes_read == pytest.approx(n_bytes, abs=1 << 10)


@pytest.mark.parametrize("region", [(slice(2, 8), slice(0, 200)), (slice(0, 8), slice(5, 200))], ids=["at one", "cut"])
def test_a_region_of_the_source(region):
    array, values = make(MemoryStore(), codecs="raw", **IMAGES)
    plan = planned(array, target := MemoryStore(), region=region)
    assert "slices of raw chunks" not in plan.explain()  # its chunks are cut
    plan.run()
    check(target, values[region])


@cases(("kind", "after"), [(MemoryStore, 4), (LocalStore, 20), (MemoryStore, 1 << 9)])
def test_a_chunk_that_is_replaced_between_two_slices_is_found_and_read_again(kind, after, tmp_path):
    source = MemoryStore() if kind is MemoryStore else LocalStore(tmp_path)
    values = make(source, codecs="raw", **IMAGES)[1]
    watched = Meanwhile(source, reads_a_chunk, lambda s: cm.open_array(s, "a", mode="r+").__setitem__(3, -1), n=after)
    plan = planned(cm.open_array(watched, "a"), target := MemoryStore())
    if after > 1 << 8:  # at rest
        plan.run()
        check(target, values)
        return
    with pytest.raises(JobError, match=r"chunks of the source 'a' .* were written while tasks read slices"):
        plan.run()
    with pytest.raises(NodeNotFound):
        cm.open_array(target, "b")
    report = plan.run()
    values[3] = -1
    check(target, values)
    assert report.n_tasks > 0


@pytest.mark.parametrize("fill_value", [0, 5])
def test_absent_chunks_are_written_out_where_fill_values_differ(fill_value):
    array, values = make(MemoryStore(), shape=(8, 8), chunks=(4, 8), absent=[(0, 0)])
    target = cm.create_array(MemoryStore(), shape=(8, 8), dtype="i4", chunks=(4, 4), fill_value=fill_value)
    plan = cm.plan_rechunk(array, target, chunks=None, strategy="direct")
    plan.run()
    np.testing.assert_array_equal(target[...], values)
    assert len(list(target.store.list_prefix("c/"))) == (2 if fill_value == 0 else 4)
