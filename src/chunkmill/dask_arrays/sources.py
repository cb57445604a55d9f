"""Sources of jobs: nodes that are stored, and arrays whose chunks are blocks that are computed.

A job of what is stored imports no `dask.array`, which takes xarray and pandas with it. Not here: the store that shows
blocks (`chunkmill.runtime.computed`), what images need (`chunkmill.pyramids.computed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError, UnsupportedFeature
from chunkmill.jobs.sources import canonical_location
from chunkmill.nodes.api import create_array, open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.runtime.computed import ComputedStore
from chunkmill.stores.base import Store

if TYPE_CHECKING:
    from dask.array import core as da


def open_or_compute(
    source: Any, storage_options: Mapping[str, Any] | None, attributes: Mapping[str, Any] = MappingProxyType({})
) -> StoredNode:
    """Return the node of a source; of an array of Dask, numpy or xarray one that is computed and has `attributes`.

    Examples
    --------
    >>> open_or_compute(np.arange(6), None).shape
    (6,)
    """
    is_labelled = is_data_array(source)
    is_array = isinstance(source, np.ndarray) or (hasattr(source, "__dask_graph__") and not isinstance(source, Array))
    if not is_labelled and not is_array:
        return open_source(source, storage_options)
    from chunkmill.dask_arrays.as_dask import as_dask  # noqa: PLC0415 - slow to import

    return computed_array(as_dask(source), tuple(map(str, source.dims)) if is_labelled else None, attributes)


def is_data_array(source: Any) -> bool:
    """Return whether this is a DataArray or Variable of xarray."""
    return hasattr(source, "dims") and hasattr(source, "data") and hasattr(source, "dtype")


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


def check_apart(source: StoredNode, store: Store, path: str, *, overwrite: bool) -> None:
    """Raise `JobError` where writing the target would change the source, however their urls and paths are written."""
    if isinstance(source.store, ComputedStore):
        from chunkmill.dask_arrays.hazards import check_not_read  # noqa: PLC0415 - slow to import

        check_not_read([source.store.values] if overwrite else [], store, path, "overwrite=True")
        return
    a = canonical_location(source.store.url, source.path)
    b = canonical_location(store.url, path)
    if a == b:
        reason = f"source and target are the same place, {a}"
    elif overwrite and a.startswith(b):
        reason = f"the source, {a}, is inside the target, {b}, and would be deleted with what is there"
    elif b.startswith(a):
        reason = f"the target, {b}, is inside the source, {a}, which it would change"
    else:
        return
    raise JobError(job="write the target", reason=reason, hint="give another url or path as the target")
