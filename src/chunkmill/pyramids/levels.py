"""Shapes and factors of the levels of a pyramid, from what the user asks for.

Pure integers and names. Not here: which task makes which level (`chunkmill.pyramids.blocks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

from chunkmill.pyramids.downsample import downsampled_shape

__all__ = ["LevelShape", "plan_levels"]

_MOST_LEVELS = 64

# Names of axes along which images are not reduced unless the user says so.
_NOT_SPATIAL = frozenset({"t", "time", "c", "channel", "channels"})


@dataclass(frozen=True, slots=True)
class LevelShape:
    """Shape of one level, and its factors along each axis: against the level above, and against the first level."""

    shape: tuple[int, ...]
    factors: tuple[int, ...]
    total: tuple[int, ...]


def plan_levels(
    shape: Sequence[int],
    factors: Any,
    n_levels: int | None,
    *,
    chunk_shape: Sequence[int],
    names: Sequence[str | None] | None = None,
    spacing: Sequence[float] | None = None,
) -> tuple[LevelShape, ...]:
    """Return every level, the first (of factors 1) included.

    Parameters
    ----------
    factors
        An int for all axes but those named time or channel; a tuple by axis; a dict by dimension name (1 for the
        others); a list of those, one for each level after the first; ``"isotropic"``: 2 along the axes whose voxels
        are shorter than the others'.
    n_levels
        Levels with the first; ``None``: as many as `factors` lists, or until one chunk holds the last level.
    chunk_shape
        Of the chunks of every level.
    spacing
        Length of a voxel along each axis, for ``"isotropic"``.

    Raises
    ------
    ValueError
        Factors of another rank, below 1, for unknown dimensions, or fewer than the levels.

    Examples
    --------
    >>> [level.shape for level in plan_levels((100, 100), 2, None, chunk_shape=(32, 32))]
    [(100, 100), (50, 50), (25, 25)]
    """
    if n_levels is not None and not 1 <= n_levels <= _MOST_LEVELS:
        msg = f"levels={n_levels!r}: expected a number from 1 to {_MOST_LEVELS}, the first level included"
        raise ValueError(msg)
    listed = isinstance(factors, list)
    if listed and n_levels is not None and n_levels - 1 > len(factors):
        msg = f"levels={n_levels} with factors for {len(factors)}: give factors for {n_levels - 1}, or one for all"
        raise ValueError(msg)
    first = tuple(map(int, shape))
    levels = [LevelShape(first, (1,) * len(first), (1,) * len(first))]
    most = n_levels if n_levels is not None else len(factors) + 1 if listed else _MOST_LEVELS
    while len(levels) < most:
        last = levels[-1]
        if n_levels is None and not listed and _fits(last.shape, chunk_shape):
            break
        wanted = factors[len(levels) - 1] if listed else factors
        if isinstance(wanted, str):
            by_axis = _isotropic(wanted, last, spacing, names)
        else:
            by_axis = _by_axis(wanted, first, names)
        # an axis of one element cannot be reduced
        by_axis = tuple(1 if n <= 1 else factor for n, factor in zip(last.shape, by_axis, strict=True))
        if all(factor == 1 for factor in by_axis):
            if n_levels is None and not listed:
                break
            msg = f"factors={factors!r}: level {len(levels)} would be as large as the one above, {last.shape}"
            raise ValueError(msg)
        total = tuple(a * b for a, b in zip(last.total, by_axis, strict=True))
        levels.append(LevelShape(downsampled_shape(last.shape, by_axis), by_axis, total))
    return tuple(levels)


def _fits(shape: Sequence[int], chunk_shape: Sequence[int]) -> bool:
    return all(n <= chunk for n, chunk in zip(shape, chunk_shape, strict=True))


def _is_spatial(name: str | None) -> bool:
    return name is None or name.lower() not in _NOT_SPATIAL


def _by_axis(wanted: Any, shape: Sequence[int], names: Sequence[str | None] | None) -> tuple[int, ...]:
    known = tuple(names) if names is not None else (None,) * len(shape)
    if isinstance(wanted, Mapping):
        if unknown := sorted(set(wanted) - set(known), key=str):
            dimensions = [name for name in known if name is not None]
            msg = f"factors={dict(wanted)!r}: unknown dimensions {unknown}; the array has {dimensions or 'no names'}"
            raise ValueError(msg)
        by_axis = tuple(wanted.get(name, 1) for name in known)
    elif isinstance(wanted, (tuple, list)):
        by_axis = tuple(wanted)
    else:
        by_axis = tuple(wanted if _is_spatial(name) else 1 for name in known)
    if len(by_axis) != len(shape):
        msg = f"factors={wanted!r}: expected {len(shape)}, one for each axis of {tuple(shape)}"
        raise ValueError(msg)
    if bad := [each for each in by_axis if not isinstance(each, int) or isinstance(each, bool) or each < 1]:
        msg = f"factors={wanted!r}: {bad[0]!r} is not a whole number of at least 1"
        raise ValueError(msg)
    return by_axis


def _isotropic(
    wanted: str, last: LevelShape, spacing: Sequence[float] | None, names: Sequence[str | None] | None
) -> tuple[int, ...]:
    """Return 2 along each axis whose voxels are nearer to half of the longest edge wanted than to all of it."""
    if wanted != "isotropic":
        msg = f"factors={wanted!r}: expected 'isotropic', numbers, a tuple by axis, a dict by dimension, or a list"
        raise ValueError(msg)
    if spacing is None:
        msg = "factors='isotropic' needs the voxel size: the source's metadata do not say it; give scale="
        raise ValueError(msg)
    known = names if names is not None else (None,) * len(last.shape)
    now = [length * total for length, total in zip(spacing, last.total, strict=True)]
    spatial = [i for i, name in enumerate(known) if _is_spatial(name) and last.shape[i] > 1]
    edge = 2 * min((now[i] for i in spatial), default=1.0)
    return tuple(
        2 if i in spatial and log2(edge / length) >= 0.5 else 1  # noqa: PLR2004 - nearer to half, on a log scale
        for i, length in enumerate(now)
    )
