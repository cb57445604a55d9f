"""Tasks of a transform: each reads the blocks of all sources once, calls the function, and writes whole store keys.

Not here: the choice of blocks (`chunkmill.transforms.blocks`), the function's call (`chunkmill.transforms.function`),
the job (`chunkmill.transforms.transform_job`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from math import prod
from operator import index
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_region, write_region
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, metered, metered_source
from chunkmill.conversion.region_option import shown_regions
from chunkmill.errors import TransformError
from chunkmill.jobs.sources import SeenSource, check_absences
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.runtime.stage import MAX_TASK_BYTES, TaskResult
from chunkmill.stores.wrapper import AbsencesNoted, Meter
from chunkmill.transforms.blocks import ArrayAxes, Halo, array_region, padded_region
from chunkmill.transforms.function import BlockFunction, block_facts, carried, checked_result

Boundary: TypeAlias = Literal["reflect", "nearest", "none"] | float
"""What a block gets beyond the ends of an array; a number stands for itself."""

SourceRegion: TypeAlias = Callable[[Region], Any]
"""Region of the target -> the region of the source, or a list with one for each source."""

_PADS = {"reflect": "symmetric", "nearest": "edge"}


class TransformSource(NamedTuple):
    """A source, its documents when the job was planned, and how its axes map to those of the blocks."""

    array: StoredArray
    seen: SeenSource
    axes: ArrayAxes


class _Read(NamedTuple):
    """Region of one source that a block reads, perhaps beyond its ends, the part of it inside, and what is made up."""

    region: Region
    inside: Region
    missing: tuple[tuple[int, int], ...]
    beyond: tuple[Boundary, ...]

    @property
    def got(self) -> Region:
        """The region that the block holds."""
        parts = zip(self.inside, self.missing, strict=True)
        return tuple(slice(cut.start - before, cut.stop + after) for cut, (before, after) in parts)


@dataclass(frozen=True)
class TransformTasks:
    """Arrays, function and blocks that the tasks of a transform share; can be pickled where the function can.

    Attributes
    ----------
    axes
        How the axes of each target map to those of the space.
    blocks
        Grid of the space, one block a task.
    halo
        Elements to read around a block.
    boundary
        What is beyond the ends, for each axis of the space.
    source_region
        Returns what is read for a block; ``None``: its own region, with the halo.
    """

    sources: tuple[TransformSource, ...]
    targets: tuple[StoredArray, ...]
    axes: tuple[ArrayAxes, ...]
    blocks: ChunkGrid
    halo: Halo
    boundary: tuple[Boundary, ...]
    function: BlockFunction
    source_region: SourceRegion | None = None

    def region(self, number: int) -> Region:
        """Return the region of a block."""
        return self.blocks.region(self.blocks.coords_of(number))

    def reads(self, region: Region) -> list[_Read]:
        """Return what is read of each source for a region of the space."""
        if self.source_region is not None:
            regions = self._asked(region)
            halos = [((0, 0),) * len(each) for each in regions]
        else:
            regions = [array_region(region, source.axes) for source in self.sources]
            halos = [tuple((0, 0) if a is None else self.halo[a] for a in s.axes.axes) for s in self.sources]
        reads = []
        for source, own, halo in zip(self.sources, regions, halos, strict=True):
            beyond = tuple(self.boundary[axis or 0] for axis in source.axes.axes)
            wide, inside, missing = padded_region(own, source.array.shape, halo)
            made_up = ((0, 0) if kind == "none" else pair for pair, kind in zip(missing, beyond, strict=True))
            reads.append(_Read(wide, inside, tuple(made_up), beyond))
        if self.source_region is not None and self.boundary[:1] in {("reflect",), ("nearest",)}:
            for source, read in zip(self.sources, reads, strict=True):
                if any(cut.start == cut.stop and max(n) for cut, n in zip(read.inside, read.missing, strict=True)):
                    msg = f"source_region= returned {shown_regions(read.region)} for {shown_regions(region)}, "
                    msg += f"all beyond a source of shape {source.array.shape}: give boundary='constant' or a number"
                    raise ValueError(msg)
        return reads

    def _asked(self, region: Region) -> list[Region]:
        assert self.source_region is not None  # noqa: S101 - the caller asks
        try:
            found = self.source_region(region)
        except Exception as error:
            msg = f"source_region= failed for {shown_regions(region)}: {type(error).__name__}"
            raise ValueError(f"{msg}: {error}") from error
        asked = found if isinstance(found, list) else [found] if len(self.sources) == 1 else []
        shapes = [source.array.shape for source in self.sources]
        fits = (isinstance(a, (tuple, list)) and len(a) == len(s) for a, s in zip(asked, shapes, strict=False))
        if len(asked) != len(shapes) or not all(fits):
            msg = f"source_region= returned {found!r} for {shown_regions(region)}: expected a slice for each axis of "
            several = "; a list with a tuple for each source" if len(shapes) > 1 else ""
            raise ValueError(f"{msg}each source, of shapes {shapes}{several}")
        return [
            tuple(_slice(cut, n) for cut, n in zip(each, shape, strict=True))
            for each, shape in zip(asked, shapes, strict=True)
        ]

    @property
    def has_halo(self) -> bool:
        """True where anything around a block is read."""
        return any(pair != (0, 0) for pair in self.halo)

    @cached_property
    def aligns(self) -> bool:
        """True where blocks are broadcast: each has all axes of the space, of length 1 where its source has not."""
        ndim = self.blocks.ndim
        own = tuple(range(ndim))
        return self.source_region is None and any(source.axes.axes != own for source in self.sources)


def _slice(cut: Any, n: int) -> slice:
    with suppress(TypeError):  # bounds that are no integers
        if isinstance(cut, slice) and cut.step in {None, 1}:
            start, stop = index(0 if cut.start is None else cut.start), index(n if cut.stop is None else cut.stop)
            if start <= stop:
                return slice(start, stop)
    raise ValueError(f"source_region= returned {cut!r} for an axis: expected a slice of integers, forwards, of step 1")


def block_inputs(tasks: TransformTasks, spec: tuple[int, int]) -> Iterator[StoreKeys]:
    """Yield what the task of `spec` reads."""
    for source, read in zip(tasks.sources, tasks.reads(tasks.region(spec[1])), strict=True):
        yield StoreKeys.of(source.array, read.inside)


def block_shows(tasks: TransformTasks, spec: tuple[int, int]) -> str:
    """Return the first store key that the task of `spec` writes."""
    return tasks.targets[0].first_key(array_region(tasks.region(spec[1]), tasks.axes[0]))


def block_share(tasks: TransformTasks, spec: tuple[int, int]) -> float:  # noqa: ARG001 - all blocks are alike
    """Return the fraction of one task's budget that a block uses: small blocks share tasks, of which some remain."""
    shape = tasks.blocks.chunk_shape
    sizes = [prod(shape[a] for a in s.axes.axes if a is not None) * s.array.dtype.itemsize for s in tasks.sources]
    return max(sum(sizes) / MAX_TASK_BYTES, _LEAST_TASKS / max(tasks.blocks.n_chunks, 1))


