"""N5 block: header and payload of one chunk; and N5's ``lz4``, with the two other framings of that name.

Bytes <-> one chunk; knows nothing of keys or attributes.json. N5 says block where we say chunk.

The `n5_default` serializer holds such blocks as chunks of a Zarr v3 array, in N5's order of axes; datasets of N5 itself
are turned round by their format instead.

Spec: N5 README 4.0.0, "Chunks are stored in the following binary format"; big-endian; dimensions fastest axis first, so
that the payload is in C order of the reversed shape; zarr-extensions, codecs/n5_default. The README names ``lz4`` and
its one parameter; N5 for Java writes what lz4-java's ``LZ4BlockOutputStream`` makes: frames of ``LZ4Block``, a token,
three little-endian 32-bit numbers (compressed size, raw size, checksum), data; closed by a frame of no data. Zarr's lz4
is ``numcodecs.lz4``.
Checked against: tests/golden/n5 (written by z5py 3.0.2, tensorstore 0.1.86, zarr-python 2.18.7, pyn5 1.1.1, lz4-java
1.8.0).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np
from numcodecs.lz4 import compress, decompress
from numpy.typing import NDArray
from xxhash import xxh32_intdigest

from chunkmill.codecs.base import Buffer, ChunkSpec, Compressor, Configured, DecodesInto, fill_array
from chunkmill.codecs.bytes import byte_view, integer
from chunkmill.codecs.pipeline import BuildInner, CodecPipeline
from chunkmill.model.metadata import JSON, NamedConfig

_START = struct.Struct(">HH")  # mode, number of dimensions
_COUNT = struct.Struct(">I")
_DEFAULT, _VARLENGTH = 0, 1


def write_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of a block of `shape` (numpy's axis order), mode 0.

    Its length depends on the rank alone: 4 + 4 * rank bytes.

    Examples
    --------
    >>> write_header((3, 2, 1)).hex(" ", 4)
    '00000003 00000001 00000002 00000003'
    """
    return struct.pack(f">HH{len(shape)}I", _DEFAULT, len(shape), *reversed(shape))


@lru_cache(maxsize=64)
def _whole_header(shape: tuple[int, ...]) -> bytes | None:
    """Return the header of a block that is not truncated; ``None`` where no header can state `shape`."""
    return write_header(shape) if all(length < 1 << 32 for length in shape) else None


