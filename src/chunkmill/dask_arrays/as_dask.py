"""Convert user input (Dask arrays of any kind, NumPy, pandas, xarray, lists, array-likes) to `dask.array.core`.

And to sources of jobs, whose chunks are blocks that are computed. Not here: the store that shows these
(`chunkmill.runtime.computed`), what images need (`chunkmill.pyramids.computed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from dask.array import core as da
from dask.base import is_dask_collection

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.kinds import is_dask_array, lowered_together
from chunkmill.dask_arrays.read import read_graph, sized
from chunkmill.errors import UnsupportedFeature
from chunkmill.model.user_values import masked, plain
from chunkmill.nodes.api import create_array, open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.runtime.computed import ComputedStore


def together_as_dask(values: Iterable[Any]) -> list[da.Array]:
    """Return each of the values as a dask array; expressions are optimized together, and read once what they share."""
    return [as_dask(x) for x in lowered_together([_unlabelled(x) for x in values])]


def _unlabelled(x: Any) -> Any:
    """Return the values of xarray's DataArray or Variable; others as they are."""
    return x.data if hasattr(x, "dims") and hasattr(x, "data") and not isinstance(x, Array) else x


def as_dask(x: Any) -> da.Array:
    """Return `x` as a dask array; arrays of other libraries that can be sliced are read block by block.

    Raises
    ------
    UnsupportedFeature
        `x` is masked, or holds objects that are neither strings nor bytes.

    Examples
    --------
    >>> as_dask(["a", "bcd"]).dtype, as_dask(np.ma.masked_array([1, 2], [False, False])).compute()
    (dtype('<U3'), array([1, 2]))
    """
    if isinstance(x, Array):
        return read_graph(x.stored)
    if is_dask_array(x):
        (x,) = lowered_together([x])
        if isinstance(x._meta, np.ma.MaskedArray):  # noqa: SLF001 - dask's name for it
            raise masked()
        return x  # type: ignore[no-any-return]
    if (values := _unlabelled(x)) is not x:
        return as_dask(values)
    if is_dask_collection(x):
        collection: da.Array = da.asarray(x)  # a frame
        return collection
    if hasattr(x, "to_numpy"):  # series and frames of pandas and others, which are not sliced as arrays are
        x = x.to_numpy()
    if not isinstance(x, np.ndarray) and isinstance(getattr(x, "dtype", None), np.dtype) and hasattr(x, "shape"):
        lazy: da.Array = da.asarray(x)  # zarr-python's, h5py's
        return lazy
    values = plain(x)
    chunks = da.normalize_chunks("auto", values.shape, dtype=sized(values.dtype))
    inlined: da.Array = da.from_array(values, chunks=chunks)
    return inlined


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
