"""Protocols of codecs: bytes <-> one chunk.

A codec sees one chunk, never a key, a path, a grid or a store. Three kinds, as in Zarr v3: array -> array (filters),
array -> bytes (the serializer, exactly one), bytes -> bytes (compressors). Codecs are immutable and picklable; what
differs between chunks arrives as a `ChunkSpec`.

Codecs raise whatever their library raises: `CodecPipeline` turns every exception into a `CodecError` that names the
codec.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import UnsupportedFeature
from chunkmill.model.metadata import JSON, NamedConfig

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]  # collections.abc.Buffer needs 3.12


PREFIX = "numcodecs."
"""Start of the names of numcodecs' codecs."""


def refuse_pickle(name: str) -> None:
    """Raise for the pickle codec, in any spelling: decoding it runs whatever code the chunk holds (P13)."""
    if name.lower().removeprefix(PREFIX).strip().startswith("pickle"):
        raise UnsupportedFeature(
            format="chunkmill",
            feature="the pickle codec",
            hint="decoding a pickle runs code that the chunk brings along",
        )


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """Shape, dtype and fill value of a chunk that is to be encoded or decoded.

    ``shape`` is the shape to encode or expect, ``dtype`` native, ``fill_value`` a scalar of it or ``None`` (zeros).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any


class ArrayArrayCodec(Protocol):
    """A filter: changes an array's values, axes or dtype."""

    @property
    def name(self) -> str:
        """Name in Zarr v3's vocabulary, for messages."""

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return what `spec` looks like after `encode`; raises `ValueError` where the codec cannot apply."""

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Change `chunk`, which fits `spec`, into an array that fits ``spec_after(spec)``."""

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Undo `encode`; `spec` is that of `encode`, and the result must fit it."""


class ArrayBytesCodec(Protocol):
    """A serializer: array <-> bytes."""

    @property
    def name(self) -> str:
        """Name in Zarr v3's vocabulary, for messages."""

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """Return the exact number of bytes that `encode` yields, or ``None`` when it varies."""

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Turn `chunk` into bytes."""

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Turn bytes into a chunk of ``spec.shape`` and ``spec.dtype``; wrong lengths raise."""


class BytesBytesCodec(Protocol):
    """A compressor or checksum: bytes <-> bytes."""

    @property
    def name(self) -> str:
        """Name in Zarr v3's vocabulary, for messages."""

    def encoded_size(self, n_bytes: int) -> int | None:
        """Return the exact number of bytes that `encode` makes of `n_bytes`, or ``None`` when it varies."""

    def encode(self, data: Buffer) -> Buffer:
        """Compress, or add the checksum."""

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Undo `encode`.

        Never allocates much more than `max_bytes`: a frame that states or yields more raises `ValueError`.
        """


Codec: TypeAlias = ArrayArrayCodec | ArrayBytesCodec | BytesBytesCodec


class CodecFactory(Protocol):
    """Builder of the codec of one name: configuration -> codec."""

    def __call__(self, configuration: Mapping[str, Any], spec: ChunkSpec) -> Codec:
        """Build the codec for chunks like `spec`; a bad configuration raises `ValueError`."""


class Configured:
    """A codec whose configuration is what it was built from, or all its fields that are not ``None``."""

    __slots__ = ()

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        this: Any = self
        known = {each.name: getattr(this, each.name) for each in fields(this) if each.name != "name"}
        content = known.get("configuration", {name: _as_lists(v) for name, v in known.items() if v is not None})
        return NamedConfig(this.name, dict(content))


def _as_lists(value: JSON) -> JSON:
    return [_as_lists(each) for each in value] if isinstance(value, tuple) else value


class Compressor(Configured):
    """A codec of bytes whose output has no size that is known before."""

    __slots__ = ()

    def encoded_size(self, n_bytes: int) -> int | None:  # noqa: ARG002 - BytesBytesCodec
        """Return ``None``: it varies."""
        return None


class DecodesInto(ABC):
    """Serializer that can decode into an array of the caller's."""

    __slots__ = ()

    @abstractmethod
    def decode(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Undo `encode`: fill `out`, of ``spec.shape``, and return it; or another array if that is faster."""


class DecompressesInto(ABC):
    """Compressor that can decode into a buffer of the caller's."""

    __slots__ = ()

    @abstractmethod
    def decode(self, data: Buffer, max_bytes: int, out: NDArray[np.uint8] | None = None) -> Buffer:
        """Undo `encode`: fill `out`, of `max_bytes`, and return it; or another buffer if that is faster."""


class Memo:
    """A slot for what an immutable value has worked out of its fields.

    Not a field: neither compared, nor pickled, nor part of a dask token.
    """

    __slots__ = ("_memo",)

    _memo: Any

    def recall(self) -> Any:
        """Return what was remembered last, or ``None``."""
        return getattr(self, "_memo", None)

    def remember(self, memo: Any) -> None:
        """Keep `memo`, past the frozen dataclass; one assignment, so it is safe among threads."""
        object.__setattr__(self, "_memo", memo)


def fill_array(spec: ChunkSpec) -> NDArray[Any]:
    """Return an array of ``spec.shape`` that holds the fill value everywhere (zeros when there is none)."""
    fill = spec.fill_value
    if fill is None:
        return np.zeros(spec.shape, spec.dtype)
    return np.full(spec.shape, fill, spec.dtype)
