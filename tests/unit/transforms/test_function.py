"""The call of a function for a block, and the checks of what it returns."""

import numpy as np
import pytest
from support.cases import cases

from chunkmill.transforms.function import checked_result


def test_results_are_cast_within_their_kind_alone():
    assert checked_result(np.ones(3), (3,), np.dtype("f4")).dtype == np.float32
    assert checked_result(np.ones(3, "u1"), (3,), np.dtype("i8")).dtype == np.int64
    with pytest.raises(TypeError, match=r"float64, which uint8 does not hold: cast it, or give dtype="):
        checked_result(np.ones(3), (3,), np.dtype("u1"))
    with pytest.raises(ValueError, match=r"of shape \(4,\), expected \(5,\), or \(3,\) without its halo"):
        checked_result(np.ones(4), (3,), np.dtype("f8"), with_halo=(5,))
    assert checked_result(np.array([1e300, np.inf]), (2,), np.dtype("f8"))[1] == np.inf
    assert checked_result(np.array([0.1, np.inf, np.nan]), (3,), np.dtype("f4"))[0] == np.float32(0.1)
    with pytest.raises(TypeError, match="masked"):
        checked_result(np.ma.masked_array(np.ones(3), [0, 1, 0]), (3,), np.dtype("f8"))


@cases(
    ("values", "dtype", "said"),
    [
        (np.array([1, 70000]), "i2", "70000 does not fit int16"),
        (np.array([-129, 0]), "i1", "-129 does not fit int8"),
        (np.array([300], "u2"), "u1", "300 does not fit uint8"),
        (np.array([2**63], "u8"), "i8", "9223372036854775808 does not fit int64"),
        (np.array([1.0, 1e300]), "f4", "1e\\+300 does not fit float32"),
        (np.array([1.0, 1e300j]), "c8", "1e\\+300j does not fit complex64"),
        (np.array(["a", "long"]), "U2", "4 characters, as 'long' has, in elements of <U2"),
        (np.array([b"long"]), "S3", "4 characters"),
    ],
)
def test_values_that_the_dtype_does_not_hold_are_refused(values, dtype, said):
    with pytest.raises(ValueError, match=said + r".*: give a wider dtype="):
        checked_result(values, values.shape, np.dtype(dtype))
    assert checked_result(values[:0], (0,), np.dtype(dtype)).dtype == np.dtype(dtype)
