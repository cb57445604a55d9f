"""Arrays that are computed as the source of a pyramid: chunks of the store are blocks."""

import dask.array as da
from support.cases import cases

import chunkmill as cm
from chunkmill.pyramids.computed import open_image_source
from chunkmill.stores.memory import MemoryStore


def test_a_stack_follows_time():
    parts = [cm.create_array(MemoryStore(), "a", shape=(2, 3, 3), dtype="u1", chunks=(1, 3, 3),
                             dimension_names=("t", "y", "x")) for _ in range(4)]  # fmt: skip
    stacked = open_image_source(parts, None)
    assert (stacked.shape, stacked.dimension_names) == ((2, 4, 3, 3), ("t", "c", "y", "x"))


@cases("key", ["c/3/0", "c/0", "c/0/x", "d/0/0"])
def test_other_keys_than_those_of_blocks_are_absent(key):
    store = open_image_source(da.zeros((5, 7), chunks=(2, 3)), None).store
    assert store.size("c/2/2") == 2 * 3 * 8  # padded at the end
    assert [store.get(key), store.size(key), store.version(key)] == [None] * 3
