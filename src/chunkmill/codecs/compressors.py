"""Compressors: gzip, blosc, and numcodecs' zlib, lz4, bz2, lzma.

Every `decode` is bounded: what a frame states is checked before anything is allocated, what it yields while it is
decoded. Specs: Zarr v3 codecs/gzip and codecs/blosc, RFC 1950 and 1952, the c-blosc header; numcodecs 0.16 for the
rest. Not here: zstd (`chunkmill.codecs.zstd`); checksums and shuffles (`chunkmill.codecs.crc32c`,
`chunkmill.codecs.numcodecs`).
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, Compressor, DecompressesInto
from chunkmill.codecs.blosc_snappy import is_snappy, unsnapped
from chunkmill.codecs.bytes import buffer_size, byte_view, check_claim, integer
from chunkmill.model.metadata import JSON, NamedConfig

_ISAL_ERROR: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # the stub says it is an instance
_ZLIB, _GZIP = 15, 31  # zlib's wbits: which container stands around the deflate stream


@dataclass(frozen=True, slots=True)
class Gzip(Compressor):
    """Deflate in gzip's or zlib's container.

    Level 1 is written by igzip: five to ten times faster than zlib, and within 3 % of its size; the other levels
    are zlib's own. Reading is always igzip's.
    """

    level: int
    name: str = "gzip"

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Gzip:  # noqa: ARG003
        """Build the codec from ``{"level": 0..9}``; -1 is zlib's default, as N5 writes it."""
        return cls(integer(configuration, "level", 1, -1, 9), name)

    @property
    def _wbits(self) -> int:
        return _ZLIB if self.name == "numcodecs.zlib" else _GZIP

    def encode(self, data: Buffer) -> bytes:
        """Compress into one member without a time stamp.

        Equal data give equal bytes, but not always at level 1: in threads, one in 10^5 of igzip's is a byte longer.
        """
        if self.level == 1:
            # igzip's level 2 takes the time of its level 1 and comes near the size of zlib's level 1
            return isal_zlib.compress(data, 2, self._wbits)
        return zlib.compress(byte_view(data), self.level, self._wbits)

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Decompress; several gzip members are joined (RFC 1952, 2.2)."""
        wbits = self._wbits
        if wbits == _GZIP and (out := _gunzip(byte_view(data), max_bytes)) is not None:
            return out
        try:
            return _inflate(lambda: isal_zlib.decompressobj(wbits), data, max_bytes, joined=wbits == _GZIP)
        except _ISAL_ERROR as error:
            reason = str(error)
        # not from inside: its class names a module that is none, and would keep even as a context all processes from
        # sending the error to others
        raise ValueError(reason)


@dataclass(frozen=True, slots=True)
class Blosc(Compressor, DecompressesInto):
    """c-blosc 1 frames."""

    cname: str
    clevel: int
    shuffle: Literal["noshuffle", "shuffle", "bitshuffle"]
    typesize: int
    blocksize: int
    name: str = "blosc"

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Blosc:
        """Build the codec; what the configuration lacks is numcodecs' default, and the typesize the dtype's."""
        cname = configuration.get("cname", "lz4")
        if not isinstance(cname, str):
            raise ValueError(f"cname is {cname!r}, expected a string")  # noqa: TRY004
        typesize = configuration.get("typesize")
        if typesize is None:
            typesize = _typesize(spec.dtype)
        typesize = integer({"typesize": typesize}, "typesize", 1, 1, 1 << 31)
        shuffle = configuration.get("shuffle", "shuffle")
        if shuffle in (-1, "autoshuffle"):
            shuffle = "bitshuffle" if typesize == 1 else "shuffle"
        elif type(shuffle) is int and 0 <= shuffle < len(_SHUFFLES):
            shuffle = _SHUFFLES[shuffle]
        if shuffle not in _SHUFFLES:
            raise ValueError(f"shuffle is {shuffle!r}, expected one of {', '.join(_SHUFFLES)}")
        clevel = integer(configuration, "clevel", 5, 0, 9)
        return cls(cname, clevel, shuffle, typesize, integer(configuration, "blocksize", 0, 0, 1 << 31), name)

    def config(self) -> NamedConfig:
        """Name the codec as data; numcodecs' shuffle is a number."""
        found = Compressor.config(self)
        if self.name == "blosc":
            return found
        return NamedConfig(self.name, {**found.configuration, "shuffle": _SHUFFLES.index(self.shuffle)})

    def encode(self, data: Buffer) -> bytes:
        """Compress into one frame; at most 2 GiB."""
        if (size := buffer_size(data)) > _BLOSC_MAX:
            raise ValueError(f"{size} bytes are more than blosc takes ({_BLOSC_MAX})")
        cname, shuffle = self.cname.encode(), _SHUFFLES.index(self.shuffle)
        return _blosc().compress(  # type: ignore[no-any-return]
            data, cname, self.clevel, shuffle, self.blocksize, self.typesize
        )

    def decode(self, data: Buffer, max_bytes: int, out: NDArray[np.uint8] | None = None) -> Buffer:
        """Decompress, into `out` where the header states its size; the header's sizes are checked first."""
        size = buffer_size(data)
        if size < _BLOSC_HEADER:
            raise ValueError(f"{size} bytes cannot hold a blosc header of {_BLOSC_HEADER}")
        flags, stated, compressed = _BLOSC_FIELDS.unpack_from(data)  # type: ignore[arg-type]  # any buffer
        if compressed != size:
            raise ValueError(f"the blosc header states {compressed} compressed bytes, there are {size}")
        check_claim(stated, max_bytes, size, _BLOSC_RATIO)
        if stated == 0:
            return b""
        # an array, unlike bytes, is writable: the chunk needs no copy
        if out is None or out.nbytes != stated:
            out = np.empty(stated, np.uint8)
        if is_snappy(flags):
            return unsnapped(data, out)
        return _blosc().decompress(data, out)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Lz4(Compressor):
    """numcodecs' lz4: the size in four bytes, little endian, and one raw lz4 block."""

    acceleration: int
    name: str = "numcodecs.lz4"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Lz4:  # noqa: ARG003
        """Build the codec from ``{"acceleration": 1}``."""
        return cls(integer(configuration, "acceleration", 1, -(1 << 31), (1 << 31) - 1))

    def encode(self, data: Buffer) -> bytes:
        """Compress; at most 2 GiB."""
        if (size := buffer_size(data)) > _LZ4_MAX:
            raise ValueError(f"{size} bytes are more than lz4 takes ({_LZ4_MAX})")
        from numcodecs import lz4  # noqa: PLC0415 - slow to import

        return lz4.compress(data, self.acceleration)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Decompress; the stated size is checked first."""
        size = buffer_size(data)
        if size <= _LZ4_HEADER:
            raise ValueError(f"{size} bytes cannot hold an lz4 header of {_LZ4_HEADER} and a block")
        view = byte_view(data)
        stated = int.from_bytes(view[:_LZ4_HEADER], "little")
        check_claim(stated, max_bytes, size, _LZ4_RATIO)
        if stated == 0 and bytes(view[_LZ4_HEADER:]) == b"\0":
            return b""
        from numcodecs import lz4  # noqa: PLC0415 - slow to import

        return lz4.decompress(data, np.empty(stated, np.uint8))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Bzip2(Compressor):
    """bzip2 streams."""

    level: int
    name: str = "numcodecs.bz2"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Bzip2:  # noqa: ARG003
        """Build the codec from ``{"level": 1..9}``."""
        return cls(integer(configuration, "level", 1, 1, 9))

    def encode(self, data: Buffer) -> bytes:
        """Compress into one stream."""
        return bz2.compress(byte_view(data), self.level)

    def decode(self, data: Buffer, max_bytes: int) -> bytes:
        """Decompress; several streams are joined."""
        return _inflate(bz2.BZ2Decompressor, data, max_bytes)


@dataclass(frozen=True, slots=True)
class Lzma(Compressor):
    """xz, lzma or raw streams, by the numbers of Python's `lzma`."""

    format: int
    check: int
    preset: int | None
    filters: Any
    name: str = "numcodecs.lzma"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Lzma:  # noqa: ARG003
        """Build the codec; `filters` tell how to read the raw format, which states nothing itself."""
        form = integer(configuration, "format", lzma.FORMAT_XZ, lzma.FORMAT_AUTO, lzma.FORMAT_RAW)
        filters = configuration.get("filters")
        if form == lzma.FORMAT_RAW and not filters:
            raise ValueError("lzma's raw format needs its filters")
        for each in filters or ():
            if isinstance(each, Mapping) and int(each.get("dict_size") or 0) > _LZMA_MEMORY:
                raise ValueError(f"an lzma dictionary of {each['dict_size']} bytes exceeds {_LZMA_MEMORY}")
        preset = configuration.get("preset")
        if preset is not None:
            preset = integer(configuration, "preset", 0, 0, (1 << 32) - 1)
        return cls(form, integer(configuration, "check", -1, -1, 15), preset, filters)

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        configuration = {"format": self.format, "check": self.check, "preset": self.preset, "filters": self.filters}
        return NamedConfig(self.name, configuration)

    def encode(self, data: Buffer) -> bytes:
        """Compress into one stream."""
        filters = None if self.filters is None else [dict(each) for each in self.filters]
        return lzma.compress(byte_view(data), self.format, self.check, self.preset, filters)

    def decode(self, data: Buffer, max_bytes: int) -> bytes:
        """Decompress; several streams are joined, but not raw ones."""
        if self.format == lzma.FORMAT_RAW:
            filters = [dict(each) for each in self.filters]
            raw = lzma.FORMAT_RAW
            return _inflate(lambda: lzma.LZMADecompressor(raw, filters=filters), data, max_bytes, joined=False)
        return _inflate(lambda: lzma.LZMADecompressor(self.format, memlimit=_LZMA_MEMORY), data, max_bytes)


