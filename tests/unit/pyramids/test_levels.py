"""Shapes and factors of levels."""

import pytest

from chunkmill.pyramids.levels import plan_levels


def shapes(*args, **options):
    return [level.shape for level in plan_levels(*args, **{"chunk_shape": (16, 16), **options})]


def test_until_a_chunk_holds_it():
    assert shapes((100, 30), 2, None) == [(100, 30), (50, 15), (25, 8), (13, 4)]
    assert shapes((16, 16), 2, None) == [(16, 16)]


def test_a_number_of_levels():
    assert shapes((100, 30), (3, 1), 3) == [(100, 30), (34, 30), (12, 30)]
    assert shapes((100, 30), 2, 1) == [(100, 30)]


def test_by_dimension_and_by_level():
    assert shapes((100, 30), {"x": 2}, 2, names=("y", "x")) == [(100, 30), (100, 15)]
    levels = plan_levels((100, 30), [(2, 1), (2, 3)], None, chunk_shape=(16, 16))
    assert [level.total for level in levels] == [(1, 1), (2, 1), (4, 3)]


def test_time_and_channels_stay():
    (_, second) = plan_levels((3, 2, 64, 64), 2, 2, chunk_shape=(1, 1, 8, 8), names=("t", "c", "y", "x"))
    assert second.shape == (3, 2, 32, 32)


def test_axes_of_one_element_stay():
    levels = plan_levels((1, 64), 2, None, chunk_shape=(1, 16))
    assert [(level.shape, level.factors) for level in levels[1:]] == [((1, 32), (1, 2)), ((1, 16), (1, 2))]


def test_isotropic():
    levels = plan_levels((64, 512, 512), "isotropic", 5, chunk_shape=(64,) * 3, spacing=(4.0, 1.0, 1.0))
    assert [level.factors for level in levels] == [(1, 1, 1), (1, 2, 2), (1, 2, 2), (2, 2, 2), (2, 2, 2)]


@pytest.mark.parametrize(
    ("factors", "n_levels", "options", "match"),
    [
        ((2,), 2, {}, "expected 2"),
        (0, 2, {}, "at least 1"),
        (2.5, 2, {}, "whole number"),
        (True, 2, {}, "whole number"),
        ({"z": 2}, 2, {"names": ("y", "x")}, "unknown dimensions"),
        ([2], 3, {}, "factors for 2"),
        (2, 0, {}, "levels=0"),
        (2, 65, {}, "levels=65"),
        (1, 2, {}, "as large as the one above"),
        ("isotropic", 2, {}, "needs the voxel size"),
        ("iso", 2, {}, "expected 'isotropic'"),
    ],
)
def test_refused(factors, n_levels, options, match):
    with pytest.raises(ValueError, match=match):
        plan_levels((64, 64), factors, n_levels, chunk_shape=(8, 8), **options)
