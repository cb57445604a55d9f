"""Arrays that are computed as the source of a pyramid: chunks of the store are blocks."""

import dask.array as da
import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.nodes.array import Array
from chunkmill.pyramids.computed import open_image_source
from chunkmill.stores.base import ByteRange
from chunkmill.stores.memory import MemoryStore

VALUES = np.arange(35, dtype=">i4").reshape(5, 7)


@pytest.fixture
def lazy():
    return open_image_source(da.from_array(VALUES, chunks=(2, 3)), None)


def test_a_key_is_a_block_padded_at_the_end(lazy):
    value = np.frombuffer(lazy.store.get("c/2/2"), "<i4").reshape(2, 3)
    np.testing.assert_array_equal(value, [[34, 0, 0], [0, 0, 0]])
    assert lazy.store.get("c/2/2", ByteRange(0, 4)) == value[0, :1].tobytes()
    assert lazy.store.size("c/2/2") == value.nbytes
    np.testing.assert_array_equal(Array(lazy)[1:, 2:], VALUES[1:, 2:])


@cases("key", ["c/3/0", "c/0", "c/0/x", "d/0/0"])
def test_other_keys_are_absent(lazy, key):
    assert lazy.store.get(key) is None
    assert lazy.store.size(key) is None
    assert lazy.store.version(key) is None


def test_a_stack_follows_time():
    parts = [cm.create_array(MemoryStore(), "a", shape=(2, 3, 3), dtype="u1", chunks=(1, 3, 3),
                             dimension_names=("t", "y", "x")) for _ in range(4)]  # fmt: skip
    stacked = open_image_source(parts, None)
    assert (stacked.shape, stacked.dimension_names) == ((2, 4, 3, 3), ("t", "c", "y", "x"))
