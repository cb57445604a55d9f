"""The `packbits` serializer: elements in as few bits as they have, or in some of those.

Spec: zarr-extensions, codecs/packbits. The first element is in the lowest bits of the first byte. numcodecs'
``packbits``, a filter of booleans, fills bytes from the highest bit on: `chunkmill.codecs.numcodecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, Configured
from chunkmill.codecs.bytes import buffer_size, check_members
from chunkmill.model.dtypes import complex_part, integer_range, is_small, n_bits, with_byte_order
from chunkmill.model.metadata import JSON

Padding = Literal["first_byte", "last_byte", "none"]

# Elements unpacked at a time, a multiple of 8: each takes a byte a bit while it is unpacked.
_BLOCK = 1 << 14


@dataclass(frozen=True, slots=True)
class PackBits(Configured):
    """Bits `first_bit` to `last_bit` of each element, without gaps; those left out are zero, or the sign bit."""

    padding_encoding: Padding = "none"
    first_bit: int | None = None
    last_bit: int | None = None
    name: str = "packbits"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> PackBits:  # noqa: ARG003
        """Build the codec."""
        check_members(configuration, {"padding_encoding", "first_bit", "last_bit"})
        padding = configuration.get("padding_encoding", "none")
        if padding not in ("first_byte", "last_byte", "none"):
            raise ValueError(f"padding_encoding is {padding!r}, expected 'first_byte', 'last_byte' or 'none'")
        bits = configuration.get("first_bit"), configuration.get("last_bit")
        if not all(bit is None or type(bit) is int for bit in bits):
            raise ValueError(f"first_bit and last_bit are {bits}, expected integers")
        return cls(padding, *bits)

    def encoded_size(self, spec: ChunkSpec) -> int:
        """Return the number of bytes; raises where the dtype has no such bits."""
        first, last = self._bits(spec.dtype)
        n_packed = prod(spec.shape) * _n_parts(spec.dtype) * (last - first + 1)
        return -(-n_packed // 8) + (self.padding_encoding != "none")

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Pack the elements in C order."""
        first, last = self._bits(spec.dtype)
        little = np.ascontiguousarray(chunk, with_byte_order(spec.dtype, "little")).reshape(-1)
        rows = little.view(np.uint8).reshape(-1, _part(spec.dtype).itemsize)
        blocks = []
        for start in range(0, len(rows), _BLOCK):
            bits = np.unpackbits(rows[start : start + _BLOCK], axis=1, bitorder="little")
            blocks.append(np.packbits(bits[:, first : last + 1], bitorder="little"))
        padding = np.array([-(len(rows) * (last - first + 1)) % 8], np.uint8)
        if self.padding_encoding == "first_byte":
            blocks.insert(0, padding)
        elif self.padding_encoding == "last_byte":
            blocks.append(padding)
        return np.concatenate(blocks) if blocks else np.empty(0, np.uint8)

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Unpack the elements; wrong lengths raise."""
        if (size := buffer_size(data)) != (expected := self.encoded_size(spec)):
            raise ValueError(f"{size} bytes, expected {expected} for shape {spec.shape} and dtype {spec.dtype}")
        first, last = self._bits(spec.dtype)
        packed = np.frombuffer(data, np.uint8)
        n_rows = prod(spec.shape) * _n_parts(spec.dtype)
        if self.padding_encoding != "none":
            stated = int(packed[0] if self.padding_encoding == "first_byte" else packed[-1])
            packed = packed[1:] if self.padding_encoding == "first_byte" else packed[:-1]
            if stated != -(n_rows * (last - first + 1)) % 8:
                raise ValueError(f"{stated} bits of padding, expected {-(n_rows * (last - first + 1)) % 8}")
        rows = np.empty((n_rows, _part(spec.dtype).itemsize), np.uint8)
        width, extended_bits = last - first + 1, _extended_bits(spec.dtype)
        for start in range(0, n_rows, _BLOCK):
            n = min(_BLOCK, n_rows - start)
            taken = packed[start * width // 8 : -(-(start + n) * width // 8)]
            stored = np.unpackbits(taken, count=n * width, bitorder="little").reshape(n, width)
            bits = np.zeros((n, 8 * rows.shape[1]), np.uint8)
            bits[:, first : last + 1] = stored
            bits[:, last + 1 : extended_bits] = stored[:, -1:]
            rows[start : start + n] = np.packbits(bits, axis=1, bitorder="little")
        raw = rows.reshape(-1)
        if spec.dtype.kind == "b":
            return raw.view(np.bool).reshape(spec.shape)
        elements: NDArray[Any] = raw.view(with_byte_order(spec.dtype, "little"))
        return np.asarray(elements, spec.dtype).reshape(spec.shape)

    def _bits(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """Return the first and the last bit that is stored."""
        if dtype.kind not in "biufcmM" and not is_small(dtype):
            raise ValueError(f"packbits needs numbers, not {dtype}")
        n = n_bits(dtype)
        first = 0 if self.first_bit is None else self.first_bit
        last = n - 1 if self.last_bit is None else self.last_bit
        if not 0 <= first <= last < n:
            raise ValueError(f"bits {first} to {last} of {n}")
        return first, last


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return complex_part(dtype) or dtype


def _n_parts(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // _part(dtype).itemsize


def _extended_bits(dtype: np.dtype[Any]) -> int:
    """Return the bits up to which the sign bit is repeated: 0 where there is none."""
    limits = integer_range(np.dtype(np.int64) if dtype.kind in "mM" else dtype)
    return n_bits(dtype) * (limits is not None and limits[0] < 0)
