"""Shapes of the levels of a pyramid, and their division into stages and tasks that own whole store keys.

A task owns a block of the last level of its stage. Under it are whole blocks of the level above, and under those whole
blocks of the next, up to the level that is read: each element is read once, and every store key is written by one task.

    level 0, read:   [....][....][....][....]   four blocks of a store key, read one after the other
    level 1:         [....      ][....      ]   two store keys, each filled from two blocks
    level 2:         [....                  ]   one store key: the block of the task

Pure integers and names. Not here: what tasks do (`chunkmill.pyramids.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import lcm, log2, prod
from operator import mul
from typing import Any, NamedTuple, TypeAlias

from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.pyramids.downsample import downsampled_shape

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
        Levels with the first; ``None``: as many as `factors` lists, or until one chunk holds the last level
        along every axis that is reduced.
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
        wanted = factors[len(levels) - 1] if listed else factors
        if isinstance(wanted, str):
            factor = _isotropic(wanted, last, spacing, names)
            reduced = [_is_spatial(name) for name in names or (None,) * len(first)]
        else:
            factor = _factors_by_axis(wanted, first, names)
            reduced = [each > 1 for each in factor]
        # one chunk holds it along the axes that are reduced: others keep their chunks
        is_small = all(n <= chunk or not each for n, chunk, each in zip(last.shape, chunk_shape, reduced, strict=True))
        if n_levels is None and not listed and is_small:
            break
        # an axis of one element cannot be reduced
        factor = tuple(1 if n <= 1 else each for n, each in zip(last.shape, factor, strict=True))
        if all(each == 1 for each in factor):
            msg = f"factors={factors!r}: level {len(levels)} would be as large as the one above, {last.shape}"
            raise ValueError(msg)
        total = tuple(map(mul, last.total, factor))
        levels.append(LevelShape(downsampled_shape(last.shape, factor), factor, total))
    return tuple(levels)


def _is_spatial(name: str | None) -> bool:
    return name is None or name.lower() not in _NOT_SPATIAL


def _factors_by_axis(wanted: Any, shape: Sequence[int], names: Sequence[str | None] | None) -> tuple[int, ...]:
    known = tuple(names) if names is not None else (None,) * len(shape)
    found = by_axis(wanted, known, "factors", 1, [_is_spatial(name) for name in known])
    if bad := [each for each in found if not isinstance(each, int) or isinstance(each, bool) or each < 1]:
        msg = f"factors={wanted!r}: {bad[0]!r} is not a whole number of at least 1"
        raise ValueError(msg)
    return tuple(found)


def by_axis(option: Any, names: Sequence[str | None], argument: str, other: Any, is_meant: Sequence[bool]) -> list[Any]:
    """Return the value of an argument for each axis: by name in a mapping, by axis, or one for those that are meant.

    `other` is the value of the axes that a mapping does not name, and of those that are not meant.

    Raises
    ------
    ValueError
        Another rank, or a dimension that there is not.
    """
    if isinstance(option, Mapping):
        if unknown := sorted(set(option) - set(names), key=str):
            known = [name for name in names if name is not None] or "no names"
            raise ValueError(f"{argument}={dict(option)!r}: unknown dimensions {unknown}; the array has {known}")
        return [option.get(name, other) for name in names]
    if isinstance(option, Iterable) and not isinstance(option, (str, bytes)):
        found = list(option)
        if len(found) != len(names):
            raise ValueError(f"{argument}={option!r}: expected {len(names)}, one for each axis, {list(names)}")
        return found
    return [option if meant else other for meant in is_meant]


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
    now = list(map(mul, spacing, last.total))
    spatial = [i for i, name in enumerate(known) if _is_spatial(name) and last.shape[i] > 1]
    edge = 2 * min((now[i] for i in spatial), default=1.0)
    return tuple(
        2 if i in spatial and log2(edge / length) >= 0.5 else 1  # noqa: PLR2004 - nearer to half, on a log scale
        for i, length in enumerate(now)
    )


Shape: TypeAlias = tuple[int, ...]

_ABOVE = 4
"""Times the block that is read which a task holds: encoded, decoded, encoded again with the copies of the codecs.

