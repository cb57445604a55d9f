"""Indexing by arrays: what numpy gives for the same index."""

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import RegionError
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
        ([[3, 0], [1, 1]], slice(1, 4), slice(5)), ([3, 0], [4, 4], slice(2, 6)), ([3, 0], [4, 1], [5, 0]),
        ([], slice(2), slice(3)),
    ],
)  # fmt: skip
def test_points_and_slices(array, index):
    """As numpy does where the arrays come first."""
    index = tuple(part if isinstance(part, slice) else np.array(part, "i8") for part in index)
    np.testing.assert_array_equal(array.vindex[index], VALUES[index])


@cases("index", [np.ones((3, 3), bool), np.ones((8, 9), bool), (..., np.ones((8, 7), bool))])
def test_masks_of_another_shape_are_refused(index):
    """As numpy does; their elements are others than those that are meant."""
    array = cm.create_array(
        MemoryStore(), shape=(2, 8, 8) if isinstance(index, tuple) else (8, 8), dtype="i2", chunks=4
    )
    with pytest.raises(RegionError, match="boolean array"):
        array[index]
    with pytest.raises(RegionError, match="boolean array"):
        array[index] = 1


def test_arrays_of_positions_that_do_not_broadcast_are_refused():
    array = cm.create_array(MemoryStore(), shape=(8, 8), dtype="i2", chunks=-1)
    with pytest.raises(RegionError, match="do not broadcast"):
        array.vindex[[1, 2], [1, 2, 3]]
    with pytest.raises(RegionError, match="do not broadcast"):
        array.vindex[[1, 2], [1, 2, 3]] = 1
