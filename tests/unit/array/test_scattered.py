"""Indexing by arrays: what numpy gives for the same index."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

VALUES = np.arange(4 * 5 * 6).reshape(4, 5, 6)


@pytest.fixture
def array():
    array = cm.create_array(MemoryStore(), shape=VALUES.shape, dtype="i8", chunks=(2, 3, 4))
    array[...] = VALUES
    return array


@pytest.mark.parametrize(
    "index",
    [
        ([3, 0], slice(1, 4), slice(None, None, 2)),  # two slices
        ([[3, 0], [1, 1]], slice(1, 4), slice(5)),
        ([3, 0], [4, 4], slice(2, 6)),
        ([3, 0], [4, 1], [5, 0]),
        ([], slice(2), slice(3)),
    ],
)
def test_points_and_slices(array, index):
    """As numpy does where the arrays come first."""
    index = tuple(part if isinstance(part, slice) else np.array(part, "i8") for part in index)
    np.testing.assert_array_equal(array.vindex[index], VALUES[index])
