"""The one place where a value meets a dtype: kept exactly, floats rounded, or refused."""

import datetime as dt
import re

import numpy as np
import pytest
from support.cases import cases

from chunkmill.errors import UnsupportedFeature
from chunkmill.model.user_values import as_dtype, plain, scalar_of, spread

ml_dtypes = pytest.importorskip("ml_dtypes")
TEXT = np.dtypes.StringDType()
PAIR = [("a", "i4"), ("b", "f4")]

HELD = [
    (1.0, "i4"), (np.inf, "f4"), (np.nan, "f2"), (2**53, "f8"), (2**64 - 1, "u8"), (-(2**63), "f4"), (1 + 0j, "f8"),
    (1, "?"), (True, "f4"), (256, ml_dtypes.bfloat16), (7, ml_dtypes.int4), (ml_dtypes.bfloat16(2), "i2"),
    (np.array(3, ml_dtypes.uint4), "i8"), (np.datetime64("2020-01-01", "ns"), "M8[s]"), ("2020-01-01", "M8[s]"),
    (dt.datetime(2020, 1, 1), "M8[s]"),  # noqa: DTZ001 - as numpy has them
    (dt.timedelta(seconds=5), "m8[s]"), ("NaT", "M8[s]"), ("abc", "S3"), (np.array("abc", object), "U3"),
    (np.array("abc"), TEXT), (b"abc", "V3"), ((1, 2.5), PAIR), (np.array((1, 2.5), [("c", "i8"), ("d", "f8")]), PAIR),
    (np.array(1, ">i4"), "i4"), (np.array([2**70], object), "f8"),
]  # fmt: skip
REFUSED = [
    (1.5, "i4"), (np.nan, "i4"), (np.inf, "i8"), (2.0**63, "i8"), (1e300, "f4"), (70000.0, "f2"), (70000, "f2"),
    (2**53 + 1, "f8"), (2**63 - 1, "f8"), (2**24 + 1, "f4"), (70000, "i2"), (-1, "u2"), (2**63, "i8"), (2, "?"),
    (0.5, "?"), (1 + 2j, "f8"), (complex(0, np.nan), "f8"), (1e300j, "c8"), (257, ml_dtypes.bfloat16),
    (1e39, ml_dtypes.bfloat16), (8, ml_dtypes.int4), (np.inf, ml_dtypes.float8_e4m3fn),
    (np.nan, ml_dtypes.float4_e2m1fn), (100.0, ml_dtypes.float4_e2m1fn), (0.0, ml_dtypes.float8_e8m0fnu),
    (3, ml_dtypes.float8_e8m0fnu), (np.datetime64("2020-01-01T00:00:00.5", "ns"), "M8[s]"),
    ("2020-01-01T00:00:00.5", "M8[s]"), (np.datetime64(10**12, "s"), "M8[ns]"), (np.timedelta64(1, "Y"), "m8[D]"),
    (np.datetime64("2020"), "i8"), (5, "M8[s]"), (np.datetime64("2020"), "m8[s]"), ("abcd", "U3"), ("é", "S3"),
    (5, "U3"), ("5", "i4"), (b"abcd", "V3"), ([1, "a"], TEXT), (None, TEXT), (np.nan, TEXT), ([1.0, None], "f8"),
    ([dt.date(2020, 1, 1), None], "M8[s]"), ([2**70 + 1], "f8"), ([2**70], "i8"), ((1.5, 2), PAIR), ((1, 1e300), PAIR),
    (np.array((300, 2.5), [("c", "i8"), ("d", "f8")]), [("a", "i1"), ("b", "f4")]),
    (np.array((1,), [("c", "i8")]), PAIR),
]  # fmt: skip


@cases(("value", "dtype"), HELD)
def test_what_a_dtype_holds_is_kept(value, dtype):
    dtype = np.dtype(dtype)
    held = as_dtype(value, dtype)
    assert held.dtype == dtype
    if isinstance(value, (int, float, complex)) and value == value:  # noqa: PLR0124 - NaN
        assert held.item() == value