_SHUFFLES: tuple[Literal["noshuffle", "shuffle", "bitshuffle"], ...] = ("noshuffle", "shuffle", "bitshuffle")
_BLOSC_FIELDS = struct.Struct("<2xBxI4xI")  # flags; bytes; compressed bytes
_BLOSC_HEADER = _BLOSC_FIELDS.size
_BLOSC_MAX = (1 << 31) - 1 - _BLOSC_HEADER
_BLOSC_MAX_TYPESIZE = 255
_LZ4_HEADER = 4
_LZ4_MAX = 0x7E000000
_LZMA_MEMORY = 1 << 30  # xz -9 asks for 64 MiB

# the most that one byte of input can yield, generously: zstd inside blosc, and a byte of an lz4 length stands for 255
_BLOSC_RATIO = 1 << 16
_LZ4_RATIO = 1 << 8
_DEFLATE_RATIO = 1 << 10 | 1 << 4  # 1032 to 1 (zlib's technical details)


@cache
def _blosc() -> Any:
    """Return numcodecs' blosc, imported when it is first used: all of numcodecs comes with it."""
    from numcodecs import blosc  # noqa: PLC0415

    # With threads of its own blosc writes its blocks in whatever order they get done: 8 different encodings in 30 runs
    # (numcodecs 0.16.6, 2 cores). The parallelism is the scheduler's; zarr-python 3 sets the same.
    blosc.use_threads = False
    return blosc