Measured on elements that do not compress, with a level of equal blocks below: 3.0 where bytes move, 5.0 in all where
they are encoded again with gzip."""

_BELOW = 2
"""Times the block of each further level: its elements, and a store key of it encoded."""

_FINE_TASK_BYTES = 16 << 20
"""Bytes that a task reads below which fewer tasks are as good as many."""


class LevelBlocks(NamedTuple):
    """One level of a stage: its blocks, and the factors from the level above."""

    blocks: ChunkGrid
    factors: Shape


def divide(
    shapes: Sequence[Shape],
    factors: Sequence[Shape],
    keys: Sequence[Shape],
    *,
    itemsize: int,
    budget: int,
    n_least: int,
    inputs: Callable[[Sequence[LevelBlocks]], int] = lambda _: 0,
) -> list[list[LevelBlocks]]:
    """Return the levels of each stage; each begins with the level that it reads: the last one of the stage before.

    Parameters
    ----------
    shapes, factors, keys
        Shape, factors against the level above, and shape of a store key of every level.
    itemsize
        Bytes of an element.
    budget
        Bytes that one task may hold: a stage has no further level that needs more. It has at least one.
    n_least
        Tasks that a stage should have: no further level (beyond the first) where there would be fewer, unless they
        read little.
    inputs
        Bytes that a task of a stage holds before it reads.
    """
    stages: list[list[LevelBlocks]] = []
    first = 0
    while not stages or first < len(shapes) - 1:
        last = min(first + 1, len(shapes) - 1)
        stage = _nested(shapes, factors, keys, first, last)
        while last + 1 < len(shapes):
            wider = _nested(shapes, factors, keys, first, last + 1)
            n_tasks = max(wider[-1].blocks.n_chunks, 1)
            is_large = prod(wider[0].blocks.shape) * itemsize > n_tasks * _FINE_TASK_BYTES
            if (is_large and n_tasks < n_least) or peak_bytes(wider, itemsize) + inputs(wider) > budget:
                break
            stage, last = wider, last + 1
        stages.append(stage)
        first = last
    return stages


def _nested(
    shapes: Sequence[Shape], factors: Sequence[Shape], keys: Sequence[Shape], first: int, last: int
) -> list[LevelBlocks]:
    """Return the smallest blocks of whole store keys and whole cells that divide each other."""
    levels: list[LevelBlocks] = []
    for number in range(first, last + 1):
        cell = factors[number + 1] if number < last else (1,) * len(shapes[number])
        block = tuple(map(lcm, keys[number], cell))
        if levels:
            above = tuple(n // factor for n, factor in zip(levels[-1].blocks.chunk_shape, factors[number], strict=True))
            block = tuple(map(lcm, block, above))
        levels.append(LevelBlocks(ChunkGrid.regular(shapes[number], block), factors[number]))
    return levels


def peak_bytes(stage: Sequence[LevelBlocks], itemsize: int) -> int:
    """Return the bytes that a task of the stage holds at most."""
    held = [prod(map(min, level.blocks.shape, level.blocks.chunk_shape)) * itemsize for level in stage]
    return _ABOVE * held[0] + _BELOW * sum(held[1:])


def region_read(stage: Sequence[LevelBlocks], coords: ChunkCoords) -> Region:
    """Return the region of the level that a stage reads for a block of its last level.

    Examples
    --------
    >>> above = LevelBlocks(ChunkGrid.regular((10,), (4,)), (1,))
    >>> below = LevelBlocks(ChunkGrid.regular((5,), (4,)), (2,))
    >>> region_read([above, below], (0,))
    (slice(0, 8, None),)
    """
    first = last = coords
    for below, above in pairwise(reversed(stage)):  # blocks that come last end where the region does
        first = next(under(below, above, first))[0]
        *_, (last, _) = under(below, above, last)
    begins, ends = (stage[0].blocks.region(each) for each in (first, last))
    return tuple(slice(a.start, b.stop) for a, b in zip(begins, ends, strict=True))


def under(level: LevelBlocks, above: LevelBlocks, coords: ChunkCoords) -> Iterator[tuple[Shape, Region]]:
    """Yield the blocks of the level above that a block is made from, and where each goes in the block.

    Examples
    --------
    >>> above = LevelBlocks(ChunkGrid.regular((10,), (4,)), (1,))
    >>> below = LevelBlocks(ChunkGrid.regular((5,), (4,)), (2,))
    >>> list(under(below, above, (0,)))
    [((0,), (slice(0, 2, None),)), ((1,), (slice(2, 4, None),))]
    """
    axes = []
    region, grid = level.blocks.region(coords), above.blocks
    for place, factor, size, n in zip(region, level.factors, grid.chunk_shape, grid.shape, strict=True):
        first, stop = place.start * factor // size, -(-min(place.stop * factor, n) // size)
        axes.append(
            [
                (i, slice(i * size // factor - place.start, -(-min((i + 1) * size, n) // factor) - place.start))
                for i in range(first, stop)
            ]
        )
    for chosen in product(*axes):
        yield tuple(i for i, _ in chosen), tuple(where for _, where in chosen)