_LEAST_TASKS = 256
"""Of the user's function nobody knows how long it takes: what a killed job repeats is to be a small part of it."""


def write_block(tasks: TransformTasks, spec: tuple[int, int]) -> TaskResult:
    """Write the store keys of one block of the space."""
    return Block(tasks, tasks.blocks.coords_of(spec[1])).run()


class Block:
    """One block, while its task runs."""

    def __init__(self, tasks: TransformTasks, coords: ChunkCoords) -> None:
        self.tasks, self.coords, self.meter = tasks, coords, Meter()
        self.region = tasks.blocks.region(coords)
        self.reads = tasks.reads(self.region)
        self.counts = Counter[str]()

    def run(self) -> TaskResult:
        """Read, call the function, write."""
        tasks = self.tasks
        blocks = [self._read(source, read) for source, read in zip(tasks.sources, self.reads, strict=True)]
        returned = self._called(blocks, [target.dtype for target in tasks.targets])
        results: list[NDArray[Any] | None] = [*self._results(returned)]
        del returned
        del blocks  # before values are encoded
        for number, (planned, axes) in enumerate(zip(tasks.targets, tasks.axes, strict=True)):
            result, results[number] = results[number], None
            values = self._checked(planned.dtype, axes, result)  # type: ignore[arg-type]
            del result
            target, region = metered(planned, self.meter), array_region(self.region, axes)
            self.counts["n_keys"] += sum(1 for _ in target.write_layout.grid.overlaps(region))
            write_region(target, region, values)
        return TaskResult.of(self.meter, action_transform=self.counts["n_keys"], **self.counts)

    def sampled_dtypes(self) -> list[np.dtype[Any]]:
        """Return the dtypes of what the function returns for a block of ones; `TransformError` where it failed."""
        tasks = self.tasks
        blocks = []
        for source, read in zip(tasks.sources, self.reads, strict=True):
            values = np.ones(region_shape(read.got), source.array.dtype)
            blocks.append(_aligned(values, source.axes, len(self.region)) if tasks.aligns else values)
        try:
            with np.errstate(all="ignore"):
                returned = self._called(blocks, [None] * len(tasks.axes))
        except TransformError as error:
            error.add_note("the function was called for a small block of ones, to learn its dtype: give dtype=")
            raise
        return [each.dtype for each in self._results(returned)]

    def _called(self, blocks: Sequence[NDArray[Any]], dtypes: Sequence[Any]) -> Any:
        """Return what the function returns for some blocks; `dtypes` are those of the targets, if they are known."""
        try:
            return self.tasks.function(blocks, self.coords, partial(self._info, dtypes))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any: an exit would end the worker
            failed = self._failed(error)
            failed.__cause__ = carried(error)
        raise failed  # here, where Python adds nothing to it: what the function raised may not be pickled

    def _read(self, source: TransformSource, read: _Read) -> NDArray[Any]:
        """Read the block of a source, which must be as it was planned (P9), and continue it beyond the array's ends."""
        asked = metered_source(source.array, self.meter)
        noted = AbsencesNoted(asked.store)
        array = asked.with_store(noted)
        values = read_region(array, read.inside)
        grid = array.read_layout.grid
        decoded = (grid.extent(overlap.coords) for overlap in grid.overlaps(read.inside))
        self.counts["n_elements_read"] += sum(prod(region_shape(each)) for each in decoded)
        own = read.inside if self.tasks.source_region is not None else array_region(self.region, source.axes)
        self.counts["n_elements_owned"] += prod(region_shape(own))
        check_absences(source.array, source.seen, read.inside, noted.absent)
        values = _continued(values, read.missing, read.beyond)
        return _aligned(values, source.axes, len(self.region)) if self.tasks.aligns else values

    # ----------------------------------------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> TransformError:
        """Return the error that names block, region and source keys."""
        keys = []
        for source, read in zip(self.tasks.sources, self.reads, strict=True):
            layout = source.array.write_layout
            first = islice(layout.grid.overlaps(read.inside), _MOST_NAMED)
            keys += [f"{source.array.url}/{layout.locator.key(overlap.coords)}" for overlap in first]
        url = self.tasks.targets[0].url if self.tasks.targets else "a trial"
        region = shown_regions(self.region)
        return self.tasks.function.failed(error, url=url, block=self.coords, region=region, keys=tuple(keys))

    def _results(self, returned: Any) -> list[NDArray[Any]]:
        try:
            return self.tasks.function.results(returned)
        except TypeError as error:
            raise self._failed(error) from error

    def _checked(self, dtype: np.dtype[Any], axes: ArrayAxes, result: NDArray[Any]) -> NDArray[Any]:
        """Return the values of a target's block, without the halo that the function may have returned with them."""
        own = region_shape(array_region(self.region, axes))
        extra = self._extra(axes)
        shape = tuple(n + before + after for n, (before, after) in zip(own, extra, strict=True))
        try:
            values = checked_result(result, own, dtype, with_halo=() if shape == own else shape)
        except (ValueError, TypeError) as error:
            raise self._failed(error) from error
        if values.shape == own:
            return values
        core: Any = (*(slice(before, before + n) for n, (before, _) in zip(own, extra, strict=True)), ...)
        return values[core]  # type: ignore[no-any-return]

    def _extra(self, axes: ArrayAxes) -> list[tuple[int, int]]:
        """Return the elements before and after the block that the function returns with it, along each axis."""
        widest: dict[int | None, tuple[int, int]] = {}
        for source, read in zip(self.tasks.sources, self.reads, strict=True):
            for axis, cut in zip(source.axes.axes, read.got, strict=True):
                if axis is not None:
                    own = self.region[axis]
                    widest[axis] = own.start - cut.start, cut.stop - own.stop
        return [widest.get(axis, (0, 0)) for axis in axes.axes]

    def _info(self, dtypes: Sequence[Any]) -> dict[Any, Any]:
        """Return ``block_info``."""
        blocks, info = self.tasks.blocks, dict[Any, Any]()
        for number, (source, read) in enumerate(zip(self.tasks.sources, self.reads, strict=True)):
            info[number] = block_facts(blocks, source.axes, self.coords, read.got)
        facts = []
        for axes, dtype in zip(self.tasks.axes, dtypes, strict=True):
            region = array_region(self.region, axes)
            own = {"chunk-shape": region_shape(region), "dtype": dtype}
            facts.append(block_facts(blocks, axes, self.coords, region) | own)
        return info | {None: facts[0] if len(facts) == 1 else facts}


