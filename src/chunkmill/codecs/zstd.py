"""The `zstd` compressor: frames with and without their size, one or several.

Spec: zarr-extensions codecs/zstd; RFC 8878. Not here: zstd inside blosc (`chunkmill.codecs.compressors`).

numcodecs decodes large frames that state their size as fast as it can be done, and streams those that do not without
any bound. So the frames are walked first where that matters: a header of three bytes for each block of up to 128 KiB.
Small frames are encoded and decoded by zstandard, which keeps its context. Making one takes a sixth of the time of
decoding 64 KiB, and half of that of encoding them at the usual level 3 (464 µs, then 228), or 4 KiB at any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

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
        return _numcodecs_zstd().compress(data, self.level, self.checksum)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, max_bytes: int, out: NDArray[np.uint8] | None = None) -> Buffer:
        """Decompress one frame or several, whether they state their size or not; into `out` one that is large."""
        if (stated := _stated(data)) > 0:
            check_claim(stated, max_bytes, buffer_size(data), _RATIO)
            try:
                if stated <= _SMALL:
                    return _contexts.decompressor.decompress(byte_view(data), allow_extra_data=False)
                if out is None or out.nbytes != stated:
                    out = np.empty(stated, np.uint8)
                _numcodecs_zstd().decompress(data, out)
            except (ValueError, RuntimeError, zstandard.ZstdError):  # broken, or there are more frames than this one
                pass
            else:
                return out
        return _unzstd(data, max_bytes)


# the most that one byte of a frame can yield, generously: a block of 4 bytes yields 128 KiB at most
_RATIO = 1 << 16
_SMALL = 1 << 18
_LEVEL_KEPT = 4  # the highest at which a context is kept: 1.5 MiB at most; above, making one is a small share
_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50  # and the 15 after it
_BLOCK = 1 << 17  # the most that one block yields
_RAW, _RLE, _COMPRESSED = 0, 1, 2


@cache
def _numcodecs_zstd() -> Any:
    """Return numcodecs' zstd, imported when a large frame first needs it: all of numcodecs comes with it."""
    from numcodecs import zstd  # noqa: PLC0415

    return zstd


def _stated(data: Buffer) -> int:
    """Return the size that the first frame states; 0 or less where it states none, or is broken."""
    try:  # a sixth of the time of `_frame`
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


def _unzstd(data: Buffer, max_bytes: int) -> Buffer:
    """Decompress frames of which the first does not tell the whole size.

    N5's Java writers stream, so that their frames state no size.
    """
    total: int | None = 0
    bound = 0
    rest = byte_view(data)
    if not rest:
        raise ValueError("no data")
    while rest:
        stated, most, end = _walk(rest)
        total = None if total is None or stated is None else total + stated
        bound += most if stated is None else stated
        rest = rest[end:]
    if total == 0:
        return b""
    if total is not None:
        check_claim(total, max_bytes, buffer_size(data), _RATIO)
        out = np.empty(total, np.uint8)
        _numcodecs_zstd().decompress(data, out)
        return out
    if bound >= max_bytes > 0:
        # as a rule the limit is the exact size, and this is one pass into the right buffer
        out = np.empty(max_bytes, np.uint8)
        try:
            _numcodecs_zstd().decompress(data, out)
        except RuntimeError:  # shorter, or too long, or broken
            if bound > 4 * max_bytes + (1 << 24):
                raise  # nothing but `bound` would limit what the stream yields
        else:
            return out
    streamed: bytes = _numcodecs_zstd().decompress(data)
    if len(streamed) > max_bytes:
        raise ValueError(f"{len(streamed)} bytes, expected at most {max_bytes}")
    return streamed


def _frame(view: memoryview) -> tuple[int | None, int, bool]:
    """Return the size a frame states, the size of its header, and whether a checksum ends it (RFC 8878, 3.1.1)."""
    if len(view) < 5 or int.from_bytes(view[:4], "little") != _MAGIC:  # noqa: PLR2004
        return None, 0, False
    descriptor = view[4]
    single = bool(descriptor & 0x20)
    start = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    width = (int(single), 2, 4, 8)[descriptor >> 6]
    end = start + width
    if len(view) < end:
        raise ValueError("the zstd frame header is truncated")
    if width == 0:
        return None, end, bool(descriptor & 4)
    # two bytes count from 256 on, where one byte ends
    stated = int.from_bytes(view[start:end], "little") + (256 if width == 2 else 0)  # noqa: PLR2004
    return stated, end, bool(descriptor & 4)


def _walk(view: memoryview) -> tuple[int | None, int, int]:
    """Return the size that the first frame states, the most it can yield, and where it ends."""
    if len(view) >= 8 and int.from_bytes(view[:4], "little") & ~0xF == _SKIPPABLE:  # noqa: PLR2004
        end = 8 + int.from_bytes(view[4:8], "little")
        if end > len(view):
            raise ValueError("the zstd frame is truncated")
        return 0, 0, end
    stated, position, has_checksum = _frame(view)
    if position == 0:
        raise ValueError("no zstd frame")
    most, last = 0, False
    while not last:
        header = int.from_bytes(view[position : position + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == _RLE else size)
        if position > len(view) or kind > _COMPRESSED:
            raise ValueError("the zstd frame is truncated or broken")
        most += size if kind in (_RAW, _RLE) else _BLOCK
    position += 4 * has_checksum
    if position > len(view):
        raise ValueError("the zstd frame is truncated")
    return stated, most, position
