"""The `bytes` serializer, elements in C order, little or big endian; and what all codecs need to look at bytes.

Spec: Zarr v3 codecs/bytes; before mid-2023 the codec was called ``endian``. Not here: values of variable length
(`chunkmill.codecs.vlen`), the order of axes (`chunkmill.codecs.axes`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, Configured, DecodesInto
from chunkmill.codecs.elements import copy_rows, in_c_order
from chunkmill.model.dtypes import cleared, is_small, n_bits
from chunkmill.model.metadata import JSON


@dataclass(frozen=True, slots=True)
class BytesCodec(Configured, DecodesInto):
    """Raw elements.

    Attributes
    ----------
    endian
        Order of the bytes in an element (in each field of a structured one); ``None`` where elements have one byte.
    dtype
        The stored dtype as numpy's descr, where one word cannot say it: Zarr v2's structured dtypes, whose fields
        may differ in byte order. Not part of Zarr v3.
    """

    endian: Literal["little", "big"] | None
    dtype: Any = None
    name: str = "bytes"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> BytesCodec:
        """Build the codec from ``{"endian": "little" | "big"}``."""
        check_members(configuration, {"endian", "dtype"})
        descr = configuration.get("dtype")
        if descr is not None:
            descr = _as_descr(descr)
            _dtype(descr)  # raises TypeError when it is none
        endian = configuration.get("endian")
        if endian is not None and endian not in ("little", "big"):
            raise ValueError(f"endian is {endian!r}, expected 'little' or 'big'")
        if spec.dtype.itemsize == 1:
            endian = None  # without meaning: never swap one byte
        elif endian is None and (spec.dtype.names is not None or descr is not None):
            endian = "little"  # zarr-python 3.0 and 3.1 left it out for structured dtypes
        elif endian is None and (spec.dtype.kind not in "SV" or is_small(spec.dtype)):
            raise ValueError(f"endian is required for {spec.dtype}")
        return cls(endian, descr)

    def encoded_size(self, spec: ChunkSpec) -> int:
        """Return the number of elements times their size."""
        return prod(spec.shape) * self._stored(spec.dtype).itemsize

    def is_plain(self, spec: ChunkSpec) -> bool:
        """Return whether elements are stored as they are in memory, and any bits are an element."""
        stored = self.swapped(spec)
        return stored is not None and stored == spec.dtype

    def swapped(self, spec: ChunkSpec) -> np.dtype[Any] | None:
        """Return the dtype of stored elements that differ in byte order at most, where any bits are an element."""
        if spec.dtype.kind not in "iufc" or is_small(spec.dtype):
            return None
        stored = self._stored(spec.dtype)
        return stored if stored.newbyteorder("=") == spec.dtype.newbyteorder("=") else None

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Return the elements' bytes; shares memory with `chunk` where that is as it is stored."""
        stored = self._stored(spec.dtype)
        if chunk.shape != spec.shape:
            raise ValueError(f"a chunk of shape {chunk.shape}, expected {spec.shape}")
        if chunk.dtype != stored:
            chunk = chunk.astype(stored, order="C")
        return in_c_order(chunk).reshape(-1).view(np.uint8)

    def decode(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return a view of `data`, in native byte order, or a copy; wrong lengths raise."""
        stored = self._view(data, spec)
        if out is not None and spec.dtype.kind not in _MAY_HOLD_TEXT and not is_small(spec.dtype):
            copy_rows(out, stored)
            return out
        native = as_native(stored, spec.dtype, is_own=is_own(data))
        if is_small(native.dtype):
            native = cleared(native)
        if native.dtype.kind in _MAY_HOLD_TEXT:
            _check_text(native)
        return native

    def _view(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Return the elements in the byte order that they are stored in."""
        dtype, shape = spec.dtype, spec.shape
        stored = self._stored(dtype)
        if (size := buffer_size(data)) != (expected := prod(shape) * stored.itemsize):
            raise ValueError(f"{size} bytes, expected {expected} for shape {shape} and dtype {stored}")
        if dtype.kind == "b":
            return _booleans(np.frombuffer(data, np.uint8)).reshape(shape)
        # an array's view, not a memoryview's: what a compressor has just made stays writable, and known to be its own
        flat = data.view(stored) if isinstance(data, np.ndarray) else np.frombuffer(data, stored)
        return flat.reshape(shape)

    def _stored(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in the byte order of storage."""
        if dtype.hasobject or dtype.kind == "T":
            raise ValueError(f"{dtype} has no fixed size: a serializer such as vlen-utf8 is needed")
        if dtype.itemsize == 0:
            raise ValueError(f"elements of {dtype} have no bytes")
        if self.dtype is not None:
            return _dtype(self.dtype)
        if self.endian is None or self.endian == sys.byteorder or n_bits(dtype) <= _BYTE:
            return dtype
        return dtype.newbyteorder("<" if self.endian == "little" else ">")


def as_native(chunk: NDArray[Any], dtype: np.dtype[Any], *, is_own: bool) -> NDArray[Any]:
    """Return stored elements as `dtype`: in the same memory where they have it, or where that is nobody else's."""
    if chunk.dtype == dtype:
        return chunk
    if is_own and chunk.dtype.newbyteorder() == dtype and chunk.dtype.fields is None:
        # in place: of 1 MiB, new memory costs 400 µs, the swap 20
        native = chunk.view(dtype)
        native[...] = chunk
        return native
    return chunk.astype(dtype)


def is_own(data: Buffer) -> bool:
    """Return whether a compressor has just made `data`: then nobody else sees it."""
    return isinstance(data, np.ndarray) and data.flags.owndata and data.flags.writeable


def buffer_size(data: Buffer) -> int:
    """Return the number of bytes in `data`."""
    return len(data) if isinstance(data, bytes | bytearray) else data.nbytes


def _dtype(descr: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(descr)
    return dtype


def byte_view(data: Any) -> memoryview:
    """Return `data`, any buffer, as flat bytes, without a copy.

    >>> list(byte_view(np.array([[1], [2]], "<u2"))), list(byte_view(np.zeros((0, 3))))
    ([1, 0, 2, 0], [])
    """
    view = memoryview(data)
    if view.format == "B" and view.ndim == 1:
        return view
    return view.cast("B") if view.nbytes else memoryview(b"")


def check_members(configuration: Mapping[str, JSON], known: set[str]) -> None:
    """Raise `ValueError` where a configuration has other members than those that are known."""
    if unknown := set(configuration) - known:
        raise ValueError(f"unknown members {sorted(unknown)}")


def integer(configuration: Mapping[str, JSON], key: str, default: int, low: int, high: int) -> int:
    """Return a member that must be an integer within bounds."""
    value = configuration.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{key} is {value!r}, expected an integer from {low} to {high}")
    return value


def check_claim(stated: int, max_bytes: int, n_bytes: int, ratio: int) -> None:
    """Refuse the size that a frame of `n_bytes` states, before it is allocated."""
    if stated > max_bytes:
        raise ValueError(f"the frame states {stated} bytes, expected at most {max_bytes}")
    if stated > n_bytes * ratio:
        raise ValueError(f"the frame states {stated} bytes, which {n_bytes} compressed bytes cannot hold")


def _booleans(raw: NDArray[np.uint8]) -> NDArray[Any]:
    """Return `raw` as booleans; numpy's own are undefined for bytes other than 0 and 1."""
    return raw != 0 if raw.size and raw.max() > 1 else raw.view(np.bool)


_BYTE = 8  # bits

_MAY_HOLD_TEXT = "UV"  # text, and structures that may have some


def _check_text(values: NDArray[Any]) -> None:
    """Refuse characters beyond Unicode: numpy fails on them later, with a `SystemError` at the first one looked at."""
    if values.dtype.names is not None:
        for name in values.dtype.names:
            _check_text(values[name])
    elif values.dtype.kind == "U" and values.size:
        highest = int(np.ascontiguousarray(values).view(np.uint32).max())
        if highest > sys.maxunicode:
            raise ValueError(f"character {highest:#x} is not a character of Unicode")


def _as_descr(value: JSON) -> JSON:
    """Turn JSON's lists into the lists of tuples that numpy wants."""
    if not isinstance(value, list):
        return value
    return [
        (field[0], _as_descr(field[1]), *(tuple(part) if isinstance(part, list) else part for part in field[2:]))
        for field in value
    ]
