"""Source chunks of a region: how many are fetched ahead; slices of raw ones: their values are those of whole chunks."""

from types import SimpleNamespace

import google_crc32c
import numpy as np
import pytest
from support.cases import cases
from support.rechunks import make
from support.recording import RecordingStore

from chunkmill import create_array
from chunkmill.conversion.rechunking import source_chunks
from chunkmill.conversion.rechunking.source_chunks import Slices, n_ahead, sliced_axes
from chunkmill.errors import ChunkError
from chunkmill.stores.memory import MemoryStore

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
RAW = {
    "zarr3": {"codecs": "raw"},
    "big endian": {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]},
    "zarr2": {"format": "zarr2", "codecs": "raw"},
    "order F": {"codecs": [{"name": "transpose", "configuration": {"order": [2, 1, 0]}}, LITTLE]},
    "another order": {"codecs": [{"name": "transpose", "configuration": {"order": [1, 2, 0]}}, LITTLE]},
    "shards": {"codecs": "raw", "shards": (8, 9, 14)},
}  # fmt: skip
SHAPE, CHUNKS = (10, 11, 12), (4, 3, 7)
REGION = (slice(1, 9), slice(2, 11), slice(3, 12))


@pytest.fixture(autouse=True)
def of_any_length(monkeypatch):
    monkeypatch.setattr(source_chunks, "LEAST_SLICE", 1)


@cases("layout", RAW)
def test_values_are_those_of_whole_chunks(layout):
    array, values = make(MemoryStore(), shape=SHAPE, chunks=CHUNKS, dtype="i2", **RAW[layout])
    source = array.stored.with_store(store := RecordingStore(array.store))
    assert sorted(sliced_axes(array.stored)) == [0, 1, 2]
    for axis in sliced_axes(array.stored):
        slices, found = Slices(source, axis), np.zeros((8, 9, 9), "i2")
        wanted = list(slices.overlaps(REGION))
        for each, span in zip(wanted, slices.locate(source.store, wanted), strict=True):
            assert each.n_bytes <= slices.largest
            found[each.in_region] = slices.decode(each, store.get(span.key, span.byte_range))
        np.testing.assert_array_equal(found, values[REGION])


def test_an_array_of_many_store_keys_is_not_sliced():
    """Each would be compared, twice a run: nine hours for 10^9 keys, of which few may be stored."""
    n_rows = 10**9
    array = create_array(MemoryStore(), "a", shape=(n_rows, 64), dtype="i2", chunks=(4, 64), codecs="raw")
    assert not sliced_axes(array.stored)
    assert sliced_axes(
        create_array(MemoryStore(), "a", shape=(n_rows, 64), dtype="i2", chunks=(2**14, 64), codecs="raw").stored
    )


@cases(
    "options",
    [
        {"codecs": "zstd"},
        {"codecs": [LITTLE, {"name": "crc32c"}]},
        {"format": "n5", "codecs": "raw"},
        {"codecs": "raw", "chunks": ((4, 6), (11,), (12,))},
    ],
)
def test_of_others_none(options):
    array, _ = make(MemoryStore(), **{"shape": SHAPE, "chunks": CHUNKS, **options})
    assert sliced_axes(array.stored) == ()


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"0"], ids=["short", "long"])
def test_a_value_of_another_size_is_an_error_of_its_last_slice(change):
    array, _ = make(MemoryStore(), shape=(8,), chunks=(8,), codecs="raw")
    array.store.set("a/c/0", change(array.store.get("a/c/0")))
    slices = Slices(array.stored, 0)
    (last,) = slices.overlaps((slice(4, 8),))
    (span,) = slices.locate(array.store, [last])
    with pytest.raises(ChunkError, match=r"chunk \(0,\)|a/c/0"):
        slices.decode(last, array.store.get(span.key, span.byte_range))


def test_a_shard_whose_index_names_another_size_is_an_error():
    array, _ = make(MemoryStore(), shape=(8,), chunks=(4,), shards=(8,), codecs="raw")
    shard = bytearray(array.store.get("a/c/0"))
    index = np.frombuffer(shard, "<u8", 4, len(shard) - 36).copy()
    index[1] -= 4
    shard[-36:-4] = index.tobytes()
    shard[-4:] = google_crc32c.value(index.tobytes()).to_bytes(4, "little")
    array.store.set("a/c/0", bytes(shard))
    slices = Slices(array.stored, 0)
    with pytest.raises(ChunkError, match=r"12 bytes by the shard's index, expected 16"):
        slices.locate(array.store, list(slices.overlaps((slice(0, 4),))))


def test_requests_under_way_are_bounded_by_bytes():
    def ahead(ahead_bytes, largest):
        plan = SimpleNamespace(source=SimpleNamespace(sliced=None))
        return n_ahead(SimpleNamespace(plan=plan, ahead_bytes=ahead_bytes), largest)

    assert [ahead(1000, 300), ahead(1000, 5000), ahead(0, 300)] == [3, 1, 1024]
