"""The serializers `vlen-utf8` and `vlen-bytes`: values of variable length.

Layout, as in Zarr v2: the number of elements in four bytes, then each element's length in four bytes and its bytes;
little endian, elements in C order. The loops are numcodecs' (compiled); everything that makes them safe is here.
Not here: `vlen-array` and the other object codecs of Zarr v2 (`chunkmill.codecs.numcodecs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numcodecs.vlen
import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec
from chunkmill.codecs.bytes import buffer_size, byte_view
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["VlenBytes", "VlenUtf8", "check_count"]

_WORD = 4  # bytes of a count or length


@dataclass(frozen=True, slots=True)
class VlenUtf8:
    """Strings as UTF-8, to and from `numpy.dtypes.StringDType` or ``object``, as the spec says."""

    name: str = "vlen-utf8"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> VlenUtf8:  # noqa: ARG003
        """Build the codec; it has nothing to configure."""
        return cls()

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name)

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no strings."""
        if spec.dtype.kind not in "OT":
            raise ValueError(f"vlen-utf8 needs variable-length strings, not {spec.dtype}")

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Encode strings; ``None`` is taken for an empty one only where it is the fill value."""
        values = _objects(chunk, spec, str)
        return numcodecs.vlen.VLenUTF8().encode(values)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode strings; the count must be the chunk's, and no byte may be left over."""
        check_count(data, prod(spec.shape))
        values = numcodecs.vlen.VLenUTF8().decode(data)
        if _WORD * (values.size + 1) + len("".join(values.tolist()).encode()) != buffer_size(data):
            raise ValueError("bytes are left over after the last string")
        return _as_dtype(values, spec)


@dataclass(frozen=True, slots=True)
class VlenBytes:
    """Byte strings, in arrays of ``object``."""

    name: str = "vlen-bytes"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> VlenBytes:  # noqa: ARG003
        """Build the codec; it has nothing to configure."""
        return cls()

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name)

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no objects."""
        if spec.dtype.kind != "O":
            raise ValueError(f"vlen-bytes needs objects, not {spec.dtype}")

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Encode byte strings; ``None`` is taken for an empty one only where it is the fill value."""
        return numcodecs.vlen.VLenBytes().encode(_objects(chunk, spec, bytes))  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode byte strings; the count must be the chunk's, and no byte may be left over."""
        check_count(data, prod(spec.shape))
        values = numcodecs.vlen.VLenBytes().decode(data)
        if _WORD * (values.size + 1) + sum(map(len, values.tolist())) != buffer_size(data):
            raise ValueError("bytes are left over after the last value")
        return _as_dtype(values, spec)


def check_count(data: Buffer, expected: int) -> None:
    """Compare the count that `data` begin with; afterwards numcodecs allocates no more than that many elements."""
    size = buffer_size(data)
    if size < _WORD * (expected + 1):
        raise ValueError(f"{size} bytes cannot hold {expected} values")
    if (count := int.from_bytes(byte_view(data)[:_WORD], "little")) != expected:
        raise ValueError(f"{count} values, expected {expected}")


def _objects(chunk: NDArray[Any], spec: ChunkSpec, kind: type) -> NDArray[Any]:
    """Return the elements as a flat object array, each of type `kind`, or empty where numpy's fill stands."""
    values = np.ascontiguousarray(chunk).reshape(-1).astype(object, copy=False)
    empty = spec.fill_value is None  # then None, and the 0 of np.zeros, are what numpy fills with
    for index, value in enumerate(values.tolist()):
        if not isinstance(value, kind) and not (empty and (value is None or (type(value) is int and value == 0))):
            coords = tuple(int(i) for i in np.unravel_index(index, chunk.shape))
            raise TypeError(f"element {coords} is a {type(value).__name__}, expected {kind.__name__}")
    return values if values.flags.writeable else values.copy()  # numcodecs takes no read-only memory


def _as_dtype(values: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
    """Return flat objects in the shape and dtype of `spec`."""
    return values.astype(spec.dtype, copy=False).reshape(spec.shape)
