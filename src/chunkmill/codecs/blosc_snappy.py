"""Blosc frames whose blocks snappy has compressed: numcodecs' blosc is built without it. Reading only.

Spec: c-blosc 1.21, README_CHUNK_FORMAT. TensorStore writes such frames. Snappy itself runs in cramjam, an extra.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer
from chunkmill.codecs.bytes import byte_view

_HEADER = struct.Struct("<4B3I")  # versions, flags, typesize; bytes, bytes of a block, compressed bytes
_INT = struct.Struct("<i")
_SHUFFLED, _COPIED, _BIT_SHUFFLED, _WHOLE = 1, 2, 4, 16  # flags
_SNAPPY = 2  # the compressor, in the highest three of the flags
_MAX_SPLITS, _MIN_SPLIT = 16, 128  # a block is cut into one stream a byte of an element, if those are not too short


def is_snappy(flags: int) -> bool:
    """Return whether the frame whose header has these flags is of snappy and compressed at all."""
    return flags >> 5 == _SNAPPY and not flags & _COPIED


def unsnapped(data: Buffer, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Fill `out`, which has the size that the frame states, and return it.

    Raises
    ------
    ValueError
        The frame is malformed.
    ModuleNotFoundError
        cramjam is not installed.
    """
    view = byte_view(data)
    _, _, flags, typesize, size, block_size, _ = _HEADER.unpack_from(view)
    if size != out.nbytes or not block_size > 0 or not typesize:
        raise ValueError(f"a frame of {size} bytes in blocks of {block_size}, expected {out.nbytes}")
    n_blocks = -(-size // block_size)
    if len(view) < _HEADER.size + 4 * n_blocks:
        raise ValueError(f"{len(view)} bytes cannot hold {n_blocks} blocks")
    starts = struct.unpack_from(f"<{n_blocks}i", view, _HEADER.size)
    for i, start in enumerate(starts):
        begin = i * block_size
        block = out[begin : min(begin + block_size, size)]
        splits = len(block) == block_size and not flags & _WHOLE and typesize <= _MAX_SPLITS
        n_streams = typesize if splits and block_size // typesize >= _MIN_SPLIT else 1
        raw = _decompressed(view, start, len(block), n_streams)
        block[:] = _unshuffled(raw, flags, typesize)
    return out


def _decompressed(view: memoryview, at: int, size: int, n_streams: int) -> NDArray[np.uint8]:
    snappy: Any = importlib.import_module("cramjam").snappy
    length = size // n_streams
    raw = np.empty(size, np.uint8)
    for i in range(n_streams):
        if not _HEADER.size <= at <= len(view) - _INT.size:
            raise ValueError("a block begins outside the frame")
        (n_bytes,) = _INT.unpack_from(view, at)
        at += _INT.size
        if not 0 < n_bytes <= len(view) - at:
            raise ValueError(f"a block of {n_bytes} bytes ends outside the frame")
        stream = view[at : at + n_bytes]
        into = raw[i * length : (i + 1) * length]
        if n_bytes == length:  # stored as it is
            into[:] = np.frombuffer(stream, np.uint8)
        else:
            if snappy.decompress_raw_len(bytes(stream)) != length:
                raise ValueError(f"a block does not hold {length} bytes")
            into[:] = np.frombuffer(snappy.decompress_raw(bytes(stream)), np.uint8)
        at += n_bytes
    return raw


def _unshuffled(raw: NDArray[np.uint8], flags: int, typesize: int) -> NDArray[np.uint8]:
    n_elements = len(raw) // typesize
    whole, rest = raw[: n_elements * typesize], raw[n_elements * typesize :]
    if flags & _SHUFFLED:
        return np.concatenate([whole.reshape(typesize, n_elements).T.reshape(-1), rest])
    if flags & _BIT_SHUFFLED and n_elements % 8 == 0 and n_elements:
        bits = np.unpackbits(whole.reshape(8 * typesize, n_elements // 8), axis=1, bitorder="little")
        return np.concatenate([np.packbits(bits.T, axis=1, bitorder="little").reshape(-1), rest])
    return raw
