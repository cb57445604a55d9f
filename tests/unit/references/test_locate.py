"""Byte ranges of chunks: of whole objects, in shards, in N5 blocks."""

import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, UnsupportedFeature
from chunkmill.references.describe import _stripped
from chunkmill.references.locate import ReferencedArray, key_of, locate_references
from chunkmill.stores.memory import MemoryStore


def make(store=None, *, region=slice(None), **more):
    store = MemoryStore() if store is None else store
    array = cm.create_array(store, "a", **{"shape": (5, 4), "dtype": "i4", "chunks": (2, 2)} | more)
    array[region] = 7 + np.arange(20, dtype="i4").reshape(5, 4)[region]
    return array


def locate(array, **more):
    metadata, container = _stripped(array)
    (table,), result = locate_references([ReferencedArray(array, metadata, container, **more)], progress=False)
    return table, result


def values(array, table):
    """Return the bytes of every range."""
    return {
        chunk: array.store.get(key_of(array, key))[offset : offset + length]
        for key, chunk, offset, length in zip(table.keys, table.chunks, table.offsets, table.lengths, strict=True)
    }


def test_whole_objects():
    array = make(region=slice(2, None), fill_value=0)
    table, _ = locate(array)
    assert table.chunks.tolist() == table.keys.tolist() == [2, 3, 4, 5]
    assert table.offsets.tolist() == [0] * 4
    assert table.lengths.tolist() == [array.store.size(key_of(array, number)) for number in range(2, 6)]
    assert (table.n_chunks, array.nchunks) == (4, 6)


def test_keys_outside_the_grid_and_documents_are_no_chunks():
    array = make()
    array.store.set("a/c/7/0", b"x")
    array.store.set("a/c/x", b"x")
    assert locate(array)[0].chunks.tolist() == list(range(6))


def test_an_array_without_chunks():
    array = cm.create_array(MemoryStore(), "a", shape=(5,), dtype="i4", chunks=(2,))
    table, result = locate(array)
    assert (len(table), result.n_tasks) == (0, 0)


@pytest.mark.parametrize("codecs", ["raw", "zstd"])
def test_in_shards(codecs):
    array = make(shards=(4, 4), codecs=codecs, region=np.s_[:3], fill_value=0)
    table, _ = locate(array)
    assert table.keys.tolist() == [0, 0, 0, 0]
    assert sorted(table.chunks.tolist()) == [0, 1, 2, 3]
    if codecs == "raw":
        first = np.frombuffer(values(array, table)[0], "<i4").reshape(2, 2)
        np.testing.assert_array_equal(first, [[7, 8], [11, 12]])


def test_a_shard_whose_index_names_more_than_it_has():
    array = make(shards=(4, 4), codecs="raw", dtype="i8")
    value = array.store.get("a/c/0/0")
    array.store.set("a/c/0/0", value[-68:])  # the index alone
    with pytest.raises(ChunkError, match="the shard's index names") as caught:
        locate(array)
    assert caught.value.key == "a/c/0/0"


class TestBlocks:
    def test_after_their_headers(self):
        array = cm.create_array(MemoryStore(), "a", shape=(4, 4), dtype="i4", chunks=(2, 2), codecs="raw", format="n5")
        array[...] = np.arange(16).reshape(4, 4)
        table, _ = locate(array)
        assert set(table.offsets.tolist()) == {12}
        first = np.frombuffer(values(array, table)[0], ">i4").reshape(2, 2)
        np.testing.assert_array_equal(first, [[0, 1], [4, 5]])

    def test_truncated_ones_are_padded(self):
        array = make(format="n5", codecs="raw")
        table, _ = locate(array)
        assert sorted(number for number, _ in table.inline) == [4, 5]
        assert sorted(table.chunks.tolist()) == [0, 1, 2, 3]
        padded = np.frombuffer(dict(table.inline)[4], ">i4").reshape(2, 2)
        np.testing.assert_array_equal(padded[0], [23, 24])

    def test_or_refused(self):
        with pytest.raises(UnsupportedFeature, match="end_blocks='inline'"):
            locate(make(format="n5"), inline_ends=False)

    def test_only_headers_are_read(self):
        store = RecordingStore(MemoryStore())
        array = cm.create_array(store, "a", shape=(400,), dtype="i4", chunks=(100,), codecs="raw", format="n5")
        array[...] = 1
        store.clear()
        _, result = locate(array)
        assert result.counts["bytes_read"] == 4 * 8
