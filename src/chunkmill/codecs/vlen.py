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
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numcodecs.vlen
import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, Memo
from chunkmill.codecs.bytes import buffer_size, byte_view
from chunkmill.codecs.numcodecs import build_numcodecs, native_dtype
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["JsonValues", "MsgpackValues", "VlenArray", "VlenBytes", "VlenUtf8", "check_count"]

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


def _object_dtype(name: str, spec: ChunkSpec) -> None:
    if spec.dtype.kind not in "OT":
        raise ValueError(f"{name} needs objects, not {spec.dtype}")


@dataclass(frozen=True, slots=True)
class VlenArray:
    """`vlen-array`: one-dimensional arrays of one dtype and of any length."""

    dtype: str
    name: str = "numcodecs.vlen-array"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> VlenArray:
        """Build the codec from ``{"dtype": "<i4"}``."""
        _object_dtype("numcodecs.vlen-array", spec)
        dtype = configuration.get("dtype")
        if native_dtype(dtype, np.dtype(object)).hasobject:
            raise ValueError("vlen-array needs a dtype")
        return cls(str(dtype))

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, {"dtype": self.dtype})

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no objects."""
        _object_dtype(self.name, spec)

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
        if 4 * (values.size + 1) + sum(value.nbytes for value in values) != buffer_size(data):
            raise ValueError("bytes are left over after the last array")
        native = np.dtype(self.dtype).newbyteorder("=")
        for index, value in enumerate(values):
            values[index] = value.astype(native, copy=False)
        return values.reshape(spec.shape)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class JsonValues(Memo):
    """`json2`: objects as one JSON list, followed by their dtype and shape."""

    configuration: Mapping[str, JSON] = field(hash=False)
    name: str = "numcodecs.json2"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> JsonValues:
        """Build the codec."""
        _object_dtype("numcodecs.json2", spec)
        codec = cls(dict(configuration))
        codec._codec()
        return codec

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, dict(self.configuration))

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no objects."""
        _object_dtype(self.name, spec)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:  # noqa: ARG002
        """Run numcodecs' encode."""
        return self._codec().encode(chunk.astype(object))  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode a list of as many values as the chunk has."""
        encoding = str(self.configuration.get("encoding", "utf-8"))
        strict = bool(self.configuration.get("strict", True))
        return _unlist(json.loads(bytes(data).decode(encoding), strict=strict), spec)

    def _codec(self) -> Any:
        if (codec := self.recall()) is None:
            self.remember(codec := build_numcodecs(self.name, self.configuration))
        return codec


@dataclass(frozen=True, slots=True)
class MsgpackValues(Memo):
    """`msgpack2`: the same in msgpack."""

    configuration: Mapping[str, JSON] = field(hash=False)
    name: str = "numcodecs.msgpack2"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> MsgpackValues:
        """Build the codec."""
        _object_dtype("numcodecs.msgpack2", spec)
        codec = cls(dict(configuration))
        codec._codec()
        return codec

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, dict(self.configuration))

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no objects."""
        _object_dtype(self.name, spec)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:  # noqa: ARG002
        """Run numcodecs' encode; a chunk without axes is written as a list of one, which numcodecs cannot."""
        return self._codec().encode(np.atleast_1d(chunk.astype(object)))  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode a list of as many values as the chunk has."""
        msgpack = importlib.import_module("msgpack")
        return _unlist(msgpack.unpackb(bytes(data), raw=bool(self.configuration.get("raw", False))), spec)

    def _codec(self) -> Any:
        if (codec := self.recall()) is None:
            self.remember(codec := build_numcodecs(self.name, self.configuration))
        return codec


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
    return out.astype(spec.dtype, copy=False).reshape(spec.shape)
