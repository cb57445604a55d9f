import itertools
import math
from functools import partial

import numpy as np
import pytest
from contracts.codec_contract import LITTLE, codec, fixed, pipeline_of, spec_of
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded, not_encoded

from chunkmill.codecs.cast_value import ROUNDINGS, ScaleOffset, cast

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOATS = ["f2", "f4", "f8"]


def cast_value(data_type=None, **more):
    return codec("cast_value", data_type=data_type, **more)


TestNarrowed = fixed(
    [cast_value("uint8", rounding="towards-zero", out_of_range="clamp"), "bytes"],
    [np.arange(24, dtype="f8").reshape(2, 3, 4), np.array([0, 255], "i8"), np.array(7, "f2")],
    [(np.array([1.0, 255.0]), "01 ff")],
)
MAP = {"encode": [["NaN", -1], ["+Infinity", 500]], "decode": [[-1, "NaN"], [500, "+Infinity"]]}
SPECIAL = np.array([1.0, np.nan, np.inf])
TestScalarMap = fixed([cast_value("int16", scalar_map=MAP), LITTLE], [SPECIAL], "0100 ffff f401")
TestSame = fixed([cast_value("float64"), LITTLE], [np.array([1.5, np.nan, -0.0]), np.array(7, "f4")])
WRAPPED = [np.array([-1, 5], "i4"), np.array(-(2**31), "i4")]
TestWrapped = fixed([cast_value("uint32", out_of_range="wrap"), LITTLE], WRAPPED, "ffffffff 05000000")
TestSmall = fixed([cast_value("bfloat16"), LITTLE], [np.array([1.5, -2.0])], "c03f 00c0", package="ml_dtypes")


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


def cast_by_zarr(values, after, rounding, beyond):
    """Return what zarr-python makes of values."""
    about = {"target_dtype": np.dtype(after), "rounding_mode": rounding, "out_of_range_mode": beyond}
    return pytest.importorskip("cast_value_rs").cast_array(values, **about)


@cases("after", [*INTEGERS, *FLOATS])
@cases("before", [*INTEGERS, *FLOATS])
def test_every_number_is_what_zarr_python_makes_of_it(before, after):
    if before == after:
        return
    values = awkward(before)
    modes = ["clamp", "wrap"] if after in INTEGERS else ["clamp"]
    with np.errstate(all="ignore"):
        values = values[np.isfinite(values)] if after in INTEGERS else values
    for rounding, beyond in itertools.product(ROUNDINGS, modes):
        expected = cast_by_zarr(values, after, rounding, beyond)
        assert cast(values, np.dtype(after), rounding, beyond).tobytes() == expected.tobytes()


REFUSED = [  # by zarr-python too
    ("f8", "u1", 300, None), ("f8", "u1", -1, None), ("f8", "i8", 2.0**63, None), ("f8", "u8", 2.0**64, None),
    ("f4", "i1", np.nan, "clamp"), ("f4", "i1", np.inf, None),
    ("i8", "u4", -1, None), ("u8", "i8", 2**63, None), ("f8", "f4", 1e39, None), ("f8", "f2", 1e6, None),
]  # fmt: skip


@cases(("before", "after", "value", "beyond"), REFUSED)
def test_what_zarr_python_refuses_is_refused(before, after, value, beyond):
    values = np.array([0, value]).astype(before)
    for rounding in ROUNDINGS:
        with pytest.raises(ValueError, match=r"range|integer|place"):
            cast(values, np.dtype(after), rounding, beyond)
        with pytest.raises(ValueError, match=r"\w"):
            cast_by_zarr(values, after, rounding, beyond)


SMALL_FLOATS = [
    "bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
]  # fmt: skip


