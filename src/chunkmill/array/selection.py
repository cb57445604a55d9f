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
    parts, dots, _ = expand(index, shape)
    cuts: list[slice] = []
    within: list[Any] = []
    rest: Any
    for part, size in zip(parts, shape, strict=True):
        if isinstance(part, int):
            cut, rest = slice(part, part + 1), 0
        elif isinstance(part, range):
            cut, rest = _bounds(part, size)
        else:
            low = int(part.min()) if part.size else 0
            cut, rest = slice(low, int(part.max()) + 1 if part.size else 0), part - low
        cuts.append(cut)
        within.append(rest)
    is_region = all(isinstance(rest, int) or (isinstance(rest, slice) and rest == slice(None)) for rest in within)
    return Selection(tuple(cuts), tuple(within), is_region, dots)


def _bounds(along: range, size: int) -> tuple[slice, slice]:
    """Return the bounding slice of a range, and the index within it."""
    if not along:
        start = min(along.start, size)
        return slice(start, start), slice(None)
    low = min(along[0], along[-1])
    return slice(low, max(along[0], along[-1]) + 1), slice(None) if along.step == 1 else slice(None, None, along.step)


def expand(index: Any, shape: Shape) -> tuple[list[int | range | Positions], int | None, int]:
    """Return an integer, a range or an array of positions for each axis, all counted from its start.

    Axes that are left out are full ranges. Also the axis before which ``...`` stood, and how many were left out.

    Examples
    --------
    >>> expand((-1, slice(None, None, 2)), (5, 4, 2))
    ([4, range(0, 4, 2), range(0, 2)], None, 1)
    """
    expanded: list[Any] = []
    masks = []
    for part in index if isinstance(index, tuple) else (index,):
        part = np.asarray(part) if isinstance(part, list) else part  # noqa: PLW2901
        if isinstance(part, np.ndarray) and part.dtype == bool and part.ndim:  # over k axes it is k integer arrays
            masks.append((part, len(expanded)))
            expanded.extend(np.nonzero(part))
        else:
            expanded.append(part)
    n_dots = sum(part is Ellipsis for part in expanded)
    missing = len(shape) - (len(expanded) - n_dots)
    if missing < 0 or n_dots > 1:
        raise _refuse(index, shape, f"{len(expanded) - n_dots} indices and {n_dots} '...' for {len(shape)} axes")
    at = next((i for i, part in enumerate(expanded) if part is Ellipsis), len(expanded))
    for mask, place in masks:
        axis = place + (missing - 1 if place > at else 0)
        if mask.shape != shape[axis : axis + mask.ndim]:
            reason = f"a mask of shape {mask.shape} from axis {axis} on, not of {shape[axis : axis + mask.ndim]}"
            raise _refuse("boolean array", shape, reason)
    expanded[at : at + n_dots] = [slice(None)] * missing
    parts = [_positions(part, axis, shape) for axis, part in enumerate(expanded)]
    return parts, at if n_dots else None, missing


def _positions(part: Any, axis: int, shape: Shape) -> int | range | Positions:
    """Return the positions of an index along one axis, counted from its start."""
    size = shape[axis]
    if isinstance(part, slice):
        try:
            return range(*part.indices(size))
        except (TypeError, ValueError) as error:
            raise _refuse(part, shape, str(error)) from None
    if isinstance(part, np.ndarray) and part.ndim:
        if part.size and part.dtype.kind not in "iu":
            raise _refuse(f"array of {part.dtype}", shape, "expected integers or booleans")
        if part.size and not (-size <= (low := int(part.min())) and int(part.max()) < size):
            asked = f"positions from {low} to {int(part.max())}"
            raise _refuse(asked, shape, f"out of bounds for axis {axis} of length {size}")
        positions = part.astype(np.intp)  # small integers hold neither the length nor the sum
        return np.where(positions < 0, positions + size, positions)
    try:
        position = part.__index__()
    except (AttributeError, TypeError):
        raise _refuse(part, shape, "expected integers, slices, '...', integer or boolean arrays") from None
    if isinstance(part, (bool, np.bool_)) or not -size <= position < size:
        raise _refuse(part, shape, f"out of bounds for axis {axis} of length {size}")
    return int(position % size)


def broadcast_shape(parts: Iterable[Any], shape: Shape) -> Shape:
    """Return the shape that integer arrays broadcast to; `RegionError` where they do not."""
    shapes = [np.shape(part) for part in parts]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        reason = "integer arrays whose shapes do not broadcast"
        raise RegionError(index=f"arrays of shapes {shapes}", shape=shape, reason=reason) from None


def _refuse(index: Any, shape: Shape, reason: str) -> RegionError:
    text = index if isinstance(index, str) else repr(index)
    return RegionError(index=" ".join(text[:200].split()), shape=shape, reason=reason)
