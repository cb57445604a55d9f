"""Arrays of Dask, numpy and xarray as sources of a job: a store that computes chunks.

A chunk is a block of the Dask array, computed by the task that reads it. Not here: what images need
(`chunkmill.pyramids.computed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from dask.array import core as da

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.as_dask import as_dask
from chunkmill.errors import UnsupportedFeature
from chunkmill.model.grid import ChunkCoords
from chunkmill.nodes.api import create_array, open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.stores.base import ByteRange, range_bounds
from chunkmill.stores.memory import MemoryStore

__all__ = ["ComputedStore", "computed_array", "open_or_compute"]


class ComputedStore(MemoryStore):
    """The documents of an array, and its chunks, each computed when it is read; can be pickled as the array can."""

    def __init__(self, values: da.Array) -> None:
        super().__init__()
        self.url = f"dask-array://{values.name}"
        self.values = values

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a document, or the bytes of a block."""
        value = self._block(key)
        if value is None or byte_range is None:
            return value if value is not None else super().get(key, byte_range)
        start, stop = range_bounds(byte_range, len(value), url=self.url, key=key)
        return value[start:stop]

    def get_noting(self, key: str, byte_range: ByteRange | None, record: Any) -> bytes | None:
        """Return a value, or a range of it; what is computed has one version."""
        value = self.get(key, byte_range)
        if value is not None:
            record(key, "0")
        return value

    def version(self, key: str) -> str | None:
        """Return the version of a document; one and the same for all that is computed."""
        return "0" if self._coords(key) is not None else super().version(key)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes; no block is computed for it."""
        if self._coords(key) is None:
            return super().size(key)
        return prod(map(int, self.values.chunksize)) * int(self.values.dtype.itemsize)

    def _coords(self, key: str) -> ChunkCoords | None:
        first, *parts = key.split("/")
        if first != "c" or len(parts) != self.values.ndim or not all(part.isdecimal() for part in parts):
            return None
        coords = tuple(map(int, parts))
        return coords if all(i < n for i, n in zip(coords, self.values.numblocks, strict=True)) else None

    def _block(self, key: str) -> bytes | None:
        coords = self._coords(key)
        if coords is None:
            return None
        block = np.asarray(self.values.blocks[coords].compute(scheduler="synchronous"))
        pads = [(0, full - n) for full, n in zip(self.values.chunksize, block.shape, strict=True)]
        return np.pad(block, pads).astype(self.values.dtype.newbyteorder("<"), copy=False).tobytes()


def open_or_compute(source: Any, storage_options: Mapping[str, Any] | None) -> StoredNode:
    """Return the node of a source; of an array of Dask, numpy or xarray one whose chunks are computed.

    Examples
    --------
    >>> open_or_compute(np.arange(6), None).shape
    (6,)
    """
    if hasattr(source, "dims") and hasattr(source, "data") and hasattr(source, "dtype"):  # of xarray
        return computed_array(as_dask(source), tuple(map(str, source.dims)), {})
    if isinstance(source, np.ndarray) or (hasattr(source, "__dask_graph__") and not isinstance(source, Array)):
        return computed_array(as_dask(source), None, {})
    return open_source(source, storage_options)


def computed_array(values: da.Array, names: tuple[str, ...] | None, attributes: Mapping[str, Any]) -> StoredArray:
    """Return the array whose chunks are the blocks of `values`, regular ones.

    Raises
    ------
    UnsupportedFeature
        Elements have no fixed size.
    """
    if values.dtype.kind in "OT":
        hint = "write it by to_store, and give what is stored"
        raise UnsupportedFeature(format="chunkmill", feature=f"a computed source of dtype {values.dtype}", hint=hint)
    if any(len(set(lengths[:-1])) > 1 or lengths[-1] > lengths[0] for lengths in values.chunks):
        values = values.rechunk(values.chunksize)
    store = ComputedStore(values)
    array = create_array(
        store,
        shape=values.shape,
        dtype=values.dtype.newbyteorder("<"),
        chunks=tuple(map(int, values.chunksize)),
        codecs="raw",
        fill_value=0,
        format="zarr3",
        dimension_names=names,
        attributes=attributes,
    )
    return array.stored
