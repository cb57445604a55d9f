"""The chunks inside shards: their grid, the codecs of one of them, and the order of axes in a shard's index.

Not here: building codecs and finding bytes (`chunkmill.array.layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import ArrayMetadata, NamedConfig

_SHARDING, _TRANSPOSE = "sharding_indexed", "transpose"


@dataclass(frozen=True, slots=True)
class InnerLayout:
    """The smallest chunks of an array that can be read by themselves.

    Attributes
    ----------
    keys, chunks
        Grid of store keys and of chunks: the same one unless sharded.
    codecs
        The codecs of one chunk.
    sharding
        The codec that packs chunks into shards, ``None`` unless sharded.
    order
        The array axis that each axis of a shard's index runs along.
    """

    keys: ChunkGrid
    chunks: ChunkGrid
    codecs: tuple[NamedConfig, ...]
    sharding: NamedConfig | None = None
    order: tuple[int, ...] = ()


def inner_layout(metadata: ArrayMetadata) -> InnerLayout:
    """Return the layout of the chunks inside the shards, where they can be read by themselves.

    They can when nothing but transposes precedes the sharding codec and nothing follows it. All other arrays are
    described as unsharded.

    Examples
    --------
    >>> import numpy as np
    >>> from chunkmill.model.metadata import ChunkKeyEncoding
    >>> sharding = NamedConfig("sharding_indexed", {"chunk_shape": [2, 3], "codecs": [{"name": "bytes"}]})
    >>> metadata = ArrayMetadata(
    ...     np.dtype("u1"), ChunkGrid.regular((9, 8), (6, 6)), ChunkKeyEncoding("c/", "/", "c"),
    ...     (NamedConfig("transpose", {"order": [1, 0]}), sharding), np.uint8(0),
    ... )
    >>> layout = inner_layout(metadata)
    >>> layout.chunks.chunk_shape, [codec.name for codec in layout.codecs], layout.order
    ((3, 2), ['transpose', 'bytes'], (1, 0))
    """
    keys, codecs = metadata.chunk_grid, metadata.codecs
    if not codecs or codecs[-1].name != _SHARDING or any(codec.name != _TRANSPOSE for codec in codecs[:-1]):
        return InnerLayout(keys, keys, codecs)
    *transposes, sharding = codecs
    order = axis_order(transposes, keys.ndim)
    return InnerLayout(keys, inner_grid(metadata), (*transposes, *nested_codecs(sharding)), sharding, order)


def inner_grid(metadata: ArrayMetadata) -> ChunkGrid:
    """Return the grid of the chunks inside the shards, readable by themselves or not; of all chunks, unless sharded."""
    grid, codecs = metadata.chunk_grid, metadata.codecs
    at = next((i for i, codec in enumerate(codecs) if codec.name == _SHARDING), None)
    if at is None:
        return grid
    lengths = [0] * grid.ndim
    for axis, length in zip(axis_order(codecs[:at], grid.ndim), codecs[at].configuration["chunk_shape"], strict=True):
        lengths[axis] = length
    return ChunkGrid(tuple(_inner_axis(axis, length) for axis, length in zip(grid.axes, lengths, strict=True)))


def axis_order(codecs: Sequence[NamedConfig], ndim: int) -> tuple[int, ...]:
    """Return the array axis that each axis is after the transposes among `codecs`.

    Examples
    --------
    >>> axis_order([NamedConfig("transpose", {"order": [1, 2, 0]}), NamedConfig("transpose", {"order": [2, 1, 0]})], 3)
    (0, 2, 1)
    """
    order = tuple(range(ndim))
    for codec in codecs:
        if codec.name == _TRANSPOSE:
            order = tuple(order[axis] for axis in codec.configuration["order"])
    return order


def nested_codecs(codec: NamedConfig) -> tuple[NamedConfig, ...]:
    """Return the codec chain in the configuration of `codec`."""
    return tuple(NamedConfig(**item) for item in codec.configuration["codecs"])


def _inner_axis(axis: RegularAxis | RunsAxis, length: int) -> RegularAxis | RunsAxis:
    if isinstance(axis, RegularAxis):
        return RegularAxis(axis.size, length)
    return RunsAxis(axis.size, tuple((length, edge // length * count) for edge, count in axis.runs))
