"""Ways to select elements of an array that zarr-python's users know: ``oindex``, ``vindex``, ``blocks``, fields.

What is written keeps the guarantees of every partial write. Not here: which elements are in which chunk
(`chunkmill.array.scattered`), how they are read and written (`chunkmill.array.advanced_indexing`,
`chunkmill.array.scattered_writes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.array.advanced_indexing import read_outer, read_points
from chunkmill.array.scattered_writes import write_outer, write_points
from chunkmill.array.staleness import check_unchanged, unchanged_while_written
from chunkmill.errors import RegionError
from chunkmill.nodes import deferred_imports

if TYPE_CHECKING:
    from chunkmill.array.stored_array import StoredArray

__all__ = ["BlockIndex", "OuterIndex", "PointIndex", "split_fields"]


class OuterIndex:
    """Select all combinations of positions, as ``np.ix_`` does.

    An index has for each axis an integer, a slice, or a one-dimensional array of integers or booleans; axes at the end
    may be left out.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-oindex", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> a.oindex[[3, 0], ::5] = [[1, 2], [3, 4]]
    >>> a.oindex[[0, 3], [5]]
    array([[4],
           [2]], dtype=int16)
    """

    def __init__(self, array: StoredArray) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read the elements."""
        check_unchanged(self._array, may_grow=True)
        parts = _expanded(index, self._array)
        turned = [slice(None, None, -1) if _is_turned(part) else slice(None) for part in parts if not _is_integer(part)]
        return read_outer(self._array, [_forwards(p, n) for p, n in zip(parts, self._array.shape, strict=True)])[
            (*turned, ...)
        ]

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write the elements."""
        self._array.check_writable()
        parts = _expanded(index, self._array)
        with unchanged_while_written(self._array) as array:
            write_outer(array, parts, values, lock=deferred_imports.automatic_lock)


class PointIndex:
    """Select elements one by one, by an array of integers for each axis, or by a mask of the array's shape.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-vindex", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> a.vindex[[3, 0], [5, 1]] = [8, 9]
    >>> a.vindex[a[...] > 0]
    array([9, 8], dtype=int16)
    """

    def __init__(self, array: StoredArray) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read the elements."""
        check_unchanged(self._array, may_grow=True)
        return read_points(self._array, _points(index, self._array))

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write the elements; of the same one, the last value stays."""
        self._array.check_writable()
        parts = _points(index, self._array)
        with unchanged_while_written(self._array) as array:
            write_points(array, parts, values, lock=deferred_imports.automatic_lock)


class BlockIndex:
    """Select chunks (shards, when sharded) by their number along each axis; several by slices of step 1.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-blocks", shape=(5, 6), dtype="i2", chunks=(2, 3))
    >>> a.blocks[2, 1] = 4
    >>> a.blocks[-1, :].shape, int(a[4, 3])
    ((1, 6), 4)
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read the chunks, as one block."""
        block: NDArray[Any] = self._array[self._region(index)]
        return block

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write the chunks."""
        self._array[self._region(index)] = values

    def _region(self, index: Any) -> tuple[slice, ...]:
        axes = self._array.write_layout.grid.axes
        shape = self._array.write_layout.grid.grid_shape
        region: list[slice] = []
        for axis, part in zip(axes, _expanded(index, self._array), strict=True):
            n = shape[len(region)]
            if not isinstance(part, slice) and not _is_integer(part):
                raise _refused(index, shape, "blocks are selected by integers and slices of step 1")
            if _is_integer(part) and not -n <= part < n:
                raise _refused(index, shape, f"out of bounds for axis {len(region)} with {n} blocks")
            along = range(n)[part] if isinstance(part, slice) else range(part % n, part % n + 1)
            if along.step != 1:
                raise _refused(index, shape, "blocks are selected by integers and slices of step 1")
            last = along.stop - 1
            region.append(
                slice(axis.start(along.start), axis.start(last) + axis.length(last)) if along else slice(0, 0)
            )
        return tuple(slice(cut.start, min(cut.stop, size)) for cut, size in zip(region, self._array.shape, strict=True))


