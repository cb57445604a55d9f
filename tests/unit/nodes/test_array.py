"""oindex, vindex, blocks, fields, and assignment by any index: numpy on a plain array is the judge."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

import chunkmill as cm
from chunkmill.array.selection import as_region
from chunkmill.errors import RegionError
from chunkmill.stores.memory import MemoryStore

SHAPE = (7, 9, 5)
LAYOUTS = {
    "chunks": {"chunks": (3, 4, 2)},
    "shards": {"chunks": (1, 2, 2), "shards": (3, 4, 4)},
    "rectilinear": {"chunks": ((2, 5), (4, 4, 1), (5,))},
}
MASK = np.random.default_rng(1).random(SHAPE) > 0.6
ROWS = np.array([True, False, True, True, False, False, True])

INDEXES = [  # of what the property below does not draw
    np.s_[::2], np.s_[[5, 1, 1]], np.s_[..., [4, 0]], np.s_[[[1], [2]], [3, 4]], np.s_[[0], ..., [1]], np.s_[ROWS],
    np.s_[ROWS, 2], np.s_[ROWS, ::2, -1], np.s_[MASK], np.s_[MASK[:, :, 0], 1:3], np.s_[[], :], np.s_[5:2, ::2],
    np.s_[np.uint8(3), [1]], np.s_[1:3, [4, 0], [1, 2]],
]  # fmt: skip


def new(layout="chunks"):
    return cm.create_array(MemoryStore(), shape=SHAPE, dtype="i4", **LAYOUTS[layout])


def filled(layout="chunks"):
    """Return an array, and its values in memory."""
    expected = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)
    array = new(layout)
    array[...] = expected
    return array, expected


@cases("layout", LAYOUTS)
@cases("index", INDEXES)
def test_assignment_is_numpys(layout, index):
    array, expected = filled(layout)
    for values in (-np.arange(expected[index].size).reshape(expected[index].shape) - 1, 7):
        array[index] = expected[index] = values
        np.testing.assert_array_equal(array[...], expected)


PARTS = [
    st.slices(n) | st.integers(-n, n - 1) | st.lists(st.integers(-n, n - 1), min_size=2, max_size=2) for n in SHAPE
]


@given(st.sampled_from([*LAYOUTS]), st.tuples(*PARTS))
def test_assignment_is_numpys_for_any_slices_and_arrays(layout, index):
    array, expected = filled(layout)
    array[index] = expected[index] = -np.arange(expected[index].size).reshape(expected[index].shape) - 1
    np.testing.assert_array_equal(array[...], expected)


def test_values_that_do_not_fit_are_refused_before_anything_is_written():
    array = new()
    with pytest.raises(ValueError, match="cannot be written"):
        array[[1, 2]] = np.ones((3, 9, 5))
    assert not array[...].any()
    with pytest.raises(RegionError):
        array[[7]] = 1
    read_only = cm.open_array(array.store)
    for place in (read_only, read_only.oindex, read_only.vindex):
        with pytest.raises(cm.ChunkmillError, match="reading only"):
            place[[1]] = 1
    assert not array[...].any()


def test_the_length_is_that_of_the_first_axis():
    assert len(new()) == 7
    with pytest.raises(TypeError, match="0-d"):
        len(cm.create_array(MemoryStore(), shape=(), dtype="i4"))


def test_only_keys_that_hold_selected_elements_are_written():
    array = new()
    array[[0, 6], 0, 0] = 1
    assert sorted(key for key in array.store.list_prefix("") if "c/" in key) == ["c/0/0/0", "c/2/0/0"]


OUTER = [
    ([5, 1], [0, 8], [2]), (ROWS, slice(None, None, 3)), (slice(None, None, -2), [3, 3], 1), (2, ..., [4, 0]),
    ([-1],), ([1, 0, 2], [8, 0, 3, 1], slice(None, None, 2)),
]  # fmt: skip


@cases("layout", LAYOUTS)
@cases("index", OUTER)
def test_oindex(layout, index):
    array, expected = filled(layout)
    parts = list(index)
    at = parts.index(...) if any(part is ... for part in parts) else len(parts)
    parts[at : at + 1] = [slice(None)] * (3 - sum(part is not ... for part in index))
    along = [np.atleast_1d(np.arange(n)[part]) for part, n in zip(parts, SHAPE, strict=True)]
    drop = tuple(axis for axis, part in enumerate(parts) if isinstance(part, int))
    picked = expected[np.ix_(*along)].squeeze(drop)
    np.testing.assert_array_equal(array.oindex[index], picked)
    values = -1 - np.arange(picked.size).reshape(picked.shape)
    expected[np.ix_(*along)] = np.expand_dims(values, drop)
    array.oindex[index] = values
    np.testing.assert_array_equal(array[...], expected)


SOME = [
    ([3, 0], slice(1, 4), slice(None, None, 2)),  # two slices
    ([[3, 0], [1, 1]], slice(1, 4), slice(5)), ([3, 0], [4, 4], slice(2, 6)), ([3, 0], [4, 1], [4, 0]),
    ([], slice(2), slice(3)),
]  # fmt: skip


def test_vindex():
    array, expected = filled()
    points = ([5, 1, 0], [0, 8, 8], [2, -1, 0])
    np.testing.assert_array_equal(array.vindex[points], expected[points])
    np.testing.assert_array_equal(array.vindex[MASK], expected[MASK])
    for some in SOME:  # as numpy does where the arrays come first
        index = tuple(part if isinstance(part, slice) else np.array(part, "i8") for part in some)
        np.testing.assert_array_equal(array.vindex[index], expected[index])
    array.vindex[points] = [1, 2, 3]
    expected[points] = [1, 2, 3]
    array.vindex[MASK] = 0
    expected[MASK] = 0
    np.testing.assert_array_equal(array[...], expected)
    with pytest.raises(RegionError, match="each of 3 axes"):
        array.vindex[[1], [2]]
    with pytest.raises(RegionError, match="a mask of shape"):
        array.vindex[MASK[:2]]
    for refused in (array.vindex.__getitem__, lambda index: array.vindex.__setitem__(index, 1)):
        with pytest.raises(RegionError, match="do not broadcast"):
            refused(([1, 2], [1, 2, 3], [0]))


@cases("index", [MASK[:3, :3], np.ones((8, 9, 5), bool), (..., np.ones((9, 4), bool))])
def test_masks_of_another_shape_are_refused(index):
    """As numpy does; their elements are others than those that are meant."""
    for refused in (new().__getitem__, lambda index: new().__setitem__(index, 1)):
        with pytest.raises(RegionError, match=r"index boolean array into an array of shape \(7, 9, 5\)"):
            refused(index)


@cases(
    ("index", "reason"),
    [
        ((0, 0, 0, 0), "4 indices"), ((..., 0, ...), r"2 '\.\.\.'"), (slice("a"), "slice"), (slice(0, 1, 0), "zero"), ([0.5], "integers or booleans"),
        (1.5, "expected integers"), (True, "out of bounds"), (7, "out of bounds"), ([-8], "from -8"), ([7], "to 7"),
    ],
)  # fmt: skip
def test_indexes_that_mean_nothing(index, reason):
    array = new()
    for refused in (array.__getitem__, array.oindex.__getitem__, lambda index: array.__setitem__(index, 1)):
        with pytest.raises(RegionError, match=reason) as caught:
            refused(index)
        assert caught.value.shape == SHAPE
    with pytest.raises(RegionError, match="one-dimensional"):
        array.oindex[[[0, 1]]]
    with pytest.raises(RegionError, match="slices of step 1"):
        as_region(np.s_[::2], array.shape)


@cases("layout", LAYOUTS)
def test_blocks(layout):
    array, _ = filled(layout)
    blocks = array.to_dask()
    for index in [(0, 1, 0), (-1, slice(None)), (slice(0, 1), ..., 0), ()]:
        kept = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        np.testing.assert_array_equal(array.blocks[index], blocks.blocks[kept or ...].compute())
    array.blocks[0, 0, 0] = -5
    assert (array.blocks[0, 0, 0] == -5).all()
    with pytest.raises(RegionError, match="out of bounds"):
        array.blocks[9]
    with pytest.raises(RegionError, match="step 1"):
        array.blocks[::2]


@cases(
    ("fields", "index", "assigned"),
    [
        ("x", (...,), np.arange(4)), ("y", (slice(1, 6, 3),), 7.5), ("x", ([1, 5], slice(1, 3)), [[1, 2], [3, 4]]),
        ("x", (2,), 9), ("z", (np.arange(6) % 2 == 0,), 5),
    ],
)  # fmt: skip
def test_fields(fields, index, assigned):
    dtype = np.dtype([("x", "i4"), ("y", "f8"), ("z", "i1")])
    array = cm.create_array(MemoryStore(), shape=(6, 4), dtype=dtype, chunks=(4, 3), format="zarr2")
    judge = np.ones((6, 4), dtype)
    array[...] = judge
    array[(fields, *index)] = assigned
    judge[fields][index] = assigned
    np.testing.assert_array_equal(array[...], judge)
    np.testing.assert_array_equal(array[(fields, *index)], judge[fields][index])
    for none in ("q", ("x", "y")):
        with pytest.raises(RegionError, match="fields"):
            array[none]
    with pytest.raises(RegionError, match="fields"):
        array["q"] = 1
    with pytest.raises(RegionError, match="no fields"):
        new()["x"]
