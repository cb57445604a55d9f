"""The codec chain of an array: one chunk through filters, serializer and compressors.

Spec: Zarr v3 core, "Codecs"; every other format is parsed into such a chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import (
    ArrayArrayCodec,
    ArrayBytesCodec,
    Buffer,
    BytesBytesCodec,
    ChunkSpec,
    DecodesInto,
    DecompressesInto,
    Memo,
)
from chunkmill.codecs.bytes import BytesCodec, as_native, buffer_size, is_own
from chunkmill.codecs.elements import copy_rows
from chunkmill.errors import ChunkmillError, CodecError
from chunkmill.model.metadata import JSON

# A chunk is decoded in memory at once; metadata that asks for more than this is a mistake or an attack.
MAX_CHUNK_BYTES = 1 << 36

# The encoded size of values of variable length is not known before they are decoded. What a frame may claim for
# them is bounded by what any writer keeps in one chunk (blosc, lz4 and N5 all end at 2 GiB).
_MAX_VARIABLE_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class _Plan:
    """Specs, limits and order of steps, the same for all chunks of one spec.

    ``specs`` before and after each filter, in encode order; in decode order the compressors with the most that each
    may yield, and the filters with the spec to which each leads back. ``stored`` and ``n_bytes``: dtype of the elements
    and size of a chunk that, once it is decompressed, is as it is in memory, but for the order of bytes; ``in_place``:
    its last decompressor, if that can put it where it is to end.
    """

    specs: tuple[ChunkSpec, ...]
    decompressors: tuple[tuple[BytesBytesCodec, int], ...]
    unfilters: tuple[tuple[ArrayArrayCodec, ChunkSpec], ...]
    in_place: DecompressesInto | None
    stored: np.dtype[Any] | None
    n_bytes: int


@dataclass(frozen=True, slots=True)
class CodecPipeline(Memo):
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

    def is_plain(self, spec: ChunkSpec) -> bool:
        """Return whether chunks like `spec` are stored as they are in memory."""
        return not self.compressors and self._is_plain(spec)

    def _is_plain(self, spec: ChunkSpec) -> bool:
        return not self.filters and isinstance(self.serializer, BytesCodec) and self.serializer.is_plain(spec)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Encode `chunk`, which has ``spec.shape`` and ``spec.dtype``; raises `CodecError`."""
        codec: Any = self.serializer
        if chunk.shape != spec.shape or chunk.dtype != spec.dtype:
            reason = f"a chunk of {chunk.shape} {chunk.dtype}, expected {spec.shape} {spec.dtype}"
            raise CodecError(codec=codec.name, reason=reason, direction="encode")
        try:
            specs = self._plan(spec).specs
            for codec, before in zip(self.filters, specs, strict=False):
                chunk = codec.encode(chunk, before)
            codec = self.serializer
            data = codec.encode(chunk, specs[-1])
            for codec in self.compressors:
                data = codec.encode(data)
        except ChunkmillError:
            raise
        except Exception as error:
            raise CodecError(codec=codec.name, reason=_reason(error), direction="encode") from error
        return data  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Decode `data` to an array of ``spec.shape`` and ``spec.dtype``; raises `CodecError`.

        The array may be read-only and may share memory with `data`. The chunk may be put straight into `out`, of
        ``spec.shape``, which is returned then; otherwise the contents of `out` are undefined.
        """
        codec: Any = self.serializer
        target: Any = None
        try:
            plan = self._plan(spec)
            for codec, limit in plan.decompressors:
                if out is not None and codec is plan.in_place and out.flags.c_contiguous:
                    target = out.reshape(-1).view(np.uint8)
                    data = plan.in_place.decode(data, limit, target)
                else:
                    data = codec.decode(data, limit)
            codec = self.serializer
            if plan.stored is not None and buffer_size(data) == plan.n_bytes:
                return out if data is target and out is not None else _elements(data, plan.stored, spec, out)
            if out is not None and not plan.unfilters and isinstance(codec, DecodesInto):
                return codec.decode(data, spec, out)
            chunk = codec.decode(data, plan.specs[-1])
            for codec, before in plan.unfilters:
                chunk = codec.decode(chunk, before)
        except ChunkmillError:
            raise
        except Exception as error:
            raise CodecError(codec=codec.name, reason=_reason(error)) from error
        if chunk.shape != spec.shape or chunk.dtype != spec.dtype:
            reason = f"decoded to {chunk.shape} {chunk.dtype}, expected {spec.shape} {spec.dtype}"
            raise CodecError(codec=codec.name, reason=reason)
        return chunk  # type: ignore[no-any-return]

    def _plan(self, spec: ChunkSpec) -> _Plan:
        """Return what encoding and decoding chunks like `spec` need to know, and remember it."""
        # chunks of one array share their spec, and planning takes longer than decoding a small chunk
        plan: _Plan | None = self.recall()
        if plan is None or plan.specs[0] is not spec:
            plan = self._new_plan(spec)
            self.remember(plan)
        return plan

    def _new_plan(self, spec: ChunkSpec) -> _Plan:
        specs = [spec]
        for codec in self.filters:
            specs.append(codec.spec_after(specs[-1]))
        if (n_bytes := max(prod(each.shape) * each.dtype.itemsize for each in specs)) > MAX_CHUNK_BYTES:
            raise ValueError(f"a chunk of {n_bytes} bytes exceeds the limit of {MAX_CHUNK_BYTES}")
        size = self.serializer.encoded_size(specs[-1])
        limit = _MAX_VARIABLE_BYTES if size is None else size
        decompressors = []
        for compressor in self.compressors:
            decompressors.append((compressor, limit))
            size = None if size is None else compressor.encoded_size(size)
            # what no compressor exceeds on incompressible data (checksums and containers included)
            limit = limit + limit // 8 + 4096 if size is None else size
        unfilters = zip(self.filters[::-1], specs[-2::-1], strict=True)
        last: Any = self.compressors[0] if self.compressors else None
        in_place = last if self._is_plain(spec) and isinstance(last, DecompressesInto) else None
        is_simple = not self.filters and isinstance(self.serializer, BytesCodec)
        stored = self.serializer.swapped(spec) if is_simple else None  # type: ignore[attr-defined]
        n_bytes = 0 if stored is None else prod(spec.shape) * stored.itemsize
        return _Plan(tuple(specs), tuple(decompressors[::-1]), tuple(unfilters), in_place, stored, n_bytes)


def _elements(data: Buffer, stored: np.dtype[Any], spec: ChunkSpec, out: NDArray[Any] | None) -> NDArray[Any]:
    """Return the elements in `data`, in `out` where they are swapped: half of the time the codec takes."""
    chunk = (data.view(stored) if isinstance(data, np.ndarray) else np.frombuffer(data, stored)).reshape(spec.shape)
    if stored == spec.dtype:
        return chunk
    if out is None:
        return as_native(chunk, spec.dtype, is_own=is_own(data))
    copy_rows(out, chunk)
    return out


BuildInner: TypeAlias = Callable[[JSON, ChunkSpec], CodecPipeline]
"""Builder of the chains inside of codecs, from a list in JSON: the registry's, which knows every codec by name."""


def _reason(error: Exception) -> str:
    text = str(error) or "no reason given"
    return f"{type(error).__name__}: {text}" if not isinstance(error, ValueError) else text
