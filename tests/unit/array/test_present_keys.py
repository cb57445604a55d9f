"""Listing what is stored of a mostly empty array, and the blocks that it touches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.recording import RecordingStore
from support.strategies import axes

import chunkmill as cm
from chunkmill.array import present_keys
from chunkmill.array.present_keys import list_chunks_if_sparse, list_present, list_present_if_sparse, touch
from chunkmill.model.grid import ChunkGrid
from chunkmill.stores.memory import MemoryStore


def make(n=5000, at=(3, 4999), **more):
    store = RecordingStore(MemoryStore())
    array = cm.create_array(store, "a", shape=(2 * n,), dtype="u1", **{"chunks": (2,)} | more)
    for i in at:
        array[2 * i] = 1
    store.log.clear()
    return array


def test_a_sparse_array_is_listed(monkeypatch):
    array = make()
    array.store.set("a/c/7000", b"outside the grid")
    array.store.set("a/c/x", b"not a chunk")
    assert list_present_if_sparse(array.stored).tolist() == [3, 4999]
    assert (len(array.store.keys("size")), len(array.store.keys("list_prefix"))) == (32, 1)
    monkeypatch.setattr(present_keys, "_N_PROBED", 2)
    assert list_present_if_sparse(make(at=(0,)).stored).tolist() == [0]  # half of those that are asked for


def test_a_dense_or_small_array_is_not():
    dense = make(1100, range(1100))
    assert list_present_if_sparse(dense.stored) is None
    assert not dense.store.keys("list_prefix")
    small = make(1000, at=(3,))
    assert list_present_if_sparse(small.stored) is None
    assert not small.store.log


def test_too_many_keys_are_not_held(monkeypatch):
    vast = ChunkGrid.regular((1 << 32, 1 << 32), (1, 1))
    assert touch(np.array([0]), ChunkGrid.regular(vast.shape, vast.shape), vast) is None
    for most, found in ((1, None), (2, [3, 4999])):
        monkeypatch.setattr(present_keys, "MOST_KEYS", most)
        numbers = list_present(make().stored)
        assert (numbers if numbers is None else numbers.tolist()) == found


def test_indexes_of_shards_say_which_chunks_are_stored(monkeypatch):
    array = make(shards=(8,), at=(3, 9, 4999))
    monkeypatch.setattr(present_keys, "_MOST_INDEXES", 3)
    numbers, grid = list_chunks_if_sparse(array.stored)
    assert (numbers.tolist(), grid) == ([3, 9, 4999], array.read_layout.grid)
    monkeypatch.setattr(present_keys, "_MOST_INDEXES", 2)
    numbers, grid = list_chunks_if_sparse(array.stored)
    assert (numbers.tolist(), grid) == ([0, 2, 1249], array.write_layout.grid)
    monkeypatch.undo()
    array.store.set("a/c/2", b"torn")
    assert list_chunks_if_sparse(array.stored)[1] == array.write_layout.grid


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.data())
def test_blocks_that_keys_touch(shape, data):
    keys, blocks = (ChunkGrid(tuple(data.draw(axes(size)) for size in shape)) for _ in range(2))
    drawn = data.draw(st.sets(st.integers(0, keys.n_chunks - 1)))
    numbers = np.array(sorted(drawn), np.int64)
    expected = {}
    for number in numbers.tolist():
        for overlap in blocks.overlaps(keys.region(keys.coords_of(number))):
            expected.setdefault(blocks.number_of(overlap.coords), []).append(number)
    found = touch(numbers, keys, blocks)
    assert {number: touching.tolist() for number, touching in found} == expected
    assert found.numbers.tolist() == sorted(expected)
    assert present_keys.count_touched(numbers, keys, blocks) == sum(map(len, expected.values()))
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, blocks.n_chunks)] * 2)))
    between = found.between(low, high)
    assert {n: t.tolist() for n, t in between} == {n: t for n, t in expected.items() if low <= n < high}
    assert len(between.keys) == sum(len(touching) for _, touching in between)


def test_too_many_blocks_are_not_held(monkeypatch):
    monkeypatch.setattr(present_keys, "_MOST_PAIRS", 3)
    keys, blocks = ChunkGrid.regular((100,), (50,)), ChunkGrid.regular((100,), (1,))
    assert touch(np.array([1]), keys, blocks) is None
    assert touch(np.array([1]), huge := ChunkGrid.regular((1 << 63,), (1,)), huge) is None
