"""Source chunks that overlap a region, read one at a time."""

from types import SimpleNamespace

import numpy as np
from support.cases import cases
from support.rechunks import make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.array.chunk_io import fill_values
from chunkmill.conversion.rechunking.source_chunks import (
    SourceReads,
    n_ahead,
    source_values,
)
from chunkmill.stores.memory import MemoryStore


def rechunk_of(source, ahead_bytes=0, sliced=None):
    plan = SimpleNamespace(source=SimpleNamespace(sliced=sliced))
    return SimpleNamespace(source=source, plan=plan, ahead_bytes=ahead_bytes, seen=None)


@cases("shards", [None, (4, 6)])
@cases("is_remote", [True, False])
def test_values_of_a_region(shards, is_remote):
    array, values = make(MemoryStore(), shape=(8, 9), chunks=(2, 3), shards=shards, absent=[(0, 0)], fill_value=-1)
    store = RecordingStore(array.store)
    store.is_remote = is_remote
    source = array.stored.with_store(store)
    region, reads = (slice(1, 7), slice(2, 9)), SourceReads()
    out = np.full((8, 9), -2, "i4")
    for at, found in source_values(rechunk_of(source, 1 << 20), source, region, reads):
        out[at] = -1 if found is None else found
    np.testing.assert_array_equal(out[region], values[region])
    assert (out == -2).sum() == out.size - 42
    assert (reads.n_elements, reads.n_owned) == (72, 42)  # every chunk is touched
    assert reads.counts() == {"n_elements_read": 72, "n_elements_owned": 42}
    assert reads.n_absent == (1 if shards is None else 4)


def test_chunks_are_fetched_when_they_are_asked_for():
    array, _ = make(MemoryStore(), shape=(8,), chunks=(2,))
    source = array.stored.with_store(store := RecordingStore(array.store))
    values = source_values(rechunk_of(source), source, (slice(0, 8),), SourceReads())
    next(values)
    assert store.keys("get") == ["a/c/0"]
    next(values)
    assert store.keys("get") == ["a/c/0", "a/c/1"]


def test_requests_under_way_are_bounded_by_bytes():
    assert n_ahead(rechunk_of(None, 1000), 300) == 3
    assert n_ahead(rechunk_of(None, 1000), 5000) == 1
    assert n_ahead(rechunk_of(None, 0), 300) == 1024


def test_fill_values_are_one_element():
    array, _ = make(MemoryStore(), shape=(4,), chunks=(2,), fill_value=7)
    values = fill_values(array.stored, (1000, 1000))
    assert (values.shape, values.strides, values[3, 4]) == ((1000, 1000), (0, 0), 7)


def test_an_undefined_fill_value_is_zero():
    array = cm.create_array(MemoryStore(), shape=(4,), chunks=(4,), dtype="i4", format="n5")
    assert fill_values(array.stored, (4,)).tolist() == [0] * 4