@cases("name", SMALL_FLOATS)
@cases("rounding", ROUNDINGS)
def test_small_floats_are_the_neighbours_that_the_rule_names(name, rounding):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    bits = {"bfloat16": 16}.get(name) or int(name[5])
    with np.errstate(invalid="ignore"):
        held = np.arange(1 << bits, dtype=f"u{dtype.itemsize}").view(dtype).astype("f8")
    held = np.unique(held[np.isfinite(held)])
    step = max(1, len(held) // 60)
    middles = (held[:-1] + held[1:])[::step] / 2
    drawn = np.random.default_rng(2).normal(size=60) * held[-1] / 4
    for value in [*held[::step], *middles, *(middles * (1 + 1e-9)), *np.clip(drawn, held[0], held[-1])]:
        if not held[0] <= value <= held[-1]:
            continue
        low, high = held[held <= value][-1], held[held >= value][0]
        bits_of = {n: int(np.array(n, dtype).view(f"u{dtype.itemsize}")) for n in (low, high)}
        expected = {
            "nearest-even": min((low, high), key=lambda n: (abs(n - value), bits_of[n] % 2)),
            "nearest-away": min((low, high), key=lambda n: (abs(n - value), -abs(n))),
            "towards-zero": min((low, high), key=abs), "towards-positive": high, "towards-negative": low,
        }[rounding]  # fmt: skip
        assert float(cast(np.array([value]), dtype, rounding, None)[0]) == expected


@cases("name", ["int2", "int4", "uint2", "uint4"])
def test_small_integers_wrap_and_clamp(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    info = ml_dtypes.iinfo(dtype)
    n = int(info.max) - int(info.min) + 1
    values = np.arange(-40, 40)
    wrapped = (values - int(info.min)) % n + int(info.min)
    small = cast(values, dtype, "nearest-even", "wrap")
    assert small.astype("i8").tolist() == wrapped.tolist()
    dirty = (small.view("u1") | (256 - n)).astype("u1").view(dtype)  # other bits
    assert cast(dirty, np.dtype("i2"), "nearest-even", None).tolist() == wrapped.tolist()
    clamped = np.clip(values, int(info.min), int(info.max))
    assert cast(values.astype("f4"), dtype, "nearest-even", "clamp").astype("i8").tolist() == clamped.tolist()
    assert cast(small, np.dtype("f4"), "nearest-even", None).tolist() == wrapped.tolist()


@cases(
    ("name", "value"),
    [("float4_e2m1fn", np.nan), ("float6_e3m2fn", np.inf), ("float8_e8m0fnu", 0.0), ("float8_e8m0fnu", -1.0)],
)
def test_what_a_small_float_has_not_is_refused(name, value):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(ValueError, match="no place"):
        cast(np.array([value]), np.dtype(getattr(ml_dtypes, name)), "nearest-even", None)


def test_the_fill_value_is_cast_and_must_come_back():
    spec, scalars = chunks_of("f8", 1, fill_value=np.float64("nan")), {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}
    pipeline = pipeline_of([cast_value("uint8", scalar_map=scalars), "bytes"], spec)
    assert pipeline.filters[0].spec_after(spec).fill_value == 0
    half = chunks_of("f8", 1, fill_value=np.float64(0.5))
    not_built([cast_value("uint8"), "bytes"], half, r"fill value 0\.5 becomes 0")


def test_the_first_of_equal_keys_wins():
    values = np.array([3.0, 3.0])
    pipeline = pipeline_of([cast_value("int8", scalar_map={"encode": [[3, 7], [3, 8]]}), "bytes"], spec_of(values))
    assert bytes(pipeline.encode(values, spec_of(values))) == b"\7\7"


def test_out_of_range_is_an_error():
    not_encoded([cast_value("uint8"), "bytes"], np.array([1.0, 300.0]), r"300\.0 is out of the range of uint8")


def test_the_ends_of_a_range_are_in_it():
    assert cast(np.array([-128, 127], "i4"), np.dtype("i1"), "nearest-even", None).tolist() == [-128, 127]


def test_wrapped_integers_do_not_become_infinite():
    chain, spec = [cast_value("uint32", out_of_range="wrap"), LITTLE], chunks_of("f2", 1)
    assert pipeline_of(chain, spec).decode((65504).to_bytes(4, "little"), spec).tolist() == [65504]
    not_decoded(chain, (70000).to_bytes(4, "little"), spec, "70000 is out of the range of float16")


@cases(
    ("configuration", "dtype", "reason"),
    [
        ({}, "f4", "got None, expected the name"),
        ({"data_type": "string"}, "f4", "needs real numbers, not StringDType"),
        ({"data_type": "complex64"}, "f4", "not complex64"), ({"data_type": "bool"}, "f4", "not bool"),
        ({}, "?", "not bool"), ({}, "M8[s]", "not datetime64"),
        ({"rounding": "up"}, "f4", "rounding 'up' and out_of_range None"), ({"rounding": []}, "f4", "rounding .. and"),
        ({"x": 1}, "f4", "unknown members .'x'"), ({"out_of_range": "mirror"}, "f4", "out_of_range 'mirror': at"),
        ({"data_type": "float32", "out_of_range": "wrap"}, "i4", "'wrap' needs integers, not float32"),
        ({"scalar_map": {"encode": [[1]]}}, "f4", "scalar_map.encode is not a list of pairs"),
        ({"scalar_map": {"decode": {"a": 1}}}, "f4", "scalar_map.decode is not"),
        ({"scalar_map": 3}, "f4", "scalar_map is 3"),
        ({"scalar_map": {"encode": [[1, 300]]}}, "f4", "cast_value.scalar_map.encode: got 300"),
        ({"scalar_map": {"decode": [[300, 1]]}}, "f4", "map.decode: got 300"),
        ({"scalar_map": {"a": []}}, "f4", "lists 'encode' and"),
    ],
)  # fmt: skip
def test_bad_configurations(configuration, dtype, reason):
    known = {} if reason.startswith("got None") else {"data_type": "int8"}
    not_built([cast_value(**known | configuration), LITTLE], chunks_of(dtype, 1), reason)


scale_offset = partial(codec, "scale_offset")
TestIntegers = fixed(
    [scale_offset(offset=5, scale=2), LITTLE],
    [
        np.arange(5, 60, dtype="u1").reshape(5, 11), np.array([-(2**60), 2**60]), np.array(2**62, "u8"),
        np.zeros((0, 2), "i4"),
    ],
    [(np.array([5, 6, 4], "i2"), "0000 0200 feff")],
    detects=False,  # any multiple of the scale is a number
)  # fmt: skip
TestFloats = fixed(
    [scale_offset(offset=1.5, scale=2), LITTLE],
    [np.arange(12, dtype="f4").reshape(3, 4), np.array([np.inf, -np.inf, 0.25]), np.array(1, "f2")],
    [(np.array([1.5, 2], "f4"), "00000000 0000803f")],
)


def test_numbers_without_a_zero_are_scaled():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1, 4, 0.5]).astype(ml_dtypes.float8_e8m0fnu)
    pipeline = pipeline_of([scale_offset(scale=2), "bytes"], spec_of(values))
    encoded = pipeline.encode(values, spec_of(values))
    assert np.asarray(encoded).view(values.dtype).astype("f4").tolist() == [2, 8, 1]
    assert pipeline.decode(encoded, spec_of(values)).astype("f4").tolist() == [1, 4, 0.5]


