"""Shapes and factors of levels; reductions, against TensorStore's downsample driver."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import cases

from chunkmill.pyramids.downsample import METHODS, check_method, downsample, downsampled_shape
from chunkmill.pyramids.levels import divide, plan_levels, under


def shapes(*args, **options):
    return [level.shape for level in plan_levels(*args, **{"chunk_shape": (16, 16), **options})]


def test_until_a_chunk_holds_it_or_a_number_of_levels():
    assert shapes((100, 30), 2, None) == [(100, 30), (50, 15), (25, 8), (13, 4)]
    assert shapes((16, 16), 2, None) == [(16, 16)]
    assert shapes((100, 30), (3, 1), 3) == [(100, 30), (34, 30), (12, 30)]
    assert shapes((100, 30), 2, 1) == [(100, 30)]
    assert shapes((100, 30), [2], 2) == [(100, 30), (50, 15)]
    assert plan_levels((1, 2, 64), 2, 2, chunk_shape=(8, 8, 8))[1].factors == (1, 2, 2)  # an axis of one element stays


def test_by_dimension_and_by_level():
    assert shapes((100, 30), {"x": 2}, 2, names=("y", "x")) == [(100, 30), (100, 15)]
    levels = plan_levels((100, 30), [(2, 1), (2, 3)], None, chunk_shape=(16, 16))
    assert [level.total for level in levels] == [(1, 1), (2, 1), (4, 3)]


def test_time_and_channels_stay():
    (_, second) = plan_levels((3, 2, 64, 64), 2, 2, chunk_shape=(1, 1, 8, 8), names=("t", "c", "y", "x"))
    assert second.shape == (3, 2, 32, 32)


def test_isotropic():
    levels = plan_levels((64, 512, 512), "isotropic", 5, chunk_shape=(64,) * 3, spacing=(4.0, 1.0, 1.0))
    assert [level.factors for level in levels] == [(1, 1, 1), (1, 2, 2), (1, 2, 2), (2, 2, 2), (2, 2, 2)]
    levels = plan_levels((2, 64, 64), "isotropic", 2, chunk_shape=(8,) * 3, spacing=(1.0, 4.0, 4.0))
    assert levels[1].factors == (2, 1, 1)
    options = {"spacing": (1.0, 0.1, 4.0, 4.0), "names": tuple("czyx")}  # neither channels nor what has one element
    assert plan_levels((3, 1, 64, 64), "isotropic", 2, chunk_shape=(8,) * 4, **options)[1].factors == (1, 1, 2, 2)


@cases(("factors", "n_levels", "options", "match"), [
    ((2,), 2, {}, "expected 2"), (0, 2, {}, "at least 1"), (2.5, 2, {}, "whole number"), (True, 2, {}, "whole number"),
    ({"z": 2}, 2, {"names": ("y", "x")}, r"unknown dimensions \['z'\]; the array has \['y', 'x'\]"),
    ([2], 3, {}, "levels=3 with factors for 1: give factors for 2"), (2, 0, {}, "levels=0"), (2, 65, {}, "levels=65"),
    (1, 2, {}, r"level 1 would be as large as the one above, \(64, 64\)"),
    ("isotropic", 2, {}, "needs the voxel size"), ("iso", 2, {}, "expected 'isotropic'"),
])  # fmt: skip
def test_refused(factors, n_levels, options, match):
    with pytest.raises(ValueError, match=match):
        plan_levels((64, 64), factors, n_levels, chunk_shape=(8, 8), **options)


@st.composite
def pyramids(draw):
    """Shapes, factors and keys of some levels."""
    n_axes = draw(st.integers(1, 2))
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=n_axes, max_size=n_axes)))
    shapes, factors = [shape], [(1,) * n_axes]
    for _ in range(draw(st.integers(0, 3))):
        factors.append(tuple(1 if n == 1 else draw(st.integers(1, 3)) for n in shapes[-1]))
        shapes.append(downsampled_shape(shapes[-1], factors[-1]))
    keys = [tuple(draw(st.integers(1, 9)) for _ in range(n_axes)) for _ in shapes]
    return shapes, factors, keys


@given(pyramids(), st.integers(0, 5000), st.integers(1, 8))
@settings(max_examples=100)
def test_every_key_is_written_once_from_whole_cells(levels, budget, n_least):
    shapes, factors, keys = levels
    stages = divide(shapes, factors, keys, itemsize=1, budget=budget, n_least=n_least)
    assert [each.blocks.shape for each in (*stages[0], *(level for s in stages[1:] for level in s[1:]))] == shapes
    number = 0
    for stage in stages:
        for level in stage:
            assert all(b % k == 0 for b, k in zip(level.blocks.chunk_shape, keys[number], strict=True))
            number += 1
        number -= 1
        seen = [np.zeros(level.blocks.shape, int) for level in stage]

        def visit(level, coords, stage=stage, seen=seen):
            region = stage[level].blocks.region(coords)
            seen[level][region] += 1
            if level == 0:
                return
            covered = np.zeros([s.stop - s.start for s in region], int)
            for above, where in under(stage[level], stage[level - 1], coords):
                covered[where] += 1
                of_above = stage[level - 1].blocks.region(above)
                sizes = [s.stop - s.start for s in of_above]
                assert tuple(s.stop - s.start for s in where) == downsampled_shape(sizes, stage[level].factors)
                assert all(s.start % f == 0 for s, f in zip(of_above, stage[level].factors, strict=True))
                visit(level - 1, above)
            assert (covered == 1).all()

        for coords in stage[-1].blocks.all_coords():
            visit(len(stage) - 1, coords)
        assert all((each == 1).all() for each in seen)


def test_levels_share_a_stage_while_memory_and_tasks_allow():
    shapes, factors, keys = [(1024,), (512,), (256,), (128,)], [(1,), (2,), (2,), (2,)], [(16,)] * 4

    def of(budget, n_least, itemsize=1 << 20):
        return [len(s) for s in divide(shapes, factors, keys, itemsize=itemsize, budget=budget, n_least=n_least)]

    assert of(1 << 62, 1) == [4]
    assert of(1 << 62, 16) == [3, 2]
    assert of(0, 1) == [2, 2, 2]  # each has one level at least
    assert of(1 << 62, 1 << 20, itemsize=1) == [4]  # little is read: few tasks do
    assert of(1 << 62, 16, itemsize=1 << 17) == [4]  # 16 MiB a task


def test_levels_end_when_the_axes_that_are_reduced_fit():
    """Channels in chunks of one never fit, and are never reduced."""
    found = shapes((3, 120, 300, 401), 2, None, chunk_shape=(1, 64, 64, 64), names=("c", "z", "y", "x"))
    assert found == [(3, 120, 300, 401), (3, 60, 150, 201), (3, 30, 75, 101), (3, 15, 38, 51)]


ml_dtypes = pytest.importorskip("ml_dtypes")

DTYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", ml_dtypes.bfloat16,
    ml_dtypes.int4, ml_dtypes.int2]  # fmt: skip


def make_values(rng, dtype, shape):
    """Values over the whole range, or a few that meet often."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.name in {"int2", "int4"}:
        return rng.integers(-2, 2, shape).astype(dtype)
    if dtype.kind in "ui":
        values = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
        return values if rng.random() < 0.5 else (values % 5).astype(dtype)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3)
    return (np.round(values) if rng.random() < 0.5 else values).astype(dtype)


