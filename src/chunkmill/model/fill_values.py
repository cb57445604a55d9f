"""Fill values <-> JSON, by dtype.

Here: what Zarr v2 and v3 write for one value of a dtype, and the functions that other formats share. Bits are kept:
NaN payloads, ``-0.0`` and integers beyond 2**53 come back as they were.
Spec: Zarr v2, "Fill value encoding", with what its peers do for the types it leaves out; Zarr v3 core, "Fill value
list", with the data types of zarr-extensions.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.dtypes import (
    ByteOrder,
    DType,
    complex_part,
    float_range,
    integer_range,
    is_small,
    n_bits,
    to_native,
    with_byte_order,
)
from chunkmill.model.metadata import JSON
from chunkmill.model.user_values import as_dtype, zero

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SURROGATE = re.compile("[\ud800-\udfff]")  # which are no characters
_BITS = re.compile(r"0x[0-9a-fA-F]{1,32}|0b[01]{1,128}", re.ASCII)
# JSON's own spelling of a number, and not longer than a float64 written out: int() of a million digits takes minutes
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?", re.ASCII)


# --------------------------------------------------------------------------------------------------------------------
# Parts


def parse_float(value: JSON, dtype: DType, *, key: str, field: str = "fill_value") -> Any:
    """Parse a JSON number, or the name of one that JSON has not, to a scalar of the float `dtype`.

    Examples
    --------
    >>> parse_float("-Infinity", np.dtype("f4"), key=".zarray")
    np.float32(-inf)
    """
    number: Any = _NON_FINITE.get(value) if isinstance(value, str) else value
    if type(number) not in {int, float}:
        raise MetadataError(key=key, field=field, got=value, expected=f"a number or one of {', '.join(_NON_FINITE)}")
    try:
        return as_dtype(float(number), dtype)[()]
    except (ValueError, OverflowError):
        raise MetadataError(key=key, field=field, got=value, expected=f"a number that {dtype} can hold") from None


def parse_bits(text: JSON, dtype: DType, *, key: str, field: str = "fill_value") -> Any:
    """Parse ``"0x..."`` or ``"0b..."``, the bits of a scalar of `dtype` written as one unsigned integer.

    Examples
    --------
    >>> parse_bits("0x7fc12345", np.dtype("f4"), key="zarr.json").view("u4")
    np.uint32(2143363909)
    """
    bits = int(text, 0) if isinstance(text, str) and _BITS.fullmatch(text) else -1
    most = n_bits(dtype) if is_small(dtype) else 8 * dtype.itemsize
    if not 0 <= bits < 1 << most:
        raise MetadataError(key=key, field=field, got=text, expected=f"at most {most} bits, as 0x or 0b")
    little = with_byte_order(dtype, "little")
    return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), little).astype(dtype)[0]


def emit_float(value: Any, dtype: DType, *, bits: bool, key: str = "") -> JSON:
    """Return a float as JSON: a number, a name, or (`bits`) ``"0x..."`` for a NaN other than the usual one.

    Examples
    --------
    >>> emit_float(np.float32("inf"), np.dtype("f4"), bits=True)
    'Infinity'
    """
    scalar = np.array(value, dtype)[()]
    if bits and dtype.itemsize == 1:  # zarrs 0.2 reads nothing else, TensorStore 0.1 the 1 of float8_e8m0fnu as 2**-64
        return f"0x{scalar.tobytes().hex()}"
    if np.isnan(scalar):
        raw = scalar.tobytes() if np.little_endian else scalar.tobytes()[::-1]
        if raw == np.array(math.nan, with_byte_order(dtype, "little")).tobytes():
            return "NaN"
        if not bits:
            raise UnsupportedFeature(format="zarr2", feature=f"a NaN with payload 0x{raw[::-1].hex()}", key=key)
        return f"0x{raw[::-1].hex()}"
    if np.isinf(scalar):
        return "Infinity" if scalar > 0 else "-Infinity"
    return float(scalar)


def _integer(value: JSON, low: int, high: int, key: str, field: str) -> int:
    # z5 and Java write 2.0
    number = int(value) if type(value) is float and value.is_integer() else value
    if type(number) is not int or not low <= number <= high:
        raise MetadataError(key=key, field=field, got=value, expected=f"an integer from {low} to {high}")
    return number


def _text(value: JSON, key: str, field: str) -> str:
    if not isinstance(value, str) or _SURROGATE.search(value):
        raise MetadataError(key=key, field=field, got=value, expected="text")
    return value


def _base64(value: JSON, key: str, field: str) -> bytes:
    try:
        if isinstance(value, list) and all(type(n) is int for n in value):
            return bytes(value)
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise MetadataError(key=key, field=field, got=value, expected="base64, or a list of bytes") from None


def _as_number(value: JSON) -> JSON:
    """Return the number that a string of Zarr v2 spells, and anything else as it is; complex numbers are lists of two.

    >>> _as_number("0"), _as_number("1e3"), _as_number("NaN"), _as_number(["1", 2])
    (0, 1000.0, 'NaN', [1, 2])
    """
    if isinstance(value, list):
        return [_as_number(each) if isinstance(each, str) else each for each in value]
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    return float(value) if found[1] or found[2] else int(value)


# --------------------------------------------------------------------------------------------------------------------
# One scalar, as both versions have it


def _parse(value: JSON, dtype: DType, key: str, field: str) -> Any:
    """Parse a scalar of a dtype, in the byte order that opaque bytes have."""
    found: Any
    if dtype.kind == "T":
        found = _text(value, key, field)
    elif complex_part(dtype) is not None:
        found = _parse_complex(value, dtype, key, field)
    elif (limits := integer_range(dtype)) is not None:
        found = dtype.type(_integer(value, *limits, key, field))
    elif float_range(dtype) is not None:
        # bits as in v3: a writer of v2 that does it means the same
        is_bits = isinstance(value, str) and value.startswith("0x")
        found = (parse_bits if is_bits else parse_float)(value, dtype, key=key, field=field)
    elif dtype.kind == "b":
        if not isinstance(value, bool) and not (type(value) is int and value in {0, 1}):  # some write these
            raise MetadataError(key=key, field=field, got=value, expected="true or false")
        found = dtype.type(value)
    elif dtype.kind in "mM":
        ticks = -(2**63) if value == "NaT" else _integer(value, -(2**63), 2**63 - 1, key, field)
        found = np.array(ticks, "i8").view(dtype)[()]
    else:
        found = _parse_fixed(value, dtype, key, field)
    return found


def _parse_fixed(value: JSON, dtype: DType, key: str, field: str) -> Any:
    """Parse text or bytes of fixed width: shorter ones are common (kerchunk, zarr-python 3), not among opaque bytes."""
    unit, width = ("characters", dtype.itemsize // 4) if dtype.kind == "U" else ("bytes in base64", dtype.itemsize)
    content: Any = (_text if dtype.kind == "U" else _base64)(value, key, field)
    if len(content) > width or (dtype.kind == "V" and len(content) < width):
        expected = f"{'' if dtype.kind == 'V' else 'at most '}{width} {unit}"
        raise MetadataError(key=key, field=field, got=value, expected=expected)
    if dtype.kind == "V":
        return np.frombuffer(content, dtype).astype(to_native(dtype))[0]
    return np.array(content, dtype)[()]


def _parse_complex(value: JSON, dtype: DType, key: str, field: str) -> Any:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - real and imaginary part
        raise MetadataError(key=key, field=field, got=value, expected="[real, imaginary]")
    part = complex_part(dtype) or dtype
    return np.array([_parse(number, part, key, field) for number in value], part).view(dtype)[0]


def _emit(fill: Any, dtype: DType, key: str, *, bits: bool) -> JSON:
    """Return the JSON of a scalar that both versions write alike."""
    if dtype.kind in "TU":
        return str(fill)
    scalar = np.array(fill, dtype)[()]
    if dtype.kind == "f" or float_range(dtype) is not None:
        return emit_float(scalar, dtype, bits=bits, key=key)
    if (part := complex_part(dtype)) is not None:
        return [emit_float(number, part, bits=bits, key=key) for number in np.array([scalar]).view(part)]
    if dtype.kind in "mM":
        return int(scalar.view("i8"))
    return bool(scalar) if dtype.kind == "b" else int(scalar)


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _as_array(fill: Any, dtype: DType, key: str) -> NDArray[Any]:
    try:
        array = np.array(fill, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(key=key, field="fill_value", got=str(error), expected=f"a scalar of {dtype}") from None
    if array.ndim:
        raise MetadataError(key=key, field="fill_value", got=fill, expected=f"a scalar of {dtype}")
    return array


# --------------------------------------------------------------------------------------------------------------------
# Zarr v2


def parse_v2(value: JSON, dtype: DType, *, key: str, field: str = "fill_value", serializer: str = "") -> Any:
    r"""Parse a Zarr v2 fill value; `dtype` has the byte order of storage, which structured values share.

    Parameters
    ----------
    serializer
        Name of the object codec: what values of dtype `object` are.

    Returns
    -------
    A native scalar; for ``null``, which is undefined, ``None``, or the missing time that zarr-python reads it as.

    Examples
    --------
    >>> parse_v2("AAE=", np.dtype("V2"), key=".zarray").tobytes(), parse_v2(1, np.dtype("?"), key=".zarray")
    (b'\x00\x01', np.True_)
    """
    native = to_native(dtype)
    # n5-zarr wrote "0" for every type until May 2024
    value = value if native.kind in "OTU" else _as_number(value)
    # zarr-python 2's default is 0 for every type
    is_text = (native.kind in "SUVT" and not is_small(native)) or serializer == "vlen-bytes"
    zeroed = type(value) is int and value == 0 and is_text
    if value is None:  # zarr-python leaves out chunks of nothing but NaT then
        return _parse("NaT", native, key, field) if native.kind in "mM" else None
    if zeroed:
        return zero(native, serializer)
    if native.kind == "O":
        return _base64(value, key, field) if serializer == "vlen-bytes" else value
    if complex_part(native) is not None and type(value) in {int, float}:
        return _parse_complex([value, 0], native, key, field)
    in_storage = native.kind == "V" and not is_small(native)
    return _parse(value, dtype if in_storage else native, key, field)


def emit_v2(fill: Any, dtype: DType, *, key: str = "") -> JSON:
    """Return the Zarr v2 form of `fill`; `dtype` has the byte order of storage.

    Examples
    --------
    >>> emit_v2(np.bytes_(b"q"), np.dtype("S2"))
    'cQA='
    """
    if fill is None:
        return None
    if dtype.kind == "O":
        return _encoded(fill) if isinstance(fill, bytes) else fill
    native = to_native(dtype)
    array = _as_array(fill, native, key)
    if dtype.kind in "SV" and not is_small(dtype):
        return _encoded(array.astype(dtype).tobytes())
    return _emit(array[()], native, key, bits=False)


# --------------------------------------------------------------------------------------------------------------------
# Zarr v3


def parse_v3(value: JSON, dtype: DType, *, key: str, field: str = "fill_value", order: ByteOrder = "little") -> Any:
    """Parse a Zarr v3 fill value to a scalar of `dtype`.

    Parameters
    ----------
    order
        Byte order of the ``bytes`` codec: that of structured values in base64 (zarr-python 3.0 and 3.1).

    Examples
    --------
    >>> parse_v3([1.5, "-Infinity"], np.dtype("c8"), key="zarr.json")
    np.complex64(1.5-infj)
    """
    if value is None:
        raise MetadataError(key=key, field=field, got=None, expected="a value: Zarr v3 has no null")
    if dtype.kind == "O":
        return _base64(value, key, field)
    if dtype.fields is None:
        return _parse(value, dtype, key, field)
    if not isinstance(value, dict):
        return _parse_fixed(value, with_byte_order(dtype, order), key, field)
    if set(value) != set(dtype.names or ()):
        raise MetadataError(key=key, field=field, got=value, expected=f"a value for each of {dtype.names}")
    # by bytes: assignment to a field could quiet a NaN
    parts = [
        np.array(parse_v3(value[name], dtype[name], key=key, field=f"{field}.{name}"), dtype[name]).tobytes()
        for name in dtype.names or ()
    ]
    return np.frombuffer(b"".join(parts), dtype)[0]


def emit_v3_bytes(fill: Any, dtype: DType, *, key: str = "", order: ByteOrder = "little") -> str:
    """Return the form of a structured `fill` in which zarr-python 3.0 and 3.1 have it: base64 of its bytes.

    Examples
    --------
    >>> emit_v3_bytes(np.array((1, 2), "u1,u2"), np.dtype("u1,u2"))
    'AQIA'
    """
    return _encoded(_as_array(fill, dtype, key).astype(with_byte_order(dtype, order)).tobytes())


def emit_v3(fill: Any, dtype: DType, *, key: str = "") -> JSON:
    """Return the Zarr v3 form of `fill`.

    Examples
    --------
    >>> emit_v3(np.array(0x7FC12345, "u4").view("f4"), np.dtype("f4"))
    '0x7fc12345'
    """
    if dtype.kind == "O":
        if not isinstance(fill, bytes):
            raise UnsupportedFeature(format="zarr3", feature=f"fill value {fill!r:.80} of an object", key=key)
        return _encoded(fill)
    array = _as_array(fill, dtype, key)
    if dtype.fields is not None:
        return {name: _emit_field(array[name][()], dtype[name], key) for name in dtype.names or ()}
    if dtype.kind == "S":
        return _encoded(bytes(array[()]))
    if dtype.kind == "V" and not is_small(dtype):
        return list(array.tobytes())
    return _emit(array[()], dtype, key, bits=True)


def _emit_field(fill: Any, dtype: DType, key: str) -> JSON:
    """Return the form of a field: that of raw bytes is zarr-python's, as is the name of their type in structures."""
    is_raw = dtype.kind == "V" and dtype.names is None and not is_small(dtype)
    return _encoded(np.array(fill).tobytes()) if is_raw else emit_v3(fill, dtype, key=key)