def test_the_fill_value_is_scaled():
    codec = ScaleOffset(offset=10, scale=0.5)
    after = codec.spec_after(chunks_of("f4", 2, fill_value=np.float32(14)))
    assert (after.fill_value, after.dtype) == (2, np.dtype("f4"))
    assert math.isnan(codec.spec_after(chunks_of("f4", 2, fill_value=np.float32("nan"))).fill_value)


@given(st.sampled_from(["i1", "u1", "i4", "u8", "i8"]), st.data())
def test_integers_are_exact_or_refused(dtype, data):
    info = np.iinfo(dtype)
    numbers = st.integers(int(info.min), int(info.max))
    offset, scale, value = data.draw(numbers), data.draw(numbers.filter(bool)), data.draw(numbers)
    chain, spec = [scale_offset(offset=offset, scale=scale), LITTLE], chunks_of(dtype, 1)
    moved = value - offset
    if not all(info.min <= n <= info.max for n in (moved, moved * scale)):
        not_encoded(chain, np.array([value], dtype), "do not fit")
        return
    pipeline = pipeline_of(chain, spec)
    encoded = bytes(pipeline.encode(np.array([value], dtype), spec))
    assert int(np.frombuffer(encoded, np.dtype(dtype).newbyteorder("<"))[0]) == moved * scale
    assert int(pipeline.decode(encoded, spec)[0]) == value


def test_what_is_no_multiple_is_refused():
    not_decoded([scale_offset(scale=2), "bytes"], b"\2\3", chunks_of("u1", 2), "3 is not a multiple of the scale 2")


def test_floats_that_overflow_are_refused():
    not_encoded([scale_offset(scale=1000), LITTLE], np.array([1, 1e38], "f4"), "not a finite float32")


@cases(
    ("configuration", "dtype", "reason"),
    [
        ({"scale": 0}, "i4", "scale is 0, which"), ({"scale": 0.0}, "f4", "scale is 0, which"),
        ({"scale": 0.5}, "i4", "scale: got 0.5"), ({"offset": "x"}, "f4", "offset: got 'x'"),
        ({"offset": 300}, "u1", "offset: got 300"),
        ({"offset": None}, "f4", "offset: got None"), ({"factor": 1}, "f4", "unknown members .'factor'"),
        *(({}, dtype, "needs real numbers, not") for dtype in ("?", "c8", "M8[s]", "S2")),
        ({"scale": [1]}, "f4", "scale: got .1"),
    ],
)  # fmt: skip
def test_bad_scales_and_offsets(configuration, dtype, reason):
    not_built([scale_offset(**configuration), LITTLE], chunks_of(dtype, 1), reason)


