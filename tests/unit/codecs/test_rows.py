import numpy as np
import pytest

from chunkmill.codecs.rows import copy_rows, in_c_order

STRING = np.dtypes.StringDType()
POINT = np.dtype([("x", "i2"), ("y", "f4")])


def values(dtype, shape):
    numbers = np.random.default_rng(0).integers(0, 2, shape)
    return numbers.astype(str).astype(dtype) if np.dtype(dtype).kind in "UST" else numbers.astype(dtype)


@pytest.mark.parametrize("dtype", ["u1", "?", ">i2", "f4", "c16", "M8[s]", "U3", POINT, STRING, object])
@pytest.mark.parametrize("cut", [np.s_[:32, 8:40, 3:19], np.s_[5, ::2, 1:2], np.s_[:, 0:40, :], np.s_[..., ::3]])
def test_elements_are_copied_whatever_their_rows(dtype, cut):
    block = values(dtype, (64, 64, 32))
    expected = np.array(block)[cut]
    for part in (in_c_order(block[cut]), in_c_order(block.T[::-1]).T[:, :, ::-1][cut]):
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
    assert np.unique(out[:, :, 2:6]).tolist() == [7]
    assert np.unique(out[:, :, :2]).tolist() == [5]
    with pytest.raises(ValueError, match="broadcast"):
        copy_rows(out[:, :, :4], np.zeros((64, 64, 5), "f4"))


def test_values_in_c_order_are_not_copied():
    block = np.zeros((4, 4))
    assert np.shares_memory(in_c_order(block), block)
    assert in_c_order(np.array(3)).tolist() == [3]
