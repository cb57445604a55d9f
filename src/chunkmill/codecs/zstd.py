"""The `zstd` compressor: frames with and without their size, one or several.

Spec: zarr-extensions codecs/zstd; RFC 8878. Not here: zstd inside blosc (`chunkmill.codecs.compressors`).

numcodecs decodes large frames into an array as fast as it can be done, of a size that is known. What is not one such
frame is walked first, so that there is a bound: a header of three bytes for each block of up to 128 KiB.
All of numcodecs comes with it, so that it is imported for such a frame only.
Small frames are encoded and decoded by zstandard, which keeps its context. Making one takes a sixth of the time of
decoding 64 KiB, and half of that of encoding them at the usual level 3 (464 µs, then 228), or 4 KiB at any. The zstd of
Python 3.14 (backports.zstd) makes one for each frame that it decodes: 10.7 µs for 1 KiB, 52.9 for 64, not 2.9 and 40.3.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import zstandard
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, Compressor, DecompressesInto
from chunkmill.codecs.bytes import buffer_size, byte_view, check_claim, integer
from chunkmill.model.metadata import JSON


@dataclass(frozen=True, slots=True)
class Zstd(Compressor, DecompressesInto):
    """Zstandard frames."""

    level: int
    checksum: bool = False
    name: str = "zstd"

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Zstd:  # noqa: ARG003
        """Build the codec from ``{"level": 3, "checksum": false}``; level 0 is the library's default."""
        checksum = configuration.get("checksum", False)
        if not isinstance(checksum, bool):
            raise ValueError(f"checksum is {checksum!r}, expected a boolean")  # noqa: TRY004
        return cls(integer(configuration, "level", 0, -131072, 22), checksum, name)

    def encode(self, data: Buffer) -> bytes:
        """Compress into one frame that states its size."""
        if self.level <= _LEVEL_KEPT and buffer_size(data) <= _SMALL:
            return _contexts.compressor(self.level, self.checksum).compress(byte_view(data))
        return import_module("numcodecs.zstd").compress(data, self.level, self.checksum)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, max_bytes: int, out: NDArray[np.uint8] | None = None) -> Buffer:
        """Decompress one frame or several, whether they state their size or not; into `out` one that is large."""
        if (size := _stated(data)) < 0:  # as N5's Java writers stream: the limit is the size, as a rule
            size = max_bytes if max_bytes <= buffer_size(data) * _LIKELY_RATIO else 0
        else:
            check_claim(size, max_bytes, buffer_size(data), _RATIO)
        if size:
            found: Buffer
            try:
                if size <= _SMALL:
                    found = _contexts.decompressor.decompress(byte_view(data), size, allow_extra_data=False)
                else:
                    found = np.empty(size, np.uint8) if out is None or out.nbytes != size else out
                    import_module("numcodecs.zstd").decompress(data, found)
                if len(found) == size:
                    return found
            except (ValueError, RuntimeError, zstandard.ZstdError):
                pass
        return _unzstd(data, max_bytes)  # broken, of another size, or more frames than this one


# the most that one byte of a frame can yield, generously: a block of 4 bytes yields 128 KiB at most
_RATIO = 1 << 16
_LIKELY_RATIO = 1 << 10
_SMALL = 1 << 18
_LEVEL_KEPT = 4  # the highest at which a context is kept: 1.5 MiB at most; above, making one is a small share
_SKIPPABLE = 0x184D2A50  # and the 15 after it
_BLOCK = 1 << 17  # the most that one block yields
_RAW, _RLE, _COMPRESSED = 0, 1, 2


def _stated(data: Buffer) -> int:
    """Return the size that the first frame states; -1 where it states none, 0 where it is broken."""
    try:
        return zstandard.frame_content_size(data)  # type: ignore[arg-type]  # any buffer
    except zstandard.ZstdError:
        return 0


class _Contexts(threading.local):
    """A decompressor, and the compressor used last, for each thread: one is not safe among several."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self._options: tuple[int, bool] | None = None
        self._compressor: zstandard.ZstdCompressor

    def compressor(self, level: int, checksum: bool) -> zstandard.ZstdCompressor:
        if self._options != (level, checksum):
            self._compressor = zstandard.ZstdCompressor(level, write_checksum=checksum)
            self._options = level, checksum
        return self._compressor


_contexts = _Contexts()


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    """Decompress frame after frame, never more than `max_bytes`."""
    rest, left = byte_view(data), max_bytes
    parts: list[bytes] = []
    while rest or not parts:
        stated, most, end = _walk(rest)
        if stated is not None:
            check_claim(stated, left, end, _RATIO)
        parts.append(_contexts.decompressor.decompress(rest[:end], min(most, left)) if most else b"")
        left -= len(parts[-1])
        rest = rest[end:]
    return b"".join(parts)


def _walk(view: memoryview) -> tuple[int | None, int, int]:
    """Return the size that the first frame states, the most it can yield, and where it ends (RFC 8878, 3.1)."""
    if int.from_bytes(view[:4], "little") & ~0xF == _SKIPPABLE:
        stated, most, position = None, 0, 8 + int.from_bytes(view[4:8], "little")
    else:
        if view[:4] != zstandard.FRAME_HEADER:
            raise ValueError("no zstd frame")
        parameters = zstandard.get_frame_parameters(view)
        most, position, last = 0, zstandard.frame_header_size(view), False
        while not last:
            header = int.from_bytes(view[position : position + 3], "little")
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            position += 3 + (1 if kind == _RLE else size)
            if position > len(view) or kind > _COMPRESSED:
                raise ValueError("the zstd frame is truncated or broken")
            most += size if kind in (_RAW, _RLE) else _BLOCK
        position += 4 * parameters.has_checksum
        stated = None if parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN else parameters.content_size
    if position > len(view):
        raise ValueError("the zstd frame is truncated")
    return stated, most, position
