"""The `bitround` filter: numbers rounded to fewer significant bits, so that they compress better.

Spec: zarr-extensions, codecs/bitround; on floats the same as numcodecs' ``bitround``. Decoding is the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.bytes import integer
from chunkmill.model.metadata import JSON, NamedConfig
from chunkmill.model.small_dtypes import complex_part, mantissa_bits

__all__ = ["BitRound"]


@dataclass(frozen=True, slots=True)
class BitRound:
    """Round floats to `keepbits` bits of their mantissa, integers to as many from the first that is set."""

    keepbits: int
    name: str = "bitround"

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> BitRound:
        """Build the codec from ``{"keepbits": 3}``."""
        if set(configuration) != {"keepbits"}:
            raise ValueError(f"got the members {sorted(configuration)}, expected 'keepbits'")
        # numcodecs allows 0, the registry does not
        low = 1 if name == "bitround" else 0
        codec = cls(integer(configuration, "keepbits", 0, low, 1 << 10), name)
        codec.spec_after(spec)
        return codec

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, {"keepbits": self.keepbits})

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
    if (mantissa := mantissa_bits(part)) is None or part.itemsize == 1:
        raise ValueError(f"bitround needs numbers, not {dtype}")
    return np.dtype(f"u{part.itemsize}"), mantissa


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
