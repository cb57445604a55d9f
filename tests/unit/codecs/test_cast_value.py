# ruff: noqa: RUF012 - the class attributes are tables of cases
import itertools

import cast_value_rs
import ml_dtypes
import numpy as np
import pytest
from contracts.codec_contract import CodecContract, pipeline_of, spec_of
from hypothesis import given
from hypothesis import strategies as st

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.rounding import ROUNDINGS, cast
from chunkmill.errors import CodecError, MetadataError

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOATS = ["f2", "f4", "f8"]


def cast_value(data_type, **more):
    return {"name": "cast_value", "configuration": {"data_type": data_type, **more}}


class TestNarrowed(CodecContract):
    chain = [cast_value("uint8"), "bytes"]
    fixed_size = True
    arrays = [np.arange(24, dtype="f8").reshape(2, 3, 4), np.array([0, 255], "i8"), np.array(7, "f2")]
    frozen = [(np.array([1.0, 255.0]), "01 ff")]


class TestScalarMap(CodecContract):
    chain = [
        cast_value("int16", scalar_map={"encode": [["NaN", -1], [5, 500]], "decode": [[-1, "NaN"], [500, 5]]}),
        LITTLE,
    ]
    fixed_size = True
    arrays = [np.array([1.0, np.nan, 5.0])]
    frozen = [(np.array([1.0, np.nan, 5.0]), "0100 ffff f401")]


class TestWide(CodecContract):
    chain = [cast_value("float64"), LITTLE]
    fixed_size = True
    arrays = [np.array([1, -3], "i4"), np.array([0.0, -0.0, np.inf, np.nan], "f4")]


AWKWARD = [
    0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 127.5, -128.5, 255.5, 65504, 65519.9, 65520, 1e5, 1e-8, 6e-8, 2.98e-8, 1e-45, 7e-46, 3.4028235e38,
    3.4028235677973366e38, 1e39, -1e39, 2.0**31 - 0.5, 2.0**53, 2.0**63, 2.0**64, -(2.0**63) - 2048, 1e300,
]  # fmt: skip


def awkward(dtype):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        if dtype.kind == "f":
            return np.array([*AWKWARD, *(rng.normal(size=200) * 10.0 ** rng.integers(-10, 20, 200))]).astype(dtype)
    info = np.iinfo(dtype)
    powers = [n + d for k in range(dtype.itemsize * 8) for n in (1 << k, -(1 << k)) for d in (-1, 0, 1)]
    drawn = rng.integers(info.min, info.max, 200, dtype, endpoint=True).tolist()
    return np.array([n for n in (*powers, *drawn) if info.min <= n <= info.max], dtype)


