"""Locate the bytes of chunks: a whole store key, or a range inside a shard.

Which of the two holds is decided when an array is opened; the read path never asks again. Not here: decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.registry import build_pipeline
from chunkmill.codecs.sharding import MISSING, ShardingIndexed
from chunkmill.errors import ChunkError, ChunkmillError
from chunkmill.model.grid import ChunkCoords, ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, inner_layout
from chunkmill.stores.base import ByteRange, ByteSpan, Store


class ChunkLocator(Protocol):
    """Locator of the chunks of one grid."""

    def key(self, coords: ChunkCoords) -> str:
        """Return the store key whose object holds the chunk."""

    def locate(self, store: Store, coords: Sequence[ChunkCoords]) -> Sequence[ByteSpan | None]:
        """Return the bytes of each chunk; ``None`` for those known to be absent without a request of their own."""


@dataclass(frozen=True, slots=True)
class UnshardedChunks:
    """Locator of chunks that have a store key each."""

    prefix: str
    encoding: ChunkKeyEncoding

    def key(self, coords: ChunkCoords) -> str:
        """Return the store key of the chunk."""
        return self.prefix + self.encoding.encode(coords)

    def locate(self, store: Store, coords: Sequence[ChunkCoords]) -> Sequence[ByteSpan | None]:  # noqa: ARG002
        """Return the whole object of each chunk; nothing is fetched."""
        return [ByteSpan(self.key(c)) for c in coords]


@dataclass(frozen=True, slots=True)
class ShardedChunks:
    """Locator of inner chunks through the index of their shard: one request for each shard and call.

    `order` says which array axis each axis of the shard's index runs along (a transpose may stand before sharding).
    """

    shards: UnshardedChunks
    shard_grid: ChunkGrid
    chunk_grid: ChunkGrid
    sharding: ShardingIndexed
    order: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any

    def key(self, coords: ChunkCoords) -> str:
        """Return the store key of the chunk's shard."""
        return self.shards.key(self._split(coords)[0])

    def locate(self, store: Store, coords: Sequence[ChunkCoords]) -> Sequence[ByteSpan | None]:
        """Fetch the index of every shard that is touched, once, and return the ranges it names."""
        split = [self._split(c) for c in coords]
        indexes = dict(self.indexes(store, list(dict.fromkeys(shard for shard, _ in split))))
        return [self._span(indexes, shard, inner) for shard, inner in split]

    def indexes(
        self, store: Store, shards: Sequence[ChunkCoords]
    ) -> Iterator[tuple[ChunkCoords, NDArray[np.uint64] | None]]:
        """Fetch the index of each shard; ``None`` where there is no such shard."""
        spans = [ByteSpan(self.shards.key(shard), self._index_range(shard)) for shard in shards]
        results = store.get_many(spans)
        for shard, span in zip(shards, spans, strict=True):
            try:
                data = next(results)
            except OSError as error:
                reason = f"the shard's index: {error}"
                raise ChunkError(url=store.url, key=span.key, coords=shard, step="get", reason=reason) from error
            yield shard, self._parse(store, shard, span.key, data)

    def first_chunk(self, shard: ChunkCoords, axis: int) -> int:
        """Return the first chunk of a shard along an axis."""
        return self.chunk_grid.axes[axis].index(self.shard_grid.axes[axis].start(shard[axis]))

    def _split(self, coords: ChunkCoords) -> tuple[ChunkCoords, ChunkCoords]:
        """Return the coords of the shard, and of the chunk inside it in the axes of its index."""
        shard, inner = [], []
        for outer, axis, i in zip(self.shard_grid.axes, self.chunk_grid.axes, coords, strict=True):
            element = axis.start(i)
            shard.append(s := outer.index(element))
            inner.append((element - outer.start(s)) // axis.length(i))
        return tuple(shard), tuple(inner[axis] for axis in self.order)

    def _spec(self, shard: ChunkCoords) -> ChunkSpec:
        shape = self.shard_grid.shape_of(shard)
        return ChunkSpec(tuple(shape[axis] for axis in self.order), self.dtype, self.fill_value)

    def _index_range(self, shard: ChunkCoords) -> ByteRange:
        n_bytes = self.sharding.index_bytes(self._spec(shard))
        return ByteRange(0, n_bytes) if self.sharding.index_location == "start" else ByteRange(-n_bytes)

    def _parse(self, store: Store, shard: ChunkCoords, key: str, data: bytes | None) -> NDArray[np.uint64] | None:
        if data is None:
            return None
        try:
            return self.sharding.parse_index(data, self._spec(shard))
        except (ChunkmillError, ValueError) as error:
            reason = f"the shard's index: {error}"
            raise ChunkError(url=store.url, key=key, coords=shard, step="sharding_indexed", reason=reason) from error

    def _span(
        self, indexes: Mapping[ChunkCoords, NDArray[np.uint64] | None], shard: ChunkCoords, inner: ChunkCoords
    ) -> ByteSpan | None:
        index = indexes[shard]
        if index is None:
            return None
        offset, n_bytes = (int(entry) for entry in index[inner])
        if offset == n_bytes == MISSING:
            return None
        return ByteSpan(self.shards.key(shard), ByteRange(offset, n_bytes))


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """Chunk grid with the locator and the codecs of its chunks."""

    grid: ChunkGrid
    locator: ChunkLocator
    codecs: CodecPipeline
    regular: ChunkSpec = field(repr=False)
    is_regular: bool = field(init=False, repr=False)
    is_plain: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_regular", self.grid.is_regular)  # asked for once a chunk, as what follows
        object.__setattr__(self, "is_plain", self.codecs.is_plain(self.regular))

    def spec(self, coords: ChunkCoords) -> ChunkSpec:
        """Return the declared shape, dtype and fill value of one chunk."""
        if self.is_regular:
            return self.regular
        return replace(self.regular, shape=self.grid.shape_of(coords))

    def is_cut(self, coords: ChunkCoords) -> bool:  # noqa: ARG002 - of a region's layout alone
        """Return whether the stored chunk has elements of the array outside these: never, but for a region's."""
        return False

    @property
    def n_cut(self) -> int:
        """Number of chunks of which that is so."""
        return 0


def build_layouts(metadata: ArrayMetadata, prefix: str) -> tuple[ChunkLayout, ChunkLayout]:
    """Return the layout to read single chunks by and the layout of store keys: the same one unless sharded."""
    grid = metadata.chunk_grid
    spec = ChunkSpec(grid.chunk_shape, metadata.dtype, metadata.fill_value)
    keyed = UnshardedChunks(prefix, metadata.chunk_keys)
    whole = ChunkLayout(grid, keyed, _pipeline(metadata, spec), spec)
    inside = inner_layout(metadata)
    if inside.sharding is None:
        return whole, whole
    sharding = cast("ShardingIndexed", whole.codecs.serializer)
    locator = ShardedChunks(keyed, grid, inside.chunks, sharding, inside.order, metadata.dtype, metadata.fill_value)
    inner = sharding.inner
    pipeline = CodecPipeline((*whole.codecs.filters, *inner.filters), inner.serializer, inner.compressors)
    return ChunkLayout(inside.chunks, locator, pipeline, replace(spec, shape=inside.chunks.chunk_shape)), whole


def _pipeline(metadata: ArrayMetadata, spec: ChunkSpec) -> CodecPipeline:
    """Build the codecs of an array; those of arrays that were described by equal documents are the same objects."""
    same = metadata.codecs, metadata.chunk_grid, metadata.dtype, metadata.fill_value
    key = tuple(map(id, same))
    if key not in _PIPELINES:
        if len(_PIPELINES) >= _MAX_PIPELINES:
            _PIPELINES.clear()
        _PIPELINES[key] = build_pipeline(metadata.codecs, spec), same
    return _PIPELINES[key][0]


_PIPELINES: dict[tuple[int, ...], tuple[CodecPipeline, tuple[Any, ...]]] = {}  # with what the ids are of, kept alive
_MAX_PIPELINES = 256
