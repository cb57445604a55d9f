"""Translate a user's index to the region to read and the numpy index into its block.

Pure integers. Not here: chunks (`chunkmill.model.grid`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import RegionError
from chunkmill.model.grid import Region, Shape

Positions = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Selection:
    """Region and elements that an index selects.

    Attributes
    ----------
    region
        The smallest region that holds every selected element.
    within
        The numpy index that picks the elements from the block that `region` is read to.
    is_region
        Whether the elements are the region itself, in order, perhaps with axes of length 1 dropped.
    dots
        Before which axis ``...`` stood.
    """

    region: Region
    within: tuple[Any, ...]
    is_region: bool
    dots: int | None = None

    @property
    def picks(self) -> tuple[Any, ...]:
        """Index into the block, dots included: they keep 0-d arrays, and separate arrays that numpy would join."""
        return self.within if self.dots is None else (*self.within[: self.dots], ..., *self.within[self.dots :])


def full_region(shape: Shape) -> Region:
    """Return the region that covers all of `shape`."""
    return tuple(slice(0, n) for n in shape)


def region_shape(region: Region) -> Shape:
    """Return the shape of a region.

    Examples
    --------
    >>> region_shape((slice(2, 5), slice(0, 4)))
    (3, 4)
    """
    return tuple(cut.stop - cut.start for cut in region)


def as_region(index: Any, shape: Shape) -> Region:
    """Return the region of an index made of slices of step 1; ``None`` is all of `shape`.

    Raises
    ------
    RegionError
        Anything else that can be an index.

    Examples
    --------
    >>> as_region((slice(10, None), ...), (100, 10))
    (slice(10, 100, None), slice(0, 10, None))
    """
    if index is None:
        return full_region(shape)
    selection = select(tuple(index) if isinstance(index, list) else index, shape)
    if not selection.is_region or any(part == 0 for part in selection.within):
        raise _refuse(index, shape, "a region is made of slices of step 1")
    return selection.region


def select(index: Any, shape: Shape) -> Selection:
    """Translate a numpy index: integers, slices with any step, ``...``, and integer or boolean arrays.

    Raises
    ------
    RegionError
        Out of bounds, too many indices, or a kind of index that is none of these.

    Examples
    --------
    >>> select((slice(10, 20), 5), (100, 10)).region
    (slice(10, 20, None), slice(5, 6, None))
    """
    parts, dots = _expand(index, shape)
    cuts, within = [], []
    is_region = True
    for axis, (part, size) in enumerate(zip(parts, shape, strict=True)):
        cut, rest = _select_axis(part, size, axis, shape)
        cuts.append(cut)
        within.append(rest)
        is_region = is_region and (isinstance(rest, int) or rest == slice(None) if not _is_array(rest) else False)
    return Selection(tuple(cuts), tuple(within), is_region, dots)


def _expand(index: Any, shape: Shape) -> tuple[list[Any], int | None]:
    """Return one index for each axis, missing ones expanded to full slices, and the position of ``...``."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [np.asarray(p) if isinstance(p, list) else p for p in parts]
    expanded: list[Any] = []
    masks = []
    for part in parts:  # a boolean array over k axes is k integer arrays
        if _is_array(part) and part.dtype == bool and part.ndim > 1:
            masks.append((part, len(expanded)))
            expanded.extend(np.nonzero(part))
        else:
            expanded.append(part)
    n_dots = sum(part is Ellipsis for part in expanded)
    missing = len(shape) - (len(expanded) - n_dots)
    if missing < 0 or n_dots > 1:
        raise _refuse(index, shape, f"{len(expanded) - n_dots} indices and {n_dots} '...' for {len(shape)} axes")
    for mask, place in masks:
        axis = place + (missing - 1 if any(part is Ellipsis for part in expanded[:place]) else 0)
        if mask.shape != shape[axis : axis + mask.ndim]:
            raise _refuse("boolean array", shape, f"of shape {mask.shape} from axis {axis} on")
    if not n_dots:
        expanded.append(Ellipsis)
    dots = next(i for i, part in enumerate(expanded) if part is Ellipsis)
    return expanded[:dots] + [slice(None)] * missing + expanded[dots + 1 :], dots if n_dots else None


def _select_axis(part: Any, size: int, axis: int, shape: Shape) -> tuple[slice, Any]:
    """Return the bounding slice along one axis, and the index within it."""
    if isinstance(part, slice):
        return _select_slice(part, size, shape)
    if _is_array(part) and part.ndim:
        return _select_array(part, size, axis, shape)
    try:
        position = part.__index__()
    except (AttributeError, TypeError):
        raise _refuse(part, shape, "expected integers, slices, '...', integer or boolean arrays") from None
    if isinstance(part, (bool, np.bool_)) or not -size <= position < size:
        raise _refuse(part, shape, f"out of bounds for axis {axis} of length {size}")
    position %= size
    return slice(position, position + 1), 0


def _select_slice(part: slice, size: int, shape: Shape) -> tuple[slice, slice]:
    try:
        start, stop, step = part.indices(size)
    except (TypeError, ValueError) as error:
        raise _refuse(part, shape, str(error)) from None
    n = len(range(start, stop, step))
    if n == 0:
        return slice(start := min(start, size), start), slice(None)
    if step == 1:
        return slice(start, stop), slice(None)
    last = start + (n - 1) * step
    low = min(start, last)
    return slice(low, max(start, last) + 1), slice(None, None, step)


def _select_array(part: np.ndarray[Any, Any], size: int, axis: int, shape: Shape) -> tuple[slice, Any]:
    if part.dtype == bool:
        if part.shape != (size,):
            raise _refuse("boolean array", shape, f"of shape {part.shape} for axis {axis} of length {size}")
        part = np.nonzero(part)[0]
    if part.size == 0:
        return slice(0, 0), part.astype(np.intp)
    if part.dtype.kind not in "iu":
        raise _refuse(f"array of {part.dtype}", shape, "expected integers or booleans")
    positions = normalize_positions(part, axis, shape)
    low, high = int(positions.min()), int(positions.max())
    return slice(low, high + 1), positions - low


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


def broadcast_shape(parts: Iterable[Any], shape: Shape) -> Shape:
    """Return the shape that integer arrays broadcast to; `RegionError` where they do not."""
    shapes = [np.shape(part) for part in parts]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        reason = "integer arrays whose shapes do not broadcast"
        raise RegionError(index=f"arrays of shapes {shapes}", shape=shape, reason=reason) from None


def _is_array(part: Any) -> bool:
    return isinstance(part, np.ndarray)


def _refuse(index: Any, shape: Shape, reason: str) -> RegionError:
    return RegionError(index=repr(index)[:200], shape=shape, reason=reason)
