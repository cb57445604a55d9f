"""Casts of numbers between dtypes in which every number is rounded, bounded or refused by rule, never by chance.

Integers and floats of any width, ml_dtypes' too. Spec: zarr-extensions, codecs/cast_value, "Procedure". Not here: which
values a configuration maps to which (`chunkmill.codecs.cast_value`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.model.small_dtypes import FloatRange, float_range, integer_range, is_small, n_bits

__all__ = ["OUT_OF_RANGE", "ROUNDINGS", "cast"]

ROUNDINGS = ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away")
OUT_OF_RANGE = (None, "clamp", "wrap")

_MANTISSA = 53  # bits of a float64
_LARGEST_SHIFT = 63


def cast(values: NDArray[Any], dtype: np.dtype[Any], rounding: str, out_of_range: str | None) -> NDArray[Any]:
    """Return `values` in `dtype`; `ValueError` for a number that has no place there and for which no rule is given.

    Parameters
    ----------
    values
        Integers or floats, of numpy's dtypes or ml_dtypes'.
    rounding
        One of `ROUNDINGS`.
    out_of_range
        ``"clamp"``: the end of the range, or infinity where there is one. ``"wrap"``: modulo ``2**bits``, into
        integers.

    Examples
    --------
    >>> cast(np.array([2.5, -1.0, 300.0]), np.dtype("u1"), "nearest-away", "wrap")
    array([  3, 255,  44], dtype=uint8)
    """
    if values.dtype == dtype:
        return values
    if not values.ndim:  # numpy warns of scalars that wrap around
        return cast(values.reshape(1), dtype, rounding, out_of_range).reshape(())
    limits, known = integer_range(dtype), float_range(dtype)
    if limits is not None:
        if integer_range(values.dtype) is not None:
            return _to_integers(_native(values), dtype, limits, out_of_range)
        return _floats_to_integers(_native(values).astype(np.float64), dtype, limits, rounding, out_of_range)
    if known is None:
        raise ValueError(f"{dtype} holds no real numbers")
    return _to_floats(_native(values), dtype, known, rounding, out_of_range)


def _native(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers of ml_dtypes in the dtype of numpy's that holds them all."""
    if values.dtype.kind in "iuf" and not is_small(values.dtype):
        return values
    limits = integer_range(values.dtype)
    if limits is None:
        return values.astype(np.float64)
    # by way of bits, of which those above an element's own may hold anything
    n, raw = n_bits(values.dtype), values.view(np.uint8) & np.uint8((1 << n_bits(values.dtype)) - 1)
    return raw if limits[0] == 0 else ((raw ^ np.uint8(1 << (n - 1))).astype(np.int8) - np.int8(1 << (n - 1)))


# --------------------------------------------------------------------------------------------------------------------
# To integers


def _to_integers(
    values: NDArray[Any], dtype: np.dtype[Any], limits: tuple[int, int], out_of_range: str | None
) -> NDArray[Any]:
    low, high = limits
    beyond = (values < low) | (values > high)
    if beyond.any():
        if out_of_range is None:
            raise ValueError(f"{values[beyond].reshape(-1)[0]} is out of the range of {dtype}")
        if out_of_range == "clamp":
            values = np.where(values < low, low, np.where(values > high, high, values.astype(object)))
    return _wrapped(values, dtype)


