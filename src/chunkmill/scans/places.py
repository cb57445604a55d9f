"""Find the place of each file along the dimensions of a join: by its coordinates' values, or by its name.

The files fill a box, as those of xarray's ``combine_by_coords`` do: files with equal values of a coordinate have the
same place along it. Not here: joining (`chunkmill.scans.join`), reading coordinates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import ScanError

__all__ = ["Place", "Places", "places_of"]

Place: TypeAlias = tuple[int, ...]
"""Number of a file along each dimension."""

_MAX_LISTED = 50


@dataclass(frozen=True)
class Places:
    """Places of all files.

    Attributes
    ----------
    of_files
        Of each file, in the order in which they were given; every place of a box once.
    gaps
        Where a step of a coordinate from one place to the next is longer than any inside the files, as text.
    """

    of_files: Sequence[Place]
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Along:
    """Files along one dimension: the place of each, and by place the values of its coordinate."""

    dim: str
    places: Sequence[int]
    values: Sequence[NDArray[Any]] = field(default=())

    def shown(self, place: int) -> str:
        """Return the values at a place, as text."""
        return f"{self.dim} {_span(self.values[place])}" if self.values else f"{self.dim} number {place}"


def _span(values: NDArray[Any]) -> str:
    return f"{values.min()} to {values.max()}" if len(values) else "nothing"


def places_of(
    urls: Sequence[str],
    dims: Sequence[str],
    values: Mapping[str, Sequence[NDArray[Any]]],
    *,
    by_name: bool = False,
    listed: Sequence[Place] | None = None,
) -> Places:
    """Return the places of files.

    Parameters
    ----------
    urls
        Of the files, in any order.
    dims
        Names of the dimensions.
    values
        Name of a dimension -> values of its coordinate in each file. At most one of `dims` may have none: files that
        are equal along all others follow one another along it in the order given.
    by_name
        Whether places follow one another in the order in which they occur, instead of that of the values.
    listed
        Places that the user said, by nested lists: then values decide nothing.

    Raises
    ------
    ScanError
        Values overlap, two files have the same place, or some place has no file; names files and values.
    """
    if listed is not None:
        along = [_Along(dim, [each[number] for each in listed]) for number, dim in enumerate(dims)]
    else:
        known = {
            dim: _along(urls, dim, values[dim], by_name=by_name, alone=len(dims) == 1) for dim in dims if dim in values
        }
        others = [dim for dim in dims if dim not in known]
        if len(others) > 1:
            named = ", ".join(map(repr, others))
            reason = f"the files have no coordinates of {named}: give nested lists of files, one level a dimension"
            raise ScanError(url=urls[0], reason=reason)
        for dim in others:
            seen: Counter[Place] = Counter()
            numbers = []
            for at in zip(*(each.places for each in known.values()), strict=True) if known else [()] * len(urls):
                numbers.append(seen[at])
                seen[at] += 1
            known[dim] = _Along(dim, numbers)
        along = [known[dim] for dim in dims]
    places = list(zip(*(each.places for each in along), strict=True))
    _check_box(urls, along, places)
    return Places(places, tuple(gap for each in along for gap in _gaps(urls, each)))


def _along(urls: Sequence[str], dim: str, parts: Sequence[NDArray[Any]], *, by_name: bool, alone: bool) -> _Along:
    """Return the places of files along a dimension by the values of its coordinate; `ScanError` where two overlap."""
    parts = [part.astype(object) if part.dtype.kind == "T" else part for part in parts]
    first: dict[Any, int] = {}
    # files with the same values have the same place, but for those of no values, and where names alone count
    groups = [i if not len(part) or (by_name and alone) else _key(part) for i, part in enumerate(parts)]
    group = [first.setdefault(each, i) for i, each in enumerate(groups)]
    order = list(first.values())
    if not by_name:
        full, empty = [i for i in order if len(parts[i])], [i for i in order if not len(parts[i])]
        runs = [parts[i] for i in full if len(parts[i]) > 1]
        falls = bool(runs) and all(run[-1] < run[0] for run in runs)  # latitudes from north to south
        full.sort(key=lambda i: (parts[i].min(), urls[i]), reverse=falls)
        for before, after in pairwise(full):
            low, high = (after, before) if falls else (before, after)
            if parts[low].max() >= parts[high].min():
                raise _overlap(urls, before, after, [(dim, parts[before], parts[after])])
        order = [*empty, *full]
    number = {i: place for place, i in enumerate(order)}
    return _Along(dim, [number[i] for i in group], [parts[i] for i in order])


def _key(values: NDArray[Any]) -> Any:
    return tuple(values.tolist()) if values.dtype.kind == "O" else (len(values), values.tobytes())


def _overlap(
    urls: Sequence[str], before: int, after: int, values: Sequence[tuple[str, NDArray[Any], NDArray[Any]]]
) -> ScanError:
    own = "; ".join(f"values of {dim!r}, {_span(part)}" for dim, _, part in values)
    others = "; ".join(_span(part) for _, part, _ in values)
    reason = (
        f"its {own}, overlap those of {urls[before]}, {others}: leave one out, "
        "or join in the order of names (order='names')"
    )
    return ScanError(url=urls[after], reason=reason)


def _check_box(urls: Sequence[str], along: Sequence[_Along], places: Sequence[Place]) -> None:
    """Raise `ScanError` unless each place of the box is that of one file."""

    def shown(place: Place) -> str:
        return ", ".join(each.shown(number) for each, number in zip(along, place, strict=True))

    seen: dict[Place, int] = {}
    for i, place in enumerate(places):
        if place in seen:
            held = [(each.dim, each.values[n]) for each, n in zip(along, place, strict=True) if each.values]
            same = [(dim, values, values) for dim, values in held]
            raise _overlap(urls, seen[place], i, same)
        seen[place] = i
    sizes = [max(each.places) + 1 for each in along]
    if len(places) == prod(sizes):
        return
    missing = [place for place in product(*map(range, sizes)) if place not in seen] if prod(sizes) < 1 << 20 else []
    listed = "".join(f"\n  {shown(place)}" for place in missing[:_MAX_LISTED])
    more = f"\n  and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
    reason = (
        f"{len(places)} files do not fill the {' x '.join(map(str, sizes))} places along "
        f"{', '.join(repr(each.dim) for each in along)}; there is no file at:{listed}{more}"
    )
    raise ScanError(url=urls[0], reason=reason)


def _gaps(urls: Sequence[str], along: _Along) -> list[str]:
    parts = along.values
    if not parts or not all(len(part) and part.dtype.kind in "iuf" for part in parts):
        return []
    longest = max((np.abs(np.diff(part)).max() for part in parts if len(part) > 1), default=None)
    return [
        f"{along.dim} {before[-1]} to {after[0]}, before {urls[list(along.places).index(place)]}"
        for place, (before, after) in enumerate(pairwise(parts), start=1)
        if longest is not None and abs(after[0] - before[-1]) > longest
    ]
