"""Data types: their byte order, and their names in Zarr v2 and v3.

JSON <-> ``numpy.dtype``. In memory everything is native; the byte order of chunks is a codec's. Spec: Zarr v2, "Data
type encoding"; Zarr v3 core, "Data types", with the names of zarr-extensions and of zarr-python 3.

Numbers that numpy alone cannot hold (bfloat16, floats of 4 to 8 bits, integers of 2 and 4) are ml_dtypes', an extra:
without it, arrays of these types are refused by name, and nothing else needs it. In memory an element has whole bytes;
the bits that it does not use are zero. ``float8_e4m3fn`` is TensorStore's.

A document is not trusted: strings go through strict patterns before numpy sees them (``np.dtype("i4,i4")`` and
``np.dtype("U1000000000000")`` are never evaluated), and an element may not exceed `MAX_ITEM_BYTES`.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.metadata import JSON, StructName

_FLOATS = (
    "bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
_INTEGERS = ("int2", "int4", "uint2", "uint4")
_COMPLEX = {"complex_float16": "complex32", "complex_bfloat16": "bcomplex32"}

SMALL: Mapping[str, str] = MappingProxyType({**{name: name for name in (*_FLOATS, *_INTEGERS)}, **_COMPLEX})
"""Names of the registry and of TensorStore, and what ml_dtypes calls their types."""

_NAMES = {ours: name for name, ours in SMALL.items()}
_HINT = "pip install 'chunkmill[dtypes]'"


def small_dtype(name: str, *, format_name: str, key: str) -> np.dtype[Any] | None:
    """Return the dtype of a name of the registry; ``None`` when it is not one of these.

    `UnsupportedFeature` where ml_dtypes is not installed, or has no such type.
    """
    if name not in SMALL:
        return None
    try:
        found: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), SMALL[name]))
    except (ImportError, AttributeError):  # complex numbers and int2 came with later versions
        raise UnsupportedFeature(format=format_name, feature=f"data type {name!r}", key=key, hint=_HINT) from None
    return found


def is_small(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is one of ml_dtypes', in either byte order."""
    return dtype.type.__module__ == "ml_dtypes"


def small_name(dtype: np.dtype[Any]) -> str | None:
    """Return the name of one of ml_dtypes' types; ``None`` for others, and for those that have no name in Zarr."""
    return _NAMES.get(dtype.type.__name__) if is_small(dtype) else None


