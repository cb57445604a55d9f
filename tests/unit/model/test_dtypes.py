import sys
from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from support.cases import cases

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model import dtypes
from chunkmill.model.dtypes import (
    SMALL,
    STRING,
    byte_order,
    emit_v2,
    emit_v3,
    parse_v2,
    parse_v3,
    to_native,
    with_byte_order,
)

V2 = [
    ("|b1", np.dtype("?")), ("<i1", np.dtype("i1")),  # byte order on single bytes occurs
    (">i8", np.dtype(">i8")), ("<f2", np.dtype("<f2")), ("<c16", np.dtype("<c16")), ("<M8[ns]", np.dtype("<M8[ns]")),
    (">m8[25us]", np.dtype(">m8[25us]")), ("<m8", np.dtype("<m8")),  # no unit
    ("<M8[generic]", np.dtype("<M8")), ("|S12", np.dtype("S12")), (">U4", np.dtype(">U4")), ("|V3", np.dtype("V3")),
    ("|O", np.dtype(object)), ([["r", "|u1"], ["g", "|u1"]], np.dtype([("r", "u1"), ("g", "u1")])),
    ([["z", ">f4", [2, 2]]], np.dtype([("z", ">f4", (2, 2))])),
    (
        [["foo", "<f4"], ["bar", [["baz", ">f4"], ["qux", "<i4"]]]],
        np.dtype([("foo", "<f4"), ("bar", [("baz", ">f4"), ("qux", "<i4")])]),
    ),
]  # fmt: skip


@cases(("value", "dtype"), V2)
def test_v2(value, dtype):
    found = parse_v2(value, key=".zarray")
    assert found == dtype == parse_v2(emit_v2(found), key=".zarray")
    assert byte_order(found) == byte_order(dtype)


def deep(value, wrap, n=100):
    for _ in range(n):
        value = wrap(value)
    return value


HOSTILE_V2 = [
    "", "i4", "=i4", "|i4", "|U3", "<i3", "<f16", "<c32", "<b2", "i4,i4", "<i4,<i4", "3i4", "(2,)i4", "<U0", "|S0",
    "|V0", "|S00004", "<U1000000000000", "|V99999999999", "|S99999999", "<M8[ns", "<M8[xs]", "<M8[0ns]",
    "<M8[99999999999ns]", "<M8[5generic]", "float64", "object", "<O", "<f8\n", " <f8", "<f8 ", "<\u0667f", None, 3,
    True, {}, [], [[]], [["x"]], [["", "<i4"]], [["x", "<i4"], ["x", "<i4"]], [[["t", "x"], "<i4"]],
    [["x", "<i4", [0]]], [["x", "<i4", [True]]], [["x", "<i4", [2**62, 2**62]]],
    [["x", "|S60000000"], ["y", "|S60000000"]], [["x", "|O"]], [["x", "<i4", [1] * 40]], [["x", "<i4", "3"]],
    [[3, "<i4"]], deep("<i4", lambda value: [["x", value]]),
]  # fmt: skip


@cases("value", HOSTILE_V2)
def test_v2_refuses(value):
    with pytest.raises(MetadataError):
        parse_v2(value, key=".zarray")


def test_types_that_nobody_has_are_named():
    with pytest.raises(UnsupportedFeature, match="'complex_float8_e5m2'"):
        parse_v3("complex_float8_e5m2", key="zarr.json")
    with pytest.raises(UnsupportedFeature, match=r"zarrs\.optional"):
        parse_v3({"name": "zarrs.optional", "configuration": {"name": "int8"}}, key="zarr.json")


def of(name, **configuration):
    return {"name": name, "configuration": configuration}


FIELDS = [
    {"name": "a", "data_type": "int16"},
    {"name": "b", "data_type": of("struct", fields=[{"name": "c", "data_type": "r16"}])},
]
STRUCT = np.dtype([("a", "i2"), ("b", [("c", "V2")])])
V3 = [
    ("bool", np.dtype("?")), ("uint64", np.dtype("u8")), ("float16", np.dtype("f2")), ("complex64", np.dtype("c8")),
    ({"name": "int32"}, np.dtype("i4")), (of("int32"), np.dtype("i4")), ("r24", np.dtype("V3")),
    (of("raw_bytes", length_bytes=3), np.dtype("V3")), (of("numpy.datetime64", unit="ns"), np.dtype("M8[ns]")),
    (of("numpy.datetime64", unit="\u00b5s", scale_factor=25), np.dtype("M8[25us]")),
    (of("numpy.timedelta64", unit="\u03bcs", scale_factor=1), np.dtype("m8[us]")),
    (of("numpy.timedelta64", unit="generic", scale_factor=1), np.dtype("m8")),
    (of("fixed_length_utf32", length_bytes=16), np.dtype("U4")),
    (of("null_terminated_bytes", length_bytes=6), np.dtype("S6")), ("string", STRING), ("bytes", np.dtype(object)),
    ("variable_length_bytes", np.dtype(object)), (of("struct", fields=FIELDS), STRUCT),
    (of("structured", fields=[["a", "int16"], ["b", of("structured", fields=[["c", "r16"]])]]), STRUCT),
]  # fmt: skip


