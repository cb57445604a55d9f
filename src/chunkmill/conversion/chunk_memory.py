"""Memory that chunks need, decoded, encoded and in between, computed from codec chains and chunk shapes.

Memory is counted for chunks that do not compress: each codec is taken to need its input and its output at once.
Not here: planning (`chunkmill.conversion.rechunking.plan`).
"""

from __future__ import annotations

import sys
from math import prod

from chunkmill.array.layout import ChunkLayout
from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.n5_block import N5Block
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.sharding import ShardingIndexed

__all__ = ["chunk_bytes", "index_size", "itemsize", "most_encoded", "n_decoding", "n_encoding", "stored_bytes"]


_VARIABLE_ITEMSIZE = 64
"""Assumed for values of variable length, whose length is not known before they are read."""


def itemsize(array: StoredArray) -> int:
    """Return the bytes assumed for an element."""
    return _VARIABLE_ITEMSIZE if array.dtype.kind in "OT" else array.dtype.itemsize


def chunk_bytes(array: StoredArray, layout: ChunkLayout) -> int:
    """Return the bytes of one chunk's values."""
    return itemsize(array) * prod(layout.regular.shape)  # decoded whole, also where a region has a part of it


def most_encoded(array: StoredArray, layout: ChunkLayout) -> int:
    """Return the largest size of one chunk as it is stored: with values that do not compress."""
    return _most_encoded(layout.codecs, layout.regular, itemsize(array), spread=64)


def stored_bytes(array: StoredArray, layout: ChunkLayout, n_chunks: int, decoded_bytes: int) -> int:
    """Return the stored size of chunks, where the codecs tell it; else the size of their values and headers."""
    exact, grid = layout.codecs.encoded_size(layout.regular), layout.grid
    if exact is not None and grid.is_regular:
        return exact * n_chunks
    if exact is not None and n_chunks:  # chunks of many lengths, the last of which overhang
        ends = (axis.start(axis.n_chunks - 1) + axis.length(axis.n_chunks - 1) for axis in grid.axes)
        decoded_bytes = decoded_bytes * prod(ends) // prod(grid.shape)
    headers = _most_encoded(layout.codecs, layout.regular, itemsize(array), spread=1 << 62) - chunk_bytes(array, layout)
    return decoded_bytes + n_chunks * headers


def _most_encoded(codecs: CodecPipeline, spec: ChunkSpec, n_bytes: int, *, spread: int) -> int:
    for each in codecs.filters:
        spec = each.spec_after(spec)
    serializer = codecs.serializer
    if isinstance(serializer, ShardingIndexed):
        n_inner = prod(serializer.inner_grid_shape(spec))
        most = serializer.index_bytes(spec)
        most += n_inner * _most_encoded(serializer.inner, serializer.inner_spec(spec), n_bytes, spread=spread)
    elif isinstance(serializer, N5Block):
        most = _most_encoded(serializer.payload, spec, n_bytes, spread=spread) + 4 * (len(spec.shape) + 2)
    else:
        most = serializer.encoded_size(spec) or prod(spec.shape) * n_bytes
    for compressor in codecs.compressors:  # in blocks that do not compress, with a header each
        most = compressor.encoded_size(most) or most + most // spread + 64
    return most


def index_size(layout: ChunkLayout) -> int:
    """Return the size of a shard's index as it is stored; 0 where there are no shards."""
    serializer, spec = layout.codecs.serializer, layout.regular
    for each in layout.codecs.filters:
        spec = each.spec_after(spec)
    return serializer.index_bytes(spec) if isinstance(serializer, ShardingIndexed) else 0


def n_decoding(codecs: CodecPipeline) -> int:
    """Return the number of buffers of a chunk's size that are alive at once beside the encoded one."""
    return min(len(codecs.compressors), 2) + _n_serializing(codecs) + min(len(codecs.filters), 2)


def n_encoding(codecs: CodecPipeline) -> int:
    """Return the number alive at once beside the values: padded or made contiguous, filtered, serialized, compressed.

    Compressors allocate for what does not compress, and copy what comes out.
    """
    return 1 + min(len(codecs.filters), 2) + _n_serializing(codecs) + min(2 * len(codecs.compressors), 3)


def _n_serializing(codecs: CodecPipeline) -> int:
    serializer = codecs.serializer
    if isinstance(serializer, N5Block):  # cropped to the array, joined to its header
        payload = serializer.payload
        return 1 + _n_serializing(payload) + min(len(payload.filters), 2) + min(2 * len(payload.compressors), 3)
    if serializer.name == "bytes":
        return 0 if getattr(serializer, "endian", None) in {None, sys.byteorder} else 1
    return 2  # parts, and the whole that they are joined to
