"""Values before and after a write: what is taken, where it goes, and how it is read again."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import dask.array as da
from dask.delayed import Delayed
from dask.graph_manipulation import bind

from chunkmill.array.selection import as_region
from chunkmill.errors import RegionError
from chunkmill.model.grid import Region
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group

__all__ = ["checked_values", "stored_values", "write_region_of"]


def checked_values(x: Any) -> Any:
    """Return the values; raise `TypeError` for what holds none, or those of several arrays."""
    if isinstance(x, (Mapping, AbstractSet, Group)) or x is None or hasattr(x, "data_vars"):
        kind = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}".removeprefix("builtins.")
        msg = f"got {kind}, where values of one array are expected: of dask, NumPy, xarray (a DataArray), chunkmill"
        hint = "; write_dataset writes datasets" if hasattr(x, "data_vars") else ""
        raise TypeError(msg + hint)
    return x


def write_region_of(array: Array, region: Any) -> Region:
    """Return the region of the array to write to; all of it for ``None``."""
    if isinstance(region, str) and region == "auto":
        reason = "only write_dataset knows coordinates to find it by"
        raise RegionError(index="'auto'", shape=array.shape, reason=reason)
    return as_region(region, array.shape)


def stored_values(array: Array, region: Region, written: Any) -> da.Array:
    """Return what was written as a dask array that reads it, after a write that is to be computed has been."""
    values = array.to_dask(region=region)
    if not isinstance(written, Delayed):
        return values
    bound: da.Array = bind(values, written)
    return bound
