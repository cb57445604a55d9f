"""The call of a function for a block, and the checks of what it returns."""

import numpy as np
import pytest

from chunkmill.transforms.function import checked_result


def test_results_are_cast_within_their_kind_alone():
    assert checked_result(np.ones(3), (3,), np.dtype("f4")).dtype == np.float32
    assert checked_result(np.ones(3, "u1"), (3,), np.dtype("i8")).dtype == np.int64
    with pytest.raises(TypeError, match=r"float64, which uint8 does not hold: cast it, or give dtype="):
        checked_result(np.ones(3), (3,), np.dtype("u1"))
    with pytest.raises(ValueError, match=r"of shape \(3,\), expected \(5,\); give trim=False"):
        checked_result(np.ones(3), (5,), np.dtype("f8"), without_halo=(3,))
    with pytest.raises(TypeError, match="masked"):
        checked_result(np.ma.masked_array(np.ones(3), [0, 1, 0]), (3,), np.dtype("f8"))
