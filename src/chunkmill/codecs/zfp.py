"""The `zfp` serializer: numbers compressed by the library of that name, lossless or to a bound of precision.

Spec: zarr-extensions, codecs/zfp: a stream without a header, as the configuration says all that one would. Run by
zfpy, an extra. numcodecs' ``zfpy``, whose streams begin with a header: `chunkmill.codecs.numcodecs`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec
from chunkmill.codecs.bytes import byte_view
from chunkmill.errors import UnknownCodec
from chunkmill.model.dtypes import is_small
from chunkmill.model.metadata import JSON, NamedConfig

ZFP_HEADER = 24
"""Bytes that hold the longest header of zfp, of 148 bits."""

_MAX_RANK = 4
_PARAMETERS: Mapping[str, str | None] = {
    "reversible": None,
    "fixed_accuracy": "tolerance",
    "fixed_rate": "rate",
    "fixed_precision": "precision",
}
_MAX_PARAMETER = 2.0**64  # of a tolerance; what a rate may be follows from the bits of a number


@dataclass(frozen=True, slots=True)
class Zfp:
    """zfp in one of its modes.

    Integers of 8 and 16 bits are shifted up to 32, as zfp promotes them; float16 is cast to float32.
    """

    mode: str
    parameters: Mapping[str, JSON] = field(default_factory=dict, hash=False)
    name: str = "zfp"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Zfp:  # noqa: ARG003
        """Build the codec from ``{"mode": "fixed_accuracy", "tolerance": 0.05}``."""
        mode = configuration.get("mode")
        if not isinstance(mode, str) or mode not in _PARAMETERS:
            raise ValueError(f"mode is {mode!r:.80}, expected one of {', '.join(_PARAMETERS)}")
        # zarrs before 0.18 could write a header, and said so
        parameters = {name: value for name, value in configuration.items() if name not in {"mode", "write_header"}}
        if configuration.get("write_header", False):
            raise ValueError("write_header is set: such streams are numcodecs.zfpy's")
        name = _PARAMETERS[mode]
        if set(parameters) != {name} - {None}:
            raise ValueError(f"got the parameters {sorted(parameters)}, expected {name} for {mode}")
        for value in parameters.values():
            most, types = (64, {int}) if mode == "fixed_precision" else (_MAX_PARAMETER, {int, float})
            if type(value) not in types or not 0 < value <= most:
                raise ValueError(f"{name} is {value!r:.80}, which zfp does not take")
        _zfpy()
        return cls(mode, parameters)

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, {"mode": self.mode, **self.parameters})

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where zfp has no such numbers or no such shape."""
        if len(spec.shape) > _MAX_RANK:
            raise ValueError(f"zfp has at most {_MAX_RANK} axes, not {len(spec.shape)}: a reshape may come before it")
        shape = spec.shape or (1,)
        longest_stream(shape, _promoted_type(spec.dtype), self._fewest_bits(len(shape)))

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Compress the chunk."""
        if not chunk.size:
            return b""
        promoted = np.ascontiguousarray(_promoted(chunk, spec.dtype)).reshape(spec.shape or (1,))
        return _zfpy().compress_numpy(promoted, write_header=False, **self.parameters)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decompress the chunk; a stream that is longer than any of that many numbers raises."""
        if not prod(spec.shape):
            if byte_view(data).nbytes:
                raise ValueError("bytes for a chunk without elements")
            return np.empty(spec.shape, spec.dtype)
        dtype, shape = _promoted_type(spec.dtype), spec.shape or (1,)
        longest = longest_stream(shape, dtype, self._fewest_bits(len(shape)))
        view = byte_view(data)
        if not 0 < len(view) <= longest:
            raise ValueError(f"{len(view)} bytes, expected 1 to {longest} for shape {shape}")
        # zfp reads as far as its blocks go, whatever the stream holds
        stream = bytes(view).ljust(longest + 16, b"\0")
        library = _zfpy()
        out = library._decompress(stream, library.dtype_to_ztype(dtype), shape, **self.parameters)  # noqa: SLF001
        return _demoted(out, spec.dtype).reshape(spec.shape)

    def _fewest_bits(self, ndim: int) -> int:
        """Return the bits that each block of 4**ndim numbers takes at least."""
        if self.mode == "fixed_rate":
            return int(float(self.parameters["rate"]) * 4**ndim) + 64  # which zfp rounds up to words
        return 0


def longest_stream(shape: tuple[int, ...], dtype: np.dtype[Any], fewest_bits: int = 0) -> int:
    """Return the most bytes that zfp makes of an array, as ``zfp_stream_maximum_size`` does, or reads of a stream.

    `ValueError` for rates of more bits than any number has: what is read would be many times the array.
    """
    n_blocks = prod(-(-length // 4) for length in shape)
    values = 4 ** len(shape)
    # exponents, or the count of bit planes, in reversible mode; then the bits of each plane
    bits: int = {"int32": 5, "int64": 6, "float32": 1 + 1 + 8 + 5, "float64": 1 + 1 + 11 + 6}[dtype.name]
    bits += values - 1 + values * 8 * dtype.itemsize
    if fewest_bits > (most := 128 * values + 64):
        raise ValueError(f"{fewest_bits} bits for each {values} numbers, expected at most {most}")
    n_bits = max(bits, fewest_bits)
    return -(-n_blocks * n_bits // 64) * 8 + 8


def _zfpy() -> Any:
    try:
        return importlib.import_module("zfpy")
    except ImportError as error:
        raise UnknownCodec(name="zfp", reason="pip install 'chunkmill[codecs]'") from error


def _promoted_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind in "mM":
        return np.dtype(np.int64)
    if dtype.kind not in "iuf" or is_small(dtype):
        raise ValueError(f"zfp needs numbers, not {dtype}")
    if dtype.kind == "f":
        return np.dtype(np.float32) if dtype.itemsize == 2 else dtype  # noqa: PLR2004 - float16
    return np.dtype(np.int64 if dtype.itemsize == 8 else np.int32)  # noqa: PLR2004 - 64 bits


def _promoted(chunk: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    target = _promoted_type(dtype)
    if dtype.kind in "mM":
        return np.ascontiguousarray(chunk).view(np.int64)
    if dtype.kind == "f" or dtype == target:
        return np.asarray(chunk, target)
    n_bits = 8 * dtype.itemsize
    if n_bits == 8 * target.itemsize:  # unsigned: the same numbers
        if chunk.size and int(chunk.max()) > np.iinfo(target).max:
            raise ValueError(f"{chunk.max()} exceeds {np.iinfo(target).max}, the greatest integer of zfp")
        return chunk.astype(target)
    half = 1 << (n_bits - 1) if dtype.kind == "u" else 0
    return (chunk.astype(np.int32) - np.int32(half)) << np.int32(31 - n_bits)


def _demoted(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind in "mM":
        return values.view(dtype)
    if dtype.kind == "f" or dtype == values.dtype:
        with np.errstate(all="ignore"):
            same: NDArray[Any] = np.asarray(values, dtype)
        return same
    n_bits, info = 8 * dtype.itemsize, np.iinfo(dtype)
    if n_bits == 8 * values.itemsize:
        unsigned: NDArray[Any] = np.maximum(values, 0).astype(dtype)
        return unsigned
    half = 1 << (n_bits - 1) if dtype.kind == "u" else 0
    shifted = (values >> np.int32(31 - n_bits)) + np.int32(half)
    demoted: NDArray[Any] = np.clip(shifted, info.min, info.max).astype(dtype)
    return demoted