def _typesize(dtype: np.dtype[Any]) -> int:
    """Return the size of what blosc shuffles: single bytes where elements vary in size, or exceed its limit of 255."""
    varies = dtype.hasobject or dtype.kind == "T"
    return dtype.itemsize if not varies and 0 < dtype.itemsize <= _BLOSC_MAX_TYPESIZE else 1


def _gunzip(view: memoryview, max_bytes: int) -> NDArray[np.uint8] | None:
    """Decompress one member into an array of the size that it states; ``None`` when anything is otherwise.

    No buffer that grows while it fills, and none to be copied because it is read-only.
    """
    stated = int.from_bytes(view[-4:], "little")
    if not 0 < stated <= min(max_bytes, len(view) * _DEFLATE_RATIO):
        return None
    out = np.empty(stated, np.uint8)
    try:
        # what isal's gzip files are made of: reads from any buffer, and without the GIL
        reader = isal_zlib._GzipReader(view)  # type: ignore[arg-type]  # noqa: SLF001 - the stub knows files only
        return out if reader.readinto(out) == stated and not reader.read(1) else None
    except (OSError, EOFError, AttributeError, _ISAL_ERROR):
        return None  # `_inflate` finds what is wrong, and says it


def _inflate(new: Callable[[], Any], data: Buffer, max_bytes: int, *, joined: bool = True) -> bytes:
    """Decompress one stream after the other, never more than `max_bytes` and one.

    `new` makes a decompressor object with the interface that those of zlib, bz2 and lzma have in common.
    """
    view = byte_view(data)
    parts: list[bytes] = []
    left = max_bytes
    position, step = 0, len(view)
    while True:
        decompressor = new()
        while not decompressor.eof:
            if not (piece := view[position : position + step]):
                raise ValueError("the compressed data end before their end-of-stream marker")
            part = decompressor.decompress(piece, left + 1)
            if len(part) > left:
                raise ValueError(f"more than the expected {max_bytes} bytes")
            parts.append(part)
            left -= len(part)
            position += len(piece)
        position -= len(decompressor.unused_data)
        if not any(view[position:]):
            break  # the end, or padding as tar, xz and tapes leave it
        if not joined:
            raise ValueError(f"{len(view) - position} bytes follow the end of the stream")
        step = _STEP
    return parts[0] if len(parts) == 1 else b"".join(parts)


# Each decompressor copies what it was given and did not need: without steps, thousands of members in one chunk
# would copy the rest of it thousands of times.
_STEP = 1 << 16