def test_a_fill_value_that_does_not_fit_is_refused():
    not_built([scale_offset(offset=10), LITTLE], chunks_of("u1", 1, fill_value=np.uint8(3)), "do not fit")


TO_ROUND = np.array([0, 0.1, 1.2, 12.3, 123.4, 1234.5, np.nan, np.inf, -np.inf], "f4")
INTEGERS_TO_ROUND = np.array([0, 1, 10, 11, 100, 123, 200, 208, 209, 255], "u1")


def bitround(keepbits):
    return codec("bitround", keepbits=keepbits)


def rounded(values, keepbits):
    pipeline = pipeline_of([bitround(keepbits), LITTLE], spec_of(values))
    return pipeline.decode(bytes(pipeline.encode(values, spec_of(values))), spec_of(values))


TestBitround = fixed(
    [bitround(3), LITTLE],
    [
        TO_ROUND, INTEGERS_TO_ROUND, np.arange(-12, 12, dtype="i8").reshape(2, 3, 4), np.array(7.3),
        np.zeros((0, 2), "f2"),
    ],
    [
        (np.array([0, 0.1015625, 1.25, 12, 120, 1280, np.nan, np.inf, -np.inf], "f4"),
         "00000000 0000d03d 0000a03f 00004041 0000f042 0000a044 0000c07f 0000807f 000080ff"),
        (np.array([0, 1, 10, 12, 96, 128, 192, 192, 224, 224], "u1"), "00 01 0a 0c 60 80 c0 c0 e0 e0"),
    ],
    exact=False,
)  # fmt: skip


def test_the_specification_s_sample_data():
    (floats, _), (integers, _) = TestBitround.frozen
    assert np.array_equal(rounded(TO_ROUND, 3), floats, equal_nan=True)
    assert rounded(INTEGERS_TO_ROUND, 3).tolist() == integers.tolist()


def test_complex_numbers_are_rounded_by_part():
    values = np.array([0.1 + 12.3j, np.nan + 1j], "c8")
    assert rounded(values, 3).view("f4").tolist()[:2] == [0.1015625, 12]


@cases(
    ("bits", "keepbits", "expected"),  # ties to even, and what is next to them
    [
        (0x3F880000, 3, 0x3F800000), (0x3F880001, 3, 0x3F900000), (0x3F87FFFF, 3, 0x3F800000),
        (0x3F980000, 3, 0x3FA00000), (0x3F97FFFF, 3, 0x3F900000),
        (0xBF880001, 3, 0xBF900000), (0x3F800003, 22, 0x3F800004), (0x3F800001, 22, 0x3F800000),
        (0x3F800001, 23, 0x3F800001), (0x3F800001, 24, 0x3F800001),
    ],
)  # fmt: skip
def test_floats_are_rounded_to_the_nearest(bits, keepbits, expected):
    assert rounded(np.array([bits], "u4").view("f4"), keepbits).view("u4").tolist() == [expected]


@cases("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001])
def test_every_nan_stays_one(bits):
    assert np.isnan(rounded(np.array([bits], "u4").view("f4"), 1)).all()


@given(st.sampled_from(["i1", "u1", "i2", "u4", "i8", "u8"]), st.integers(1, 70), st.data())
def test_integers_keep_bits_from_the_first_one_set(dtype, keepbits, data):
    info = np.iinfo(dtype)
    value = data.draw(st.integers(0, int(info.max)))
    found = int(rounded(np.array([value], dtype), keepbits)[0])
    step = 1 << max(value.bit_length() - keepbits, 0)
    down = value // step * step
    up = down + step if down + step <= info.max else down  # what would wrap around is cut
    nearest = min((down, up), key=lambda n: (abs(n - value), n // step % 2))
    assert found == nearest if up != down else found == down


def test_times_are_integers():
    values = np.array([1000, -5], "M8[s]")
    assert rounded(values, 2).astype("i8")[0] == 1024
    assert np.isnat(rounded(np.array(["NaT"], "M8[s]"), 1)).all()


@cases("dtype", ["?", "S3", "U3", "V2", [("a", "i4")]])
def test_other_dtypes(dtype):
    not_built([bitround(3), "bytes"], chunks_of(dtype, 1), "bitround needs numbers")
