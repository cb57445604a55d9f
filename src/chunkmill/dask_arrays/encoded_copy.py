"""Copy encoded chunks in a write of an untouched stored array, where both arrays store its chunks as equal bytes.

The tasks are those of any write: one reads the values of the store keys of its block, and passes them on. Not here:
conversions, which also copy what differs in its frame alone (`chunkmill.conversion.actions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.array import core as da

from chunkmill.array.other_stores import held_references
from chunkmill.array.staleness import check_still_there, read_published
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.dask_arrays.read import Source, read_graph
from chunkmill.model.grid import Overlap, Region

__all__ = ["EncodedBlock", "EncodedChunk", "as_encoded", "put_encoded"]


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """Value of a store key as it is stored; ``None`` for one that is absent."""

    data: bytes | None
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Number of bytes that are held in memory until they are stored."""
        return 0 if self.data is None else len(self.data)


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """Values of the store keys of a block, by the first element that each covers in it."""

    ndim: int
    chunks: Mapping[tuple[int, ...], EncodedChunk]

    def __getitem__(self, index: tuple[Any, ...]) -> EncodedChunk:
        """Return the value of the store key that covers a region, which dots follow."""
        return self.chunks[tuple(cut.start for cut in index[: self.ndim])]


def as_encoded(x: da.Array, source: Source, array: StoredArray, region: Region) -> da.Array | None:
    """Return `x` with blocks of encoded chunks; ``None`` where they are not what `region` of `array` is to store.

    They are where `x` is a region of a stored array, cut by the same store keys, and codecs, dtype and fill value are
    equal.
    """
    if source.name != x.name or source.values is not read_published:
        return None
    own, wanted = source.array.metadata, array.metadata
    facts = [
        (each.dtype, each.codecs, each.edge_chunks, repr(each.fill_value), each.chunk_grid.is_regular)
        for each in (own, wanted)
    ]
    if facts[0] != facts[1] or not own.chunk_grid.is_regular or source.array.format != array.format:
        return None
    if source.array.read_missing == "error" or held_references(source.array) is not None:
        return None
    keys = [(own.chunk_grid, source.region), (wanted.chunk_grid, region)]
    if keys[0][0].chunk_shape != keys[1][0].chunk_shape or not all(grid.aligned(cut) for grid, cut in keys):
        return None
    name = f"encoded-{x.name}"
    return read_graph(source.array, x.chunks, source.region, name, values=_read_encoded, dtype=array.dtype)


def _read_encoded(array: StoredArray, region: Region) -> EncodedBlock:
    """Return the values of the store keys that a region covers; of a known size, that is checked."""
    layout = array.write_layout
    chunks = {}
    for overlap in layout.grid.overlaps(region):
        with chunk_step(array, layout, overlap.coords, "get"):
            data = array.store.get(layout.locator.key(overlap.coords))
        if data is None:
            check_still_there(array)
        else:
            expected = layout.codecs.encoded_size(layout.spec(overlap.coords))
            with chunk_step(array, layout, overlap.coords, "decode"):
                if expected is not None and len(data) != expected:
                    raise ValueError(f"{len(data)} bytes, expected {expected}")
        chunks[tuple(cut.start for cut in overlap.in_region)] = EncodedChunk(data, array.dtype)
    return EncodedBlock(array.ndim, chunks)


def put_encoded(array: StoredArray, overlap: Overlap, chunk: EncodedChunk) -> int:
    """Store the value of a store key, or delete it where that is absent, and return its bytes."""
    layout = array.write_layout
    key = layout.locator.key(overlap.coords)
    with chunk_step(array, layout, overlap.coords, "set"):
        if chunk.data is None:
            array.store.delete(key)
        else:
            array.store.set(key, chunk.data)
    return chunk.nbytes
