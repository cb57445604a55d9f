"""Which stored arrays a dask graph reads: asked before something is deleted that it may be.

Seen are the arrays behind `read_graph`, ``da.from_array`` and ``da.from_zarr``, and the lazy variables of xarray's
engines ``chunkmill`` and ``zarr``. Not seen is what a graph that was optimised already has fused into its tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import dask.array as da
from dask.blockwise import Blockwise
from dask.highlevelgraph import MaterializedLayer

from chunkmill.array import Array
from chunkmill.errors import JobError
from chunkmill.stores.base import Store

__all__ = ["check_not_read", "place", "places_read"]


def check_not_read(sources: Iterable[Any], store: Store, path: str) -> None:
    """Raise `JobError` where `sources` are still to be read from the node at `path`, which is to be deleted."""
    target = place(store.url, path)
    for source in sources:
        if inside := sorted(found for found in places_read(source) if found.startswith(target)):
            reason = f"mode='w' would delete {inside[0].rstrip('/')}, which the data are still to be read from"
            hint = "load or persist() them first, or write elsewhere"
            raise JobError(job=f"write {target.rstrip('/')}", reason=reason, hint=hint)


def places_read(x: Any) -> set[str]:
    """Return where the arrays lie that `x` is to be read from, each as `place` writes it; of numpy's there are none.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-places", "t", shape=(4,), dtype="i4", chunks=(2,))
    >>> places_read(a.to_dask() + 1)
    {'memory://doc-places/t/'}
    """
    if not isinstance(x, da.Array):
        return set()
    return {found for layer in x.dask.layers.values() for found in _places(layer)}


def _places(layer: Any) -> Iterator[str]:
    known = getattr(layer, "collection_annotations", None) or {}
    if {"url", "path"} <= known.keys():
        yield place(known["url"], known["path"])
    elif isinstance(layer, Blockwise):  # from_array(…, inline_array=True)
        yield from (found for value, index in layer.indices if index is None for found in _place_of(value))
    elif isinstance(layer, MaterializedLayer) and len(layer) == 1:  # from_array: the source has a key of its own
        yield from _place_of(next(iter(layer.values())))


def _place_of(value: Any) -> Iterator[str]:
    """Yield the place of the array below `value`, through the wrappers of dask and xarray."""
    for _ in range(_DEPTH):
        if isinstance(value, Array):
            yield place(value.store.url, value.path)
        elif (stored := getattr(value, "store_path", None)) is not None:  # zarr-python's array
            yield _place_in_zarr_python(stored)
        else:
            value = next((inner for name in _WRAPPED if (inner := getattr(value, name, None)) is not None), None)
            continue
        return


def _place_in_zarr_python(stored: Any) -> str:
    filesystem = getattr(stored.store, "fs", None)
    url = str(stored.store) if filesystem is None else filesystem.unstrip_protocol(stored.store.path)
    return place(url, stored.path)


_WRAPPED = ("array", "_array", "value")  # in xarray's lazy arrays, its wrapper of zarr-python, dask's data nodes
_DEPTH = 16


def place(url: str, path: str) -> str:
    """Return where a node lies, ending with ``/``: the same for every url and symbolic link that lead there."""
    whole = f"{url.rstrip('/')}/{path.strip('/')}".rstrip("/")
    if whole.startswith("file://"):
        whole = f"file://{os.path.realpath(whole.removeprefix('file://'))}"
    return f"{whole}/"
