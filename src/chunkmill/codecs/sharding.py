"""The `sharding_indexed` serializer: many inner chunks and their index under one store key.

Spec: Zarr v3 codecs/sharding-indexed. The index holds an (offset, nbytes) pair of uint64 for each inner chunk, in
C order of their coords; two times 2^64-1 says that a chunk is missing and reads as fill value. Offsets count from
the first byte of the shard, wherever the index is. Not here: which ranges of a shard to fetch
(`chunkmill.array.layout`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, Configured, DecodesInto, Memo
from chunkmill.codecs.bytes import buffer_size, byte_view, check_members
from chunkmill.codecs.elements import copy_rows, is_fill
from chunkmill.codecs.pipeline import BuildInner, CodecPipeline
from chunkmill.errors import CodecError
from chunkmill.model.grid import MOST_AXES
from chunkmill.model.metadata import JSON

ChunkCoords: TypeAlias = tuple[int, ...]

MISSING = (1 << 64) - 1
"""Both numbers of an absent chunk's entry in the index of its shard."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Specs and size of the index, the same for all shards of one spec."""

    spec: ChunkSpec
    inner_spec: ChunkSpec
    index_spec: ChunkSpec
    index_bytes: int


@dataclass(frozen=True, slots=True)
class ShardingIndexed(Memo, Configured, DecodesInto):
    """Inner chunks, each through `inner`, and an index through `index`.

    Attributes
    ----------
    chunk_shape
        Shape of an inner chunk.
    inner
        The codecs of an inner chunk.
    index
        The codecs of the index; their output has a fixed size.
    index_location
        Whether the index stands first or last in the shard.
    """

    chunk_shape: tuple[int, ...]
    inner: CodecPipeline
    index: CodecPipeline
    index_location: Literal["start", "end"] = "end"
    name: str = "sharding_indexed"
    # what `config` gives back: the chains as they were named
    configuration: Mapping[str, JSON] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if any(length < 1 for length in self.chunk_shape):
            raise ValueError(f"chunk_shape is {list(self.chunk_shape)}, expected lengths of at least 1")
        if self.index_location not in ("start", "end"):
            raise ValueError(f"index_location is {self.index_location!r}, expected 'start' or 'end'")

    @classmethod
    def from_config(cls, build: BuildInner, configuration: Mapping[str, Any], spec: ChunkSpec) -> ShardingIndexed:
        """Build the codec, the chains inside, however deep, by `build` (the registry's)."""
        check_members(configuration, {"chunk_shape", "codecs", "index_codecs", "index_location"})
        shape = configuration.get("chunk_shape")
        if not isinstance(shape, list | tuple) or not all(type(length) is int for length in shape):
            raise ValueError(f"chunk_shape is {shape!r}, expected a list of integers")
        if len(shape) >= MOST_AXES:
            raise ValueError(f"shards of {len(shape)} axes: the index has one more, and numpy's arrays {MOST_AXES}")
        index_spec = ChunkSpec((*(1 for _ in shape), 2), np.dtype(np.uint64), None)
        return cls(
            tuple(shape),
            build(configuration.get("codecs"), ChunkSpec(tuple(shape), spec.dtype, spec.fill_value)),
            # zarr-python takes index_codecs for granted where they are absent
            build(configuration.get("index_codecs", INDEX_CODECS), index_spec),
            configuration.get("index_location", "end"),
            configuration=dict(configuration),
        )

    def inner_grid_shape(self, spec: ChunkSpec) -> tuple[int, ...]:
        """Return the number of inner chunks along each axis of a shard like `spec`."""
        if len(spec.shape) != len(self.chunk_shape):
            raise ValueError(f"chunk_shape {list(self.chunk_shape)} has another rank than the shard {list(spec.shape)}")
        if any(shard % inner for shard, inner in zip(spec.shape, self.chunk_shape, strict=True)):
            raise ValueError(f"chunk_shape {list(self.chunk_shape)} does not divide the shard {list(spec.shape)}")
        return tuple(shard // inner for shard, inner in zip(spec.shape, self.chunk_shape, strict=True))

    def inner_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """Return what an inner chunk of a shard like `spec` looks like."""
        return self._layout(spec).inner_spec

    def index_bytes(self, spec: ChunkSpec) -> int:
        """Return the size of the encoded index in bytes."""
        return self._layout(spec).index_bytes

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the inner chunks do not fit the shard."""
        self.index_bytes(spec)

    def parse_index(self, data: Buffer, spec: ChunkSpec, shard_size: int | None = None) -> NDArray[np.uint64]:
        """Decode and check an index.

        Parameters
        ----------
        data
            The encoded index, `index_bytes` long.
        spec
            What the shard looks like.
        shard_size
            Size of the whole shard in bytes, or ``None`` when it is not known: then entries are only checked
            against overflow.

        Returns
        -------
        NDArray[np.uint64]
            Offset and size of each inner chunk, of shape ``inner_grid_shape + (2,)``; both 2^64-1 where missing.
        """
        index: NDArray[np.uint64] = self.index.decode(data, self._layout(spec).index_spec)
        offsets, sizes = index[..., 0], index[..., 1]
        missing = offsets == MISSING
        if (missing != (sizes == MISSING)).any():
            raise ValueError("an index entry is half missing")
        limit = np.uint64(MISSING - 1 if shard_size is None else shard_size)
        # subtracted from the limit, not added up: the sum of two uint64 wraps around
        if ((offsets > limit) | (sizes > limit - np.minimum(offsets, limit)))[~missing].any():
            raise ValueError(f"an index entry points outside the shard of {shard_size} bytes")
        return index

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Encode a whole shard; inner chunks that equal the fill value bit for bit are left out."""
        inner_spec = self.inner_spec(spec)
        entries = {}
        for coords, region in zip(self._all_coords(spec), self._regions(spec), strict=True):
            inner = chunk[region]
            if not is_fill(inner, spec.fill_value):
                entries[coords] = self.inner.encode(inner, inner_spec)
        return self.pack(entries, spec)

    def decode(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Decode a whole shard."""
        view, index = self._split(data, spec)  # before anything is allocated
        out = np.empty(spec.shape, spec.dtype) if out is None else out
        inner_spec, decode = self.inner_spec(spec), self.inner.decode
        if any(offset == MISSING for offset, _ in index):
            out[...] = np.zeros((), spec.dtype) if spec.fill_value is None else spec.fill_value
        for region, (offset, size) in zip(self._regions(spec), index, strict=True):
            if offset != MISSING:
                try:
                    place = out[region]
                    chunk = decode(view[offset : offset + size], inner_spec, place)
                    if chunk is not place:
                        copy_rows(place, chunk)
                except CodecError as error:
                    coords = tuple(cut.start // n for cut, n in zip(region[:-1], self.chunk_shape, strict=True))
                    reason = f"inner chunk {coords}: {error.reason}"
                    raise CodecError(codec=error.codec, reason=reason) from error
        return out

    def pack(self, entries: Mapping[ChunkCoords, Buffer], spec: ChunkSpec) -> bytes:
        """Join encoded inner chunks and their index to a shard.

        The chunks are stored in C order of their coords, without gaps; coords that `entries` lacks are missing.
        """
        return b"".join(self.parts(((coords, entries[coords]) for coords in sorted(entries)), spec))

    def parts(self, entries: Iterable[tuple[ChunkCoords, Buffer]], spec: ChunkSpec) -> Iterator[memoryview]:
        """Yield what a shard is made of: its chunks as they come, and their index.

        With the index at the end one chunk is held at a time; at the start, all of them.
        """
        grid_shape = self.inner_grid_shape(spec)
        index = np.full((*grid_shape, 2), MISSING, np.uint64)
        at_start = self.index_location == "start"
        offset = self.index_bytes(spec) if at_start else 0
        held: list[memoryview] = []
        for coords, data in entries:
            if len(coords) != len(grid_shape) or not all(0 <= c < n for c, n in zip(coords, grid_shape, strict=True)):
                raise ValueError(f"there is no inner chunk {coords} in a grid of {grid_shape}")
            index[coords] = offset, (size := buffer_size(data))
            offset += size
            if at_start:
                held.append(byte_view(data))
            else:
                yield byte_view(data)
            del data  # before the next one is made, so that it gets the same memory
        yield byte_view(self.index.encode(index, self._layout(spec).index_spec))
        yield from held

    def unpack(self, data: Buffer, spec: ChunkSpec) -> Iterator[tuple[ChunkCoords, memoryview]]:
        """Yield the coords and bytes of each inner chunk that is there, in C order of coords."""
        view, index = self._split(data, spec)
        for coords, (offset, size) in zip(self._all_coords(spec), index, strict=True):
            if offset != MISSING:
                yield coords, view[offset : offset + size]

    def check_index(self, data: Buffer, spec: ChunkSpec) -> None:
        """Raise `CodecError` where the index of a whole shard is damaged, or names bytes outside of it."""
        self._split(data, spec)

    def _split(self, data: Buffer, spec: ChunkSpec) -> tuple[memoryview, list[list[int]]]:
        """Return the shard's bytes, and offset and size of each inner chunk in C order."""
        view = byte_view(data)
        if len(view) < (index_bytes := self.index_bytes(spec)):
            raise ValueError(f"{len(view)} bytes cannot hold an index of {index_bytes}")
        encoded = view[:index_bytes] if self.index_location == "start" else view[len(view) - index_bytes :]
        try:
            index = self.parse_index(encoded, spec, len(view))
        except ValueError as error:  # a CodecError of the index's own codecs is one
            raise CodecError(codec=self.name, reason=f"the shard's index: {error}") from error
        return view, index.reshape(-1, 2).tolist()

    def _layout(self, spec: ChunkSpec) -> _Layout:
        """Return what follows from `spec`, and remember it: a reader asks once for each inner chunk."""
        layout: _Layout | None = self.recall()
        if layout is None or layout.spec is not spec:
            index_spec = ChunkSpec((*self.inner_grid_shape(spec), 2), np.dtype(np.uint64), None)
            if (index_bytes := self.index.encoded_size(index_spec)) is None:
                raise ValueError("the index codecs do not have a fixed size")
            inner_spec = ChunkSpec(self.chunk_shape, spec.dtype, spec.fill_value)
            layout = _Layout(spec, inner_spec, index_spec, index_bytes)
            self.remember(layout)
        return layout

    def _all_coords(self, spec: ChunkSpec) -> Iterator[ChunkCoords]:
        return product(*map(range, self.inner_grid_shape(spec)))

    def _regions(self, spec: ChunkSpec) -> Iterator[tuple[Any, ...]]:
        """Yield the region of each inner chunk in the shard, in C order of coords."""
        counts = zip(self.inner_grid_shape(spec), self.chunk_shape, strict=True)
        cuts = ([slice(i * length, (i + 1) * length) for i in range(count)] for count, length in counts)
        return product(*cuts, [...])  # the dots make an array, not a scalar, of a chunk without axes


INDEX_CODECS = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})
"""Codecs of the index where nothing else is said."""
