"""Read and write scattered elements: by masks, steps and integer arrays (``oindex``, ``vindex``), as numpy does.

Only chunks that hold some of the elements are fetched. Each store key that is written to is read, changed and replaced
by `update_chunk`, with the guarantees of every partial write. Not here: regions (`chunkmill.array.selection`,
`chunkmill.array.chunk_io`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, product
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.array.chunk_io import read_chunks, update_chunk
from chunkmill.array.selection import Positions, broadcast_shape, expand
from chunkmill.array.staleness import check_still_there, read_published
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import LockFactory
from chunkmill.errors import RegionError
from chunkmill.model.grid import ChunkGrid, Overlap, RegularAxis, RunsAxis, Shape
from chunkmill.model.user_values import spread

_BATCH = 1 << 16  # chunks asked for at once


def read_outer(array: StoredArray, index: Any) -> NDArray[Any]:
    """Read all combinations of positions, as numpy does with ``np.ix_``.

    Parameters
    ----------
    index
        For each axis an integer, which drops the axis, a slice of any step, or a one-dimensional array of integers or
        booleans; axes at the end may be left out.

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
    cuts, turned, lengths, kept = _outer(_along_axes(array, index))
    if all(isinstance(cut, slice) and cut.step == 1 for cut in cuts):
        block = read_published(array, tuple(slice(cut.start, cut.stop) for cut in cuts))
    else:
        block = _read(array, pick_outer(array.read_layout.grid, cuts), lengths)
    return np.asarray(block[turned]).reshape(kept)


def read_points(array: StoredArray, index: Any) -> NDArray[Any]:
    """Read elements one by one, as numpy does with several integer arrays.

    Parameters
    ----------
    index
        For each axis an array of integers of any shape, or an integer, which broadcast to the result's shape; slices
        become axes after those. A mask stands for the axes that it has.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-points", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> a[...] = np.arange(24).reshape(4, 6)
    >>> read_points(a, (np.array([3, 0]), np.array([-1, 1])))
    array([23,  1], dtype=int16)
    """
    shape, points = _points(_along_points(array, index), array.shape)
    n = prod(shape)
    return _read(array, pick_points(array.read_layout.grid, points) if n else iter(()), (n,)).reshape(shape)


def _read(array: StoredArray, picks: Iterator[Overlap], shape: Shape) -> NDArray[Any]:
    result = np.empty(shape, array.dtype)
    while batch := list(islice(picks, _BATCH)):
        coords = [pick.coords for pick in batch]
        chunks = read_chunks(array, array.read_layout, coords, on_absent=partial(check_still_there, array))
        for pick, chunk in zip(batch, chunks, strict=True):
            result[pick.in_region] = chunk[pick.in_chunk]
    return result


