"""The `scale_offset` filter: ``(x - offset) * scale``, in the arithmetic of the dtype.

Spec: zarr-extensions, codecs/scale_offset. numcodecs' ``fixedscaleoffset`` rounds and casts besides:
`chunkmill.codecs.numcodecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import ChunkSpec
from chunkmill.model.fill_values import parse_v3
from chunkmill.model.metadata import JSON, NamedConfig
from chunkmill.model.small_dtypes import float_range, integer_range

__all__ = ["ScaleOffset"]

_EXACT_BITS = 32  # a product of two integers of so many bits fits int64


@dataclass(frozen=True, slots=True)
class ScaleOffset:
    """Subtract `offset` and multiply by `scale`, both as the JSON of a fill value of the dtype."""

    offset: JSON = 0
    scale: JSON = 1
    name: str = "scale_offset"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> ScaleOffset:
        """Build the codec from ``{"offset": 5, "scale": 0.1}``."""
        if unknown := set(configuration) - {"offset", "scale"}:
            raise ValueError(f"unknown members {sorted(unknown)}")
        codec = cls(configuration.get("offset", 0), configuration.get("scale", 1))
        codec.spec_after(spec)
        return codec

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, {"offset": self.offset, "scale": self.scale})

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
                encoded: NDArray[Any] = ((chunk - offset) * scale).astype(spec.dtype, copy=False)
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
                decoded: NDArray[Any] = (chunk / scale + offset).astype(spec.dtype, copy=False)
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
        offset = parse_v3(self.offset, dtype, key="codecs", field="offset") if self.offset != 0 else _zero(dtype)
        return offset, parse_v3(self.scale, dtype, key="codecs", field="scale")


def _zero(dtype: np.dtype[Any]) -> Any:
    # float8_e8m0fnu has no 0 to subtract
    known = float_range(dtype)
    return np.float64(0) if known is not None and not known.has_zero else np.zeros((), dtype)[()]


def _widened(chunk: NDArray[Any]) -> NDArray[Any]:
    """Return integers in which sums and products of two of them are exact: Python's own for those of 64 bits."""
    narrow = 8 * chunk.dtype.itemsize <= _EXACT_BITS
    return np.atleast_1d(chunk.astype(np.int64 if narrow else object))  # of no axes, objects would come out bare


def _narrowed(values: NDArray[Any], limits: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    if values.size and not (limits[0] <= int(values.min()) and int(values.max()) <= limits[1]):
        raise ValueError(f"numbers from {values.min()} to {values.max()}, which do not fit {limits[0]} to {limits[1]}")
    return values.astype(dtype)