def parse_header(data: Buffer, limit: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape (numpy's axis order) of a block and where its payload begins.

    `limit` is the declared chunk shape: a block of another rank, or longer along any axis, raises `ValueError`, as do
    modes whose payload is not one plain array.

    Examples
    --------
    >>> parse_header(write_header((3, 2, 1)) + b"payload", limit=(3, 4, 1))
    ((3, 2, 1), 16)
    """
    view = np.frombuffer(data, np.uint8).data
    if len(view) < _START.size:
        raise ValueError(f"{len(view)} bytes are too few for the header of an N5 block")
    mode, ndim = _START.unpack_from(view)
    if mode not in {_DEFAULT, _VARLENGTH}:
        # 2 is N5 for Java's serialized objects; its header has no dimensions whatever the specification draws
        raise ValueError(f"block mode {mode}: only 0 (default) and 1 (varlength) hold numbers")
    if ndim != len(limit):
        raise ValueError(f"block header has {ndim} dimensions, the dataset {len(limit)}")
    sizes = struct.Struct(f">{ndim}I")
    offset = _START.size + sizes.size
    if len(view) < offset + (_COUNT.size if mode == _VARLENGTH else 0):
        raise ValueError(f"{len(view)} bytes are too few for a block header of {ndim} dimensions")
    shape = sizes.unpack_from(view, _START.size)[::-1]
    if not all(0 < size <= most for size, most in zip(shape, limit, strict=True)):
        raise ValueError(f"block of shape {shape} does not fit the block size {limit} (slowest axis first)")
    if mode == _VARLENGTH:
        # The count may be anything there; the number of elements makes it an ordinary block
        (count,) = _COUNT.unpack_from(view, offset)
        if count != prod(shape):
            raise ValueError(f"varlength block of {count} elements, where its dimensions make {prod(shape)}")
        offset += _COUNT.size
    return shape, offset


@dataclass(frozen=True, slots=True)
class N5Block(Configured, DecodesInto):
    """The serializer of N5: header, then the chunk through `payload`.

    Blocks at the end of an axis are truncated by some writers and padded by others; the header says which. A block
    smaller than the declared chunk shape is put into a chunk of fill values.
    """

    payload: CodecPipeline
    name: ClassVar[str] = "n5_block"
    # what `config` gives back: the chain as it was named
    configuration: Mapping[str, JSON] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_config(cls, build: BuildInner, configuration: Mapping[str, Any], spec: ChunkSpec) -> N5Block:
        """Build the codec, its ``codecs`` by `build` (the registry's)."""
        return cls(build(configuration.get("codecs"), spec), dict(configuration))

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """Return the size of header and payload, or ``None`` when the payload is compressed."""
        size = self.payload.encoded_size(spec)
        return None if size is None else size + _START.size + 4 * len(spec.shape)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Return header and payload; the header has the shape of `spec`, which at an end is the truncated one."""
        parts: list[Any] = [write_header(spec.shape), self.payload.encode(chunk, spec)]
        return b"".join(parts)

    def decode(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the chunk, of ``spec.shape``; a smaller block is followed by fill values."""
        view, whole = byte_view(data), _whole_header(spec.shape)
        # nearly all blocks: parsing the header takes as long as swapping 64 KiB
        if whole is not None and view[: len(whole)] == whole:
            return self.payload.decode(view[len(whole) :], spec, out)
        shape, offset = parse_header(view, spec.shape)
        if shape == spec.shape:
            return self.payload.decode(view[offset:], spec, out)
        return _fitted(self.payload, view[offset:], shape, spec)


_MAX_CODECS = 3  # a transpose, bytes and one compressor
_DTYPES = "iuf"
_MAX_LONGER_BYTES = 1 << 24  # of a block that is longer than its chunk, as those padded at the end of an axis are


@dataclass(frozen=True, slots=True)
class N5Default(Configured):
    """Header and payload of an N5 block of the default mode."""

    payload: CodecPipeline
    name: ClassVar[str] = "n5_default"
    # what `config` gives back: the chain as it was named
    configuration: Mapping[str, JSON] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_config(cls, build: BuildInner, configuration: Mapping[str, Any], spec: ChunkSpec) -> N5Default:
        """Build the codec, its ``codecs`` by `build` (the registry's)."""
        codecs = configuration.get("codecs")
        if set(configuration) != {"codecs"} or not isinstance(codecs, Sequence) or len(codecs) > _MAX_CODECS:
            raise ValueError("expected 'codecs': a transpose, bytes and at most one compressor")
        payload = build(codecs, spec)
        order = list(range(len(spec.shape)))[::-1]
        names = [codec.name for codec in payload.filters]
        if names != ["transpose"] or list(getattr(payload.filters[0], "order", ())) != order:
            raise ValueError(f"the first of the codecs must be a transpose of order {order}")
        if payload.serializer.name != "bytes" or getattr(payload.serializer, "endian", None) not in {"big", None}:
            raise ValueError("the second of the codecs must be bytes, big endian")
        built: Any = (*payload.filters, payload.serializer, *payload.compressors)
        return cls(payload, configuration={"codecs": [asdict(each.config()) for each in built]})

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """Return the size of header and payload, or ``None`` when the payload is compressed."""
        if spec.dtype.kind not in _DTYPES or spec.dtype.name == "float16" or not spec.shape:
            raise ValueError(f"N5 has no arrays of {len(spec.shape)} axes of {spec.dtype}")
        size = self.payload.encoded_size(spec)
        return None if size is None else size + len(write_header(spec.shape))

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Return header and payload."""
        parts: list[Any] = [write_header(spec.shape[::-1]), self.payload.encode(chunk, spec)]
        return b"".join(parts)

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Return the chunk: a block that is shorter is followed by fill values, one that is longer is cropped."""
        view = byte_view(data)
        if (mode := int.from_bytes(view[:2], "big")) != _DEFAULT:
            raise ValueError(f"block mode {mode}, expected 0 (default)")
        longest = tuple(max(length, _MAX_LONGER_BYTES) for length in spec.shape)
        turned, offset = parse_header(view, longest[::-1])
        shape = turned[::-1]
        n_bytes = prod(shape) * spec.dtype.itemsize
        if n_bytes > max(prod(spec.shape) * spec.dtype.itemsize, _MAX_LONGER_BYTES):
            raise ValueError(f"a block of shape {shape} for a chunk of {spec.shape}")
        if shape == spec.shape:
            return self.payload.decode(view[offset:], spec)
        return _fitted(self.payload, view[offset:], shape, spec)


def _fitted(payload: CodecPipeline, data: Buffer, shape: tuple[int, ...], spec: ChunkSpec) -> NDArray[Any]:
    """Decode a block of another shape to a chunk: fill values where it ends before, cropped where after."""
    block = payload.decode(data, ChunkSpec(shape, spec.dtype, spec.fill_value))
    chunk = fill_array(spec)
    common = tuple(slice(min(one, other)) for one, other in zip(shape, spec.shape, strict=True))
    chunk[common] = block[common]
    return chunk


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
class N5Lz4(Compressor):
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

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> N5Lz4:  # noqa: ARG003
        """Build the codec from ``{"blockSize": n}``; `ValueError` for a bad one."""
        return cls(integer(configuration, "blockSize", DEFAULT_BLOCK_SIZE, MIN_BLOCK_SIZE, MAX_BLOCK_SIZE))

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, {"blockSize": self.block_size})

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
