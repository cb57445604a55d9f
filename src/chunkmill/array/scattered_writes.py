"""Write scattered elements: by masks, steps and integer arrays, as numpy assigns to such an index.

Each store key that holds some of the elements is read, changed and replaced by `update_chunk`, with the guarantees of
every partial write; no other key is touched. Not here: which elements are in which chunk (`chunkmill.array.scattered`),
regions (`chunkmill.array.chunk_io`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.array.chunk_io import update_chunk
from chunkmill.array.local_locks import LockFactory
from chunkmill.array.scattered import Pick, normalize_positions, pick_outer, pick_points
from chunkmill.array.selection import Selection, select
from chunkmill.array.stored_array import StoredArray
from chunkmill.model.grid import Overlap, Shape
from chunkmill.model.user_values import spread

__all__ = ["write_index", "write_outer", "write_points"]


def write_index(
    array: StoredArray, index: Any, values: ArrayLike, *, lock: LockFactory | None = None, fields: Any = ...
) -> None:
    """Write `values` to the elements that `index` selects, as ``block[index] = values`` does in numpy.

    Parameters
    ----------
    index
        Integers, slices of any step, ``...``, integer and boolean arrays.
    fields
        Of a structured dtype: a name, or a list of names. The others keep their values.

    Raises
    ------
    RegionError
        A position is out of bounds.
    ValueError
        The values do not broadcast to the selected elements.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-write-index", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> write_index(a, (slice(None, None, 3), [5, 0]), [[1, 2], [3, 4]])
    >>> a[:, 0], a[:, 5]
    (array([2, 0, 0, 4], dtype=int16), array([1, 0, 0, 3], dtype=int16))
    """
    selection = select(index, array.shape)
    parts = _parts(selection)
    arrays = [axis for axis, part in enumerate(parts) if isinstance(part, np.ndarray)]
    if len(arrays) <= 1 and all(parts[axis].ndim == 1 for axis in arrays) and not (arrays and _any_integer(parts)):
        write_outer(array, parts, values, lock=lock, fields=fields)
        return
    # integers count as arrays here; axes of arrays that are next to each other stay there, else they come first
    arrays = [axis for axis, part in enumerate(parts) if not isinstance(part, range)]
    apart = selection.dots is not None and arrays[0] < selection.dots <= arrays[-1]
    first = arrays[0] if arrays[-1] - arrays[0] + 1 == len(arrays) and not apart else 0
    joined = np.broadcast_shapes(*(np.shape(parts[axis]) for axis in arrays))
    lengths = [len(part) for part in parts if isinstance(part, range)]
    block = spread(values, _dtype(array, fields), (*lengths[:first], *joined, *lengths[first:]))
    block = np.moveaxis(block, range(first, first + len(joined)), range(len(joined)))
    write_points(array, parts, block, lock=lock, fields=fields)


def write_outer(
    array: StoredArray,
    index: Sequence[Any],
    values: ArrayLike,
    *,
    lock: LockFactory | None = None,
    fields: Any = ...,
) -> None:
    """Write all combinations of positions, as numpy does with ``np.ix_``.

    Parameters
    ----------
    index
        For each axis an integer, which drops the axis, a slice or range of any step, or a one-dimensional array of
        integers.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-write-outer", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> write_outer(a, (np.array([3, 0]), slice(None, None, 5)), 7)
    >>> a[0]
    array([7, 0, 0, 0, 0, 7], dtype=int16)
    """
    cuts: list[Any] = []
    turned: list[Any] = []
    lengths: list[int] = []
    kept: list[int] = []
    for axis, part in enumerate(index):
        cut, turn, n = _along(part, axis, array.shape)
        cuts.append(cut)
        turned.append(turn)
        lengths.append(n)
        kept += [n] if np.ndim(part) or isinstance(part, slice) else []
    block = spread(values, _dtype(array, fields), tuple(kept)).reshape(lengths)[cast("Any", (*turned, ...))]
    if 0 not in lengths:
        _write(array, pick_outer(array.write_layout.grid, cuts), block, lock, fields)


def write_points(
    array: StoredArray,
    index: Sequence[Any],
    values: ArrayLike,
    *,
    lock: LockFactory | None = None,
    fields: Any = ...,
) -> None:
    """Write elements one by one, as numpy does with several integer arrays; of the same one, the last value stays.

    Parameters
    ----------
    index
        For each axis an array of integers of any shape, or an integer, which broadcast to the shape of the values;
        slices and ranges become axes after those.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-write-points", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> write_points(a, (np.array([3, 0]), np.array([-1, 1])), [8, 9])
    >>> int(a[3, 5]), int(a[0, 1])
    (8, 9)
    """
    arrays = _points(index, array.shape)
    shape = np.broadcast_shapes(*(part.shape for part in arrays))
    block = spread(values, _dtype(array, fields), shape).ravel()
    points = [
        np.broadcast_to(normalize_positions(part, axis, array.shape), shape).ravel() for axis, part in enumerate(arrays)
    ]
    if block.size:
        _write(array, pick_points(array.write_layout.grid, points), block, lock, fields)


def _points(index: Sequence[Any], shape: Shape) -> list[NDArray[Any]]:
    """Return `index` with slices and ranges as arrays along axes of their own, after those of the arrays."""
    n_ranges = sum(isinstance(part, (slice, range)) for part in index)
    arrays, seen = [], 0
    for part, size in zip(index, shape, strict=True):
        if isinstance(part, (slice, range)):
            seen += 1
            arrays.append(np.asarray(_range(part, size), np.intp).reshape((-1,) + (1,) * (n_ranges - seen)))
        else:
            arrays.append(np.asarray(part)[(..., *(None,) * n_ranges)])
    return arrays


def _write(
    array: StoredArray, picks: Iterator[Pick], block: NDArray[Any], lock: LockFactory | None, fields: Any
) -> None:
    for pick in picks:
        # not whole: also where every element of a key is selected, in an order that is not its own
        overlap = Overlap(pick.coords, cast("Any", pick.in_chunk), cast("Any", pick.in_result), whole=False)
        update_chunk(array, overlap, block[pick.in_result], lock=lock, fields=fields)


def _dtype(array: StoredArray, fields: Any) -> Any:
    return array.dtype if fields is ... else array.dtype[fields]


def _along(part: Any, axis: int, shape: Shape) -> tuple[Any, slice, int]:
    """Return positions along an axis, ranges as slices of positive step, how values are turned for it, and how many."""
    if not isinstance(part, (slice, range)):
        positions = normalize_positions(np.atleast_1d(np.asarray(part)), axis, shape)
        return positions, slice(None), len(positions)
    along = _range(part, shape[axis])
    turn = slice(None)
    if along.step < 0:
        along, turn = along[::-1], slice(None, None, -1)
    return slice(along.start, max(along.start, along.stop), along.step), turn, len(along)


def _range(part: slice | range, size: int) -> range:
    return part if isinstance(part, range) else range(*part.indices(size))


def _parts(selection: Selection) -> list[Any]:
    """Return an integer, a range or an array of positions for each axis."""
    parts: list[Any] = []
    for cut, within in zip(selection.region, selection.within, strict=True):
        if isinstance(within, slice):
            parts.append(range(cut.start, cut.stop)[within])
        else:
            parts.append(cut.start + within)
    return parts


def _any_integer(parts: Sequence[Any]) -> bool:
    return any(isinstance(part, int) for part in parts)
