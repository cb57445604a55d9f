import math

import numpy as np
import pytest
from support.cases import cases

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model import fill_values
from chunkmill.model.dtypes import STRING, parse_v3


def bits(value):
    return np.asarray(value).tobytes().hex()


def from_bits(number, dtype):
    return np.array(number, f"u{np.dtype(dtype).itemsize}").view(dtype)[()]


FLAT = np.dtype([("id", ">i2"), ("x", "<f4")])

V2 = [
    (True, "?", np.True_), (0, "?", np.False_),  # some write 0 and 1
    (1, "?", np.True_), (-128, "i1", np.int8(-128)), (2**64 - 1, "u8", np.uint64(2**64 - 1)),
    (-(2**53) - 1, "i8", np.int64(-(2**53) - 1)),
    (2.0, "i4", np.int32(2)),  # z5 and Java
    (3, "f8", np.float64(3)), (0.1, "f4", np.float32(0.1)), (-0.0, "f8", np.float64(-0.0)),
    ("NaN", "f4", from_bits(0x7FC00000, "f4")),
    (math.nan, "f2", from_bits(0x7E00, "f2")),  # a bare token
    ("-Infinity", "f2", np.float16(-np.inf)), ([1.5, "NaN"], "c8", np.array([1.5, np.nan], "f4").view("c8")[0]),
    (0, "c16", np.complex128(0)), (-(2**63), "M8[ns]", np.datetime64("NaT", "ns")),
    ("NaT", "m8[10ms]", np.timedelta64("NaT", "ms")), (7, "M8[25us]", np.array(7, "i8").view("M8[25us]")[()]),
    ("IA==", "S6", np.array(b" ", "S6")[()]),  # shorter: kerchunk
    ("", "S6", np.array(b"", "S6")[()]), (0, "S6", np.array(b"", "S6")[()]), ("né", "U4", np.array("né", "U4")[()]),
    (0, "U4", np.array("", "U4")[()]),
    ("AQL/", "V3", np.void(b"\x01\x02\xff")), ("", STRING, ""), (0, STRING, ""),  # zarr-python 2's default
    ("né", STRING, "né"), ("0", "i4", np.int32(0)), ("0.5", "f4", np.float32(0.5)), ("-1e3", "f8", np.float64(-1000)),
    (["1", 2], "c8", np.complex64(1 + 2j)), (2.5, "c16", np.complex128(2.5)),
    (2**63 - 1, "M8[s]", np.datetime64(2**63 - 1, "s")), ("QUJD", "S3", np.bytes_(b"ABC")),
    ("0x7fc12345", "f4", from_bits(0x7FC12345, "f4")), ("ab", "U2", np.str_("ab")),
]  # fmt: skip


@cases(("value", "dtype", "expected"), V2)
def test_v2(value, dtype, expected):
    found = fill_values.parse_v2(value, np.dtype(dtype), key=".zarray")
    assert type(found) is type(expected)
    assert found == expected if isinstance(expected, str) else bits(found) == bits(expected)
    if value != "0x7fc12345":  # which has no form in v2
        again = fill_values.parse_v2(fill_values.emit_v2(found, np.dtype(dtype)), np.dtype(dtype), key="")
        assert again == expected if isinstance(expected, str) else bits(again) == bits(expected)


@cases("dtype", ["?", "i4", "f8", "c8", "S3", "U3", "V3", STRING, object, FLAT])
def test_v2_null_is_undefined(dtype):
    assert fill_values.parse_v2(None, np.dtype(dtype), key="") is None
    assert fill_values.emit_v2(None, np.dtype(dtype)) is None


@pytest.mark.parametrize("dtype", ["M8[ns]", ">m8[s]"])
def test_v2_null_is_a_missing_time(dtype):
    found = fill_values.parse_v2(None, np.dtype(dtype), key="")
    assert np.isnat(found)
    assert found.dtype == np.dtype(dtype).newbyteorder("=")


def test_v2_structured_values_are_in_the_order_of_storage():
    value = fill_values.emit_v2(np.array((258, 1.0), FLAT.newbyteorder("="))[()], FLAT)
    assert value == "AQIAAIA/"  # 01 02, big; 00 00 80 3f, little
    found = fill_values.parse_v2(value, FLAT, key="")
    assert found.item() == (258, 1.0)
    assert found.dtype == FLAT.newbyteorder("=")


def test_v2_objects_are_what_their_codec_holds():
    any_object = np.dtype(object)
    assert fill_values.parse_v2("AP8=", any_object, key="", serializer="vlen-bytes") == b"\x00\xff"
    assert fill_values.parse_v2("", any_object, key="", serializer="vlen-bytes") == b""
    assert fill_values.parse_v2(0, any_object, key="", serializer="vlen-bytes") == b""
    assert fill_values.parse_v2([1, {"a": None}], any_object, key="", serializer="numcodecs.json2") == [1, {"a": None}]
    assert fill_values.emit_v2(b"\x00\xff", any_object) == "AP8="


