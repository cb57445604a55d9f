"""Serializers of Python objects that Zarr v2 calls object codecs: `vlen-array`, `json2`, `msgpack2`.

Spec: numcodecs 0.16, whose encoders run here; decoding is our own where numcodecs would allocate what the data state.
Not here: strings and byte strings, which Zarr v3 has too (`chunkmill.codecs.vlen`); pickle, which is refused.
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
from chunkmill.codecs.bytes import buffer_size
from chunkmill.codecs.numcodecs import build_numcodecs, native_dtype
from chunkmill.codecs.vlen import check_count
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["JsonValues", "MsgpackValues", "VlenArray"]


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
