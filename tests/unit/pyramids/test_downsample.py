"""Reductions, against TensorStore's downsample driver."""

import numpy as np
import pytest
from support.cases import cases

from chunkmill.pyramids.downsample import METHODS, check_method, downsample, downsampled_shape

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


@cases("method", METHODS)
def test_blocks_are_as_the_whole(method):
    """The result of a block that begins at a cell does not depend on the block."""
    values = np.random.default_rng(2).normal(size=(13,)).astype("f4")
    values[12] = -0.0
    whole = downsample(values, (3,), method)
    parts = [downsample(values[start:stop], (3,), method) for start, stop in ((0, 6), (6, 12), (12, 13))]
    assert whole.tobytes() == np.concatenate(parts).tobytes()


def test_sums_that_need_more_than_64_bits():
    largest = np.iinfo("u8").max
    values = np.array([largest, largest, largest - 1, largest - 2], "u8")
    np.testing.assert_array_equal(downsample(values, (4,), "mean"), np.array([largest - 1], "u8"))  # 3/4 below


def test_a_function():
    values = np.arange(20.0).reshape(4, 5)
    np.testing.assert_array_equal(downsample(values, (2, 2), np.ptp), [[6, 6, 5], [6, 6, 5]])


@cases(
    ("method", "dtype", "error"),
    [
        ("average", "u1", ValueError),
        ("mean", "S3", TypeError),
        ("min", "c8", TypeError),
        ("mean", "M8[s]", TypeError),
        ("mean", [("a", "i4")], TypeError),
    ],
)
def test_methods_that_are_refused(method, dtype, error):
    with pytest.raises(error, match="method="):
        check_method(method, np.dtype(dtype))


def test_shapes():
    assert downsampled_shape((0, 1, 7), (2, 2, 3)) == (0, 1, 3)
    assert downsample(np.zeros((0, 4)), (2, 2), "mean").shape == (0, 2)
