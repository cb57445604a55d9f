"""Memory in which the target chunks (shards) of one block are assembled: as one block, as equal tiles, or one by one.

Each class allocates the memory of all chunks at once: the system gives a large allocation in large pages, and has it
back when the block is done, whatever the allocator thinks of small ones.
"""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.rechunking.source_chunks import fill_values, unshifted, within
from chunkmill.conversion.rechunking.tiled_copy import MAX_TILED_AXES, put_in_tiles
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Overlap, Region

__all__ = ["BlockBuffer", "SeparateBuffer", "TargetBuffer", "TiledBuffer", "target_buffer"]


class TargetBuffer(Protocol):
    """The target chunks of one block while values are copied into them."""

    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""

    def put_fill(self, at: Region) -> None:
        """Copy the source's fill value to the region `at`, in array coordinates."""

    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return one target chunk: `overlap` is its overlap with the block. It is asked for once."""


def target_buffer(source: StoredArray, grid: ChunkGrid, region: Region, *, through_block: bool) -> TargetBuffer:
    """Return a buffer for the chunks of `grid` in `region`.

    Parameters
    ----------
    through_block
        Whether the chunks are cut out of one block (see `Estimate`).
    """
    shape = region_shape(region)
    if through_block:
        return BlockBuffer(source, region)
    first = grid.first_touched(region)
    chunk_shape = grid.shape_of(first)
    counts = tuple(-(-n // length) for n, length in zip(shape, chunk_shape, strict=True))
    is_whole = grid.is_regular and all(n % length == 0 for n, length in zip(shape, chunk_shape, strict=True))
    if is_whole and len(shape) <= MAX_TILED_AXES:
        return TiledBuffer(source, region, first, (*counts, *chunk_shape))
    return SeparateBuffer(source, grid, region)


class BlockBuffer:
    """One block, of which the chunks are parts: cheapest for many small chunks, at the cost of one copy more."""

    def __init__(self, source: StoredArray, region: Region) -> None:
        self._source, self._region = source, region
        self._block = np.empty(region_shape(region), source.dtype)

    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""
        self._block[within(unshifted(at, self._region))] = values

    def put_fill(self, at: Region) -> None:
        """Copy the source's fill value to the region `at`, in array coordinates."""
        self.put(at, fill_values(self._source, region_shape(at)))

    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return the part of the block that a chunk covers."""
        return self._block[within(overlap.in_region)]  # type: ignore[no-any-return]


class TiledBuffer:
    """Chunks of one shape, one after the other in memory, into all of which one copy goes."""

    def __init__(self, source: StoredArray, region: Region, first: ChunkCoords, tiles_shape: tuple[int, ...]) -> None:
        self._source, self._region, self._first = source, region, first
        self._tiles = np.empty(prod(tiles_shape), source.dtype).reshape(tiles_shape)

    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""
        put_in_tiles(self._tiles, unshifted(at, self._region), values)

    def put_fill(self, at: Region) -> None:
        """Copy the source's fill value to the region `at`, in array coordinates."""
        self.put(at, fill_values(self._source, region_shape(at)))

    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return the tile of a chunk."""
        place: Any = (*(i - first for i, first in zip(overlap.coords, self._first, strict=True)), ...)
        return self._tiles[place]  # type: ignore[no-any-return]


class SeparateBuffer:
    """Chunks of any shape, each contiguous, so that its memory is what is encoded.

    A chunk gets its memory when the first value is copied into it.
    """

    def __init__(self, source: StoredArray, grid: ChunkGrid, region: Region) -> None:
        self._source, self._grid = source, grid
        self._memory = np.empty(prod(region_shape(region)), source.dtype)
        self._n_used = 0
        self._chunks: dict[ChunkCoords, NDArray[Any]] = {}
        self._filled: set[ChunkCoords] = set()  # without memory of their own yet, and in part absent in the source

    def put(self, at: Region, values: NDArray[Any]) -> None:
        """Copy values to the region `at`, in array coordinates."""
        for overlap in self._grid.overlaps(at):
            chunk = self._chunks.get(overlap.coords)
            if chunk is None:
                chunk = self._chunks[overlap.coords] = self._begin(overlap.coords)
            chunk[within(overlap.in_chunk)] = values[within(overlap.in_region)]

    def put_fill(self, at: Region) -> None:
        """Copy the source's fill value to the region `at`, in array coordinates."""
        for overlap in self._grid.overlaps(at):
            chunk = self._chunks.get(overlap.coords)
            if chunk is None:
                self._filled.add(overlap.coords)
            else:
                chunk[within(overlap.in_chunk)] = fill_values(self._source, region_shape(overlap.in_chunk))

    def take(self, overlap: Overlap) -> NDArray[Any]:
        """Return a chunk and forget it."""
        chunk = self._chunks.pop(overlap.coords, None)
        return self._begin(overlap.coords) if chunk is None else chunk  # all of it absent, and written all the same

    def _begin(self, coords: ChunkCoords) -> NDArray[Any]:
        shape = region_shape(self._grid.extent(coords))
        start, self._n_used = self._n_used, self._n_used + prod(shape)
        chunk = self._memory[start : self._n_used].reshape(shape)
        if coords in self._filled:
            chunk[...] = fill_values(self._source, shape)
        return chunk
