"""Numbers that numpy alone cannot hold: bfloat16, floats of 4 to 8 bits, integers of 2 and 4, through ml_dtypes.

Here: names <-> dtypes, and what is known of their bits. Spec: zarr-extensions, data-types; ``float8_e4m3fn`` is
TensorStore's. The package is an extra: without it, arrays of these types are refused by name, and nothing else needs
it. In memory an element has whole bytes; the bits that it does not use are zero.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import UnsupportedFeature

__all__ = [
    "NOT_HELD",
    "SMALL",
    "FloatRange",
    "cleared",
    "complex_part",
    "float_range",
    "integer_range",
    "is_small",
    "mantissa_bits",
    "n_bits",
    "small_dtype",
    "small_name",
]

_FLOATS = (
    "bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
_INTEGERS = ("int2", "int4", "uint2", "uint4")
_COMPLEX = {"complex_float16": "complex32", "complex_bfloat16": "bcomplex32"}

SMALL: Mapping[str, str] = MappingProxyType({**{name: name for name in (*_FLOATS, *_INTEGERS)}, **_COMPLEX})
"""Names of the registry and of TensorStore, and what ml_dtypes calls their types."""

NOT_HELD = frozenset(f"complex_{name}" for name in _FLOATS if name not in {"bfloat16", "float8_e4m3fn"})
"""Names of the registry for which neither numpy nor ml_dtypes has a type."""

_NAMES = {ours: name for name, ours in SMALL.items()}
_HINT = "pip install 'chunkmill[dtypes]'"


def small_dtype(name: str, *, format_name: str, key: str) -> np.dtype[Any] | None:
    """Return the dtype of a name of the registry; ``None`` when it is not one of these.

    `UnsupportedFeature` where ml_dtypes is not installed, or has no such type.
    """
    if name in NOT_HELD:
        hint = "neither numpy nor ml_dtypes has such numbers"
        raise UnsupportedFeature(format=format_name, feature=f"data type {name!r}", key=key, hint=hint)
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
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    name = dtype.type.__name__ if is_small(dtype) else ""
    if not name.startswith(("int", "uint")):
        return None
    bits = n_bits(dtype)
    return (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def mantissa_bits(dtype: np.dtype[Any]) -> int | None:
    """Return the bits of the mantissa that are stored; ``None`` when `dtype` holds no floats.

    Examples
    --------
    >>> mantissa_bits(np.dtype("f4")), mantissa_bits(np.dtype("i4"))
    (23, None)
    """
    found = float_range(dtype)
    return None if found is None else found.precision - 1


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
    return _float_range(dtype.newbyteorder("=") if dtype.itemsize > 1 else dtype)


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
