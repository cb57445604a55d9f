"""Filters that change numbers by rule, never by chance: `cast_value`, `scale_offset` and `bitround`.

Integers and floats of any width, ml_dtypes' too. Spec: zarr-extensions, codecs/cast_value ("Procedure"; decoding casts
back by the same rules), codecs/scale_offset, codecs/bitround (whose decoding is the identity). numcodecs' ``astype``
and ``fixedscaleoffset``: `chunkmill.codecs.numcodecs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import ChunkSpec, Configured
from chunkmill.codecs.bytes import check_members, integer
from chunkmill.model.dtypes import (
    DType,
    FloatRange,
    complex_part,
    emit_v3,
    float_range,
    integer_range,
    is_small,
    n_bits,
)
from chunkmill.model.dtypes import parse_v3 as parse_dtype
from chunkmill.model.fill_values import parse_v3 as parse_scalar
from chunkmill.model.metadata import JSON, NamedConfig


@dataclass(frozen=True, slots=True)
class BitRound(Configured):
    """Round floats to `keepbits` bits of their mantissa, integers to as many from the first that is set."""

    keepbits: int
    name: str = "bitround"

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> BitRound:  # noqa: ARG003
        """Build the codec from ``{"keepbits": 3}``."""
        if set(configuration) != {"keepbits"}:
            raise ValueError(f"got the members {sorted(configuration)}, expected 'keepbits'")
        # numcodecs allows 0, the registry does not
        low = 1 if name == "bitround" else 0
        return cls(integer(configuration, "keepbits", 0, low, 1 << 10), name)

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return `spec`; raises where the dtype holds no numbers."""
        _words(spec.dtype)
        return spec

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Round the chunk; ties to even. What would overflow to the next power of two or to NaN is truncated."""
        words, mantissa = _words(spec.dtype)
        bits = np.ascontiguousarray(chunk).reshape(-1).view(words)
        if mantissa is None:
            rounded = _round_integers(bits, max(self.keepbits, 1), spec.dtype)
        else:
            rounded = bits if self.keepbits >= mantissa else _round_floats(bits, mantissa - self.keepbits, mantissa)
        return rounded.view(spec.dtype).reshape(chunk.shape)

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:  # noqa: ARG002
        """Return `chunk` as it is."""
        return chunk


def _words(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], int | None]:
    """Return the unsigned integers that hold the bits of one number of `dtype`, and the bits of its mantissa."""
    part = complex_part(dtype) or dtype
    if part.kind in "iumM":
        return np.dtype(f"u{part.itemsize}"), None
    if (known := float_range(part)) is None or part.itemsize == 1:
        raise ValueError(f"bitround needs numbers, not {dtype}")
    return np.dtype(f"u{part.itemsize}"), known.precision - 1


def _round_floats(bits: NDArray[Any], n_dropped: int, mantissa: int) -> NDArray[Any]:
    word = bits.dtype.type
    dropped, half = word(n_dropped), word((1 << (n_dropped - 1)) - 1)
    mask = word(np.iinfo(bits.dtype).max >> n_dropped << n_dropped)
    rounded = (bits + ((bits >> dropped) & word(1)) + half) & mask
    negative = word(1 << (bits.dtype.itemsize * 8 - 1))
    exponent = word((int(negative) - 1) >> mantissa << mantissa)
    # the carry of a NaN's payload would run through its exponent into the sign bit
    is_nan = (bits & ~negative) > exponent
    return np.where(is_nan, bits, rounded)


def _round_integers(bits: NDArray[Any], keepbits: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    word = bits.dtype.type
    n_bits = bits.dtype.itemsize * 8
    smeared = bits.copy()  # every bit below the first one set
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < n_bits:
            smeared |= smeared >> word(shift)
    kept = smeared >> word(keepbits) if keepbits < n_bits else np.zeros_like(smeared)  # the bits to drop
    half = kept >> word(1)
    lowest = kept + word(1)  # the lowest bit to keep; 0 where none is dropped and all are kept
    tie_up = np.where((bits & lowest) != 0, word(1), word(0))
    truncated = bits & ~kept
    up = (bits & kept) + np.where(kept != 0, half + tie_up, word(0)) > kept
    # a step up from the greatest integer would wrap around, or become negative
    highest = word(np.iinfo(bits.dtype).max)
    most = highest if dtype.kind == "u" else word(int(highest) >> 1)
    fits = np.where(truncated <= most, truncated < most - kept, truncated < highest - kept)
    result: NDArray[Any] = np.where(up & fits, truncated + lowest, truncated)
    return result


_WORD = 8  # bytes; a product of two integers of half as many fits int64


@dataclass(frozen=True, slots=True)
class ScaleOffset(Configured):
    """Subtract `offset` and multiply by `scale`, both as the JSON of a fill value of the dtype."""

    offset: JSON = 0
    scale: JSON = 1
    name: str = "scale_offset"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> ScaleOffset:  # noqa: ARG003
        """Build the codec from ``{"offset": 5, "scale": 0.1}``."""
        check_members(configuration, {"offset", "scale"})
        return cls(configuration.get("offset", 0), configuration.get("scale", 1))

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return `spec` with the fill value encoded; raises where the dtype or that value cannot be."""
        _, scale = self._scalars(spec.dtype)
        if float(scale) == 0:
            raise ValueError("scale is 0, which cannot be divided by")
        fill = spec.fill_value
        if fill is not None:
            fill = self.encode(np.array([fill], spec.dtype), spec)[0]
        return ChunkSpec(spec.shape, spec.dtype, fill)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Scale the chunk; numbers that the dtype does not hold raise."""
        offset, scale = self._scalars(spec.dtype)
        limits = integer_range(spec.dtype)
        if limits is None:
            with np.errstate(all="ignore"):
                encoded: NDArray[Any] = np.asarray((chunk - offset) * scale, spec.dtype)
                lost = np.isfinite(chunk) & ~np.isfinite(encoded)
            if lost.any():
                raise ValueError(f"{chunk[lost].reshape(-1)[0]} scaled is not a finite {spec.dtype}")
            return encoded
        wide = _widened(chunk)
        scaled = _narrowed(wide - int(offset), limits, wide.dtype) * int(scale)
        return _narrowed(scaled, limits, spec.dtype).reshape(chunk.shape)

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Undo the scaling; integers that are no multiples of the scale raise."""
        offset, scale = self._scalars(spec.dtype)
        limits = integer_range(spec.dtype)
        if limits is None:
            with np.errstate(all="ignore"):
                decoded: NDArray[Any] = np.asarray(chunk / scale + offset, spec.dtype)
            return decoded
        wide = _widened(chunk)
        if int(scale) != 1:
            if (rest := wide % int(scale) != 0).any():
                raise ValueError(f"{wide[rest][0]} is not a multiple of the scale {int(scale)}")
            wide = wide // int(scale)
        return _narrowed(wide + int(offset), limits, spec.dtype).reshape(chunk.shape)

    def _scalars(self, dtype: np.dtype[Any]) -> tuple[Any, Any]:
        if integer_range(dtype) is None and float_range(dtype) is None:
            raise ValueError(f"scale_offset needs real numbers, not {dtype}")
        offset = parse_scalar(self.offset, dtype, key="codecs", field="offset") if self.offset != 0 else _zero(dtype)
        return offset, parse_scalar(self.scale, dtype, key="codecs", field="scale")