HOSTILE_V2 = [
    ("i4", 2.5), ("u1", 300), ("u1", -1), ("i8", 2**63), ("i4", "3.5"), ("i4", True), ("i4", []), ("i4", math.nan), ("i4", math.inf), ("i4", 1e30), ("?", 2), ("?", "true"), ("?", 1.0),
    ("f4", "nan"), ("f4", "inf"), ("f4", True), ("f4", []), ("f4", 1e39), ("f2", 70000), ("f8", 10**400), ("c8", [1]), ("c8", [1, 2, 3]), ("c8", "NaN"), ("c8", [1, [2]]),
    ("M8[s]", "2020-01-01"), ("M8[s]", 2**63), ("M8[s]", 1.5), ("S3", "!!"), ("S3", "QUJDRA=="), ("S3", 1), ("S3", "é"), ("U2", "abc"), ("U2", 1), ("U2", "\ud800"), ("V3", "AQI="),
    ("V3", 1), ("V3", [256, 0, 0]), ("V3", [True, False, True]), ("M8[s]", 2**63), ("m8[s]", -(2**63) - 1),
    ("i4", "1.5"), ("u1", "-1"), ("?", "2"), (STRING, 1), (STRING, "\ud800"), (STRING, []), (FLAT, {}), (FLAT, "AQ=="),
]  # fmt: skip


@cases(("dtype", "value"), HOSTILE_V2)
def test_v2_refuses(dtype, value):
    with pytest.raises(MetadataError):
        fill_values.parse_v2(value, np.dtype(dtype), key=".zarray")


V3 = [
    (False, "?", np.False_), (2**63 + 1, "u8", np.uint64(2**63 + 1)), (3, "f8", np.float64(3)),  # a JSON integer
    ("NaN", "f8", from_bits(0x7FF8000000000000, "f8")), ("0x7fc12345", "f4", from_bits(0x7FC12345, "f4")),
    ("0xfff8000000000abc", "f8", from_bits(0xFFF8000000000ABC, "f8")), ("0x7E01", "f2", from_bits(0x7E01, "f2")),
    (["0x7fc12345", "-Infinity"], "c8", np.array([0x7FC12345, 0xFF800000], "u4").view("c8")[0]),
    ("NaT", "M8[s]", np.datetime64("NaT", "s")), ([1, 2, 255], "V3", np.void(b"\x01\x02\xff")),
    ("AQL/", "V3", np.void(b"\x01\x02\xff")),  # raw_bytes
    ("cQ==", "S3", np.array(b"q", "S3")[()]), ("né", "U2", np.array("né", "U2")[()]), ("", STRING, ""),
    ([0, 255], object, b"\x00\xff"), ("AP8=", object, b"\x00\xff"),
]  # fmt: skip


@cases(("value", "dtype", "expected"), V3)
def test_v3(value, dtype, expected):
    dtype = np.dtype(dtype)
    found = fill_values.parse_v3(value, dtype, key="zarr.json")
    assert type(found) is type(expected)
    assert found == expected if isinstance(expected, str | bytes) else bits(found) == bits(expected)
    again = fill_values.parse_v3(fill_values.emit_v3(found, dtype), dtype, key="")
    assert again == expected if isinstance(expected, str | bytes) else bits(again) == bits(expected)


def test_v3_structured_values():
    dtype = np.dtype([("a", "f4"), ("b", [("c", "u2")])])
    value = {"a": "0x7fc12345", "b": {"c": 258}}
    found = fill_values.parse_v3(value, dtype, key="")
    assert bits(found) == "4523c17f0201"
    assert fill_values.emit_v3(found, dtype) == value
    assert bits(fill_values.parse_v3("f8EjRQEC", dtype, key="", order="big")) == bits(found)  # zarr-python 3.0 and 3.1
    for bad in ({"a": 1}, {"a": 1, "b": {"c": 1}, "x": 1}, {"a": 1, "b": 1}, {"a": 1, "b": {"c": -1}}, "AQ==", 3, None):
        with pytest.raises(MetadataError):
            fill_values.parse_v3(bad, dtype, key="")


HOSTILE_V3 = [
    ("i4", None), ("f8", None), (STRING, None), ("?", 2), ("?", "1"), ("i4", "3"), ("i4", 2.5), ("i4", 2**31), ("f4", "0x"), ("f4", "0x1ffffffff"), ("f4", "0xgg"), ("f4", "0x-1"),
    ("f4", "0x7f_c0"), ("f4", "+Infinity"), ("f4", 1e39), ("i4", "0x01"), ("c8", 1), ("c8", ["0x7fc0000000000000", 1]), ("V3", [1, 2]), ("V3", [1, 2, 256]), ("V3", "AQ=="),
    ("V3", [1, 2, 3.0]), ("S3", "QUJDRA=="), ("U1", "ab"), (object, "?"), (object, [1, "a"]), (object, 3), ("M8[s]", "NaN"),
]  # fmt: skip


