"""Begin the requests of the store keys of regions, before their chunks are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from chunkmill.array.stored_array import StoredArray
from chunkmill.model.grid import Region
from chunkmill.stores.begun_reads import BegunReads

__all__ = ["begun_bytes", "begun_reads"]


def begun_reads(array: StoredArray, regions: Iterable[Region]) -> BegunReads:
    """Return the reads of all store keys of `regions`, under way."""
    keys = [key for region in regions for key in array.keys(region)]
    return BegunReads(array.store, keys, value_bytes=begun_bytes(array))


def begun_bytes(array: StoredArray) -> int:
    """Return the size to expect of a value: that of its elements, since the codecs tell no other."""
    return array.dtype.itemsize * prod(array.write_layout.grid.chunk_shape)
