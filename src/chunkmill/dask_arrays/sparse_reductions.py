"""Reductions of stored arrays in dask-array: blocks of which no chunk is stored are constants, which need no task.

Which chunks are stored is listed when the graph is made, thus each time that an array is computed: a chunk that is
written in between is read the next time. Not here: the expression that reads (`chunkmill.dask_arrays.expressions`),
whose rule puts `Reduced` in the place of dask-array's reduction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from dask._task_spec import Alias, DataNode, Task, convert_legacy_graph
from numpy.typing import NDArray

from chunkmill.array.other_stores import listed_only
from chunkmill.array.present_keys import NO_BLOCKS, list_present, list_present_if_sparse
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.blocks import stored_index
from chunkmill.dask_arrays.read import read_block
from chunkmill.stores.base import REQUESTS_AT_ONCE
from chunkmill.stores.capabilities import can_list

__all__ = ["Folded", "Reduced", "blocks_present"]

_KEYS_LISTED_FOR_ONE = 16  # that are read: a listing names so many in less time than a task takes
_REMOTE_KEYS_LISTED_FOR_ONE = 4
_FEW_KEYS = 1 << 10  # named by one request
_MOST_KEYS = 1 << 22


class Reduced:
    """Rules of dask-array's reduction directly above the expression that reads, which nothing else uses."""

    if TYPE_CHECKING:
        array: Any
        folded_class: Any
        operands: Sequence[Any]
        reduction_class: Any

    def _lower(self) -> Any:
        tree = super()._lower()  # type: ignore[misc]
        read = self.array
        above = [node for node in tree.walk() if read._name in {each._name for each in node.dependencies()}]  # noqa: SLF001
        if len(above) != 1 or not hasattr(read, "block_values"):
            return tree
        return self.folded_class(read.operand("array"), _Tree(tree, above[0], read))

    def for_later(self) -> Any:
        """Return the reduction without constants in its graph, which may be computed after others have written."""
        return self.reduction_class(*self.operands)


@dataclass(frozen=True, slots=True)
class _Tree:
    """Expressions of a reduction: its last one, the one that takes each block, and the one that reads."""

    root: Any
    partial: Any
    read: Any

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "chunkmill.Tree", self.root._name  # noqa: SLF001 - as all expressions of Dask's

    def levels(self) -> list[Any]:
        """Return the expressions above the one that takes each block, the lowest first."""
        below = {self.partial._name, *(node._name for node in self.read.walk())}  # noqa: SLF001
        return [node for node in self.root.walk() if node._name not in below][::-1]  # noqa: SLF001


class Folded:
    """Expression of a reduction with its reads; tasks whose arguments are all constants are done when it is made."""

    _parameters = ["array", "tree"]  # noqa: RUF012 - as Dask's own
    _is_blockwise_fusable = False
    _pickle_functools_cache = False

    if TYPE_CHECKING:
        deterministic_token: str
        operand: Any

    @cached_property
    def _name(self) -> str:
        root = self.operand("tree").root._name  # noqa: SLF001
        return f"{root.rpartition('-')[0]}-{self.deterministic_token}"

    @cached_property
    def _meta(self) -> Any:
        return self.operand("tree").root._meta  # noqa: SLF001

    @cached_property
    def chunks(self) -> Any:
        """Length of each block."""
        return self.operand("tree").root.chunks

    def _layer(self) -> dict[Any, Any]:
        tree: _Tree = self.operand("tree")
        graph = _Graph(self._name)
        graph.read(tree)
        for level in tree.levels():
            graph.reduce(level)
        return graph.named(tree.root._name)  # noqa: SLF001