@cases(("dtype", "value"), HOSTILE_V3)
def test_v3_refuses(dtype, value):
    with pytest.raises(MetadataError, match="Zarr v3 has no null" if value is None else "fill_value: got"):
        fill_values.parse_v3(value, np.dtype(dtype), key="zarr.json")


def test_v2_has_no_nan_payloads_and_says_so():
    for number, dtype in ((0x7FC12345, "f4"), (0xFFC00000, "f4"), (0x7FC12345, "c8")):
        with pytest.raises(UnsupportedFeature, match="payload"):
            fill_values.emit_v2(from_bits(number, dtype), np.dtype(dtype))


def test_the_usual_nan_is_a_name():
    for dtype in ("f2", "f4", "f8"):
        assert fill_values.emit_v3(np.dtype(dtype).type(np.nan), np.dtype(dtype)) == "NaN"
    assert fill_values.emit_v3(np.float32(-np.nan), np.dtype("f4")) == "0xffc00000"
    assert fill_values.emit_v3(np.float64(-np.inf), np.dtype("f8")) == "-Infinity"


def test_bits_of_the_draft():
    assert fill_values.parse_bits("0b0111111000000001", np.dtype("f2"), key="").tobytes().hex() == "017e"
    assert [fill_values.parse_bits(text, np.dtype("i1"), key="") for text in ("0xff", "0x0")] == [-1, 0]
    assert fill_values.parse_bits("0x0102", np.dtype(">u2"), key="") == 258
    for bad in ("7f", "0x", "0b2", "0x100", None, 3, "0x" + "0" * 10_000):
        with pytest.raises(MetadataError):
            fill_values.parse_bits(bad, np.dtype("u1"), key="")


def test_what_is_no_scalar_of_the_dtype_is_refused():
    for value, dtype in (("x", "i4"), (300, "u1"), ([1], "i4,i4,i4")):
        with pytest.raises(MetadataError):
            fill_values.emit_v3(value, np.dtype(dtype))
        with pytest.raises(MetadataError):
            fill_values.emit_v2(value, np.dtype(dtype))
    with pytest.raises(UnsupportedFeature):
        fill_values.emit_v3(3, np.dtype(object))


SMALL = [  # type, JSON, bits
    ("bfloat16", 1.5, 0x3FC0), ("bfloat16", "NaN", 0x7FC0), ("bfloat16", "-Infinity", 0xFF80), ("bfloat16", "0xffc1", 0xFFC1), ("float8_e5m2", "Infinity", 0x7C),
    ("float8_e4m3fnuz", "NaN", 0x80), ("float8_e8m0fnu", 4.0, 0x81), ("float8_e8m0fnu", "NaN", 0xFF), ("float4_e2m1fn", -6.0, 0xF), ("float6_e3m2fn", 28.0, 0x1F),
    ("int2", -2, 2), ("int4", -8, 8), ("uint4", 15, 15), ("complex_float16", [1.0, "NaN"], 0x7E003C00), ("complex_bfloat16", [1.0, -2.0], 0xC0003F80),
]  # fmt: skip


@cases(("name", "value", "expected"), SMALL)
def test_scalars_of_ml_dtypes(name, value, expected):
    pytest.importorskip("ml_dtypes")
    dtype = parse_v3(name, key="")
    for parse, emit in ((fill_values.parse_v3, fill_values.emit_v3), (fill_values.parse_v2, fill_values.emit_v2)):
        found = parse(value, dtype, key="")
        assert int.from_bytes(np.array(found, dtype).tobytes(), "little") == expected
        if emit is fill_values.emit_v3 and name.startswith("float"):
            assert emit(found, dtype) == f"0x{expected:02x}"  # the form that all peers read
        elif emit is fill_values.emit_v3 or not str(value).startswith("0x"):
            assert emit(found, dtype) == value


@cases(
    ("name", "value"),
    [
        ("float4_e2m1fn", "NaN"), ("float4_e2m1fn", "Infinity"), ("float4_e2m1fn", 7), ("float4_e2m1fn", "0x10"), ("float8_e4m3fnuz", "Infinity"), ("float8_e8m0fnu", 0),
        ("float8_e8m0fnu", -1), ("float8_e8m0fnu", 1e39), ("int2", 2), ("int2", -3), ("uint4", 16), ("uint2", 1.5), ("int4", "NaN"), ("bfloat16", "x"), ("bfloat16", 1e39),
        ("bfloat16", "0x10000"), ("complex_float16", 1), ("complex_float16", [1]), ("complex_bfloat16", [1, "x"]), ("float8_e5m2", 1e6), ("bfloat16", None), ("int4", True),
    ],
)  # fmt: skip
def test_scalars_that_ml_dtypes_has_not(name, value):
    with pytest.raises(MetadataError):
        fill_values.parse_v3(value, parse_v3(name, key=""), key="zarr.json")