def split_fields(index: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the fields of a structured dtype that an index names, and the rest of it; ``None`` without any.

    Raises
    ------
    RegionError
        The dtype has no such field.

    Examples
    --------
    >>> split_fields(("x", slice(3)), np.dtype([("x", "i4"), ("y", "f4")]))
    ('x', (slice(None, 3, None),))
    >>> split_fields(5, np.dtype("i4"))
    (None, 5)
    """
    parts = index if isinstance(index, tuple) else (index,)
    named = [part for part in parts if isinstance(part, str) or (isinstance(part, list) and _all_texts(part))]
    if not named:
        return None, index
    fields = named[0] if len(named) == 1 else [*named]
    wanted = [fields] if isinstance(fields, str) else fields
    if missing := [name for name in wanted if name not in (dtype.names or ())]:
        has = f"the dtype has the fields {list(dtype.names)}" if dtype.names else f"{dtype} has no fields"
        raise RegionError(index=repr(missing[0]), shape=(), reason=has)
    return fields, tuple(part for part in parts if not any(part is name for name in named)) or (...,)


def _all_texts(part: list[Any]) -> bool:
    return bool(part) and all(isinstance(each, str) for each in part)


def _expanded(index: Any, array: StoredArray) -> list[Any]:
    """Return an integer, a slice or an array of positions for each axis, those that are left out as full slices."""
    parts = list(index) if isinstance(index, tuple) else [index]
    n_missing = array.ndim - sum(part is not Ellipsis for part in parts)
    if n_missing < 0 or sum(part is Ellipsis for part in parts) > 1:
        raise _refused(index, array.shape, f"too many indices for {array.ndim} axes")
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    parts[at : at + 1] = [slice(None)] * n_missing
    return [_checked(part, axis, array) for axis, part in enumerate(parts)]


def _checked(part: Any, axis: int, array: StoredArray) -> Any:
    if isinstance(part, slice):
        return part
    along = np.asarray(part)
    if along.dtype == bool:
        if along.shape != (array.shape[axis],):
            reason = f"a mask of shape {along.shape} for axis {axis} of length {array.shape[axis]}"
            raise _refused(part, array.shape, reason)
        return np.flatnonzero(along)
    if along.ndim > 1 or (along.size and along.dtype.kind not in "iu"):
        raise _refused(part, array.shape, "expected integers, slices, or one-dimensional arrays of them for each axis")
    return along.astype(np.intp) if along.ndim else int(along)


def _points(index: Any, array: StoredArray) -> list[Any]:
    parts = list(index) if isinstance(index, tuple) else [index]
    expanded: list[Any] = []
    for part in parts:  # a mask over k axes is k arrays of integers
        is_slice = isinstance(part, slice)
        mask = None if is_slice or part is Ellipsis else np.asarray(part)
        if mask is not None and mask.dtype == bool:
            axes = array.shape[len(expanded) : len(expanded) + mask.ndim]
            if mask.shape != axes:
                raise _refused(part, array.shape, f"a mask of shape {mask.shape} for axes of shape {axes}")
            expanded += np.nonzero(mask)
        elif mask is not None and (mask.size and mask.dtype.kind not in "iu"):
            raise _refused(part, array.shape, "expected integers or booleans")
        else:
            expanded.append(part if mask is None else mask.astype(np.intp))
    if len(expanded) != array.ndim or any(part is Ellipsis for part in expanded):
        raise _refused(index, array.shape, f"expected an array of integers for each of {array.ndim} axes, or a mask")
    return expanded


def _is_integer(part: Any) -> bool:
    return isinstance(part, (int, np.integer))


def _is_turned(part: Any) -> bool:
    return isinstance(part, slice) and part.step is not None and part.step < 0


def _forwards(part: Any, size: int) -> Any:
    if not _is_turned(part):
        return part
    along = range(*part.indices(size))[::-1]
    return slice(along.start, max(along.start, along.stop), along.step)


def _refused(index: Any, shape: Any, reason: str) -> RegionError:
    return RegionError(index=" ".join(repr(index)[:200].split()), shape=shape, reason=reason)
