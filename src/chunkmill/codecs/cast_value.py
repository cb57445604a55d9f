"""The `cast_value` filter: the same numbers in another dtype, rounded and bounded as the configuration says.

Spec: zarr-extensions, codecs/cast_value. Decoding casts back by the same rules. How single numbers are rounded is
`chunkmill.codecs.rounding`'s; numcodecs' ``astype``, which casts as numpy does: `chunkmill.codecs.numcodecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.rounding import OUT_OF_RANGE, ROUNDINGS, cast
from chunkmill.model.dtypes import DType, emit_v3
from chunkmill.model.dtypes import parse_v3 as parse_dtype
from chunkmill.model.fill_values import parse_v3 as parse_scalar
from chunkmill.model.metadata import JSON, NamedConfig
from chunkmill.model.small_dtypes import float_range, integer_range

__all__ = ["CastValue"]

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
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> CastValue:
        """Build the codec from ``{"data_type": "uint8", "rounding": "nearest-even", …}``."""
        if unknown := set(configuration) - {"data_type", "rounding", "out_of_range", "scalar_map"}:
            raise ValueError(f"unknown members {sorted(unknown)}")
        dtype = parse_dtype(configuration.get("data_type"), key="codecs", field="cast_value.data_type")
        rounding = configuration.get("rounding", "nearest-even")
        beyond = configuration.get("out_of_range")
        if rounding not in ROUNDINGS or beyond not in OUT_OF_RANGE:
            raise ValueError(f"rounding {rounding!r:.80} and out_of_range {beyond!r:.80}: at least one is unknown")
        mapping = configuration.get("scalar_map") or {}
        if not isinstance(mapping, Mapping) or set(mapping) - {"encode", "decode"}:
            raise ValueError(f"scalar_map is {mapping!r:.80}, expected lists 'encode' and 'decode'")
        codec = cls(dtype, rounding, beyond, dict(mapping))
        codec.spec_after(spec)
        return codec

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
