"""Expression that reads a stored array, for dask-array.

Its rewrite rules know the layout: a slice above becomes fewer and smaller blocks, of which a task drops the axes and
the steps; a rechunk above becomes blocks of whole store keys. Arithmetic above is fused with reading by dask-array. Not
here: the graph for `dask.array` (`chunkmill.dask_arrays.read`), the kinds (`chunkmill.dask_arrays.kinds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from itertools import accumulate, pairwise, product
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array.slicing import _slice_1d
from numpy.typing import NDArray

from chunkmill.array.selection import full_region
from chunkmill.array.staleness import read_published
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.blocks import BlockRegions, ReorderedRegions, SharedFunction, stored_index
from chunkmill.dask_arrays.kinds import ArrayKind, check_kind
from chunkmill.dask_arrays.read import (
    ReadTasks,
    ReadValues,
    RunOfBlock,
    RunsLayer,
    begun_reads,
    block_chunks,
    read_graph,
)
from chunkmill.dask_arrays.regroup import aligned_chunks
from chunkmill.model.grid import DaskChunks, Region

Cuts = tuple[tuple[tuple[int, int], ...], ...]
"""Along each axis of the stored array, where each block starts and stops."""


def read_array(
    array: StoredArray, chunks: Any, region: Region | None, name: str | None = None, kind: ArrayKind | None = None
) -> Any:
    """Return `region` of `array`, by default the whole array, as a Dask array of `kind`: see `Array.to_dask`."""
    if check_kind(kind) == "dask":
        return read_graph(array, chunks, region, name)
    region = full_region(array.shape) if region is None else region
    return read_expression(array, block_chunks(array, chunks, region), region, name=name)


def read_expression(
    array: StoredArray,
    chunks: DaskChunks,
    region: Region,
    *,
    name: str | None = None,
    values: ReadValues = read_published,
    dtype: np.dtype[Any] | None = None,
) -> Any:
    """Return `region` of `array` as a collection of an expression of dask-array.

    `values` makes the elements of a block, of `dtype` where that is not the array's.
    """
    cuts = tuple(_cuts(cut.start, lengths) for cut, lengths in zip(region, chunks, strict=True))
    prefix = name or f"read-{array.path.rpartition('/')[2] or 'array'}"
    expression = globals().get("DaskArrayRead") or __getattr__("DaskArrayRead")
    return expression.collection(
        expression(
            array,
            cuts,
            (1,) * array.ndim,
            tuple(range(array.ndim)),
            values,
            dtype or array.dtype,
            prefix,
            name is not None,
        )
    )


def _cuts(start: int, lengths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple(pairwise(accumulate(lengths, initial=start)))


@dataclass(frozen=True, slots=True)
class NamedValues:
    """Function that makes the values of a block, and a name for Dask to know it by."""

    function: ReadValues
    name: str

    def __call__(self, array: StoredArray, region: Region) -> Any:
        """Return the values of a block."""
        return self.function(array, region)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "chunkmill.NamedValues", self.name


class _Read:
    """Rules of the expression.

    Operands are the array, the bounds of blocks along its axes, the step along each of them or 0 where the axis is
    dropped, the axes that are left in the order of the result, the function that makes the values of a block, their
    dtype, the name and whether that is all of the name; and the expression whose tasks begin requests, where there is
    one.
    """

    _parameters = ["array", "cuts", "steps", "order", "values", "dtype", "prefix", "is_named", "runs"]  # noqa: RUF012 - as Dask's own
    _defaults = {"is_named": False, "runs": None}  # noqa: RUF012
    _is_blockwise_fusable = True
    _can_rechunk_pushdown = True
    _allow_no_cull_slice_pushdown = True
    _pickle_functools_cache = False

    if TYPE_CHECKING:  # of the expressions that these are the rules of
        collection: Any
        deterministic_token: str
        operand: Any
        rechunk_class: Any
        shape: tuple[int, ...]
        slice_class: Any
        transpose_class: Any
        _rechunk_pushdown: Any
        _slice_pushdown: Any

    @cached_property
    def _name(self) -> str:
        prefix: str = self.operand("prefix")
        return prefix if self.operand("is_named") else f"{prefix}-{self.deterministic_token}"

    @cached_property
    def _meta(self) -> NDArray[Any]:
        return np.empty((0,) * len(self.operand("order")), self.operand("dtype"))

    @cached_property
    def chunks(self) -> DaskChunks:
        """Length of each block, along the axes that are left."""
        axes = list(self._axes())
        return tuple(_lengths(*axes[axis]) for axis in self.operand("order"))

    def _axes(self) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
        return zip(self.operand("cuts"), self.operand("steps"), strict=True)

    @cached_property
    def block_values(self) -> ReadValues:
        """Function that makes the elements of a block from the region that it needs."""
        steps, order, values = (self.operand(each) for each in ("steps", "order", "values"))
        if any(step != 1 for step in steps):
            picks = (*(slice(None, None, step) if step else 0 for step in steps), ...)
            values = partial(_picked, picks=picks, values=values)
        if list(order) != (kept := sorted(order)):
            values = partial(_transposed, axes=tuple(map(kept.index, order)), values=values)
        return values  # type: ignore[no-any-return]

    @cached_property
    def tasks(self) -> ReadTasks:
        """Functions that the tasks call, and their arguments."""
        return _tasks(self.operand("array"), self.operand("cuts"), self.block_values)

    @property
    def regions(self) -> BlockRegions:
        """Region that each block needs."""
        order, regions = self.operand("order"), self.tasks.regions
        return regions if order == tuple(range(len(regions.numblocks))) else ReorderedRegions(regions, order)

    @cached_property
    def _call(self) -> SharedFunction:
        return SharedFunction(self.tasks.read)

    def _layer(self) -> dict[Any, Any]:
        blocks = product(*(range(len(lengths)) for lengths in self.chunks))
        return {(self._name, *index): self._task((self._name, *index), index) for index in blocks}

    def _task(self, key: Any, block_id: Sequence[int]) -> Task:
        index = stored_index(block_id, self.operand("order"), len(self.operand("steps")))
        runs = self.operand("runs")
        begun = () if runs is None else (TaskRef(runs.runs.key(index)),)
        return Task(key, self._call, self.tasks.regions[index], *begun, _data_producer=runs is None)

    def _with(self, **operands: Any) -> Any:
        names = ("array", "cuts", "steps", "order", "values", "dtype", "prefix")
        read: Any = type(self)
        return read(*(operands.get(name, self.operand(name)) for name in names), False, operands.get("runs"))

    def _lower(self) -> Any:
        """Begin the requests of several blocks together, where requests cost latency."""
        if self.operand("runs") is not None or not _is_contiguous(self.operand("cuts")):
            return None
        if not (length := self.tasks.run_length):
            return None
        runs = globals()["DaskArrayRuns"](self.operand("array"), self.operand("cuts"), length)
        return self._with(runs=runs)

    def _simplify_up(self, parent: Any, dependents: Any) -> Any:
        if type(parent) is self.slice_class:
            return self._slice_pushdown(parent, dependents)
        if type(parent) is self.rechunk_class:
            return self._rechunk_pushdown(parent, dependents)
        if type(parent) is self.transpose_class:
            order = self.operand("order")
            return self._with(order=tuple(order[axis] for axis in parent.axes))
        return None

    def _accept_slice(self, parent: Any) -> Any:
        """Return the expression of a slice: blocks that hold elements of it, each as small as they allow."""
        if not all(
            isinstance(part, Integral) or (isinstance(part, slice) and (part.step or 1) > 0) for part in parent.index
        ):
            return None
        order = self.operand("order")
        parts = dict(zip(order, parent.index, strict=False))
        found = [
            _sliced(cuts, step, parts.get(axis, slice(None))) if step else (cuts, 0)
            for axis, (cuts, step) in enumerate(self._axes())
        ]
        steps = tuple(step for _, step in found)
        left = tuple(axis for axis in order if steps[axis])
        result = self._with(cuts=tuple(cuts for cuts, _ in found), steps=steps, order=left)
        return result if result.chunks == parent.chunks else None

    def _accept_rechunk(
        self, chunks: DaskChunks, threshold: Any = None, block_size_limit: Any = None, method: Any = None
    ) -> Any:
        """Return the expression of a rechunk: blocks near `chunks`, of whole store keys, each read once."""
        cuts = self.operand("cuts")
        if any(step > 1 for step in self.operand("steps")) or not _is_contiguous(cuts):
            return None
        visible, region = dict(zip(self.operand("order"), chunks, strict=True)), _bounds(cuts)
        wanted = tuple(tuple(map(int, visible.get(axis, (1,)))) for axis in range(len(cuts)))
        aligned = aligned_chunks(self.operand("array").write_layout.grid, region, wanted)
        own = tuple(_cuts(cut.start, lengths) for cut, lengths in zip(region, aligned, strict=True))
        read = self if own == cuts else self._with(cuts=own)
        if aligned == wanted:
            return read
        if read is self:
            return None
        return self.rechunk_class(read, chunks, threshold, block_size_limit, False, method)


class _Runs:
    """Expression whose tasks begin the requests of neighbouring blocks (`chunkmill.dask_arrays.read`)."""

    _parameters = ["array", "cuts", "length"]  # noqa: RUF012 - as Dask's own
    _is_blockwise_fusable = False
    chunks = ()

    if TYPE_CHECKING:
        deterministic_token: str
        operand: Any
        operands: Any

    @cached_property
    def _name(self) -> str:
        return f"begin-{self.deterministic_token}"

    @cached_property
    def _meta(self) -> NDArray[Any]:
        return np.empty((), np.int8)

    @cached_property
    def runs(self) -> RunOfBlock:
        """Key of the task that begins the requests of a block."""
        return RunOfBlock(self._name, tuple(map(len, self.operand("cuts"))), self.operand("length"))

    def _layer(self) -> dict[Any, Any]:
        array, cuts, _ = self.operands
        begin = SharedFunction(partial(begun_reads, array))
        return dict(RunsLayer(self._name, self.runs, begin, _tasks(array, cuts).regions).items())


# --------------------------------------------------------------------------------------------------------------------
# Classes, made when they are first used: pickle finds them here by name


def __getattr__(name: str) -> Any:
    """Make the classes, whose modules are imported then."""
    if name not in {"DaskArrayRead", "DaskArrayRuns"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    names = ("io._base", "slicing", "_rechunk", "_new_collection", "manipulation._transpose")
    io, slicing, rechunk, collection, transposing = (import_module(f"dask_array.{each}") for each in names)
    above = {
        "slice_class": slicing.SliceSlicesIntegers,
        "rechunk_class": rechunk.Rechunk,
        "transpose_class": transposing.Transpose,
        "collection": staticmethod(collection.new_collection),
        "__module__": __name__,
    }
    globals()["DaskArrayRuns"] = type("DaskArrayRuns", (_Runs, io.IO), {"__module__": __name__})
    globals()["DaskArrayRead"] = type("DaskArrayRead", (_Read, io.IO), above)
    return globals()[name]


# --------------------------------------------------------------------------------------------------------------------
# Blocks


def _tasks(array: StoredArray, cuts: Cuts, values: ReadValues = read_published) -> ReadTasks:
    chunks = tuple(tuple(stop - start for start, stop in axis) for axis in cuts)
    placed = tuple(tuple(slice(*cut) for cut in axis) for axis in cuts)
    return ReadTasks.of(array, chunks, _bounds(cuts), values, placed)


def _lengths(cuts: Sequence[tuple[int, int]], step: int) -> tuple[int, ...]:
    return tuple(len(range(start, stop, step)) for start, stop in cuts)


def _bounds(cuts: Cuts) -> Region:
    return tuple(slice(axis[0][0], axis[-1][1]) for axis in cuts)


def _is_contiguous(cuts: Cuts) -> bool:
    return all(before[1] == after[0] for axis in cuts for before, after in pairwise(axis))


def _sliced(cuts: Sequence[tuple[int, int]], step: int, part: slice | int) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the blocks along an axis that a slice of positive step or an integer leaves, and their step.

    Examples
    --------
    >>> _sliced([(0, 4), (4, 8), (8, 12)], 1, slice(3, 11, 3))
    (((3, 4), (6, 7), (9, 10)), 3)
    >>> _sliced([(0, 4), (4, 8)], 2, 3)
    (((6, 7),), 0)
    """
    lengths = _lengths(cuts, step)
    found = []
    for number, within in sorted(_slice_1d(sum(lengths), lengths, part).items()):
        start = cuts[number][0]
        if not isinstance(within, slice):
            return ((start + within * step, start + within * step + 1),), 0
        chosen = range(*within.indices(lengths[number]))
        # Dask lists blocks without elements, too
        found.append((start + chosen[0] * step, start + chosen[-1] * step + 1) if chosen else (start, start))
    return tuple(found), step * (part.step or 1 if isinstance(part, slice) else 1)


def _transposed(array: StoredArray, region: Region, *, axes: tuple[int, ...], values: ReadValues) -> Any:
    return values(array, region).transpose(axes)


def _picked(array: StoredArray, region: Region, *, picks: tuple[Any, ...], values: ReadValues) -> Any:
    """Return the elements of a block that steps and dropped axes leave; a copy, which holds no others in memory."""
    return values(array, region)[picks].copy()