@cases(("value", "dtype"), V3)
def test_v3(value, dtype):
    assert parse_v3(value, key="zarr.json") == dtype
    assert parse_v3(emit_v3(dtype), key="zarr.json") == dtype


def test_v3_is_written_in_the_forms_that_peers_read():
    assert emit_v3(np.dtype(">i4")) == "int32"
    assert emit_v3(np.dtype("S6")) == of("null_terminated_bytes", length_bytes=6)
    assert emit_v3(np.dtype("U4")) == of("fixed_length_utf32", length_bytes=16)
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "ns", "ps", "fs", "as"):
        assert emit_v3(np.dtype(f"m8[7{unit}]")) == of("numpy.timedelta64", unit=unit, scale_factor=7)
    assert emit_v3(np.dtype("M8[25us]")) == of("numpy.datetime64", unit="us", scale_factor=25)
    assert emit_v3(np.dtype([("a", "i2")])) == of("struct", fields=[{"name": "a", "data_type": "int16"}])


HOSTILE_V3 = [
    "", "int", "i4", "<i4", "Bool", "r", "r0", "r7", "r-8", "r8.0", "r8000000000000", "r" + "8" * 5000, "r\u0668", "float8_e9m3", None, 4, True, [], ["int32"], {},
    {"name": 3}, {"name": ["int32"]}, of("int32", endian="big"), {"name": "int32", "configuration": None}, {"name": "int32", "configuration": [1]},
    of("fixed_length_utf32", length_bytes=10**18), of("fixed_length_utf32", length_bytes=6), of("fixed_length_utf32", length_bytes=0), of("fixed_length_utf32"),
    of("raw_bytes", length_bytes=-1), of("raw_bytes", length_bytes=True), of("raw_bytes", length_bytes=3.0), of("null_terminated_bytes", length_bytes=3, x=1),
    of("numpy.datetime64"), of("numpy.datetime64", unit="ns", scale_factor=0), of("numpy.datetime64", unit="ns", scale_factor=2**31),
    of("numpy.datetime64", unit="parsec", scale_factor=1), of("numpy.datetime64", unit=["ns"], scale_factor=1), of("numpy.datetime64", unit="generic", scale_factor=2),
    of("struct"), of("struct", fields=[]), of("struct", fields=[["a"]]), of("struct", fields=[{"name": "a"}]), of("struct", fields=[{"name": "", "data_type": "int8"}]),
    of("struct", fields=[["a", "int8"], ["a", "int8"]]), of("struct", fields=[["a", "string"]]), of("struct", fields=[["a", "bytes"]]), of("struct", fields=["int8"]),
    deep("int8", lambda value: of("struct", fields=[["x", value]])),
]  # fmt: skip


@cases("value", HOSTILE_V3)
def test_v3_refuses(value):
    with pytest.raises(MetadataError):
        parse_v3(value, key="zarr.json")


MOST = 1 << 26  # bytes of an element


@cases(
    ("parse", "held", "refused"),
    [
        (parse_v2, f"|S{MOST}", f"|S{MOST + 1}"), (parse_v2, f"<U{MOST // 4}", f"<U{MOST // 4 + 1}"),
        (parse_v3, f"r{8 * MOST}", f"r{8 * MOST + 8}"), (parse_v2, [["x", "|S1", [MOST]]], [["x", "|S1", [MOST + 1]]]),
        (parse_v2, [["x", "|S1", [1] * 32]], [["x", "|S1", [1] * 33]]),
        *((parse_v3, of(f"{name}", length_bytes=MOST), of(f"{name}", length_bytes=MOST + 4)) for name in ("fixed_length_utf32", "null_terminated_bytes", "raw_bytes")),
        (parse_v3, of("numpy.datetime64", unit="s", scale_factor=2**31 - 1), of("numpy.datetime64", unit="s", scale_factor=2**31)),
        (parse_v2, *(deep("<i4", lambda value: [["x", value]], n) for n in (33, 34))),
        (parse_v2, "<M8[999999999s]", "<M8[9999999990s]"),
        (parse_v3, *(deep("int8", lambda value: of("struct", fields=[["x", value]]), n) for n in (32, 33))),
    ],
)  # fmt: skip
def test_types_have_a_size_and_a_depth_at_most(parse, held, refused):
    assert 0 < parse(held, key="").itemsize <= MOST
    said = "expected (1 to 67108864|r<|the shape|length_bytes|a unit|a type str|the name)"
    with pytest.raises(MetadataError, match=said):
        parse(refused, key="")