_MOST_NAMED = 3  # store keys of each source in an error


def _continued(values: NDArray[Any], missing: Sequence[tuple[int, int]], beyond: Sequence[Boundary]) -> NDArray[Any]:
    """Return a block with elements made up before and after it.

    Examples
    --------
    >>> _continued(np.arange(3), [(2, 1)], ["reflect"]), _continued(np.arange(2), [(1, 0)], [9])
    (array([1, 0, 0, 1, 2, 2]), array([9, 0, 1]))
    """
    for kind in dict.fromkeys(beyond):  # of one kind, all axes at once; NaN is one, too
        pads = [pair if own is kind or own == kind else (0, 0) for pair, own in zip(missing, beyond, strict=True)]
        if all(pair == (0, 0) for pair in pads):
            continue
        if isinstance(kind, str):
            values = np.pad(values, pads, mode=_PADS[kind])  # type: ignore[call-overload]
        else:
            filling = kind or np.zeros((), values.dtype)[()]  # zero of a string is empty
            values = np.pad(values, pads, constant_values=filling)
    return values


def _aligned(values: NDArray[Any], axes: ArrayAxes, ndim: int) -> NDArray[Any]:
    """Return a block with all axes of the space, of length 1 where its array has not: numpy broadcasts them."""
    order = sorted(range(values.ndim), key=lambda number: axes.axes[number] or 0)
    own = sorted(axis for axis in axes.axes if axis is not None)
    return np.expand_dims(values.transpose(order), [axis for axis in range(ndim) if axis not in own])