def complex_part(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype of the real part of complex numbers; ``None`` when `dtype` holds others.

    Examples
    --------
    >>> complex_part(np.dtype("c8")), complex_part(np.dtype("f4"))
    (dtype('float32'), None)
    """
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    name = dtype.type.__name__ if is_small(dtype) else ""
    if name == "bcomplex32":
        part: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        return part
    return np.dtype(np.float16) if name == "complex32" else None


def n_bits(dtype: np.dtype[Any]) -> int:
    """Return the bits that an element uses, of each part of a complex number.

    Examples
    --------
    >>> n_bits(np.dtype("c16")), n_bits(np.dtype("?"))
    (64, 1)
    """
    if dtype.kind == "b":
        return 1
    part = complex_part(dtype) or dtype
    if is_small(part) and part.itemsize == 1:
        digits = "".join(filter(str.isdigit, part.type.__name__.split("_")[0]))
        return int(digits)
    return 8 * part.itemsize


def cleared(values: NDArray[Any]) -> NDArray[Any]:
    """Return `values` of one of ml_dtypes' types with the bits that they do not use zero: stores may hold any there.

    Examples
    --------
    >>> import ml_dtypes
    >>> cleared(np.array([0xF7, 0x08], np.uint8).view(ml_dtypes.int4)).view(np.uint8)
    array([7, 8], dtype=uint8)
    """
    bits = n_bits(values.dtype)
    if bits == 8 * (complex_part(values.dtype) or values.dtype).itemsize:
        return values
    raw = values.view(np.uint8)
    mask = np.uint8((1 << bits) - 1)
    return (raw & mask).view(values.dtype) if raw.size and int(raw.max()) > mask else values


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Return the least and the greatest integer of a type of integers; ``None`` for other types.

    Examples
    --------
    >>> integer_range(np.dtype("i2"))
    (-32768, 32767)
    """
    is_numpys = dtype.kind in "iu"
    if not is_numpys and not (is_small(dtype) and "int" in dtype.type.__name__):
        return None
    info: Any = np.iinfo(dtype) if is_numpys else importlib.import_module("ml_dtypes").iinfo(dtype.type)
    return int(info.min), int(info.max)


def widened(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return a dtype of numpy that holds all numbers of one of ml_dtypes'; ``None`` for other dtypes."""
    if not is_small(dtype):
        return None
    return np.dtype("c8" if complex_part(dtype) is not None else "f4" if integer_range(dtype) is None else "i2")


@dataclass(frozen=True, slots=True)
class FloatRange:
    """Range of a float type: ``precision`` bits from ``2**lowest_exponent`` on, up to ``greatest``."""

    precision: int
    lowest_exponent: int
    greatest: float
    least: float
    has_infinity: bool
    has_nan: bool
    has_zero: bool


def float_range(dtype: np.dtype[Any]) -> FloatRange | None:
    """Return what numbers `dtype` has; ``None`` when it holds no floats.

    Examples
    --------
    >>> float_range(np.dtype("f2")).greatest
    65504.0
    """
    return _float_range(to_native(dtype))


@cache
def _float_range(dtype: np.dtype[Any]) -> FloatRange | None:
    small = is_small(dtype)
    if (dtype.kind != "f" and not small) or complex_part(dtype) is not None or integer_range(dtype) is not None:
        return None
    info: Any = importlib.import_module("ml_dtypes").finfo(dtype) if small else np.finfo(dtype)
    with np.errstate(all="ignore"):
        infinity, nan = (float(np.array(value, dtype)) for value in (math.inf, math.nan))
    has_zero = "e8m0" not in dtype.type.__name__
    lowest = info.smallest_subnormal if has_zero else info.tiny
    return FloatRange(
        precision=int(info.nmant) + 1,
        lowest_exponent=math.frexp(float(lowest))[1] - 1,
        greatest=float(info.max),
        least=float(info.min) if has_zero else float(lowest),
        has_infinity=math.isinf(infinity),
        has_nan=math.isnan(nan),
        has_zero=has_zero,
    )


DType: TypeAlias = np.dtype[Any]
ByteOrder: TypeAlias = Literal["little", "big"]

STRING: DType = np.dtypes.StringDType()
"""Variable-length text."""

PLAIN: Mapping[str, DType] = MappingProxyType(
    {
        "bool": np.dtype("?"),
        **{f"{u}int{bits}": np.dtype(f"{u}int{bits}") for u in ("", "u") for bits in (8, 16, 32, 64)},
        **{name: np.dtype(name) for name in ("float16", "float32", "float64", "complex64", "complex128")},
    }
)
"""The names that Zarr v3, its draft and N5 share, with their native dtypes."""

# two more names of the registry for the core's complex numbers, and zarr-python 3.1's and zarrs' for its bytes
_NAMED = {
    **PLAIN,
    "string": STRING,
    "complex_float32": PLAIN["complex64"],
    "complex_float64": PLAIN["complex128"],
    **dict.fromkeys(("bytes", "variable_length_bytes", "binary"), np.dtype(object)),
}

_PLAIN_NAMES = {dtype: name for name, dtype in PLAIN.items()}

MAX_ITEM_BYTES = 1 << 26
"""Most bytes of one element; a fill value of a larger type would be an allocation of the document's choosing."""

_MAX_DEPTH = 32  # structs in structs: numpy and this module recurse
_MAX_SUBARRAY_RANK = 32

_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
_MICRO = {"\u00b5s": "us", "\u03bcs": "us"}  # micro sign and Greek mu: numpy takes both
_MAX_MULTIPLIER = 2**31 - 1

_PATTERNS: tuple[re.Pattern[str], ...] = (
    re.compile(r"[<>|](b1|[iu]1|[SV][1-9][0-9]{0,8})", re.ASCII),  # "<i1" occurs, "|i4" would be a guess
    re.compile(r"[<>]([iu][248]|f[248]|c8|c16|U[1-9][0-9]{0,8})", re.ASCII),
    re.compile(rf"[<>][mM]8(\[(([1-9][0-9]{{0,8}})?({'|'.join(_UNITS)})|generic)\])?", re.ASCII),
)


def plain_name(dtype: DType) -> str | None:
    """Return the name of `dtype` in `PLAIN`, whatever its byte order; ``None`` when it has none.

    Examples
    --------
    >>> plain_name(np.dtype(">u2")), plain_name(np.dtype("S3"))
    ('uint16', None)
    """
    return _PLAIN_NAMES.get(to_native(dtype))


# --------------------------------------------------------------------------------------------------------------------
# Zarr v2: numpy's type strings and descriptions


def parse_v2(value: JSON, *, key: str, field: str = "dtype", depth: int = 0) -> DType:
    """Parse a Zarr v2 ``dtype`` member; the result has the byte order that it says.

    ``"|O"`` gives `object`: which values those are is the object codec's to say.

    Examples
    --------
    >>> parse_v2(">M8[25us]", key=".zarray").str
    '>M8[25us]'
    >>> parse_v2([["x", "<f4"], ["m", ">i2", [2, 3]]], key=".zarray").itemsize
    16
    """
    if isinstance(value, str):
        return _parse_typestr(value, key, field)
    if not isinstance(value, list) or not value or depth > _MAX_DEPTH:
        raise MetadataError(key=key, field=field, got=value, expected="a type string or a list of fields")
    fields: list[tuple[str, DType]] = []
    for item in value:
        if not isinstance(item, list) or len(item) not in {2, 3}:
            raise MetadataError(key=key, field=field, got=item, expected="a field: [name, type] or [name, type, shape]")
        dtype = parse_v2(item[1], key=key, field=field, depth=depth + 1)
        _check_field(dtype, "zarr2", key)
        if len(item) > 2:  # noqa: PLR2004 - the optional third part of a field
            dtype = _subarray(dtype, item[2], key, field)
        fields.append((item[0], dtype))
    return _struct(fields, key, field)


def _parse_typestr(value: str, key: str, field: str) -> DType:
    if value == "|O":
        return np.dtype(object)
    if (small := small_dtype(value, format_name="zarr2", key=key)) is not None:  # tensorstore's extension of v2
        return small
    if not any(pattern.fullmatch(value) for pattern in _PATTERNS):
        raise MetadataError(key=key, field=field, got=value, expected="a type string such as '<f8' or '|S12'")
    return _checked_size(np.dtype(value.removesuffix("[generic]")), value, key, field)


def _subarray(dtype: DType, shape: JSON, key: str, field: str) -> DType:
    sizes = shape if isinstance(shape, list) else [shape]
    ok = len(sizes) <= _MAX_SUBARRAY_RANK and all(type(n) is int and n > 0 for n in sizes)
    if not ok or prod(sizes) * dtype.itemsize > MAX_ITEM_BYTES:
        raise MetadataError(key=key, field=field, got=shape, expected="the shape of a small subarray")
    return np.dtype((dtype, tuple(sizes))) if sizes else dtype


def _struct(fields: list[tuple[str, DType]], key: str, field: str) -> DType:
    names = [name for name, _ in fields]
    # numpy would call an empty name "f0"
    if not all(type(name) is str and name for name in names) or len(set(names)) != len(names):
        raise MetadataError(key=key, field=field, got=names, expected="unique field names that are not empty")
    found = np.dtype(fields)
    return _checked_size(found, str(found), key, field)


def _checked_size(dtype: DType, value: JSON, key: str, field: str) -> DType:
    if not 0 < dtype.itemsize <= MAX_ITEM_BYTES:
        raise MetadataError(key=key, field=field, got=value, expected=f"1 to {MAX_ITEM_BYTES} bytes an element")
    return dtype


def emit_v2(dtype: DType, *, key: str = "") -> JSON:
    """Return the Zarr v2 form of `dtype`, in the byte order that it has.

    Examples
    --------
    >>> emit_v2(np.dtype([("x", ">f4"), ("m", "i1", (2,))]))
    [['x', '>f4'], ['m', '|i1', [2]]]
    """
    if dtype.kind in "OT":
        return "|O"
    if dtype.fields is None:
        if (name := small_name(dtype)) is not None:
            if byte_order(dtype) == "big":  # the name says nothing of it, and TensorStore takes it for little
                raise UnsupportedFeature(format="zarr2", feature=f"data type {name!r} in big-endian order", key=key)
            return name
        if dtype.itemsize and any(pattern.fullmatch(dtype.str) for pattern in _PATTERNS):
            return dtype.str
        raise UnsupportedFeature(format="zarr2", feature=f"data type {dtype}", key=key)
    _check_packed(dtype, "zarr2", key)
    fields: list[JSON] = []
    for name in dtype.names or ():
        base, shape = dtype[name].subdtype or (dtype[name], ())
        _check_field(base, "zarr2", key)
        fields.append([name, emit_v2(base, key=key), *([list(shape)] if shape else [])])
    return fields


def _check_field(dtype: DType, format_name: str, key: str) -> None:
    if dtype.kind in "OT" or is_small(dtype):  # numpy does not swap the bytes of small ones inside a structure
        raise UnsupportedFeature(format=format_name, feature=f"{dtype} in structured types", key=key)


def _check_packed(dtype: DType, format_name: str, key: str) -> None:
    if dtype.itemsize != sum(dtype[name].itemsize for name in dtype.names or ()):
        feature = f"padding in structured data type {dtype}"
        hint = "pack it: numpy.lib.recfunctions.repack_fields"
        raise UnsupportedFeature(format=format_name, feature=feature, key=key, hint=hint)


# --------------------------------------------------------------------------------------------------------------------
# Zarr v3


def parse_v3(value: JSON, *, key: str, field: str = "data_type", depth: int = 0) -> DType:
    """Parse a Zarr v3 ``data_type`` member: a name, or an object with one; the result is native and packed.

    Examples
    --------
    >>> parse_v3("uint16", key="zarr.json")
    dtype('uint16')
    >>> parse_v3({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}, key="zarr.json").str[1:]
    'U2'
    """
    name, configuration = value, {}
    if isinstance(value, dict):
        name, configuration = value.get("name"), value.get("configuration", {})
    if not isinstance(name, str) or type(configuration) is not dict or depth > _MAX_DEPTH:
        raise MetadataError(key=key, field=field, got=value, expected="the name of a data type, or an object with one")
    if (parse := _CONFIGURED.get(name)) is not None:
        return parse(name, configuration, key, field, depth)
    found = _parse_name(name, key, field)
    if configuration:
        raise MetadataError(key=key, field=field, got=value, expected=f"no configuration for {name!r}")
    return found


def _parse_name(name: str, key: str, field: str) -> DType:
    if name in _NAMED:
        return _NAMED[name]
    if (small := small_dtype(name, format_name="zarr3", key=key)) is not None:
        return small
    if re.fullmatch(r"r[0-9]+", name, re.ASCII):
        return parse_raw(name, key=key, field=field)
    raise UnsupportedFeature(format="zarr3", feature=f"data type {name[:80]!r}", key=key)


def parse_raw(name: str, *, key: str, field: str = "data_type") -> DType:
    """Return the dtype of ``r<bits>``: opaque bytes.

    Examples
    --------
    >>> parse_raw("r24", key="zarr.json").str
    '|V3'
    """
    digits = name.removeprefix("r")
    bits = int(digits) if len(digits) <= 12 else 0  # noqa: PLR2004 - int() of a million digits takes minutes
    if bits % 8 or not 0 < bits // 8 <= MAX_ITEM_BYTES:
        expected = f"r<bits>, a multiple of 8, at most {MAX_ITEM_BYTES} bytes"
        raise MetadataError(key=key, field=field, got=name, expected=expected)
    return np.dtype(f"V{bits // 8}")


def _parse_fixed_length(name: str, configuration: Mapping[str, JSON], key: str, field: str, _depth: int) -> DType:
    kind, unit = {"fixed_length_utf32": ("U", 4), "null_terminated_bytes": ("S", 1), "raw_bytes": ("V", 1)}[name]
    length = configuration.get("length_bytes")
    if type(length) is not int or length % unit or not 0 < length <= MAX_ITEM_BYTES or len(configuration) != 1:
        expected = f"length_bytes, a multiple of {unit} from {unit} to {MAX_ITEM_BYTES}"
        raise MetadataError(key=key, field=f"{field}.configuration", got=dict(configuration), expected=expected)
    return np.dtype(f"{kind}{length // unit}")


def _parse_time(name: str, configuration: Mapping[str, JSON], key: str, field: str, _depth: int) -> DType:
    kind = "M8" if name.endswith("datetime64") else "m8"
    unit, factor = configuration.get("unit"), configuration.get("scale_factor", 1)
    unit = _MICRO.get(unit, unit) if isinstance(unit, str) else unit
    ok = type(factor) is int and 0 < factor <= _MAX_MULTIPLIER and not set(configuration) - {"unit", "scale_factor"}
    if ok and unit == "generic" and factor == 1:
        return np.dtype(kind)
    if not ok or unit not in _UNITS:
        expected = f"a unit of numpy and a scale_factor from 1 to {_MAX_MULTIPLIER}"
        raise MetadataError(key=key, field=f"{field}.configuration", got=dict(configuration), expected=expected)
    return np.dtype(f"{kind}[{factor}{unit}]")


def _parse_struct(_name: str, configuration: Mapping[str, JSON], key: str, field: str, depth: int) -> DType:
    items = configuration.get("fields")
    if not isinstance(items, list) or not items or len(configuration) != 1:
        expected = "a list of fields"
        raise MetadataError(key=key, field=f"{field}.configuration", got=dict(configuration), expected=expected)
    fields: list[tuple[str, DType]] = []
    for item in items:
        if isinstance(item, dict) and set(item) == {"name", "data_type"}:
            pair = item["name"], item["data_type"]
        elif isinstance(item, list) and len(item) == 2:  # noqa: PLR2004 - zarr-python 3.0 and 3.1: [name, data type]
            pair = item[0], item[1]
        else:
            raise MetadataError(key=key, field=field, got=item, expected="a field: {name, data_type}")
        dtype = parse_v3(pair[1], key=key, field=field, depth=depth + 1)
        _check_field(dtype, "zarr3", key)
        fields.append((pair[0], dtype))
    return _struct(fields, key, field)


_CONFIGURED: Mapping[str, Callable[[str, Mapping[str, JSON], str, str, int], DType]] = {
    "fixed_length_utf32": _parse_fixed_length,
    "null_terminated_bytes": _parse_fixed_length,
    "raw_bytes": _parse_fixed_length,
    "numpy.datetime64": _parse_time,
    "numpy.timedelta64": _parse_time,
    "struct": _parse_struct,
    "structured": _parse_struct,
}


def emit_v3(dtype: DType, *, key: str = "", struct_name: StructName = "struct") -> JSON:
    """Return the Zarr v3 ``data_type`` of `dtype`: a bare name wherever there is one.

    `object` gives ``"bytes"``, the only values of variable length besides text that have a name. `struct_name` is that
    of structured types: ``"structured"`` as zarr-python 3.0 and 3.1 write them.

    Examples
    --------
    >>> emit_v3(np.dtype("V3")), emit_v3(np.dtype("f4"))
    ('r24', 'float32')
    >>> emit_v3(np.dtype("m8[10ms]"))
    {'name': 'numpy.timedelta64', 'configuration': {'unit': 'ms', 'scale_factor': 10}}
    """
    if (name := plain_name(dtype) or small_name(dtype)) is not None:
        return name
    if dtype.kind in "TO":  # bytes: the registered name; zarr-python reads it besides its own variable_length_bytes
        return "string" if dtype.kind == "T" else "bytes"
    if dtype.kind in "mMUS" and dtype.itemsize:
        return _emit_configured(dtype)
    if dtype.fields is not None:
        _check_packed(dtype, "zarr3", key)
        for name in dtype.names or ():
            _check_field(dtype[name], "zarr3", key)
        parts = {name: _emit_field(dtype[name], key, struct_name) for name in dtype.names or ()}
        fields: list[JSON] = [{"name": name, "data_type": part} for name, part in parts.items()]
        if struct_name == "structured":
            fields = [[name, part] for name, part in parts.items()]
        return {"name": struct_name, "configuration": {"fields": fields}}
    if dtype.kind != "V" or is_small(dtype) or dtype.subdtype is not None or not dtype.itemsize:
        raise UnsupportedFeature(format="zarr3", feature=f"data type {dtype}", key=key)
    return f"r{8 * dtype.itemsize}"  # zarr-python 3.1 reads only its own raw_bytes, which is not registered


def _emit_field(dtype: DType, key: str, struct_name: StructName) -> JSON:
    is_raw = dtype.kind == "V" and dtype.names is None and dtype.subdtype is None and not is_small(dtype)
    if is_raw:  # no release of zarr-python knows "r24" in a structure
        return {"name": "raw_bytes", "configuration": {"length_bytes": dtype.itemsize}}
    return emit_v3(dtype, key=key, struct_name=struct_name)


def _emit_configured(dtype: DType) -> JSON:
    if dtype.kind in "US":
        name = "fixed_length_utf32" if dtype.kind == "U" else "null_terminated_bytes"
        return {"name": name, "configuration": {"length_bytes": dtype.itemsize}}
    unit, factor = np.datetime_data(dtype)
    name = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
    return {"name": name, "configuration": {"unit": unit, "scale_factor": factor}}


def byte_order(dtype: DType) -> ByteOrder | Literal["none", "mixed"]:
    """Return the byte order of `dtype`: of all its fields, when it is structured.

    Examples
    --------
    >>> byte_order(np.dtype(">i4")), byte_order(np.dtype("S3"))
    ('big', 'none')
    >>> byte_order(np.dtype([("a", "<i4"), ("b", ">i4"), ("c", "?")]))
    'mixed'
    """
    found = set(_byte_orders(dtype))
    return found.pop() if len(found) == 1 else "mixed" if found else "none"


def _byte_orders(dtype: DType) -> list[ByteOrder]:
    if dtype.subdtype is not None:
        return _byte_orders(dtype.subdtype[0])
    if dtype.fields is not None:
        return [order for name in dtype.fields for order in _byte_orders(dtype[name])]
    if dtype.kind in "OT" or dtype.str[0] == "|" or (complex_part(dtype) or dtype).itemsize == 1:
        return []
    return ["big" if dtype.str[0] == ">" else "little"]


def with_byte_order(dtype: DType, order: ByteOrder) -> DType:
    """Return `dtype` with every multi-byte part in `order`.

    Examples
    --------
    >>> with_byte_order(np.dtype("<i4"), "big").str
    '>i4'
    """
    return dtype if _has_no_order(dtype) else dtype.newbyteorder("<" if order == "little" else ">")


def _has_no_order(dtype: DType) -> bool:
    # a type of ml_dtypes in one byte would differ from itself in the other order
    return dtype.kind in "OT" or (is_small(dtype) and dtype.itemsize == 1)


def to_native(dtype: DType) -> DType:
    """Return `dtype` in native byte order and packed: the form that `ArrayMetadata` holds.

    Examples
    --------
    >>> to_native(np.dtype([("a", ">i2"), ("b", ">f8")], align=True)).itemsize
    10
    """
    if dtype.fields is not None:
        return np.dtype([(name, to_native(dtype[name])) for name in dtype.names or ()])
    if dtype.subdtype is not None:
        return np.dtype((to_native(dtype.subdtype[0]), dtype.subdtype[1]))
    return dtype if _has_no_order(dtype) else dtype.newbyteorder("=")