@cases(
    ("name", "expected"),  # bits, lowest exponent, greatest, least; infinity, NaN, zero
    [
        ("float16", (11, -24, 65504.0, -65504.0, True, True, True)),
        ("bfloat16", (8, -133, 255.0 * 2.0**120, -255.0 * 2.0**120, True, True, True)),
        ("float8_e4m3fnuz", (4, -10, 240.0, -240.0, False, True, True)),
        ("float4_e2m1fn", (2, -1, 6.0, -6.0, False, False, True)),
        ("float8_e8m0fnu", (1, -127, 2.0**127, 2.0**-127, False, True, False)),
        *((name, None) for name in ("int32", "bool", "complex64", "string", "complex_bfloat16", "int4")),
    ],
)  # fmt: skip
def test_what_numbers_a_type_of_floats_has(name, expected):
    pytest.importorskip("ml_dtypes")
    found = dtypes.float_range(parse_v3(name, key=""))
    assert (found and astuple(found)) == expected
    ranges = {"int32": (-(2**31), 2**31 - 1), "int4": (-8, 7)}
    assert dtypes.integer_range(parse_v3(name, key="")) == ranges.get(name)


@cases(
    ("emit", "dtype"),
    [*product((emit_v2, emit_v3), ["f16", "V0", "U0"]), (emit_v2, "O,i4"), (emit_v3, [("m", "i4", (2,))])],
)
def test_what_a_version_cannot_hold(emit, dtype):
    with pytest.raises(UnsupportedFeature):
        emit(np.dtype(dtype))


@pytest.mark.parametrize("emit", [emit_v2, emit_v3])
def test_padding_is_refused_not_dropped(emit):
    with pytest.raises(UnsupportedFeature, match="padding"):
        emit(np.dtype([("a", "i1"), ("b", "i8")], align=True))


def test_byte_orders():
    mixed = np.dtype([("a", "<i4"), ("s", [("b", ">f8", (3,)), ("c", "S3")])])
    assert (byte_order(mixed), byte_order(with_byte_order(mixed, "big"))) == ("mixed", "big")
    assert byte_order(np.dtype([("a", "i1"), ("b", "V3")])) == "none"
    assert byte_order(STRING) == byte_order(np.dtype(object)) == "none"
    assert with_byte_order(STRING, "big") == STRING
    assert to_native(mixed) == np.dtype([("a", "i4"), ("s", [("b", "f8", (3,)), ("c", "S3")])])


def test_the_table_holds_what_all_formats_share():
    assert len(dtypes.PLAIN) == 14
    assert all(dtypes.plain_name(dtype) == name for name, dtype in dtypes.PLAIN.items())


@cases("name", SMALL)
def test_types_of_ml_dtypes(name):
    pytest.importorskip("ml_dtypes")
    dtype = parse_v3(name, key="zarr.json")
    assert emit_v3(dtype) == name
    assert parse_v2(emit_v2(dtype), key=".zarray") == dtype
    assert to_native(dtype) == to_native(with_byte_order(dtype, "big")) == dtype
    assert byte_order(dtype) == ("little" if "16" in name else "none")
    if "16" in name:
        with pytest.raises(UnsupportedFeature, match="big-endian"):
            emit_v2(with_byte_order(dtype, "big"))
    for fields in ([("a", dtype)], [("a", "i4"), ("b", dtype)]):
        for emit in (emit_v2, emit_v3):
            with pytest.raises(UnsupportedFeature, match="structured"):
                emit(np.dtype(fields))
    with pytest.raises(UnsupportedFeature, match="structured"):
        parse_v3({"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": name}]}}, key="")
    with pytest.raises(UnsupportedFeature, match="structured"):
        parse_v2([["a", name]], key="")


def test_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for parse in (parse_v2, parse_v3):
        with pytest.raises(UnsupportedFeature, match=r"'bfloat16'.*chunkmill\[dtypes\]"):
            parse("bfloat16", key="zarr.json")
