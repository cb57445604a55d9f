"""N5's ``lz4``: the block stream of lz4-java, and the two other framings that pass under the same name.

Bytes <-> bytes. Not here: the header of an N5 block (`chunkmill.codecs.n5_block`), Zarr's lz4 (``numcodecs.lz4``).

Spec: none. N5's README names the compression and its one parameter; N5 for Java writes what lz4-java's
``LZ4BlockOutputStream`` makes: frames of ``LZ4Block``, a token, three little-endian 32-bit numbers (compressed size,
raw size, checksum), data; closed by a frame of no data.
Checked against: tests/golden/n5 (written by lz4-java 1.8.0, z5py 3.0.2, zarr-python 2.18.7).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numcodecs.lz4 import compress, decompress
from xxhash import xxh32_intdigest

from chunkmill.codecs.base import Buffer, ChunkSpec
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["DEFAULT_BLOCK_SIZE", "MAX_BLOCK_SIZE", "MIN_BLOCK_SIZE", "N5Lz4"]

# lz4-java's LZ4BlockOutputStream takes no others
MIN_BLOCK_SIZE = 64
MAX_BLOCK_SIZE = 1 << 25
DEFAULT_BLOCK_SIZE = 1 << 16

_MAGIC = b"LZ4Block"
_FRAME = struct.Struct("<8sBiiI")
_SIZE = struct.Struct("<i")  # numcodecs' prefix: the raw size
_RAW, _LZ4 = 0x10, 0x20  # the token's high nibble; the low one is the block size as a power of two above 2**10
_SEED = 0x9747B28C
_CHECKSUM_MASK = 0x0FFFFFFF  # lz4-java drops the highest nibble (StreamingXXHash32.asChecksum)


@dataclass(frozen=True, slots=True)
class N5Lz4:
    """Write lz4-java's block stream, frames of `block_size` raw bytes; read it and its two rivals.

    Without the magic the data are zarr-python 2's (numcodecs: raw size as 4 bytes, then one LZ4 block) or z5's (one
    bare LZ4 block). The latter does not say how long its content is: it must be the ``max_bytes`` that `decode` is
    given, which is the exact size when this is the only codec after the serializer, as it is in N5.

    Examples
    --------
    >>> codec = N5Lz4(1024)
    >>> frame = codec.encode(b"spam" * 100)
    >>> bytes(frame[:8]), bytes(codec.decode(frame, 400)) == b"spam" * 100
    (b'LZ4Block', True)
    """

    block_size: int = DEFAULT_BLOCK_SIZE
    name: ClassVar[str] = "n5_lz4"

    def __post_init__(self) -> None:
        if not MIN_BLOCK_SIZE <= self.block_size <= MAX_BLOCK_SIZE:
            raise ValueError(f"blockSize is {self.block_size}, not between {MIN_BLOCK_SIZE} and {MAX_BLOCK_SIZE}")

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> N5Lz4:  # noqa: ARG003
        """Build the codec from ``{"blockSize": n}``; `ValueError` for a bad one."""
        block_size = configuration.get("blockSize", DEFAULT_BLOCK_SIZE)
        if not isinstance(block_size, int) or isinstance(block_size, bool):
            raise ValueError(f"blockSize is {block_size!r}, not an integer")  # noqa: TRY004 - CodecFactory's
        return cls(block_size)

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, {"blockSize": self.block_size})

    def encoded_size(self, n_bytes: int) -> None:  # noqa: ARG002 - it varies
        """Return ``None``: the size depends on the data."""
        return

    def encode(self, data: Buffer) -> bytes:
        """Return `data` as lz4-java's block stream."""
        view = np.frombuffer(data, np.uint8).data
        level = max(0, (self.block_size - 1).bit_length() - 10)
        parts: list[bytes | memoryview] = []
        for start in range(0, len(view), self.block_size):
            raw = view[start : start + self.block_size]
            packed = memoryview(compress(raw))[_SIZE.size :]
            token = _LZ4
            if len(packed) >= len(raw):
                token, packed = _RAW, raw
            checksum = xxh32_intdigest(raw, _SEED) & _CHECKSUM_MASK
            parts += [_FRAME.pack(_MAGIC, token | level, len(packed), len(raw), checksum), packed]
        parts.append(_FRAME.pack(_MAGIC, _RAW | level, 0, 0, 0))
        return b"".join(parts)

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Return the raw bytes, at most `max_bytes`; `ValueError` for frames that are malformed, absent or too long."""
        view = np.frombuffer(data, np.uint8).data
        if view[: len(_MAGIC)] == _MAGIC:
            return _decode_java(view, max_bytes)
        if len(view) >= _SIZE.size and _SIZE.unpack_from(view)[0] == max_bytes:
            try:
                return _decode_block(view[_SIZE.size :], max_bytes)
            except ValueError:  # z5's block, and its first bytes are the number by chance
                pass
        return _decode_block(view, max_bytes)


def _decode_java(view: memoryview, max_bytes: int) -> bytearray:
    out = bytearray()
    position = 0
    # A stream that ends between two frames without its closing one is read: Java stops at the bytes it wants and
    # never sees the end. Whether the content is whole, its length tells.
    while position < len(view):
        token, n_packed, n_raw, checksum = _frame(view, position)
        position += _FRAME.size
        if n_raw == 0:
            if position != len(view):
                raise ValueError(f"{len(view) - position} bytes after the LZ4Block that closes the stream")
            break
        if len(out) + n_raw > max_bytes:
            raise ValueError(f"LZ4Blocks yield more than the {max_bytes} bytes that were expected")
        if position + n_packed > len(view):
            raise ValueError(f"LZ4Block of {n_packed} bytes is truncated, it ends after {len(view) - position}")
        packed = view[position : position + n_packed]
        raw = packed if token & 0xF0 == _RAW else _decode_block(packed, n_raw)
        if xxh32_intdigest(raw, _SEED) & _CHECKSUM_MASK != checksum:
            raise ValueError(f"LZ4Block at byte {position - _FRAME.size} does not match its checksum")
        out += raw
        position += n_packed
    return out


def _frame(view: memoryview, position: int) -> tuple[int, int, int, int]:
    """Return token, compressed and raw size and checksum of the frame at `position`, checked against each other."""
    if position + _FRAME.size > len(view):
        raise ValueError("LZ4Block header is truncated")
    magic, token, n_packed, n_raw, checksum = _FRAME.unpack_from(view, position)
    if magic != _MAGIC:
        raise ValueError(f"no LZ4Block at byte {position}")
    if (method := token & 0xF0) not in {_RAW, _LZ4}:
        raise ValueError(f"LZ4Block with unknown method {method:#x}")
    if n_packed < 0 or not 0 <= n_raw <= 1 << (10 + (token & 0x0F)):
        raise ValueError(f"LZ4Block states sizes {n_packed} and {n_raw}, beyond its own limit")
    if (n_packed == 0) != (n_raw == 0) or (method == _RAW and n_packed != n_raw):
        raise ValueError(f"LZ4Block states sizes {n_packed} and {n_raw}, which contradict each other")
    return token, n_packed, n_raw, checksum


def _decode_block(packed: memoryview, n_raw: int) -> bytes:
    """Decode one bare LZ4 block that holds exactly `n_raw` bytes."""
    try:
        # numcodecs wants the size in front, and refuses a block that yields another
        return decompress(_SIZE.pack(n_raw) + packed)  # type: ignore[no-any-return]
    except (RuntimeError, struct.error) as error:
        raise ValueError(f"no LZ4 block of {n_raw} bytes: {error}") from None
