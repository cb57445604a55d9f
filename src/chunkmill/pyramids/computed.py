"""Arrays of Dask, numpy and xarray, and lists of arrays, as sources of a pyramid: a store that computes chunks.

A chunk is a block of the Dask array, computed by the task that reads it. Not here: images that are stored
(`chunkmill.pyramids.image`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from dask.array import core as da

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.as_dask import as_dask
from chunkmill.dask_arrays.read import read_graph
from chunkmill.model.grid import ChunkCoords
from chunkmill.model.multiscales import Axis, Level, axis_type, emit_transform
from chunkmill.nodes.api import create_array, open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.multiscales import image_of_array
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.stores.base import ByteRange, range_bounds
from chunkmill.stores.memory import MemoryStore

__all__ = ["ComputedStore", "open_image_source"]


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


def open_image_source(source: Any, storage_options: Mapping[str, Any] | None, stack: str) -> StoredNode:
    """Return the node of a source; of arrays in a list one that joins them along a new axis named `stack`.

    The axis of a stack is the first, or follows one of time. Names, lengths of voxels and units are the first array's.

    Raises
    ------
    ValueError
        The list is empty, or its arrays have different shapes or dtypes.
    """
    if isinstance(source, list):
        return _stacked(source, storage_options, stack)
    if hasattr(source, "dims") and hasattr(source, "data") and hasattr(source, "dtype"):  # of xarray
        return _computed(as_dask(source), tuple(map(str, source.dims)), {})
    if isinstance(source, np.ndarray) or (hasattr(source, "__dask_graph__") and not isinstance(source, Array)):
        return _computed(as_dask(source), None, {})
    return open_source(source, storage_options)


def _stacked(sources: Sequence[Any], storage_options: Mapping[str, Any] | None, stack: str) -> StoredNode:
    nodes = [open_image_source(each, storage_options, stack) for each in sources]
    arrays = [node for node in nodes if isinstance(node, StoredArray)]
    if not nodes or len(arrays) < len(nodes):
        msg = f"a list of {len(nodes)} sources, of which {len(arrays)} are arrays: give arrays of one shape and dtype"
        raise ValueError(msg)
    if len({(array.shape, array.dtype) for array in arrays}) > 1:
        kinds = ", ".join(f"{array.path or array.url}: {array.shape} {array.dtype}" for array in arrays)
        msg = f"a list of arrays that differ in shape or dtype, and cannot be the parts of one image: {kinds}"
        raise ValueError(msg)
    first = arrays[0]
    found = image_of_array(first, partial(open_stored, first.store))
    names = [axis.name for axis in found[1].axes] if found else [name or "" for name in first.dimension_names or ()]
    if len(names) != first.ndim or not all(names):
        names = list(("t", "c", "z", "y", "x")[5 - first.ndim :]) if first.ndim < 5 else []  # noqa: PLR2004
        if stack in names or not names:
            names = [f"d{i}" for i in range(first.ndim)]
    at = 1 if names[:1] and axis_type(names[0]) == "time" else 0
    values = da.stack([read_graph(array) for array in arrays], axis=at)
    attributes: dict[str, Any] = {}
    if found:
        _, image, level = found
        axes = [*image.axes[:at], Axis(stack, axis_type(stack)), *image.axes[at:]]
        scale = (*level.scale[:at], 1.0, *level.scale[at:])
        start = (*level.translation[:at], 0.0, *level.translation[at:])
        attributes = {"transform": emit_transform(axes, Level("", scale, start))}
    return _computed(values, (*names[:at], stack, *names[at:]), attributes)


def _computed(values: da.Array, names: tuple[str, ...] | None, attributes: Mapping[str, Any]) -> StoredArray:
    """Return the array whose chunks are the blocks of `values`, regular ones."""
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
