"""N5 block: header and payload of one chunk.

Bytes <-> one chunk; knows nothing of keys or attributes.json. N5 says block where we say chunk.

Spec: N5 README 4.0.0, "Chunks are stored in the following binary format"; big-endian; dimensions fastest axis first,
so that the payload is in C order of the reversed shape.
Checked against: tests/golden/n5 (written by z5py 3.0.2, tensorstore 0.1.86, zarr-python 2.18.7, pyn5 1.1.1).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, DecodesInto, fill_array
from chunkmill.codecs.bytes import byte_view
from chunkmill.codecs.pipeline import BuildPipeline, CodecPipeline
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["N5Block", "parse_header", "write_header"]

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
    return write_header(shape) if max(shape, default=0) < 1 << 32 else None


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
class N5Block(DecodesInto):
    """The serializer of N5: header, then the chunk through `payload`.

    Blocks at the end of an axis are truncated by some writers and padded by others; the header says which. A block
    smaller than the declared chunk shape is put into a chunk of fill values.
    """

    payload: CodecPipeline
    name: ClassVar[str] = "n5_block"
    # what `config` gives back: the chain as it was named
    configuration: Mapping[str, JSON] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_config(cls, build_pipeline: BuildPipeline, configuration: Mapping[str, Any], spec: ChunkSpec) -> N5Block:
        """Build the codec, its ``codecs`` by `build_pipeline` (the registry's)."""
        codecs = configuration.get("codecs")
        if not isinstance(codecs, Sequence) or not all(isinstance(codec, Mapping) for codec in codecs):
            raise ValueError(f"n5_block needs a list of codecs, got {codecs!r}")
        chain = [NamedConfig(codec["name"], codec.get("configuration", {})) for codec in codecs]
        return cls(build_pipeline(chain, spec), dict(configuration))

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, dict(self.configuration))

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """Return the size of header and payload, or ``None`` when the payload is compressed."""
        size = self.payload.encoded_size(spec)
        return None if size is None else size + _START.size + 4 * len(spec.shape)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Return header and payload; the header has the shape of `spec`, which at an end is the truncated one."""
        parts: list[Any] = [write_header(spec.shape), self.payload.encode(chunk, spec)]
        return b"".join(parts)

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Return the chunk, of ``spec.shape``; a smaller block is followed by fill values."""
        return self._decode(data, spec, None)

    def decode_into(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any]) -> NDArray[Any]:
        """Decode into `out`."""
        if (chunk := self._decode(data, spec, out)) is not out:
            out[...] = chunk
        return out

    def _decode(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any] | None) -> NDArray[Any]:
        view, whole = byte_view(data), _whole_header(spec.shape)
        # nearly all blocks: parsing the header takes as long as swapping 64 KiB
        if whole is not None and view[: len(whole)] == whole:
            return self.payload.decode(view[len(whole) :], spec, out)
        shape, offset = parse_header(view, spec.shape)
        if shape == spec.shape:
            return self.payload.decode(view[offset:], spec, out)
        block = self.payload.decode(view[offset:], ChunkSpec(shape, spec.dtype, spec.fill_value))
        chunk = fill_array(spec)
        chunk[tuple(map(slice, shape))] = block
        return chunk
