"""Resolve the argument `region` of a job for each array of the source.

Not here: cropped arrays (`chunkmill.array.cropped`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from types import EllipsisType
from typing import Any, TypeAlias

from chunkmill.array.selection import as_region
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import RegionError
from chunkmill.model.grid import Region
from chunkmill.nodes.new_array import axis_names, unknown_dimensions
from chunkmill.nodes.stored_group import StoredNode

DimensionRange: TypeAlias = slice | tuple[int | None, int | None]
RegionOption: TypeAlias = (
    slice | Sequence[slice | EllipsisType] | Mapping[str, DimensionRange] | Mapping[int, DimensionRange] | None
)
ChunksOption: TypeAlias = int | str | Sequence[Any] | Mapping[str, Any] | Callable[[Any], Any] | None

Names = Callable[[StoredArray], Sequence[str | None]]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Elements of an array that became one along each axis where a level was made of it, and the shape of the array."""

    factors: tuple[float, ...]
    shape: tuple[int, ...]

    def of(self, cut: slice, axis: int) -> slice:
        """Return the range of the level that covers one of the array that was reduced."""
        start, stop, _ = cut.indices(self.shape[axis])
        factor = self.factors[axis]
        return slice(floor(start / factor + _ROUNDING), ceil(stop / factor - _ROUNDING))


_ROUNDING = 1e-6  # of quotients of two lengths of voxels


def cropping(
    option: Any,
    node: StoredNode,
    arrays: Collection[StoredArray],
    names: Names | None = None,
    levels: Mapping[str, Reduction] | None = None,
) -> Callable[[StoredArray], StoredArray] | None:
    """Return the function that crops an array; ``None`` where nothing is to be cropped.

    Parameters
    ----------
    option
        ``None``; of one array, slices as when it is indexed; slices or pairs ``(start, stop)`` by name (or number) of a
        dimension, for every array that has it.
    node
        The source.
    arrays
        The arrays of it that are taken.
    names
        Array -> name of each axis; as stored by default.
    levels
        Of arrays that are levels of an image but the finest, by path: of them ranges that cover the finest's are taken.

    Raises
    ------
    RegionError
        An array has no such elements, or slices of it have steps.
    TypeError
        Slices for a group.
    ValueError
        A dimension that no array has, or one that has different lengths in them; a range with a step.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-cropping", shape=(9, 5), dtype="i4", dimension_names=("t", "x")).stored
    >>> cropping({"t": slice(2, 6)}, a, [a])(a).shape
    (4, 5)
    """
    if option is None:
        return None
    if not isinstance(option, Mapping):
        if not isinstance(node, StoredArray):
            msg = f"region={option!r}: the arrays of a group have axes of their own; give ranges by dimension, such as "
            raise TypeError(msg + "{'time': slice(0, 10)}")
        region = _checked(option, node)
        return lambda array: array.crop(region)
    if not option:
        raise ValueError("region={} names no dimension: leave it out to take everything")
    named = names or axis_names
    cuts = {name: _cut(name, value) for name, value in option.items()}
    reduced = levels or {}
    _check_names(cuts, [array for array in arrays if array.path not in reduced], named)

    def cropped(array: StoredArray) -> StoredArray:
        own = [cuts.get(name, cuts.get(axis)) for axis, name in enumerate(named(array))]
        index = tuple(slice(None) if cut is None else cut for cut in own)
        if level := reduced.get(array.path):
            covered = [level.of(cut, axis) for axis, cut in enumerate(index)]
            index = tuple(slice(c.start, min(c.stop, n)) for c, n in zip(covered, array.shape, strict=True))
        return array.crop(_checked(index, array)) if array.ndim else array

    return cropped


def shown_regions(option: Any) -> str:
    """Return the argument as text for plans.

    Examples
    --------
    >>> shown_regions({"t": slice(2, 6), "x": (1, None)}), shown_regions((slice(4), ...))
    ('t=2:6, x=1:', '[:4, ...]')
    """
    if isinstance(option, Mapping):
        return ", ".join(f"{name}={_shown(_cut(name, value))}" for name, value in option.items())
    parts = option if isinstance(option, (tuple, list)) else (option,)
    return f"[{', '.join('...' if part is ... else _shown(part) for part in parts)}]"


def _shown(cut: Any) -> str:
    if not isinstance(cut, slice):
        return repr(cut)
    start, stop = ("" if bound is None else bound for bound in (cut.start, cut.stop))
    return f"{start}:{stop}" if cut.step in {None, 1} else f"{start}:{stop}:{cut.step}"


def _cut(name: Any, value: Any) -> slice:
    """Return the slice that stands for a dimension."""
    if isinstance(value, slice) and value.step in {None, 1}:
        return slice(value.start, value.stop)
    if isinstance(value, (tuple, list)) and len(value) == 2:  # noqa: PLR2004
        return slice(*value)
    reason = f"got {value!r}, expected slice(start, stop) or (start, stop)"
    if isinstance(value, slice):
        reason = f"a step of {value.step}, where a region is made of ranges without steps"
    elif isinstance(value, int):
        reason += f"; an integer would drop the axis: give ({value}, {value + 1})"
    raise ValueError(f"region= for {name!r}: {reason}")


def _checked(index: Any, array: StoredArray) -> Region:
    """Return the region of an index; `RegionError` names the array, and says where it has no such elements."""
    where = f"{array.path!r}: " if array.path else ""
    asked = f"{where}region={shown_regions(index)}"
    try:
        region = as_region(index, array.shape)
    except RegionError as error:
        reason = error.reason
        if "slices of step 1" in reason:
            reason += "; an integer would drop its axis, and a step would leave elements out"
        raise RegionError(index=asked, shape=array.shape, reason=reason) from None
    for axis, (part, cut, size) in enumerate(zip(_by_axis(index, array.ndim), region, array.shape, strict=True)):
        if isinstance(part, slice) and (cut.start >= cut.stop or (part.stop or 0) > size) and part != slice(None):
            reason = f"axis {axis} of length {size} has no elements {_shown(part)}"
            raise RegionError(index=asked, shape=array.shape, reason=reason)
    return region


def _by_axis(index: Any, ndim: int) -> list[Any]:
    """Return one index for each axis."""
    parts = list(index) if isinstance(index, (tuple, list)) else [index]
    at = next((i for i, part in enumerate(parts) if part is ...), len(parts))
    before, after = parts[:at], parts[at + 1 :]
    return [*before, *[slice(None)] * (ndim - len(before) - len(after)), *after]


def _check_names(cuts: Mapping[Any, slice], arrays: Collection[StoredArray], named: Names) -> None:
    """Raise `RegionError` for dimensions that no array has, and for those whose length differs."""
    lengths: dict[Any, dict[int, str]] = {}
    for array in arrays:
        for axis, name in enumerate(named(array)):
            lengths.setdefault(axis if name is None else name, {}).setdefault(array.shape[axis], array.path)
            if len({each.ndim for each in arrays}) == 1:
                lengths.setdefault(axis, {}).setdefault(array.shape[axis], array.path)
    if unknown := [name for name in cuts if name not in lengths]:
        known = sorted(name for name in lengths if isinstance(name, str))
        raise unknown_dimensions("region", unknown, known, "the arrays", "give slices")
    for name in cuts:
        if len(found := lengths[name]) > 1:
            each = ", ".join(f"{n} in {path!r}" for n, path in list(found.items())[:4])
            msg = f"region= for {name!r}, whose length is {each}: one range cannot mean the same in both"
            raise ValueError(f"{msg}; choose arrays by include=")
