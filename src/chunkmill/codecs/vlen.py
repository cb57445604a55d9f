"""Serializers of values of variable length: `vlen-utf8`, `vlen-bytes`, Zarr v2's `vlen-array`, `json2`, `msgpack2`.

Layout, as in Zarr v2: the number of elements in four bytes, then each element's length in four bytes and its bytes;
little endian, elements in C order. The loops are numcodecs' (compiled); everything that makes them safe is here. Those
of Zarr v2 alone are as numcodecs 0.16 has them, whose encoders run here; decoding is our own where numcodecs would
allocate what the data state. Pickle is refused.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numcodecs.vlen
import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, Configured
from chunkmill.codecs.bytes import buffer_size, byte_view
from chunkmill.codecs.numcodecs import InNumcodecs, native_dtype
from chunkmill.model.metadata import JSON

_WORD = 4  # bytes of a count or length


@dataclass(frozen=True, slots=True)
class Vlen(Configured):
    """Text as UTF-8, to and from `numpy.dtypes.StringDType` or ``object``; or byte strings, in arrays of ``object``."""

    name: str = "vlen-utf8"

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Vlen:  # noqa: ARG003
        """Build the codec; it has nothing to configure."""
        return cls(name.removeprefix("numcodecs."))

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no such values."""
        if spec.dtype.kind not in ("OT" if self._is_text else "O"):
            wanted = "variable-length strings" if self._is_text else "objects"
            raise ValueError(f"{self.name} needs {wanted}, not {spec.dtype}")

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Encode values; ``None`` is taken for an empty one only where it is the fill value."""
        values = _objects(chunk, spec, str if self._is_text else bytes)
        return self._codec().encode(values)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode values; the count must be the chunk's, and no byte may be left over."""
        check_count(data, prod(spec.shape))
        values = self._codec().decode(data)
        listed = values.tolist()
        _check_end(data, len(listed), len("".join(listed).encode()) if self._is_text else sum(map(len, listed)))
        return np.asarray(values, spec.dtype).reshape(spec.shape)

    @property
    def _is_text(self) -> bool:
        return self.name == "vlen-utf8"

    def _codec(self) -> Any:
        return numcodecs.vlen.VLenUTF8() if self._is_text else numcodecs.vlen.VLenBytes()


def check_count(data: Buffer, expected: int) -> None:
    """Compare the count that `data` begin with; afterwards numcodecs allocates no more than that many elements."""
    size = buffer_size(data)
    if size < _WORD * (expected + 1):
        raise ValueError(f"{size} bytes cannot hold {expected} values")
    if (count := int.from_bytes(byte_view(data)[:_WORD], "little")) != expected:
        raise ValueError(f"{count} values, expected {expected}")


def _objects(chunk: NDArray[Any], spec: ChunkSpec, kind: type) -> NDArray[Any]:
    """Return the elements as a flat object array, each of type `kind`, or empty where numpy's fill stands."""
    values = np.asarray(np.ascontiguousarray(chunk).reshape(-1), object)
    empty = spec.fill_value is None  # then None, and the 0 of np.zeros, are what numpy fills with
    for index, value in enumerate(values.tolist()):
        if not isinstance(value, kind) and not (empty and (value is None or (type(value) is int and value == 0))):
            coords = tuple(int(i) for i in np.unravel_index(index, chunk.shape))
            raise TypeError(f"element {coords} is a {type(value).__name__}, expected {kind.__name__}")
    return values if values.flags.writeable else values.copy()  # numcodecs takes no read-only memory


def _check_end(data: Buffer, n_values: int, n_bytes: int) -> None:
    if _WORD * (n_values + 1) + n_bytes != buffer_size(data):
        raise ValueError("bytes are left over after the last value")


def _check_objects(name: str, spec: ChunkSpec) -> None:
    if spec.dtype.kind not in "OT":
        raise ValueError(f"{name} needs objects, not {spec.dtype}")


@dataclass(frozen=True, slots=True)
class VlenArray(Configured):
    """`vlen-array`: one-dimensional arrays of one dtype and of any length."""

    dtype: str
    name: str = "numcodecs.vlen-array"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> VlenArray:  # noqa: ARG003
        """Build the codec from ``{"dtype": "<i4"}``."""
        dtype = configuration.get("dtype")
        if native_dtype(dtype, np.dtype(object)).hasobject:
            raise ValueError("vlen-array needs a dtype")
        return cls(str(dtype))

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no objects."""
        _check_objects(self.name, spec)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Encode arrays; ``None``, and the 0 of numpy's zeros, are empty ones where they are the fill value."""
        values = np.empty(chunk.size, object)
        for index, value in enumerate(chunk.reshape(-1).tolist()):
            is_empty = spec.fill_value is None and (value is None or (type(value) is int and value == 0))
            values[index] = np.empty(0, self.dtype) if is_empty else value
        return numcodecs.vlen.VLenArray(self.dtype).encode(values)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode arrays; the count must be the chunk's, and no byte may be left over."""
        check_count(data, prod(spec.shape))
        values = numcodecs.vlen.VLenArray(self.dtype).decode(data)
        _check_end(data, values.size, sum(value.nbytes for value in values))
        native = np.dtype(self.dtype).newbyteorder("=")
        for index, value in enumerate(values):
            values[index] = np.asarray(value, native)
        return values.reshape(spec.shape)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ListedValues(InNumcodecs):
    """`json2` and `msgpack2`: objects as one list, followed by their dtype and shape."""

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no objects."""
        _check_objects(self.name, spec)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:  # noqa: ARG002
        """Run numcodecs' encode; a chunk without axes is a list of one in msgpack, which numcodecs cannot."""
        values = chunk.astype(object)
        return self.codec().encode(np.atleast_1d(values) if self._is_msgpack else values)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode a list of as many values as the chunk has."""
        get = self.configuration.get
        if self._is_msgpack:
            return _unlist(importlib.import_module("msgpack").unpackb(bytes(data), raw=bool(get("raw", False))), spec)
        text = bytes(data).decode(str(get("encoding", "utf-8")))
        return _unlist(json.loads(text, strict=bool(get("strict", True))), spec)

    @property
    def _is_msgpack(self) -> bool:
        return self.name == "numcodecs.msgpack2"


def _unlist(items: Any, spec: ChunkSpec) -> NDArray[Any]:
    """Return the values of ``[values..., dtype, shape]``, nested by shape; nothing is allocated by what it states."""
    if not isinstance(items, list) or len(items) < 2 or not isinstance(items[-1], list):  # noqa: PLR2004
        raise ValueError("expected a list that ends with a dtype and a shape")
    shape, values = items[-1], items[:-2]
    if not all(type(length) is int for length in shape) or prod(shape) != prod(spec.shape):
        raise ValueError(f"values of shape {shape}, expected {list(spec.shape)}")
    for length in shape[1:]:
        if not all(isinstance(row, list) and len(row) == length for row in values):
            raise ValueError(f"the values are not nested as {shape} says")
        values = [value for row in values for value in row]
    if len(values) != prod(spec.shape):
        raise ValueError(f"{len(values)} values, expected {prod(spec.shape)}")
    out = np.empty(len(values), object)
    for index, value in enumerate(values):  # at once, numpy would take values that are lists for axes
        out[index] = value
    return np.asarray(out, spec.dtype).reshape(spec.shape)