@cases(("value", "dtype"), REFUSED)
def test_what_a_dtype_does_not_hold_is_refused(value, dtype):
    with pytest.raises(UnsupportedFeature):
        as_dtype(value, np.dtype(dtype))
    if isinstance(value, (int, float, complex)) and dtype != TEXT:  # among others, too
        with pytest.raises(UnsupportedFeature, match=r"does not fit|among strings"):
            as_dtype(np.array([0, value, 1]), np.dtype(dtype))


def test_objects_without_a_dtype_are_text_unless_all_are_bytes():
    assert plain(np.array(["a", "bcd"], object)).dtype == TEXT
    assert plain(np.array([b"a"], object)).dtype == object
    assert plain(np.array([], object)).dtype == TEXT
    with pytest.raises(UnsupportedFeature, match="bytes among strings"):
        plain(np.array(["a", b"b"], object))


@cases(
    ("values", "dtype", "message"),
    [
        (np.array(["a", "abcde", "abcd"], object), "U3", "5 characters, as 'abcde' has, in elements of <U3"),
        (np.array(["a", "abcde"]), "U3", "5 characters, as 'abcde' has"),
        (np.array([b"a", b"ab\0"], object), "S3", "3 characters, as "),
        ([1.0, 1.5, 2.5], "i4", "1.5 does not fit int32 (the values are float64); round or convert the values first, or"),
        ([[1, "a", None], ["b", 2, "c"]], TEXT, "NoneType, int among strings; fill what is missing"),
        (np.array([5, 6]), "U3", "5 does not fit <U3 (the values are int64); no value becomes text by itself; round"),
    ],
)  # fmt: skip
def test_the_error_shows_the_first_value_that_does_not_fit(values, dtype, message):
    with pytest.raises(UnsupportedFeature, match=re.escape(message)):
        as_dtype(values, np.dtype(dtype))


def test_floats_are_rounded():
    assert as_dtype(0.1, np.dtype("f4")) == np.float32(0.1)
    assert as_dtype(1e-300, np.dtype("f4")) == 0
    assert as_dtype([2**53 + 1.0], np.dtype("f4")) == np.float32(2**53)


def test_values_of_the_dtype_are_not_copied():
    values = np.arange(3.0)
    assert as_dtype(values, np.dtype("f8")) is values


@cases("shape", [(), (1,), (5,), (1, 5), (3, 1), (3, 5), (1, 3, 5), (1, 1, 1)])
def test_values_are_spread_as_numpy_assigns_them(shape):
    values, expected = np.arange(np.prod(shape, dtype=int)).reshape(shape), np.empty((3, 5), int)
    expected[...] = values
    np.testing.assert_array_equal(spread(values, np.dtype(int), (3, 5)), expected)


@cases(("values", "shape"), [(np.ones((2, 5)), (3, 5)), (np.ones((3, 2)), (3, 5)), (np.ones((1, 2)), ())])
def test_values_of_another_shape_are_not_spread(values, shape):
    with pytest.raises(ValueError, match=r"values of shape \(\d, \d\) cannot be written to a region of shape \("):
        spread(values, np.dtype("f8"), shape)


def test_masked_values_are_refused_where_they_are_assigned():
    with pytest.raises(UnsupportedFeature, match="masked values"):
        spread(np.ma.masked_array([1, 2], [True, False]), np.dtype("i4"), (2,))


def test_lists_of_several_lengths_are_an_error_of_ours():
    with pytest.raises(ValueError, match="cannot make an array of int32"):
        as_dtype([[1], [1, 2]], np.dtype("i4"))


@cases(("value", "dtype"), [(300, "u1"), (0.5, "i4"), (1e300, "f4"), ("abcd", "U3"), (np.nan, "i2"), ([1, 2], "i4")])
def test_a_fill_value_is_no_other_than_asked_for(value, dtype):
    with pytest.raises(UnsupportedFeature, match="fill value"):
        scalar_of(value, np.dtype(dtype))


def test_fill_values_of_times_may_be_numbers():
    assert scalar_of(5, np.dtype("M8[s]")) == np.datetime64(5, "s")