def same_bits(a, b, *, zeros_differ):
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    same = (a == b) | ((a != a) & (b != b))  # noqa: PLR0124 - NaN
    if zeros_differ and a.dtype.kind not in "bui":
        same &= (np.signbit(a.real) == np.signbit(b.real)) | (a != a)  # noqa: PLR0124
    return bool(np.all(same))


@cases("method", METHODS)
@cases("dtype", DTYPES)
def test_as_tensorstore(dtype, method):
    ts = pytest.importorskip("tensorstore")
    rng = np.random.default_rng(0)
    n_compared = 0
    for _ in range(25):
        shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 4)))
        factors = tuple(1 if n == 1 else int(rng.integers(1, 4)) for n in shape)
        values = make_values(rng, dtype, shape)
        if values.dtype.kind == "f" and method in {"min", "max", "mean"} and rng.random() < 0.5:
            values[rng.random(shape) < 0.3] = np.nan
            values[rng.random(shape) < 0.1] = np.inf
        try:
            expected = ts.downsample(ts.array(values), factors, method).read().result()
        except ValueError:  # it has no such method for the dtype
            with pytest.raises(TypeError, match="does not take dtype"):
                check_method(method, values.dtype)
            continue
        check_method(method, values.dtype)
        # which of 0.0 and -0.0 a sort leaves in the middle is not defined
        assert same_bits(downsample(values, factors, method), expected, zeros_differ=method not in {"median", "mode"})
        n_compared += 1
    assert n_compared == 25 or (np.dtype(dtype).kind == "c" and method in {"median", "min", "max"})


@cases("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"])
def test_short_floats(name):
    """TensorStore takes their means for integers."""
    values = np.array([[1, 2, 4], [2, 1, 4]], name)
    got = [downsample(values, (2, 3), method).astype("f4").item() for method in METHODS]
    expected = [np.array(14 / 6, name).astype("f4").item(), 2, 1, 4, 1, 1]
    assert dict(zip(METHODS, got, strict=True)) == dict(zip(METHODS, expected, strict=True))


def test_sums_that_need_more_than_64_bits():
    largest = np.iinfo("u8").max
    values = np.array([largest, largest, largest - 1, largest - 2], "u8")
    np.testing.assert_array_equal(downsample(values, (4,), "mean"), np.array([largest - 1], "u8"))  # 3/4 below


def test_a_function():
    values = np.arange(20.0).reshape(4, 5)
    np.testing.assert_array_equal(downsample(values, (2, 2), np.ptp), [[6, 6, 5], [6, 6, 5]])


@cases(("method", "dtype", "error", "hint"), [
    ("average", "u1", ValueError, "'average': expected one of 'mean', .*'stride', or a function"),
    ("mean", "S3", TypeError, "'mode' and 'stride' take it"), ("min", "c8", TypeError, "'mode' and 'stride' take it"),
    ("mean", "M8[s]", TypeError, "every dtype"), ("mean", [("a", "i4")], TypeError, "'stride' takes every dtype"),
    ("mode", "M8[s]", TypeError, "every dtype"),
])  # fmt: skip
def test_methods_that_are_refused(method, dtype, error, hint):
    with pytest.raises(error, match=f"method=.*{hint}"):
        check_method(method, np.dtype(dtype))


def test_shapes():
    assert downsampled_shape((0, 1, 7), (2, 2, 3)) == (0, 1, 3)
    assert downsample(np.zeros((0, 4)), (2, 2), "mean").shape == (0, 2)
