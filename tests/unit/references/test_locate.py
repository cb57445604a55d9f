"""Byte ranges of chunks: of whole objects, in shards, in N5 blocks."""

import numpy as np
import pytest
from support.arrays import filled

import chunkmill as cm
from chunkmill.errors import ChunkError, ChunkmillError, JobError
from chunkmill.references.locate import ChunkTable, ReferencedArray, locate_references
from chunkmill.references.write import _stripped
from chunkmill.stores.memory import MemoryStore


def make(**more):
    return filled(np.arange(20).reshape(5, 4), None, "a", **{"dtype": "i4", "chunks": (2, 2)} | more)


def locate(array):
    (table,), result = locate_references([ReferencedArray(array.stored, *_stripped(array.stored))], progress=False)
    return table, result


def test_keys_outside_the_grid_and_documents_are_no_chunks():
    array = make()
    array.store.set("a/c/3/0", b"x")
    array.store.set("a/c/x", b"x")
    assert locate(array)[0].chunks.tolist() == list(range(6))


def test_an_array_without_chunks():
    array = cm.create_array(MemoryStore(), "a", shape=(5,), dtype="i4", chunks=(2,))
    table, result = locate(array)
    assert (len(table), result.n_tasks) == (0, 0)


def test_of_a_store_that_does_not_list_each_key_is_asked_for(monkeypatch):
    array = make()
    array.store.delete("a/c/1/0")
    monkeypatch.setattr(MemoryStore, "can_list", False)
    monkeypatch.setattr("chunkmill.references.locate._MAX_PROBED", 6)
    table = locate(array)[0]
    assert (table.chunks.tolist(), table.lengths.tolist()) == ([0, 1, 3, 4, 5], [*map(array.store.size, KEYS)])
    monkeypatch.setattr("chunkmill.references.locate._MAX_PROBED", 5)
    with pytest.raises(JobError, match="6 keys would have to be asked for one by one"):
        locate(array)


def test_shards_that_are_absent_have_no_chunks(monkeypatch):
    array = make(shards=(2, 4))
    array.store.delete("a/c/1/0")
    monkeypatch.setattr(MemoryStore, "can_list", False)
    assert locate(array)[0].chunks.tolist() == [0, 1, 4, 5]


KEYS = [f"a/c/{i}/{j}" for i, j in ((0, 0), (0, 1), (1, 1), (2, 0), (2, 1))]


def test_a_listing_with_sizes_needs_no_tasks(monkeypatch):
    array = make()
    listed = [(key, array.store.size(key)) for key in array.store.list_prefix("a/")]
    monkeypatch.setattr(MemoryStore, "list_sizes", lambda *_: listed[::-1])
    table, result = locate(array)
    assert (table.chunks.tolist(), table.offsets.tolist(), result.n_tasks) == ([*range(6)], [0] * 6, 0)
    assert table.lengths.tolist() == [array.store.size(f"a/c/{i}/{j}") for i in range(3) for j in range(2)]


def test_headers_of_n5_blocks(monkeypatch):
    array = make(format="n5", codecs="raw")
    block = array.store.get("a/0/0")
    array.store.set("a/0/0", b"\0\1" + block[2:12] + (4).to_bytes(4, "big") + block[12:])  # of mode 1
    table, result = locate(array)
    assert (table.offsets[:2].tolist(), table.lengths[:2].tolist()) == ([16, 12], [16, 16])
    assert (result.counts["n_requests"], result.counts["bytes_read"]) == (15, 128)
    size = array.store.size
    monkeypatch.setattr(MemoryStore, "size", lambda _, key: size(key) or 28)
    monkeypatch.setattr(MemoryStore, "can_list", False)
    array.store.delete("a/1/1")
    with pytest.raises(ChunkmillError, match="deleted while it was read"):
        locate(array)


def test_a_shard_whose_index_names_more_than_it_has():
    array = make(shards=(4, 4), codecs="raw", dtype="i8")
    value = array.store.get("a/c/0/0")
    array.store.set("a/c/0/0", value[-96:])  # up to the end of the third of four
    with pytest.raises(ChunkError, match="the shard's index names 32 bytes at 96, the shard has 96") as caught:
        locate(array)
    assert caught.value.key == "a/c/0/0"


def test_columns_are_narrow_where_they_can_be():
    table = ChunkTable.of([0, 1], [0, 2**31], [0, 2**31 - 1], [5, 6])
    columns = table.keys, table.chunks, table.offsets, table.lengths
    assert [(c.dtype.itemsize, c.tolist()) for c in columns] == [
        (4, [0, 1]), (8, [0, 2**31]), (4, [0, 2**31 - 1]), (4, [5, 6])
    ]  # fmt: skip


def test_store_keys_once_each():
    keys, of_row = ChunkTable.of([2, 2, 2, 7, 9, 9], *[[0] * 6] * 3).by_key()
    assert (keys.tolist(), of_row.tolist()) == ([2, 7, 9], [0, 0, 0, 1, 2, 2])
