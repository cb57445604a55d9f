"""Blocks of a transform: the regions that its tasks own, read and write, and how large they are.

The blocks divide a space, whose axes are those of all arrays together. A task owns one block: whole store keys of every
target. It reads the block of each source, and a halo around it::

    space     |            :            |     the block of a task, two store keys of a target
    source  ..|....|....|....|....|....|..    its chunks, and the halo on both sides
    means     |                         |     a target without this axis: the block is all of it

Pure integers and names. Not here: what tasks do (`chunkmill.transforms.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, lcm, log, prod
from typing import TypeAlias

from chunkmill.conversion.coarsen import Axis, MeasuredAxis, block_grid, meet
from chunkmill.model.grid import ChunkGrid, Region, RegularAxis

Halo: TypeAlias = tuple[tuple[int, int], ...]
"""Elements before and after a block along each axis."""

Name: TypeAlias = str | int
"""Name of an axis; its number where the arrays have no names."""


@dataclass(frozen=True, slots=True)
class Space:
    """Axes that the blocks divide: their names, and lengths."""

    names: tuple[Name, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArrayAxes:
    """Grid of an array, and which axis of the space each of its axes is; ``None``: one of its own, taken whole."""

    grid: ChunkGrid
    axes: tuple[int | None, ...]
    itemsize: int = 1


def joined_space(arrays: Iterable[tuple[Sequence[str | None] | None, Sequence[int]]]) -> Space:
    """Return the space of arrays that are broadcast along named dimensions.

    Parameters
    ----------
    arrays
        Names, ``None`` where there are none, and shape of each.

    Raises
    ------
    ValueError
        A dimension has several lengths, or arrays without names have several ranks.

    Examples
    --------
    >>> joined_space([(("time", "x"), (12, 5)), (("x",), (5,))])
    Space(names=('time', 'x'), shape=(12, 5))
    >>> joined_space([(None, (4, 5)), (None, (4, 5))])
    Space(names=(0, 1), shape=(4, 5))
    """
    known = [(names, tuple(shape)) for names, shape in arrays]
    shapes = ", ".join(str(shape) for _, shape in known)
    all_named = all(names is not None and None not in names and len(set(names)) == len(names) for names, _ in known)
    if not all_named and len({len(shape) for _, shape in known}) > 1:
        msg = f"sources of shapes {shapes}: arrays of several ranks are broadcast by the names of their dimensions, "
        raise ValueError(msg + "and one of these has none; give dimension_names when it is created")
    lengths: dict[Name, int] = {}
    for names, shape in known:
        for name, n in zip(names if all_named and names is not None else range(len(shape)), shape, strict=True):
            if lengths.setdefault(name, n) != n:  # type: ignore[arg-type]
                msg = f"sources of shapes {shapes}: dimension {name!r} has {lengths[name]} elements in one, "  # type: ignore[index]
                raise ValueError(f"{msg}and {n} in another; source_region= says which regions belong together")
    return Space(tuple(lengths), tuple(lengths.values()))


# --------------------------------------------------------------------------------------------------------------------
# Regions


def array_region(block: Region, array: ArrayAxes) -> Region:
    """Return the region of an array that belongs to a block of the space.

    Examples
    --------
    >>> array_region((slice(0, 4), slice(2, 6)), ArrayAxes(ChunkGrid.regular((8, 3), (1, 1)), (1, None)))
    (slice(2, 6, None), slice(0, 3, None))
    """
    lengths = zip(array.axes, array.grid.shape, strict=True)
    return tuple(slice(0, n) if axis is None else block[axis] for axis, n in lengths)


def padded_region(
    region: Region, shape: Sequence[int], halo: Sequence[tuple[int, int]]
) -> tuple[Region, Region, tuple[tuple[int, int], ...]]:
    """Return a region with a halo, the part of it inside the array, and how much is missing before and after that.

    Examples
    --------
    >>> padded_region((slice(0, 4),), (5,), ((2, 3),))
    ((slice(-2, 7, None),), (slice(0, 5, None),), ((2, 2),))
    """
    wide, inside, missing = [], [], []
    for cut, n, (before, after) in zip(region, shape, halo, strict=True):
        start, stop = cut.start - before, cut.stop + after
        first, last = min(max(start, 0), n), min(max(stop, 0), n)
        wide.append(slice(start, stop))
        inside.append(slice(first, max(first, last)))
        missing.append((max(0, min(-start, stop - start)), max(0, stop - max(n, start))))
    return tuple(wide), tuple(inside), tuple(missing)


# --------------------------------------------------------------------------------------------------------------------
# Sizes


def unit_axes(space: Space, targets: Sequence[ArrayAxes]) -> tuple[Axis, ...]:
    """Return the finest division of each axis such that blocks are whole store keys of every target.

    Examples
    --------
    >>> a, b = (ArrayAxes(ChunkGrid.regular((24,), (n,)), (0,)) for n in (4, 6))
    >>> unit_axes(Space(("x",), (24,)), [a, b])
    (RegularAxis(size=24, chunk=12),)
    """
    units: list[Axis] = []
    for axis, n in enumerate(space.shape):
        found = [each.grid.axes[each.axes.index(axis)] for each in targets if axis in each.axes]
        lengths = [each.chunk for each in found if isinstance(each, RegularAxis)]
        unit: Axis = RegularAxis(n, max(n, 1))
        if len(lengths) == len(targets):
            unit = RegularAxis(n, max(1, min(lcm(*lengths), n)))
        elif len(found) == len(targets) and all(each == found[0] for each in found):
            unit = found[0]
        units.append(unit)
    return tuple(units)


def read_amplification(blocks: ChunkGrid, sources: Sequence[ArrayAxes], halo: Halo) -> float:
    """Return the elements that are decoded over those of the sources, in bytes of both.

    Examples
    --------
    >>> source = ArrayAxes(ChunkGrid.regular((40,), (10,)), (0,))
    >>> [read_amplification(ChunkGrid.regular((40,), (n,)), [source], ((1, 1),)) for n in (10, 20, 40)]
    [2.5, 1.5, 1.0]
    """
    decoded = once = 0.0
    for source in sources:
        n_bytes = float(source.itemsize)
        for number, axis in enumerate(source.axes):
            n_bytes *= source.grid.shape[number] if axis is None else _covered(source, number, blocks, halo, axis)
        n_bytes *= prod(blocks.axes[axis].n_chunks for axis in range(blocks.ndim) if axis not in source.axes)
        decoded += n_bytes
        once += source.itemsize * prod(source.grid.shape)
    return decoded / once if once else 1.0


_MOST_BLOCKS = 256  # of an axis, whose chunks are counted; of more, some


def _covered(source: ArrayAxes, number: int, blocks: ChunkGrid, halo: Halo, axis: int) -> float:
    chunks, cut = source.grid.axes[number], blocks.axes[axis]
    if not chunks.size or not cut.size:
        return 0.0
    if halo[axis] == (0, 0):
        return meet(MeasuredAxis.of(chunks), MeasuredAxis.of(cut)).covered
    n_blocks = cut.n_chunks
    step = ceil(n_blocks / _MOST_BLOCKS)
    counted = covered = 0
    for i in range(0, n_blocks, step):
        start = max(cut.start(i) - halo[axis][0], 0)
        stop = min(cut.start(i) + cut.length(i) + halo[axis][1], cut.size)
        first, last = chunks.index(start), chunks.index(stop - 1)
        covered += min(chunks.start(last) + chunks.length(last), chunks.size) - chunks.start(first)
        counted += 1
    return covered * n_blocks / counted


def grow_blocks(
    units: Sequence[Axis],
    sources: Sequence[ArrayAxes],
    halo: Halo,
    *,
    n_bytes: Callable[[Sequence[int]], int],
    budget: int,
    n_least: int,
    fine_bytes: int,
) -> ChunkGrid:
    """Return blocks for which little is read twice, within the memory of a task.

    They begin as the smallest that own whole store keys, and grow along the axis that spares most, while they fit.

    Parameters
    ----------
    n_bytes
        Shape of a block -> bytes that its task holds.
    budget
        Bytes that a task may hold.
    n_least
        Tasks that there should be, unless they are small.
    fine_bytes
        Bytes of a block up to which fewer tasks are as good as many.

    Examples
    --------
    >>> source = ArrayAxes(ChunkGrid.regular((80,), (16,)), (0,))
    >>> limits = {"n_bytes": lambda shape: 8 * shape[0], "budget": 999, "n_least": 2, "fine_bytes": 0}
    >>> grow_blocks([RegularAxis(80, 8)], [source], ((0, 0),), **limits).chunk_shape
    (16,)
    """
    multiples = [1] * len(units)
    blocks = block_grid(units, multiples)
    read, held = read_amplification(blocks, sources, halo), n_bytes(blocks.chunk_shape)
    while read > _ENOUGH:
        best: tuple[float, list[int], ChunkGrid, float, int] | None = None
        for axis in range(len(units)):
            for multiple in _larger(axis, units[axis], multiples[axis], sources):
                tried = [*multiples[:axis], multiple, *multiples[axis + 1 :]]
                wider = block_grid(units, tried)
                more = n_bytes(wider.chunk_shape)
                if more > budget or (wider.n_chunks < n_least and more > fine_bytes):
                    continue
                amplification = read_amplification(wider, sources, halo)
                # what is spared for what is held: else blocks grow along one axis alone
                gain = log(read / amplification) / log(max(more / held, _LITTLE)) if amplification else 0.0
                if amplification < read * _WORTH and (best is None or gain > best[0]):
                    best = gain, tried, wider, amplification, more
        if best is None:
            break
        _, multiples, blocks, read, held = best
    return blocks


_ENOUGH = 1.02  # a halo of a hundredth is not worth larger tasks
_WORTH = 0.99
_LITTLE = 1.01  # times as much memory: as good as none more


def _larger(axis: int, unit: Axis, multiple: int, sources: Sequence[ArrayAxes]) -> list[int]:
    """Return multiples of a unit to try next: twice as many, and those that end where a source's chunks do."""
    if multiple >= unit.n_chunks:
        return []
    found = {2 * multiple, unit.n_chunks} if unit.n_chunks <= 2 * multiple else {2 * multiple}
    for source in sources:
        if axis in source.axes and isinstance(unit, RegularAxis):
            chunks = source.grid.axes[source.axes.index(axis)]
            if isinstance(chunks, RegularAxis):
                aligned = lcm(unit.chunk, chunks.chunk) // unit.chunk
                found.add((multiple // aligned + 1) * aligned)
    return sorted(min(each, unit.n_chunks) for each in found)
