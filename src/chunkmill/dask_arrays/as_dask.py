"""Convert user input (Dask arrays of any kind, NumPy, pandas, xarray, lists, array-likes) to `dask.array.core`.

Not here: arrays as sources of jobs (`chunkmill.dask_arrays.sources`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from dask.array import core as da
from dask.base import is_dask_collection

from chunkmill.dask_arrays.kinds import is_dask_array, lowered_together
from chunkmill.dask_arrays.read import read_graph, sized
from chunkmill.model.user_values import masked, plain
from chunkmill.nodes.array import Array


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
