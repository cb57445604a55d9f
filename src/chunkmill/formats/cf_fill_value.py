"""The attribute ``_FillValue`` of CF data, as xarray writes it: JSON <-> a scalar of the array's data type."""

from __future__ import annotations

import base64
import struct
from typing import Any

import numpy as np

from chunkmill.errors import MetadataError
from chunkmill.model.metadata import JSON

_NON_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def encode_fill_value(value: Any, dtype: np.dtype[Any]) -> JSON:
    """Return the attribute ``_FillValue`` as xarray writes it for elements of `dtype`: floats in base64.

    Examples
    --------
    >>> encode_fill_value(float("nan"), np.dtype("f4")), encode_fill_value(-1, np.dtype("i2"))
    ('AAAAAAAA+H8=', -1)
    """
    if dtype.kind == "c":
        number = complex(value)
        return [_base64(number.real), _base64(number.imag)]
    if dtype.kind == "f":
        return _base64(float(value))
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iumM":
        return int(np.asarray(value).astype("i8" if dtype.kind in "mM" else dtype)[()])
    if isinstance(value, bytes):
        return base64.standard_b64encode(value).decode()
    return str(value)


def decode_fill_value(value: JSON, dtype: np.dtype[Any], *, key: str = "") -> Any:
    """Return the scalar that the attribute ``_FillValue`` says for elements of `dtype`; ``None``: no element equals it.

    Besides what xarray writes, plain numbers are understood, alone or in a list, as other writers have them.

    Raises
    ------
    MetadataError
        It is nothing that elements of `dtype` can be compared with.

    Examples
    --------
    >>> decode_fill_value("AAAAAAAA+H8=", np.dtype("f4")), decode_fill_value([-1], np.dtype("i2"))
    (nan, -1)
    """
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    try:
        return _scalar(value, dtype)
    except (ValueError, TypeError, struct.error):
        expected = f"a scalar of {dtype}, floats in base64"
        raise MetadataError(key=key, field="attributes._FillValue", got=value, expected=expected) from None


def _scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return _float(value)
    if dtype.kind == "c":
        real, imaginary = value if isinstance(value, list) else (value, 0)
        return complex(_float(real), _float(imaginary))
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iumM":
        number = int(value)
        return number if number == value and (dtype.kind in "mM" or _holds(dtype, number)) else None
    if dtype.kind in "SO":
        return base64.b64decode(value, validate=True)
    return str(value)


def _float(value: Any) -> float:
    if isinstance(value, str) and value not in _NON_FINITE:
        (number,) = struct.unpack("<d", base64.b64decode(value, validate=True))
        return float(number)
    return float(_NON_FINITE.get(value, value))


def _base64(number: float) -> str:
    return base64.standard_b64encode(struct.pack("<d", number)).decode()


def _holds(dtype: np.dtype[Any], number: int) -> bool:
    return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)
