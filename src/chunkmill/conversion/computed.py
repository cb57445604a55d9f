"""Arrays of Dask, numpy and xarray as sources of a job, whose chunks are blocks that are computed.

Not here: the store that shows them (`chunkmill.runtime.computed`), what images need (`chunkmill.pyramids.computed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dask.array import core as da

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.as_dask import as_dask
from chunkmill.errors import UnsupportedFeature
from chunkmill.nodes.api import create_array, open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.runtime.computed import ComputedStore

__all__ = ["computed_array", "open_or_compute"]


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
