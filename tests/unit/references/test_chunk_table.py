"""Tables of byte ranges: columns with a row for each chunk."""

import numpy as np

from chunkmill.references.chunk_table import ChunkTable


def columns(table):
    return [column.tolist() for column in (table.keys, table.chunks, table.offsets, table.lengths)]


def test_columns_are_narrow_where_they_can_be():
    table = ChunkTable.of([0, 1], [0, 2**31], [0, 2**31 - 1], [5, 6])
    assert [c.dtype.itemsize for c in (table.keys, table.chunks, table.offsets, table.lengths)] == [4, 8, 4, 4]
    assert columns(table) == [[0, 1], [0, 2**31], [0, 2**31 - 1], [5, 6]]
    assert ChunkTable.of(offsets=np.zeros(0, np.int8)).offsets.dtype == np.int8


def test_empty():
    table = ChunkTable.of()
    assert (len(table), table.n_chunks) == (0, 0)
    assert [column.tolist() for column in table.by_key()] == [[], []]
    assert columns(ChunkTable.joined([])) == [[], [], [], []]


def test_joined_in_order():
    first = ChunkTable.of([0], [1], [2], [3], [(9, b"x")])
    second = ChunkTable.of([4, 5], [6, 2**40], [8, 9], [10, 11], [(8, b"y")])
    joined = ChunkTable.joined([first, ChunkTable.of(), second])
    assert columns(joined) == [[0, 4, 5], [1, 6, 2**40], [2, 8, 9], [3, 10, 11]]
    assert joined.inline == [(9, b"x"), (8, b"y")]
    assert (len(joined), joined.n_chunks) == (3, 5)


def test_rows_by_a_mask_keep_inline_chunks():
    table = ChunkTable.of([0, 0, 1], [5, 6, 7], [0, 1, 2], [3, 3, 3], [(4, b"z")])
    chosen = table.where(np.array([True, False, True]))
    assert columns(chosen) == [[0, 1], [5, 7], [0, 2], [3, 3]]
    assert chosen.inline == [(4, b"z")]


def test_store_keys_once_each():
    keys, of_row = ChunkTable.of([2, 2, 2, 7, 9, 9], *[[0] * 6] * 3).by_key()
    assert (keys.tolist(), of_row.tolist()) == ([2, 7, 9], [0, 0, 0, 1, 2, 2])
