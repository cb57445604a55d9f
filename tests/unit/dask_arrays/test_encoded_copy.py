"""Chunks of an untouched source are copied as they are stored; wherever anything differs, they are decoded."""

import numpy as np
import pytest
from dask.array import array_expr_enabled
from support.recording import FarStore

import chunkmill as cm
from benchmarks.patterns import n_run
from chunkmill.array import chunk_io
from chunkmill.dask_arrays.write_task import EncodedChunk, as_encoded
from chunkmill.errors import ChunkError
from chunkmill.stores.memory import MemoryStore

VALUES = np.arange(25 * 18.0).reshape(25, 18)  # the last chunks overhang


@pytest.fixture(params=["zarr3", "zarr2", "n5", "sharded"])
def layout(request):
    sharded = {"shards": (12, 10), "chunks": (6, 5)}
    return {"format": "zarr3", **sharded} if request.param == "sharded" else {"format": request.param, "chunks": (6, 5)}


@pytest.fixture
def source(layout):
    array = cm.create_array(MemoryStore(), shape=VALUES.shape, dtype="f8", codecs="gzip", **layout)
    array[:, :15] = VALUES[:, :15]
    return array


def copy(source, kind, region=None, **options):
    shards = {"shards": source.shards} if source.shards else {}
    own = {"format": source.format, "chunks": source.chunks, "codecs": "gzip", **shards}
    x = source.to_dask(region=region, chunked_array_type=kind)
    store = MemoryStore()
    report = cm.to_store(x, store, **{**own, **options})
    return cm.open_array(store), report


def stored(array):
    return {key: array.store.get(key) for key in array.stored.stored_keys()}


@pytest.fixture
def no_codec(monkeypatch):
    """Make decoding and encoding fail."""

    def refuse(*_, **__):
        raise AssertionError("a chunk was decoded or encoded")

    monkeypatch.setattr(chunk_io, "decode_chunk", refuse)
    monkeypatch.setattr(chunk_io, "encode_chunk", refuse)
    return monkeypatch


def test_equal_chunks_are_copied(source, kind, no_codec):
    target, report = copy(source, kind)
    no_codec.undo()
    assert stored(target) == stored(source)
    assert report.n_keys == np.prod(source.to_dask(chunked_array_type=kind).numblocks)
    assert report.n_empty == report.n_keys - len(list(source.stored.stored_keys()))
    np.testing.assert_array_equal(target[...], source[...])


def test_a_slice_of_whole_store_keys_is_copied(source, kind, no_codec):
    if kind == "dask":
        region, part = np.s_[12:, :10], None
    else:
        region, part = None, np.s_[12:, :10]
    x = source.to_dask(region=region, chunked_array_type=kind)
    x = x if part is None else x[part]
    shards = {"shards": source.shards} if source.shards else {}
    store = MemoryStore()
    cm.to_store(x, store, format=source.format, chunks=source.chunks, codecs="gzip", **shards)
    no_codec.undo()
    np.testing.assert_array_equal(cm.open_array(store)[...], source[12:, :10])


def test_a_slice_that_ends_inside_the_array_leaves_no_element_behind_it(source, kind):
    target, _ = copy(source, kind, np.s_[:24, :10])
    np.testing.assert_array_equal(target[...], source[:24, :10])
    target, _ = copy(source, kind, np.s_[1:25, :])
    np.testing.assert_array_equal(target[...], source[1:25, :])


@pytest.mark.parametrize(
    "options",
    [{"codecs": "zstd"}, {"fill_value": 7}, {"chunks": (3, 5), "shards": None}],
    ids=["codecs", "fill value", "chunks"],
)
def test_what_differs_is_decoded(source, kind, options):
    if source.format == "n5" and "fill_value" in options:
        pytest.skip("N5 has no fill value")
    if source.format == "n5" and options.get("codecs") == "zstd":
        options = {"codecs": "raw"}
    target, _ = copy(source, kind, **options)
    np.testing.assert_array_equal(target[...], source[...])


@pytest.mark.parametrize(("chunks", "n_regrouped"), [((200, 300), 0), ((130, 130), 36)], ids=["whole", "cut"])
def test_an_untouched_source_is_read_once_in_the_blocks_of_the_target(kind, chunks, n_regrouped):
    source = FarStore()
    values = np.arange(360000.0).reshape(600, 600)
    cm.create_array(source.below, "a", shape=values.shape, dtype="f8", chunks=(100, 100))[...] = values
    x = cm.from_store(source, "a", chunked_array_type=kind)
    source.clear()
    target = MemoryStore()
    report = cm.to_store(x, target, chunks=chunks)
    assert set(source.chunks("get").values()) == {1}
    assert report.n_regrouped == n_regrouped
    np.testing.assert_array_equal(cm.open_array(target)[...], values)
    n = n_run(cm.to_store(x, MemoryStore(), chunks=chunks, compute=False))
    assert (n < 36) == (n_regrouped == 0)


def test_a_changed_array_is_no_source_any_more(source):
    if array_expr_enabled():
        pytest.skip("expressions are not changed")
    x = source.to_dask()
    target = cm.create_array(
        MemoryStore(), shape=source.shape, dtype="f8", codecs="gzip", chunks=source.chunks, shards=source.shards
    )
    x[0, 0] = 99
    assert as_encoded(x, x.source, target.stored, np.s_[0:25, 0:18]) is None
    cm.to_store(x, target)
    assert target[0, 0] == 99


def test_a_truncated_chunk_is_not_copied(kind):
    array = cm.create_array(MemoryStore(), shape=(8,), dtype="f8", chunks=(4,), codecs="raw")
    array[...] = 1
    (key, *_) = array.stored.stored_keys()
    array.store.set(key, b"short")
    with pytest.raises(ChunkError, match="5 bytes, expected 32"):
        cm.to_store(array.to_dask(chunked_array_type=kind), MemoryStore(), codecs="raw")


def test_an_absent_chunk_holds_no_bytes():
    assert EncodedChunk(None, np.dtype("f8")).nbytes == 0
