"""The codec chain of an array: one chunk through filters, serializer and compressors.

Spec: Zarr v3 core, "Codecs"; every other format is parsed into such a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray

from chunkmill.codecs.base import (
    ArrayArrayCodec,
    ArrayBytesCodec,
    Buffer,
    BytesBytesCodec,
    ChunkSpec,
)
from chunkmill.errors import ChunkmillError, CodecError

__all__ = ["MAX_CHUNK_BYTES", "CodecPipeline"]

# A chunk is decoded in memory at once; metadata that asks for more than this is a mistake or an attack.
MAX_CHUNK_BYTES = 1 << 36

# The encoded size of values of variable length is not known before they are decoded. What a frame may claim for
# them is bounded by what any writer keeps in one chunk (blosc, lz4 and N5 all end at 2 GiB).
_MAX_VARIABLE_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class CodecPipeline:
    """Filters, one serializer, compressors, in encode order."""

    filters: tuple[ArrayArrayCodec, ...]
    serializer: ArrayBytesCodec
    compressors: tuple[BytesBytesCodec, ...]

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """Return the exact size of an encoded chunk in bytes, or ``None`` when it varies."""
        for codec in self.filters:
            spec = codec.spec_after(spec)
        size = self.serializer.encoded_size(spec)
        for compressor in self.compressors:
            size = None if size is None else compressor.encoded_size(size)
        return size

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Encode `chunk`, which has ``spec.shape`` and ``spec.dtype``; raises `CodecError`."""
        codec: Any = None
        try:
            for codec in self.filters:
                chunk = codec.encode(chunk, spec)
                spec = codec.spec_after(spec)
            codec = self.serializer
            data = codec.encode(chunk, spec)
            for codec in self.compressors:
                data = codec.encode(data)
        except ChunkmillError:
            raise
        except Exception as error:
            raise CodecError(codec=codec.name, reason=_reason(error), direction="encode") from error
        return data  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode `data` to an array of ``spec.shape`` and ``spec.dtype``; raises `CodecError`.

        The array may be read-only and may share memory with `data`.
        """
        if (n_bytes := prod(spec.shape) * spec.dtype.itemsize) > MAX_CHUNK_BYTES:
            reason = f"a chunk of {n_bytes} bytes exceeds the limit of {MAX_CHUNK_BYTES}"
            raise CodecError(codec=self.serializer.name, reason=reason)
        codec: Any = self.serializer
        try:
            specs = [spec]
            for codec in self.filters:
                specs.append(codec.spec_after(specs[-1]))
            for codec, limit in zip(self.compressors[::-1], self._limits(specs[-1])[::-1], strict=True):
                data = codec.decode(data, limit)
            codec = self.serializer
            chunk = codec.decode(data, specs[-1])
            for codec, before in zip(self.filters[::-1], specs[-2::-1], strict=True):
                chunk = codec.decode(chunk, before)
        except ChunkmillError:
            raise
        except Exception as error:
            raise CodecError(codec=codec.name, reason=_reason(error)) from error
        if chunk.shape != spec.shape or chunk.dtype != spec.dtype:
            reason = f"decoded to {chunk.shape} {chunk.dtype}, expected {spec.shape} {spec.dtype}"
            raise CodecError(codec=codec.name, reason=reason)
        return chunk  # type: ignore[no-any-return]

    def _limits(self, spec: ChunkSpec) -> list[int]:
        """Return the most that each compressor may yield when decoding, in encode order."""
        size = self.serializer.encoded_size(spec)
        limit = _MAX_VARIABLE_BYTES if size is None else size
        limits = []
        for compressor in self.compressors:
            limits.append(limit)
            size = None if size is None else compressor.encoded_size(size)
            # what no compressor exceeds on incompressible data (checksums and containers included)
            limit = limit + limit // 8 + 4096 if size is None else size
        return limits


def _reason(error: Exception) -> str:
    text = str(error) or "no reason given"
    return f"{type(error).__name__}: {text}" if not isinstance(error, ValueError) else text
