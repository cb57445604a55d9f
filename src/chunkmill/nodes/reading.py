"""Read an array of a store as a dask array: the public function `from_store`.

Not here: the graph (`chunkmill.dask_arrays.read`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import dask.array as da

from chunkmill.array.stored_array import ReadMissing
from chunkmill.formats.base import FormatName
from chunkmill.nodes.arguments import NodeLocation, open_array_at
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group

__all__ = ["from_store"]


def from_store(
    url: NodeLocation,
    path: str = "",
    *,
    chunks: Any = None,
    region: Any = None,
    format: FormatName | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    read_missing: ReadMissing = "fill",
    name: str | None = None,
    base: str | os.PathLike[str] | None = None,
) -> da.Array:
    """Return an array in a store, or a region of it, as a dask array; like ``da.from_zarr``, for every format.

    Parameters
    ----------
    url
        As in `open`; or ``(url, path)``, an `Array`, or a `Group` that `path` starts from.
    path, format, storage_options, read_missing, base
        As in `open`.
    chunks, region
        As in `Array.to_dask`: by default all of the array, one task for each store key.
    name
        Name of the dask array; dask takes arrays of one name for equal. Derived from what is read when ``None``.

    Returns
    -------
    dask.array.Array
        Lazy dask array with the shape and dtype of the array (or region); absent chunks read as the fill value.

    Raises
    ------
    NodeNotFound, MetadataError, UnknownCodec, StoreError
        As in `open_array`. A chunk that cannot be read raises `ChunkError` when it is computed.
    RegionError
        `chunks` or `region` does not fit the array.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-from", shape=(6, 4), dtype="f4", chunks=(3, 2), fill_value=1)
    >>> float(cm.from_store("memory://doc-from").sum().compute())
    24.0
    """
    if isinstance(url, (Array, Group)) and any(each is not None for each in (format, storage_options, base)):
        raise TypeError(f"format=, storage_options= and base= are of a url: the {type(url).__name__} is open already")
    options: dict[str, Any] = {"format": format, "storage_options": storage_options, "base": base}
    return open_array_at(url, path, read_missing=read_missing, **options).to_dask(chunks, region=region, name=name)
