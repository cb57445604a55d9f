import numpy as np
import pytest
from support.cases import cases

from chunkmill.codecs.elements import copy_rows, differing, in_c_order, is_fill

STRING = np.dtypes.StringDType()
POINT = np.dtype([("x", "i2"), ("y", "f4")])


def values(dtype, shape):
    numbers = np.random.default_rng(0).integers(0, 2, shape)
    return numbers.astype(str).astype(dtype) if np.dtype(dtype).kind in "UST" else numbers.astype(dtype)


@cases("dtype", ["u1", "?", ">i2", "f4", "c16", "M8[s]", "U3", POINT, STRING, object])
@cases("cut", [np.s_[:32, 8:40, 3:19], np.s_[5, ::2, 1:2], np.s_[:, 0:40, :], np.s_[..., ::3]])
def test_elements_are_copied_whatever_their_rows(dtype, cut):
    block = values(dtype, (64, 64, 32))
    expected = np.array(block)[cut]
    turned = np.zeros((64, 32, 64), dtype).swapaxes(1, 2)
    copy_rows(turned, block)
    for whole in (block, in_c_order(block.T[::-1]).T[:, :, ::-1], turned, in_c_order(turned)):
        part = in_c_order(whole[cut])
        assert part.dtype == block.dtype
        np.testing.assert_array_equal(part, expected)
    out = np.zeros_like(block)
    expected.flags.writeable = False
    copy_rows(out[cut], expected)
    np.testing.assert_array_equal(out[cut], expected)
    rest = np.ones(block.shape, bool)
    rest[cut] = False
    np.testing.assert_array_equal(out[rest], np.zeros_like(block)[rest])


def test_values_of_another_dtype_or_shape_are_converted_as_numpy_does():
    out = np.zeros((64, 64, 8), "f4")
    copy_rows(out[:, :, 2:6], np.full((64, 64, 4), 7, ">u2"))
    copy_rows(out[:, :, :2], np.full((64, 1, 2), 5, "f4"))
    assert (np.unique(out[:, :, 2:6]).tolist(), np.unique(out[:, :, :2]).tolist()) == ([7], [5])
    with pytest.raises(ValueError, match="broadcast"):
        copy_rows(out[:, :, :4], np.zeros((64, 64, 5), "f4"))


def test_values_in_c_order_are_not_copied():
    block = np.zeros((4, 4))
    assert np.shares_memory(in_c_order(block), block)
    assert in_c_order(np.array(3)).tolist() == [3]


NAN = np.array([0x7FC00000], "u4").view("f4")[0]
OTHER_NAN = np.array([0x7FC00001], "u4").view("f4")[0]


@cases(
    ("chunk", "fill", "expected"),
    [
        (np.zeros((3, 4)), None, True), (-np.zeros(3), 0.0, False), (np.full(3, OTHER_NAN), NAN, False),
        (np.zeros((0, 2)), 1.0, True), (np.full((6, 6), 7, "i2")[::2, ::3], 7, True),
        (np.array([1 + 2j, 1 + 3j]), 1 + 2j, False), (np.array([b"ab", b"ac"]), b"ab", False),
        (np.array([(1, 2.0)] * 3, POINT), np.array((1, 2.0), POINT)[()], True),
        (np.array([(1, 2.0), (1, 3.0)], POINT), np.array((1, 2.0), POINT)[()], False),
        (np.array(["a", "a"], np.dtypes.StringDType()), "a", True),
        (np.array(["", ""], np.dtypes.StringDType()), None, True), (np.array(["a", "b"], object), "a", False),
        (np.array([None, 0], object), None, True), (np.array([""], object), None, False),
        (np.array([b"", b""], object), "", False),
    ],
)  # fmt: skip
def test_is_fill(chunk, fill, expected):
    assert is_fill(chunk, fill) is expected


@cases("dtype", ["u1", "i2", "f4", "f8", "c16", "U3", "V7"])
@cases("where", [0, 1, 70_000, -1])
def test_one_element_differs(dtype, where):
    chunk = np.zeros(100_000, dtype)
    assert is_fill(chunk, None)
    chunk.view("u1").reshape(len(chunk), -1)[where, -1] = 1
    assert not is_fill(chunk, None)
    expected = np.arange(len(chunk)) == where % len(chunk)
    assert (differing(chunk, np.zeros_like(chunk)) == expected).all()


@cases(
    ("a", "b", "same"),
    [
        (1, 1, True), (1, 1.0, False), (float("nan"), float("nan"), True), ("a", "b", False), (None, None, True),
        (np.array([1]), np.array([1]), True),
        (np.array([1]), np.array([1.0]), False), (np.array([1]), [1], True), (np.array([1]), 1, False),
        (np.array([1, 2]), np.array([1, 3]), False), (np.array([1, 2]), np.array([[1, 2]]), False),
    ],
)  # fmt: skip
def test_objects_that_differ(a, b, same):
    pair = np.empty((2, 1, 2), object)
    pair[0, 0, 1], pair[1, 0, 1] = a, b
    assert differing(pair[0], pair[1]).tolist() == [[False, not same]]
    assert differing(np.array(["a", "b"], STRING), np.array(["a", "c"], STRING)).tolist() == [False, True]
