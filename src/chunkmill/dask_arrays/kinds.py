"""The two kinds of Dask arrays: of dask.array, and of the package dask-array.

The second are expressions, which their own optimizer rewrites. Graphs of chunkmill's are those of `dask.array.core`:
`lowered_together` makes such arrays of each kind, and `as_kind` the reverse. Not here: the expression that reads a
stored array (`chunkmill.dask_arrays.expressions`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any, Literal

from dask._expr import Expr, _ExprSequence
from dask._task_spec import Alias, convert_legacy_graph
from dask.array import array_expr_enabled, core
from dask.base import is_dask_collection
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from chunkmill.dask_arrays.blocks import BlockRegions

ArrayKind = Literal["dask", "dask-array"]
"""Kind of a Dask array: dask.array's, or that of the package dask-array."""

if array_expr_enabled():
    msg = "chunkmill reads and writes with dask.array as it is, or the package dask-array: unset array.query-planning"
    raise ImportError(msg)


def check_kind(kind: ArrayKind | None) -> ArrayKind:
    """Return the kind that a user asks for; the active one for ``None``."""
    if kind is None:
        return active_kind()
    if kind not in ("dask", "dask-array"):
        raise ValueError(f"chunked_array_type={kind!r}: expected 'dask' or 'dask-array'")
    if kind == "dask-array" and find_spec("dask_array") is None:
        msg = "chunked_array_type='dask-array' needs the package dask-array: pip install 'chunkmill[dask-array]'"
        raise ModuleNotFoundError(msg, name="dask_array")
    return kind


def active_kind() -> ArrayKind:
    """Return the kind that xarray's chunk manager makes: dask-array's once that is registered, else dask.array's."""
    registered = sys.modules.get("dask_array.xarray")
    return "dask-array" if registered is not None and registered.isactive() else "dask"


def kind_of(x: Any) -> ArrayKind | None:
    """Return the kind of a Dask array, or of the one in what xarray made; ``None`` for other values."""
    if hasattr(x, "dims") and hasattr(x, "variable"):
        x = x.variable._data  # noqa: SLF001 - `data` would read what is lazy
    if not is_dask_array(x):
        return None
    return "dask-array" if _is_expression(x) else "dask"


def is_dask_array(x: Any) -> bool:
    """Return whether `x` is a Dask array of any kind.

    Examples
    --------
    >>> is_dask_array(core.asarray([1, 2])), is_dask_array([1, 2])
    (True, False)
    """
    return isinstance(x, core.Array) or _is_expression(x)


def _is_expression(x: Any) -> bool:
    return type(x).__module__.partition(".")[0] == "dask_array" and is_dask_collection(x)


def lowered_together(values: Sequence[Any]) -> list[Any]:
    """Return Dask arrays of any kind as those of `dask.array.core`, and other values as they are; nothing is computed.

    Expressions are optimized as their own library does it, and together, so that what several of them need is read
    once. Then slices and rechunks have reached what is read.
    """
    result = list(values)
    numbers = [i for i, x in enumerate(values) if _is_expression(x)]
    if numbers:
        together = _ExprSequence(*(values[i].expr for i in numbers)).simplify().lower_completely().operands
        fused = type(together[0])._fuse_many(together)  # noqa: SLF001
        for i, physical, own in zip(numbers, together, fused, strict=True):
            result[i] = _as_core(physical, own, values[i]._meta)  # noqa: SLF001
    return result


def _as_core(simplified: Any, fused: Any, meta: Any) -> core.Array:
    """Return the array of an expression, of which `fused` has the tasks."""
    # not `fused.__dask_graph__`, which would fuse what another array shares
    layer = ExpressionLayer(convert_legacy_graph(dict(Expr.__dask_graph__(fused))), simplified)
    graph = HighLevelGraph({fused._name: layer}, {fused._name: set()})  # noqa: SLF001 - as all expressions of Dask's
    return core.Array(graph, fused._name, fused.chunks, meta=meta)  # noqa: SLF001


class ExpressionLayer(MaterializedLayer):
    """Tasks of an expression, whose nodes say what they read; pickled, they are tasks alone."""

    def __init__(self, tasks: Mapping[Any, Any], expression: Any) -> None:
        super().__init__(tasks)
        self.expression = expression

    def __reduce__(self) -> tuple[Any, ...]:
        return MaterializedLayer, (self.mapping, self.annotations)

    def arrays_read(self) -> Iterator[Any]:
        """Yield what the nodes of the expression read: stored arrays, or wrappers of them."""
        yield from (array for node in self.expression.walk() if (array := _read_by(node)) is not None)

    def by_node(self, name: str) -> HighLevelGraph:
        """Return the graph with a layer for each node, as before their tasks were fused to those named `name`.

        A layer that reads has the regions of its blocks, as those of `dask.array` have.
        """
        layers, dependencies = {}, {}
        nodes = [(node, dict(node._layer())) for node in self.expression.walk()]  # noqa: SLF001
        keys = {key for _, tasks in nodes for key in tasks}  # without them, tuples in tasks are not taken for keys
        for node, tasks in nodes:
            own: Any = MaterializedLayer(convert_legacy_graph(tasks, keys))
            layers[node._name] = own  # noqa: SLF001
            dependencies[node._name] = {each._name for each in node.dependencies()}  # noqa: SLF001
            if (array := _read_by(node)) is not None:
                cuts = node.operand("_region") if "_region" in node._parameters else None  # noqa: SLF001
                start = [cut.start or 0 for cut in cuts] if cuts else None
                own.io_deps = {"": getattr(node, "regions", None) or BlockRegions(node.chunks, start)}
                own.read = array
        root = self.expression._name  # noqa: SLF001
        if root != name:
            ends = {(name, *key[1:]): Alias((name, *key[1:]), key) for key in layers[root] if key[0] == root}
            layers[name], dependencies[name] = MaterializedLayer(ends), {root}
        return HighLevelGraph(layers, dependencies)


def _read_by(node: Any) -> Any:
    """Return the array-like that a node of an expression reads; ``None`` for a node that reads none."""
    array = node.operand("array") if "array" in node._parameters else None  # noqa: SLF001
    return None if isinstance(array, Expr) else array


def as_kind(x: core.Array, kind: ArrayKind) -> Any:
    """Return an array of `dask.array.core` as one of `kind`, of the same tasks.

    Examples
    --------
    >>> as_kind(core.asarray([1, 2]), "dask").compute()
    array([1, 2])
    """
    if kind == "dask":
        return x
    keys = [(x.name, *index) for index in product(*map(range, x.numblocks))]
    from_graph = import_module("dask_array.core").from_graph  # of an optional package
    return from_graph(dict(x.dask), x._meta, x.chunks, keys, x.name)  # noqa: SLF001
