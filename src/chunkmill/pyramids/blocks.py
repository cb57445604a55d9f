"""Divide the levels of a pyramid into stages, and each stage into tasks that own whole store keys of several levels.

A task owns a block of the last level of its stage. Under it are whole blocks of the level above, and under those whole
blocks of the next, up to the level that is read: each element is read once, and every store key is written by one task.

    level 0, read:   [....][....][....][....]   four blocks of a store key, read one after the other
    level 1:         [....      ][....      ]   two store keys, each filled from two blocks
    level 2:         [....                  ]   one store key: the block of the task

Pure integers. Not here: what tasks do (`chunkmill.pyramids.tasks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm, prod
from typing import TypeAlias

__all__ = ["Bounds", "LevelBlocks", "block_region", "divide", "peak_bytes", "tasks_of", "under"]

Bounds: TypeAlias = tuple[slice, ...]
Shape: TypeAlias = tuple[int, ...]

_ABOVE = 4
"""Times the block that is read which a task holds: encoded, decoded, encoded again with the copies of the codecs.

Measured on elements that do not compress, with a level of equal blocks below: 3.0 where bytes move, 5.0 in all where
they are encoded again with gzip."""

_BELOW = 2
"""Times the block of each further level: its elements, and a store key of it encoded."""

_FINE_TASK_BYTES = 16 << 20
"""Bytes that a task reads below which fewer tasks are as good as many."""


@dataclass(frozen=True, slots=True)
class LevelBlocks:
    """One level of a stage: its shape, the factors from the level above, its blocks."""

    shape: Shape
    factors: Shape
    block: Shape

    @property
    def n_blocks(self) -> Shape:
        """Blocks along each axis."""
        return tuple(-(-n // size) for n, size in zip(self.shape, self.block, strict=True))


def divide(
    shapes: Sequence[Shape],
    factors: Sequence[Shape],
    keys: Sequence[Shape],
    *,
    itemsize: int,
    budget: int,
    n_least: int,
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
    """
    stages: list[list[LevelBlocks]] = []
    first = 0
    while not stages or first < len(shapes) - 1:
        last = min(first + 1, len(shapes) - 1)
        stage = _nested(shapes, factors, keys, first, last)
        while last + 1 < len(shapes):
            wider = _nested(shapes, factors, keys, first, last + 1)
            n_tasks = max(prod(wider[-1].n_blocks), 1)
            is_large = prod(wider[0].shape) * itemsize > n_tasks * _FINE_TASK_BYTES
            if (is_large and n_tasks < n_least) or peak_bytes(wider, itemsize) > budget:
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
            above = tuple(n // factor for n, factor in zip(levels[-1].block, factors[number], strict=True))
            block = tuple(map(lcm, block, above))
        levels.append(LevelBlocks(shapes[number], factors[number], block))
    return levels


def peak_bytes(stage: Sequence[LevelBlocks], itemsize: int) -> int:
    """Return the bytes that a task of the stage holds at most."""
    held = [prod(map(min, level.shape, level.block)) * itemsize for level in stage]
    return _ABOVE * held[0] + _BELOW * sum(held[1:])


def tasks_of(stage: Sequence[LevelBlocks]) -> int:
    """Return the number of tasks: blocks of the last level."""
    return prod(stage[-1].n_blocks)


def block_region(level: LevelBlocks, coords: Sequence[int]) -> Bounds:
    """Return the region of a block.

    Examples
    --------
    >>> block_region(LevelBlocks((10,), (1,), (4,)), (2,))
    (slice(8, 10, None),)
    """
    axes = zip(coords, level.shape, level.block, strict=True)
    return tuple(slice(i * size, min((i + 1) * size, n)) for i, n, size in axes)


def under(level: LevelBlocks, above: LevelBlocks, coords: Sequence[int]) -> Iterator[tuple[Shape, Bounds]]:
    """Yield the blocks of the level above that a block is made from, and where each goes in the block.

    Examples
    --------
    >>> below, above = LevelBlocks((5,), (2,), (4,)), LevelBlocks((10,), (1,), (4,))
    >>> list(under(below, above, (0,)))
    [((0,), (slice(0, 2, None),)), ((1,), (slice(2, 4, None),))]
    """
    axes = []
    region = block_region(level, coords)
    for place, factor, size, n in zip(region, level.factors, above.block, above.shape, strict=True):
        first, stop = place.start * factor // size, -(-min(place.stop * factor, n) // size)
        axes.append(
            [
                (i, slice(i * size // factor - place.start, -(-min((i + 1) * size, n) // factor) - place.start))
                for i in range(first, stop)
            ]
        )
    for chosen in product(*axes):
        yield tuple(i for i, _ in chosen), tuple(where for _, where in chosen)
