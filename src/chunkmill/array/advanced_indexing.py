"""Read scattered elements (``oindex``, ``vindex``): only chunks that hold some of them are fetched.

`Array.__getitem__` reads the region around a selection; here nothing between its elements is read. Not here: which
elements are in which chunk (`chunkmill.array.scattered`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_chunks
from chunkmill.array.scattered import Pick, normalize_positions, pick_outer, pick_points
from chunkmill.array.staleness import check_still_there, read_published
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import RegionError
from chunkmill.model.grid import Shape

__all__ = ["read_outer", "read_points"]

_BATCH = 1 << 16  # chunks asked for at once


def read_outer(array: StoredArray, index: Sequence[Any]) -> NDArray[Any]:
    """Read all combinations of positions, as numpy does with ``np.ix_``.

    Parameters
    ----------
    index
        For each axis an integer, which drops the axis, a slice with a positive step, or a one-dimensional array of
        integers; negative ones count from the end.

    Raises
    ------
    RegionError
        A position is out of bounds.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-outer", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> a[...] = np.arange(24).reshape(4, 6)
    >>> read_outer(a, (np.array([3, 0]), slice(None, None, 5)))
    array([[18, 23],
           [ 0,  5]], dtype=int16)
    """
    kept = tuple(0 if isinstance(part, (int, np.integer)) else slice(None) for part in index)
    parts = [_along(part, axis, array.shape) for axis, part in enumerate(index)]
    if all(isinstance(part, slice) and part.step == 1 for part in parts):
        return np.asarray(read_published(array, tuple(slice(p.start, p.stop) for p in parts))[(*kept, ...)])
    shape = tuple(len(range(p.start, p.stop, p.step)) if isinstance(p, slice) else len(p) for p in parts)
    return np.asarray(_read(array, pick_outer(array.read_layout.grid, parts), shape)[(*kept, ...)])


def read_points(array: StoredArray, index: Sequence[Any]) -> NDArray[Any]:
    """Read elements one by one, as numpy does with several integer arrays.

    Parameters
    ----------
    index
        For each axis an array of integers of any shape, or an integer, which broadcast to the result's shape; slices
        become axes after those.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-points", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> a[...] = np.arange(24).reshape(4, 6)
    >>> read_points(a, (np.array([3, 0]), np.array([-1, 1])))
    array([23,  1], dtype=int16)
    """
    arrays = _arrays(index, array.shape)
    shape = np.broadcast_shapes(*(part.shape for part in arrays))
    points = [
        np.broadcast_to(normalize_positions(part, axis, array.shape), shape).ravel() for axis, part in enumerate(arrays)
    ]
    n = int(np.prod(shape))
    return _read(array, pick_points(array.read_layout.grid, points) if n else iter(()), (n,)).reshape(shape)


def _along(part: Any, axis: int, shape: Shape) -> Any:
    if isinstance(part, slice):
        start, stop, step = part.indices(shape[axis])
        if step < 0:
            raise RegionError(index=repr(part), shape=shape, reason="a slice with a negative step")
        return slice(start, max(start, stop), step)
    positions = normalize_positions(np.atleast_1d(np.asarray(part)), axis, shape)
    return slice(int(positions[0]), int(positions[0]) + 1, 1) if np.ndim(part) == 0 else positions


def _arrays(index: Sequence[Any], shape: Shape) -> list[NDArray[Any]]:
    """Return `index` with slices as arrays along axes of their own, after those of the arrays."""
    n_slices = sum(isinstance(part, slice) for part in index)
    arrays, seen = [], 0
    for part, size in zip(index, shape, strict=True):
        if isinstance(part, slice):
            along = np.arange(*part.indices(size))
            seen += 1
            arrays.append(along.reshape((-1,) + (1,) * (n_slices - seen)))
        else:
            arrays.append(np.asarray(part)[(..., *(None,) * n_slices)])
    return arrays


def _read(array: StoredArray, picks: Iterator[Pick], shape: Shape) -> NDArray[Any]:
    result = np.empty(shape, array.dtype)
    while batch := list(islice(picks, _BATCH)):
        coords = [pick.coords for pick in batch]
        chunks = read_chunks(array, array.read_layout, coords, on_absent=partial(check_still_there, array))
        for pick, chunk in zip(batch, chunks, strict=True):
            result[pick.in_result] = chunk[pick.in_chunk]
    return result