@pytest.mark.parametrize("after", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("before", [*INTEGERS, *FLOATS])
def test_every_number_is_what_zarr_python_makes_of_it(before, after):
    if before == after:
        return
    values = awkward(before)
    modes = ["clamp", "wrap"] if after in INTEGERS else ["clamp"]
    with np.errstate(all="ignore"):
        values = values[np.isfinite(values)] if after in INTEGERS else values
    for rounding, beyond in itertools.product(ROUNDINGS, modes):
        expected = cast_value_rs.cast_array(
            values, target_dtype=np.dtype(after), rounding_mode=rounding, out_of_range_mode=beyond
        )
        assert cast(values, np.dtype(after), rounding, beyond).tobytes() == expected.tobytes()


NUMBERS = st.floats() | st.integers(-(2**63), 2**64 - 1).map(float) | st.sampled_from(AWKWARD)


@given(
    st.sampled_from(FLOATS), st.sampled_from([*INTEGERS, *FLOATS]), st.sampled_from(ROUNDINGS), NUMBERS, st.booleans()
)
def test_what_zarr_python_refuses_is_refused(before, after, rounding, number, clamps):
    with np.errstate(all="ignore"):
        values = np.array([number]).astype(before)
    beyond = "clamp" if clamps else None
    if before == after:
        return
    try:
        expected = cast_value_rs.cast_array(
            values, target_dtype=np.dtype(after), rounding_mode=rounding, out_of_range_mode=beyond
        )
    except ValueError:
        with pytest.raises(ValueError, match=r"range|integer|place"):
            cast(values, np.dtype(after), rounding, beyond)
        return
    found = cast(values, np.dtype(after), rounding, beyond)
    assert np.array_equal(found, expected, equal_nan=after in FLOATS)
    assert np.signbit(found) == np.signbit(expected) if after in FLOATS and not np.isnan(found) else True


SMALL_FLOATS = [
    "bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
]  # fmt: skip


@pytest.mark.parametrize("name", SMALL_FLOATS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_small_floats_are_the_neighbours_that_the_rule_names(name, rounding):
    dtype = np.dtype(getattr(ml_dtypes, name))
    bits = {"bfloat16": 16}.get(name) or int(name[5])
    with np.errstate(invalid="ignore"):
        held = np.arange(1 << bits, dtype=f"u{dtype.itemsize}").view(dtype).astype("f8")
    held = np.unique(held[np.isfinite(held)])
    step = max(1, len(held) // 200)
    middles = (held[:-1] + held[1:])[::step] / 2
    drawn = np.random.default_rng(2).normal(size=200) * held[-1] / 4
    for value in [*held[::step], *middles, *(middles * (1 + 1e-9)), *np.clip(drawn, held[0], held[-1])]:
        if not held[0] <= value <= held[-1]:
            continue
        low, high = held[held <= value][-1], held[held >= value][0]
        nearest = {low, high} if value - low == high - value else {min((low, high), key=lambda n: abs(n - value))}
        even = (
            {n for n in nearest if int(np.array(n, dtype).view(f"u{dtype.itemsize}")) % 2 == 0}
            if len(nearest) > 1
            else nearest
        )
        expected = {
            "nearest-even": even,
            "nearest-away": {max(nearest, key=abs)},
            "towards-zero": {min((low, high), key=abs)},
            "towards-positive": {high},
            "towards-negative": {low},
        }[rounding]
        assert float(cast(np.array([value]), dtype, rounding, None)[0]) in expected


@pytest.mark.parametrize("name", ["int2", "int4", "uint2", "uint4"])
def test_small_integers_wrap_and_clamp(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    info = ml_dtypes.iinfo(dtype)
    n = int(info.max) - int(info.min) + 1
    values = np.arange(-40, 40)
    wrapped = (values - int(info.min)) % n + int(info.min)
    assert cast(values, dtype, "nearest-even", "wrap").astype("i8").tolist() == wrapped.tolist()
    clamped = np.clip(values, int(info.min), int(info.max))
    assert cast(values.astype("f4"), dtype, "nearest-even", "clamp").astype("i8").tolist() == clamped.tolist()
    assert (
        cast(cast(values, dtype, "nearest-even", "wrap"), np.dtype("f4"), "nearest-even", None).tolist()
        == wrapped.tolist()
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("float4_e2m1fn", np.nan), ("float6_e3m2fn", np.inf), ("float8_e8m0fnu", 0.0), ("float8_e8m0fnu", -1.0)],
)
def test_what_a_small_float_has_not_is_refused(name, value):
    with pytest.raises(ValueError, match="no place"):
        cast(np.array([value]), np.dtype(getattr(ml_dtypes, name)), "nearest-even", None)


def test_the_fill_value_is_cast_and_must_come_back():
    pipeline = pipeline_of([cast_value("uint8", scalar_map={"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}), "bytes"],
                           ChunkSpec((1,), np.dtype("f8"), np.float64("nan")))  # fmt: skip
    assert pipeline.filters[0].spec_after(ChunkSpec((1,), np.dtype("f8"), np.float64("nan"))).fill_value == 0
    with pytest.raises(MetadataError, match=r"fill value 0\.5 becomes 0"):
        pipeline_of([cast_value("uint8"), "bytes"], ChunkSpec((1,), np.dtype("f8"), np.float64(0.5)))


def test_the_first_of_equal_keys_wins():
    values = np.array([3.0, 3.0])
    pipeline = pipeline_of([cast_value("int8", scalar_map={"encode": [[3, 7], [3, 8]]}), "bytes"], spec_of(values))
    assert bytes(pipeline.encode(values, spec_of(values))) == b"\7\7"


def test_out_of_range_is_an_error():
    values = np.array([1.0, 300.0])
    with pytest.raises(CodecError, match=r"300\.0 is out of the range of uint8"):
        pipeline_of([cast_value("uint8"), "bytes"], spec_of(values)).encode(values, spec_of(values))


@pytest.mark.parametrize(
    ("configuration", "dtype"),
    [
        ({}, "f4"), ({"data_type": "string"}, "f4"), ({"data_type": "complex64"}, "f4"), ({"data_type": "bool"}, "f4"), ({"data_type": "int8", "rounding": "up"}, "f4"),
        ({"data_type": "int8", "out_of_range": "mirror"}, "f4"), ({"data_type": "float32", "out_of_range": "wrap"}, "i4"), ({"data_type": "int8", "x": 1}, "f4"),
        ({"data_type": "int8", "scalar_map": {"encode": [[1]]}}, "f4"), ({"data_type": "int8", "scalar_map": {"encode": [[1, 300]]}}, "f4"),
        ({"data_type": "int8", "scalar_map": {"other": []}}, "f4"), ({"data_type": "int8", "scalar_map": 3}, "f4"), ({"data_type": "int8"}, "M8[s]"),
        ({"data_type": "int8"}, "?"), ({"data_type": "int8", "scalar_map": {"decode": {"a": 1}}}, "f4"), ({"data_type": "int8", "rounding": []}, "f4"),
    ],
)  # fmt: skip
def test_bad_configurations(configuration, dtype):
    with pytest.raises(MetadataError):
        pipeline_of(
            [{"name": "cast_value", "configuration": configuration}, LITTLE], ChunkSpec((1,), np.dtype(dtype), None)
        )