def _wrapped(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return integers modulo the range of `dtype`."""
    if not is_small(dtype):
        return values.astype(dtype)
    raw = values.astype(np.int64).astype(np.uint8) & np.uint8((1 << n_bits(dtype)) - 1)
    return raw.view(dtype)


def _floats_to_integers(
    values: NDArray[np.float64], dtype: np.dtype[Any], limits: tuple[int, int], rounding: str, out_of_range: str | None
) -> NDArray[Any]:
    low, high = limits
    if not (finite := np.isfinite(values)).all():
        raise ValueError(f"{values[~finite].reshape(-1)[0]} is not an integer")
    whole = _INTEGRAL[rounding](values)
    below, above = whole < float(low), whole >= float(high + 1)
    if out_of_range is None and (below | above).any():
        raise ValueError(f"{values[below | above].reshape(-1)[0]} is out of the range of {dtype}")
    # by way of the magnitude in 64 bits: a float64 has no room for 2**64 - 1
    magnitude = np.fmod(np.abs(whole), 2.0**64).astype(np.uint64)
    wrapped = _wrapped(np.where(whole < 0, np.uint64(0) - magnitude, magnitude).view(np.int64), dtype)
    if out_of_range == "clamp":
        wrapped[below], wrapped[above] = low, high
    return wrapped


def _away(values: NDArray[np.float64]) -> NDArray[np.float64]:
    magnitude = np.abs(values)
    floor = np.floor(magnitude)
    up = magnitude - floor >= 0.5  # noqa: PLR2004 - adding a half first could round
    rounded: NDArray[np.float64] = np.copysign(floor + up, values)
    return rounded


_INTEGRAL: Mapping[str, Callable[[Any], NDArray[np.float64]]] = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
    "nearest-away": _away,
}


# --------------------------------------------------------------------------------------------------------------------
# To floats


def _to_floats(
    values: NDArray[Any], dtype: np.dtype[Any], known: FloatRange, rounding: str, out_of_range: str | None
) -> NDArray[Any]:
    widened = values.dtype.kind == "f" and np.can_cast(values.dtype, dtype)  # numpy calls int64 to float64 safe, too
    if not is_small(dtype) and (rounding == "nearest-even" or widened):
        with np.errstate(all="ignore"):
            result = values.astype(dtype)  # numpy rounds once, to even
        beyond = np.isinf(result) & np.isfinite(values)
        if beyond.any() and out_of_range is None:
            raise ValueError(f"{values[beyond].reshape(-1)[0]} is out of the range of {dtype}")
        return result
    rounded = _rounded(values, known, rounding)
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(values) & ((rounded > known.greatest) | (rounded < known.least))
    special = ~np.isfinite(values)
    lost = special & ~np.where(np.isnan(values), known.has_nan, known.has_infinity)
    if lost.any() or (beyond.any() and out_of_range is None):
        raise ValueError(f"{values[lost | beyond].reshape(-1)[0]} has no place in {dtype}")
    if beyond.any():
        top = np.inf if known.has_infinity else known.greatest
        bottom = -np.inf if known.has_infinity else known.least
        rounded = np.where(beyond, np.where(rounded > known.greatest, top, bottom), rounded)
    with np.errstate(all="ignore"):
        return rounded.astype(dtype)


def _rounded(values: NDArray[Any], known: FloatRange, rounding: str) -> NDArray[np.float64]:
    """Return numbers as float64, each rounded to the precision that floats like `known` have at its size."""
    negative = np.signbit(values) if values.dtype.kind == "f" else values < 0
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            fraction, exponent = np.frexp(np.abs(values.astype(np.float64)))
            finite = np.isfinite(fraction)
            digits = np.where(finite, fraction * 2.0**_MANTISSA, 0).astype(np.uint64)
        exponent = np.where(finite, exponent, 0).astype(np.int64) - _MANTISSA
    else:
        wide = values.astype(np.uint64) if values.dtype.kind == "u" else values.astype(np.int64).view(np.uint64)
        digits = np.where(negative, np.uint64(0) - wide, wide)
        exponent, finite = np.zeros(values.shape, np.int64), np.ones(values.shape, np.bool)
    # the exponent of the last digit that is kept
    lowest = np.maximum(_bit_length(digits) + exponent - known.precision, known.lowest_exponent)
    shift = np.maximum(lowest - exponent, 0)
    kept = _shifted(digits, shift, rounding, negative)
    with np.errstate(over="ignore"):
        result = np.ldexp(kept.astype(np.float64), (exponent + shift).astype(np.int32))
    signed = np.where(negative, -result, result)
    return np.where(finite, signed, values.astype(np.float64))


def _shifted(
    digits: NDArray[np.uint64], shift: NDArray[np.int64], rounding: str, negative: NDArray[Any]
) -> NDArray[np.uint64]:
    """Return ``digits / 2**shift``, rounded."""
    shift = np.minimum(shift, _LARGEST_SHIFT + 2)  # where not even the first digit is half of one that is kept
    by = np.minimum(shift, _LARGEST_SHIFT).astype(np.uint64)
    kept = np.where(shift > _LARGEST_SHIFT, np.uint64(0), digits >> by)
    rest = np.where(shift > _LARGEST_SHIFT, digits, digits & ((np.uint64(1) << by) - np.uint64(1)))
    half = np.uint64(1) << np.clip(shift - 1, 0, _LARGEST_SHIFT).astype(np.uint64)
    far = shift > _LARGEST_SHIFT + 1
    odd = (kept & np.uint64(1)).astype(np.bool)
    if rounding == "nearest-even":
        up = ((rest > half) | ((rest == half) & odd)) & ~far
    elif rounding == "nearest-away":
        up = (rest >= half) & ~far
    elif rounding == "towards-zero":
        up = np.zeros(digits.shape, np.bool)
    else:
        up = (rest > 0) & (negative == (rounding == "towards-negative"))
    rounded: NDArray[np.uint64] = kept + (up & (shift > 0)).astype(np.uint64)
    return rounded


def _bit_length(digits: NDArray[np.uint64]) -> NDArray[np.int64]:
    high = (digits >> np.uint64(32)).astype(np.float64)  # each half is exact in a float64
    low = (digits & np.uint64(0xFFFFFFFF)).astype(np.float64)
    lengths = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1])
    return lengths.astype(np.int64)
