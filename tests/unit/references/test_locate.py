"""Byte ranges of chunks: of whole objects, in shards, in N5 blocks."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import ChunkError
from chunkmill.references.locate import ChunkTable, ReferencedArray, locate_references
from chunkmill.references.write import _stripped
from chunkmill.stores.memory import MemoryStore


def make(**more):
    array = cm.create_array(MemoryStore(), "a", **{"shape": (5, 4), "dtype": "i4", "chunks": (2, 2)} | more)
    array[...] = np.arange(20).reshape(5, 4)
    return array


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


def test_a_shard_whose_index_names_more_than_it_has():
    array = make(shards=(4, 4), codecs="raw", dtype="i8")
    value = array.store.get("a/c/0/0")
    array.store.set("a/c/0/0", value[-68:])  # the index alone
    with pytest.raises(ChunkError, match="the shard's index names") as caught:
        locate(array)
    assert caught.value.key == "a/c/0/0"


def test_columns_are_narrow_where_they_can_be():
    table = ChunkTable.of([0, 1], [0, 2**31], [0, 2**31 - 1], [5, 6])
    columns = table.keys, table.chunks, table.offsets, table.lengths
    assert [(c.dtype.itemsize, c.tolist()) for c in columns] == [
        (4, [0, 1]), (8, [0, 2**31]), (4, [0, 2**31 - 1]), (4, [5, 6])
    ]  # fmt: skip
    assert ChunkTable.of([], [], np.zeros(0, np.int8), []).offsets.dtype == np.int8


def test_store_keys_once_each():
    keys, of_row = ChunkTable.of([2, 2, 2, 7, 9, 9], *[[0] * 6] * 3).by_key()
    assert (keys.tolist(), of_row.tolist()) == ([2, 7, 9], [0, 0, 0, 1, 2, 2])