def _zero(dtype: np.dtype[Any]) -> Any:
    # float8_e8m0fnu has no 0 to subtract
    known = float_range(dtype)
    return np.float64(0) if known is not None and not known.has_zero else np.zeros((), dtype)[()]


def _widened(chunk: NDArray[Any]) -> NDArray[Any]:
    """Return integers in which sums and products of two of them are exact: Python's own for those of 64 bits."""
    wide = np.int64 if chunk.dtype.itemsize < _WORD else object  # of no axes, objects would come out bare
    return np.atleast_1d(chunk.astype(wide))


def _narrowed(values: NDArray[Any], limits: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    if values.size and not (limits[0] <= int(values.min()) and int(values.max()) <= limits[1]):
        raise ValueError(f"numbers from {values.min()} to {values.max()}, which do not fit {limits[0]} to {limits[1]}")
    return values.astype(dtype)


ROUNDINGS = ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away")
OUT_OF_RANGE = (None, "clamp", "wrap")

_HALF = 32  # bits


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
    >>> cast(np.array([2.5]), np.dtype("S1"), "nearest-even", None)
    Traceback (most recent call last):
    ...
    ValueError: |S1 holds no real numbers
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
            values = np.clip(values.astype(object), low, high)
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
    with np.errstate(all="ignore"):
        if values.dtype.kind == "f":
            high, low = np.float64(0), values.astype(np.float64)
        else:
            magnitude = np.where(values < 0, np.uint64(0) - values.astype(np.uint64), values.astype(np.uint64))
            if known.precision < _HALF:  # what float64 has no digits for makes its last one odd: it was no tie
                cut = np.where(magnitude >> np.uint64(53) > 0, magnitude & np.uint64(0x7FF), np.uint64(0))
                magnitude = magnitude - cut | (cut > 0).astype(np.uint64) << np.uint64(11)
            rest = magnitude & np.uint64(0xFFFFFFFF if known.precision > _HALF else 2**64 - 1)
            factor = np.where(values < 0, -1.0, 1.0)
            high, low = factor * (magnitude - rest).astype(np.float64), factor * rest.astype(np.float64)
        exponent = np.frexp(np.where(high != 0, high, low))[1]
        last = np.maximum(exponent - known.precision, known.lowest_exponent)  # exponent of the last digit that is kept
        # only float64 needs a high half, which holds no digits after that one
        digits = np.ldexp(high, -last) + _INTEGRAL[rounding](np.ldexp(low, -last))
        rounded: NDArray[np.float64] = np.copysign(np.ldexp(digits, last), values)
    return rounded


Pairs = tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class CastValue:
    """Cast numbers to `dtype`.

    Attributes
    ----------
    dtype
        Of the encoded chunk.
    rounding
        Which of its two neighbours a number becomes that `dtype` does not have.
    out_of_range
        ``"clamp"``, ``"wrap"``, or ``None``: numbers beyond the range raise.
    scalar_map
        ``{"encode": [[from, to], …], "decode": […]}``: values that become others before any rule applies.
    """

    dtype: DType
    rounding: str = "nearest-even"
    out_of_range: str | None = None
    scalar_map: Mapping[str, JSON] = field(default_factory=dict, hash=False)
    name: str = "cast_value"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> CastValue:  # noqa: ARG003
        """Build the codec from ``{"data_type": "uint8", "rounding": "nearest-even", …}``."""
        check_members(configuration, {"data_type", "rounding", "out_of_range", "scalar_map"})
        dtype = parse_dtype(configuration.get("data_type"), key="codecs", field="cast_value.data_type")
        rounding = configuration.get("rounding", "nearest-even")
        beyond = configuration.get("out_of_range")
        if rounding not in ROUNDINGS or beyond not in OUT_OF_RANGE:
            raise ValueError(f"rounding {rounding!r:.80} and out_of_range {beyond!r:.80}: at least one is unknown")
        mapping = configuration.get("scalar_map") or {}
        if not isinstance(mapping, Mapping) or set(mapping) - {"encode", "decode"}:
            raise ValueError(f"scalar_map is {mapping!r:.80}, expected lists 'encode' and 'decode'")
        return cls(dtype, rounding, beyond, dict(mapping))

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        configuration: dict[str, JSON] = {"data_type": emit_v3(self.dtype), "rounding": self.rounding}
        if self.out_of_range is not None:
            configuration["out_of_range"] = self.out_of_range
        if self.scalar_map:
            configuration["scalar_map"] = dict(self.scalar_map)
        return NamedConfig(self.name, configuration)

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec in the other dtype, fill value included; raises where that does not come back."""
        for dtype in (spec.dtype, self.dtype):
            if integer_range(dtype) is None and float_range(dtype) is None:
                raise ValueError(f"cast_value needs real numbers, not {dtype}")
        if self.out_of_range == "wrap" and integer_range(self.dtype) is None:
            raise ValueError(f"out_of_range 'wrap' needs integers, not {self.dtype}")
        self._pairs("encode", spec.dtype, self.dtype)
        self._pairs("decode", self.dtype, spec.dtype)
        if spec.fill_value is None:
            return ChunkSpec(spec.shape, self.dtype, None)
        fill = np.array([spec.fill_value], spec.dtype)
        one = ChunkSpec((1,), spec.dtype, None)
        encoded = self.encode(fill, one)
        back = self.decode(encoded, one)
        if not ((back == fill) | ((back != back) & (fill != fill))).all():  # noqa: PLR0124 - NaN alone differs from itself
            raise ValueError(f"the fill value {fill[0]} becomes {encoded[0]}, and that {back[0]}")
        return ChunkSpec(spec.shape, self.dtype, encoded[0])

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Cast to the other dtype; numbers that no rule covers raise."""
        return self._cast(chunk, self.dtype, self._pairs("encode", spec.dtype, self.dtype), self.out_of_range)

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Cast back by the same rules."""
        # numbers wrap around into integers alone
        wraps = self.out_of_range != "wrap" or integer_range(spec.dtype) is not None
        beyond = self.out_of_range if wraps else None
        return self._cast(chunk, spec.dtype, self._pairs("decode", self.dtype, spec.dtype), beyond)

    def _cast(self, chunk: NDArray[Any], dtype: DType, pairs: Pairs, out_of_range: str | None) -> NDArray[Any]:
        if not pairs:
            return cast(chunk, dtype, self.rounding, out_of_range)
        done = np.zeros(chunk.shape, np.bool)
        values = np.zeros(chunk.shape, dtype)
        for before, after in pairs:
            found = (chunk != chunk) if before != before else (chunk == before)  # noqa: PLR0124 - NaN
            values[found & ~done] = after
            done |= found
        values[~done] = cast(np.asarray(chunk)[~done], dtype, self.rounding, out_of_range)
        return values

    def _pairs(self, direction: str, before: DType, after: DType) -> Pairs:
        pairs = self.scalar_map.get(direction) or []
        if not isinstance(pairs, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):  # noqa: PLR2004
            raise ValueError(f"scalar_map.{direction} is not a list of pairs")
        field = f"cast_value.scalar_map.{direction}"
        return tuple((_scalar(key, before, field), _scalar(value, after, field)) for key, value in pairs)


def _scalar(value: JSON, dtype: DType, field: str) -> Any:
    if isinstance(value, str) and value == "+Infinity":  # as an example of the specification has it
        value = "Infinity"
    return parse_scalar(value, dtype, key="codecs", field=field)
