"""Plan the reading of scattered elements: the chunks that hold them, and the place of each in the result.

Pure integers. Not here: reading (`chunkmill.array.advanced_indexing`), regions (`chunkmill.array.selection`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import RegionError
from chunkmill.model.grid import ChunkCoords, ChunkGrid, RegularAxis, RunsAxis, Shape

__all__ = ["Pick", "normalize_positions", "pick_outer", "pick_points"]

Positions = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Pick:
    """Elements of one chunk: their numpy index in the chunk, and in the result."""

    coords: ChunkCoords
    in_chunk: tuple[Any, ...]
    in_result: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _AxisPick:
    index: int
    in_chunk: slice | Positions
    in_result: slice | Positions


def pick_outer(grid: ChunkGrid, indexes: Sequence[slice | Positions]) -> Iterator[Pick]:
    """Yield the elements to take from each chunk for all combinations of `indexes`, one for each axis.

    Parameters
    ----------
    indexes
        Slices with bounds and steps as ``slice.indices`` gives them, steps positive; or positions, in any order and
        repeated or not, as `normalize_positions` gives them.

    Examples
    --------
    >>> grid = ChunkGrid.regular((10,), (4,))
    >>> [(pick.coords, pick.in_chunk, pick.in_result) for pick in pick_outer(grid, [slice(1, 10, 6)])]
    [((0,), (slice(1, 2, 6),), (slice(0, 1, None),)), ((1,), (slice(3, 4, 6),), (slice(1, 2, None),))]
    """
    per_axis = [
        list(_slice_picks(axis, index) if isinstance(index, slice) else _position_picks(axis, index))
        for axis, index in zip(grid.axes, indexes, strict=True)
    ]
    for parts in product(*per_axis):
        yield Pick(
            tuple(part.index for part in parts),
            _crossed([part.in_chunk for part in parts]),
            _crossed([part.in_result for part in parts]),
        )


def pick_points(grid: ChunkGrid, positions: Sequence[Positions]) -> Iterator[Pick]:
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
        yield Pick(coords, tuple(within[group] for _, within in chunks), (group,))


def normalize_positions(index: NDArray[Any], axis: int, shape: Shape) -> Positions:
    """Return positions along `axis` counted from its start; `RegionError` for one that is out of bounds.

    Examples
    --------
    >>> normalize_positions(np.array([-1, 0]), 0, (5,))
    array([4, 0])
    """
    size = shape[axis]
    if index.size and not (-size <= (low := int(index.min())) and int(index.max()) < size):
        reason = f"out of bounds for axis {axis} of length {size}"
        raise RegionError(index=f"positions from {low} to {int(index.max())}", shape=shape, reason=reason)
    positions = index.astype(np.intp)  # small integers hold neither the length nor the sum
    return np.where(positions < 0, positions + size, positions)


def _slice_picks(axis: RegularAxis | RunsAxis, cut: slice) -> Iterator[_AxisPick]:
    at, done = cut.start, 0
    while at < cut.stop:  # chunks between two steps are passed over
        i = axis.index(at)
        start = axis.start(i)
        n = -(-(min(start + axis.length(i), cut.stop) - at) // cut.step)
        last = at + (n - 1) * cut.step
        yield _AxisPick(i, slice(at - start, last - start + 1, cut.step), slice(done, done + n))
        at, done = last + cut.step, done + n


def _position_picks(axis: RegularAxis | RunsAxis, positions: Positions) -> Iterator[_AxisPick]:
    index, within = _chunks_of(axis, positions)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    for group in _groups(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        yield _AxisPick(int(index[group[0]]), _as_slice(within[group]), _as_slice(group))


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


def _crossed(parts: list[slice | Positions]) -> tuple[Any, ...]:
    """Return the numpy index of all combinations; several arrays would be taken for a list of points."""
    if sum(isinstance(part, np.ndarray) for part in parts) <= 1:
        return tuple(parts)
    return np.ix_(*(np.arange(p.start, p.stop, p.step) if isinstance(p, slice) else p for p in parts))