def write_index(
    array: StoredArray, index: Any, values: ArrayLike, *, lock: LockFactory | None = None, fields: Any = ...
) -> None:
    """Write `values` to the elements that `index` selects, as ``block[index] = values`` does in numpy.

    Parameters
    ----------
    index
        Integers, slices of any step, ``...``, integer and boolean arrays.
    fields
        Name of a field of a structured dtype; the others keep their values.

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
    parts, dots, _ = expand(index, array.shape)
    arrays = [axis for axis, part in enumerate(parts) if isinstance(part, np.ndarray)]
    has_integer = any(isinstance(part, int) for part in parts)
    if len(arrays) <= 1 and all(np.ndim(parts[axis]) == 1 for axis in arrays) and not (arrays and has_integer):
        _write_outer(array, parts, values, lock, fields)
        return
    # integers count as arrays here; axes of arrays that are next to each other stay there, else they come first
    arrays = [axis for axis, part in enumerate(parts) if not isinstance(part, range)]
    apart = dots is not None and arrays[0] < dots <= arrays[-1]
    first = arrays[0] if arrays[-1] - arrays[0] + 1 == len(arrays) and not apart else 0
    joined = broadcast_shape([parts[axis] for axis in arrays], array.shape)
    lengths = [len(part) for part in parts if isinstance(part, range)]
    block = spread(values, _dtype(array, fields), (*lengths[:first], *joined, *lengths[first:]))
    block = np.moveaxis(block, range(first, first + len(joined)), range(len(joined)))
    _write_points(array, parts, block, lock, fields)


def write_outer(array: StoredArray, index: Any, values: ArrayLike, *, lock: LockFactory | None = None) -> None:
    """Write all combinations of positions (see `read_outer`).

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-write-outer", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> write_outer(a, (np.array([3, 0]), slice(None, None, 5)), 7)
    >>> a[0]
    array([7, 0, 0, 0, 0, 7], dtype=int16)
    """
    _write_outer(array, _along_axes(array, index), values, lock, ...)


def write_points(array: StoredArray, index: Any, values: ArrayLike, *, lock: LockFactory | None = None) -> None:
    """Write elements one by one (see `read_points`); of the same one, the last value stays.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-write-points", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> write_points(a, (np.array([3, 0]), np.array([-1, 1])), [8, 9])
    >>> int(a[3, 5]), int(a[0, 1])
    (8, 9)
    """
    _write_points(array, _along_points(array, index), values, lock, ...)


def _along_axes(array: StoredArray, index: Any) -> list[Any]:
    if any(np.ndim(part) > 1 for part in (index if isinstance(index, tuple) else (index,))):
        reason = "expected integers, slices, or one-dimensional arrays of them for each axis"
        raise RegionError(index=repr(index)[:200], shape=array.shape, reason=reason)
    return expand(index, array.shape)[0]


def _along_points(array: StoredArray, index: Any) -> list[Any]:
    parts, _, n_missing = expand(index, array.shape)
    if n_missing:
        reason = f"expected an array of integers for each of {array.ndim} axes, or a mask"
        raise RegionError(index=repr(index)[:200], shape=array.shape, reason=reason)
    return parts


def _write_outer(array: StoredArray, parts: Sequence[Any], values: ArrayLike, lock: Any, fields: Any) -> None:
    cuts, turned, lengths, kept = _outer(parts)
    block = spread(values, _dtype(array, fields), kept).reshape(lengths)[turned]
    if 0 not in lengths:
        _write(array, pick_outer(array.write_layout.grid, cuts), block, lock, fields)


def _write_points(array: StoredArray, parts: Sequence[Any], values: ArrayLike, lock: Any, fields: Any) -> None:
    shape, points = _points(parts, array.shape)
    block = spread(values, _dtype(array, fields), shape).ravel()
    if block.size:
        _write(array, pick_points(array.write_layout.grid, points), block, lock, fields)


def _points(parts: Sequence[Any], shape: Shape) -> tuple[Shape, list[Positions]]:
    """Return the shape that `parts` broadcast to, and the position of each point along each axis.

    Ranges are arrays along axes of their own, after those of the arrays.
    """
    n_ranges = sum(isinstance(part, range) for part in parts)
    arrays, seen = [], 0
    for part in parts:
        if isinstance(part, range):
            seen += 1
            arrays.append(np.asarray(part, np.intp).reshape((-1,) + (1,) * (n_ranges - seen)))
        else:
            arrays.append(np.asarray(part, np.intp)[(..., *(None,) * n_ranges)])
    joined = broadcast_shape(arrays, shape)
    return joined, [np.broadcast_to(along, joined).ravel() for along in arrays]


def _write(
    array: StoredArray, picks: Iterator[Overlap], block: NDArray[Any], lock: LockFactory | None, fields: Any
) -> None:
    for pick in picks:
        update_chunk(array, pick, block[pick.in_region], lock=lock, fields=fields)


def _dtype(array: StoredArray, fields: Any) -> Any:
    return array.dtype if fields is ... else array.dtype[fields]


def _outer(parts: Sequence[Any]) -> tuple[list[Any], Any, Shape, Shape]:
    """Return the positions along each axis, and how their elements become those that are selected.

    Positions are arrays, or slices of positive step. Then: the index that turns axes, the length of each axis, and the
    shape without the axes of integers.
    """
    cuts: list[Any] = []
    turned: list[Any] = []
    for part in parts:
        along = range(part, part + 1) if isinstance(part, int) else part
        turn = slice(None)
        if isinstance(along, range):
            if along.step < 0:
                along, turn = along[::-1], slice(None, None, -1)
            along = slice(along.start, max(along.start, along.stop), along.step)
        cuts.append(along)
        turned.append(turn)
    lengths = [1 if isinstance(part, int) else len(part) for part in parts]
    kept = [n for n, part in zip(lengths, parts, strict=True) if not isinstance(part, int)]
    return cuts, (*turned, ...), tuple(lengths), tuple(kept)


_AxisPick: TypeAlias = tuple[int, slice | Positions, slice | Positions]
"""Number of a chunk along an axis, and the elements of it: in the chunk, and in the result."""


def pick_outer(grid: ChunkGrid, indexes: Sequence[slice | Positions]) -> Iterator[Overlap]:
    """Yield the elements to take from each chunk for all combinations of `indexes`, one for each axis.

    Parameters
    ----------
    indexes
        Slices with bounds and steps as ``slice.indices`` gives them, steps positive; or positions, in any order and
        repeated or not, as `expand` gives them.

    Examples
    --------
    >>> grid = ChunkGrid.regular((10,), (4,))
    >>> [(pick.coords, pick.in_chunk, pick.in_region) for pick in pick_outer(grid, [slice(1, 10, 6)])]
    [((0,), (slice(1, 2, 6),), (slice(0, 1, None),)), ((1,), (slice(3, 4, 6),), (slice(1, 2, None),))]
    """
    per_axis = [
        list(_slice_picks(axis, index) if isinstance(index, slice) else _position_picks(axis, index))
        for axis, index in zip(grid.axes, indexes, strict=True)
    ]
    for parts in product(*per_axis):
        coords, in_chunk, in_result = zip(*parts, strict=True) if parts else ((), (), ())
        # not whole: also where every element of a key is selected, in an order that is not its own
        yield Overlap(coords, _crossed(in_chunk), _crossed(in_result), whole=False)


def pick_points(grid: ChunkGrid, positions: Sequence[Positions]) -> Iterator[Overlap]:
    """Yield the elements to take from each chunk that holds some of the points.

    Parameters
    ----------
    positions
        The position along each axis of all points: equally long, one-dimensional.

    Examples
    --------
    >>> grid = ChunkGrid.regular((10, 10), (5, 5))
    >>> [pick.coords for pick in pick_points(grid, [np.array([9, 0, 8]), np.array([9, 1, 7])])]
    [(0, 0), (1, 1)]
    """
    chunks = [_chunks_of(axis, along) for axis, along in zip(grid.axes, positions, strict=True)]
    order = np.lexsort([index for index, _ in chunks[::-1]])
    indexes = [index[order] for index, _ in chunks]
    changes = np.zeros(len(order), bool)
    for index in indexes:
        changes[1:] |= index[1:] != index[:-1]
    for group in _groups(order, np.flatnonzero(changes)):
        coords = tuple(int(index[group[0]]) for index, _ in chunks)
        in_chunk: Any = tuple(within[group] for _, within in chunks)
        yield Overlap(coords, in_chunk, (group,), whole=False)  # type: ignore[arg-type]


def _slice_picks(axis: RegularAxis | RunsAxis, cut: slice) -> Iterator[_AxisPick]:
    at, done = cut.start, 0
    while at < cut.stop:  # chunks between two steps are passed over
        i = axis.index(at)
        start = axis.start(i)
        n = -(-(min(start + axis.length(i), cut.stop) - at) // cut.step)
        last = at + (n - 1) * cut.step
        yield i, slice(at - start, last - start + 1, cut.step), slice(done, done + n)
        at, done = last + cut.step, done + n


def _position_picks(axis: RegularAxis | RunsAxis, positions: Positions) -> Iterator[_AxisPick]:
    index, within = _chunks_of(axis, positions)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    for group in _groups(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        yield int(index[group[0]]), _as_slice(within[group]), _as_slice(group)


def _chunks_of(axis: RegularAxis | RunsAxis, positions: Positions) -> tuple[Positions, Positions]:
    """Return the chunk that holds each position, and where in it."""
    if isinstance(axis, RegularAxis):
        return positions // axis.chunk, positions % axis.chunk
    index = np.fromiter(map(axis.index, positions.tolist()), np.intp, len(positions))
    starts = np.fromiter(map(axis.start, index.tolist()), np.intp, len(positions))
    return index, positions - starts


def _groups(order: Positions, borders: NDArray[Any]) -> list[Positions]:
    return [group for group in np.split(order, borders) if len(group)]


def _as_slice(positions: Positions) -> slice | Positions:
    """Return consecutive positions as a slice: numpy copies slices many times faster."""
    first, last = int(positions[0]), int(positions[-1])
    if last - first == len(positions) - 1 and (len(positions) == 1 or (np.diff(positions) == 1).all()):
        return slice(first, last + 1)
    return positions


def _crossed(parts: Sequence[slice | Positions]) -> tuple[Any, ...]:
    """Return the numpy index of all combinations; several arrays would be taken for a list of points."""
    if sum(isinstance(part, np.ndarray) for part in parts) <= 1:
        return tuple(parts)
    return np.ix_(*(np.arange(p.start, p.stop, p.step) if isinstance(p, slice) else p for p in parts))