class _Graph:
    """Tasks of a reduction, and the constants of those that are done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.tasks: dict[Any, Any] = {}
        self._constants: dict[Any, Any] = {}
        """Key -> key of the constant, which many share."""
        self._values: dict[Any, Any] = {}

    def read(self, tree: _Tree) -> None:
        """Add the tasks that read and reduce a block, and those that begin their requests."""
        source, partial = tree.read, tree.partial
        array, order = source.operand("array"), source.operand("order")
        present = blocks_present(array, source.operand("cuts"))
        read = source._lower() or source  # noqa: SLF001
        if (runs := read.operand("runs")) is not None:
            self.tasks.update(runs.begun(present))
        for index in np.ndindex(*partial.numblocks):
            key, below = (partial._name, *index), (source._name, *index)  # noqa: SLF001
            if present is None or present[stored_index(index, order, array.ndim)]:
                self.tasks[key] = Task.fuse(read._task(below, index), partial._task(key, index), key=key)  # noqa: SLF001
                continue
            form = tuple(lengths[i] for lengths, i in zip(source.chunks, index, strict=True))
            if (constant := self._known(form)) not in self._values:
                region = source.regions.region(index)
                block = read_block(listed_only(array, NO_BLOCKS.numbers), region, values=source.block_values)
                self._values[constant] = partial._task(key, index)({below: block})  # noqa: SLF001
            self._constants[key] = constant

    def reduce(self, level: Any) -> None:
        """Add the tasks of an expression above."""
        keys = {*self.tasks, *self._constants}
        for key, task in convert_legacy_graph(dict(level._layer()), keys).items():  # noqa: SLF001
            needed = sorted(task.dependencies)
            known = {each: self._constants[each] for each in needed if each in self._constants}
            if not needed or len(known) < len(needed):
                self.tasks[key] = task.substitute(known)
                continue
            form = (level._name, *_lengths(needed), *known.values())  # noqa: SLF001
            if (constant := self._known(form)) not in self._values:
                self._values[constant] = task({each: self._values[known[each]] for each in needed})
            self._constants[key] = constant

    def _known(self, form: Iterable[Any]) -> tuple[str, str]:
        return self._name, str(tuple(form))

    def named(self, root: str) -> dict[Any, Any]:
        """Return the tasks and constants, of which the ends, those of `root`, have this graph's name."""
        result = {}
        for key, task in self.tasks.items():
            own = (self._name, *key[1:]) if key[0] == root else key
            result[own] = task.substitute({}, key=own)
        ends = {key: constant for key, constant in self._constants.items() if key[0] == root}
        result |= {(self._name, *key[1:]): Alias((self._name, *key[1:]), constant) for key, constant in ends.items()}
        used = set().union(*(task.dependencies for task in result.values()))
        return result | {key: DataNode(key, value) for key, value in self._values.items() if key in used}


def _lengths(keys: Sequence[tuple[Any, ...]]) -> tuple[int, ...]:
    """Return how many blocks there are along each axis."""
    return tuple(len(set(axis)) for axis in zip(*(key[1:] for key in keys), strict=True))


def blocks_present(array: StoredArray, cuts: Sequence[Sequence[tuple[int, int]]]) -> NDArray[np.bool] | None:
    """Return for each block, along the axes of the array, whether a chunk of it is stored; ``None``: read them all.

    Listed is where that costs less than the tasks that it may save: not for a small part of an array, nor where more
    than half of many chunks are stored, as some of them show.

    Parameters
    ----------
    cuts
        Along each axis, where each block starts and stops.
    """
    grid = array.write_layout.grid
    if (
        array.read_missing == "error"
        or not array.ndim
        or not all(start < stop for axis in cuts for start, stop in axis)
    ):
        return None
    spans = [
        [(axis.index(start), axis.index(stop - 1) + 1) for start, stop in own]
        for axis, own in zip(grid.axes, cuts, strict=True)
    ]
    n_read = prod(axis[-1][1] - axis[0][0] for axis in spans)
    most = n_read * (_REMOTE_KEYS_LISTED_FOR_ONE if array.store.is_remote else _KEYS_LISTED_FOR_ONE)
    if grid.n_chunks > min(most, _MOST_KEYS) or not can_list(array.store):
        return None
    if array.store.is_remote and n_read < REQUESTS_AT_ONCE:  # which one round of requests reads
        return None
    try:
        numbers = list_present(array) if grid.n_chunks <= _FEW_KEYS else list_present_if_sparse(array)
    except OSError:  # listing may be forbidden where reading is not
        return None
    if numbers is None:
        return None
    stored = np.zeros(grid.grid_shape, np.int32)
    stored.flat[numbers] = 1
    for axis, own in enumerate(spans):
        before = np.insert(np.cumsum(stored, axis), 0, 0, axis)
        firsts, stops = np.array(own).T
        stored = (before.take(stops, axis) - before.take(firsts, axis) > 0).astype(np.int32)
    return stored > 0
