"""Let ``da.from_array`` read as `read_graph` does: many requests at once, and slices that name their own blocks.

Dask builds the graph by itself: a task a block, which asks the array for it and waits. It then calls the functions of
its setting ``array_plugins`` with every new dask array: ours looks whether the array is one of `da.from_array` over a
stored array, and replaces its graph by that of `read_graph`, with the same name and blocks; or the array-like in it by
one that unpickles on any worker (`chunkmill.dask_arrays.blocks.SharedSource`). Xarray's chunks are made by
`da.from_array`, too. Neither dask's optimisation nor its schedulers ask the array for its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dask
from dask._task_spec import TaskRef
from dask.array import core as da
from dask.array.core import getter, getter_nofancy
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from chunkmill.array.selection import full_region
from chunkmill.array.staleness import read_published
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.blocks import SharedSource
from chunkmill.dask_arrays.read import ReadTasks, ReadValues, SourceArray
from chunkmill.model.grid import Region
from chunkmill.nodes.array import Array


class ArrayInside(NamedTuple):
    """Stored array that an array-like reads: `region` of it, of which `values` makes the elements of a block."""

    array: StoredArray
    region: Region
    values: ReadValues


Finder = Callable[[Any], ArrayInside | None]

_finders: list[Finder] = []


def find_array_inside(finder: Finder) -> Finder:
    """Register a function that recognises array-likes of another library, above this layer."""
    _finders.append(finder)
    return finder


def read_from_arrays_in_runs() -> None:
    """Register the plugin with dask, unless it is; after those of the user."""
    plugins = dask.config.get("array_plugins", ())
    if not plugins and type(plugins) is not _OnlyOurs:
        dask.config.set(array_plugins=_OnlyOurs())
    elif plugins and _plugin not in plugins:
        dask.config.set(array_plugins=[*plugins, _plugin])


class _OnlyOurs(dict[str, Any]):
    """Plugins of dask's, of which ours is the only one: nothing to JSON, pickle and dask's merging of settings.

    Dask sends its settings to workers as JSON (``SSHCluster``), which refuses functions, or pickled, for which
    chunkmill would be imported before the worker starts.
    """

    def __iter__(self) -> Iterator[Any]:
        yield _plugin

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ()


def _plugin(x: Any) -> da.Array | None:
    """Return another array for `x` where it is one of `da.from_array` over a stored array."""
    layer = x.dask.layers.get(x.name) if isinstance(x, da.Array) else None
    if type(layer) is not Blockwise or layer.task.func not in _GETTERS or layer.task.kwargs:
        return None  # with arguments of its own where there is a lock
    argument = source = next((value for value, index in layer.indices if index is None), None)
    if isinstance(argument, TaskRef):
        source = x.dask.layers[argument.key][argument.key]
    if _reads_stored(source):
        _share(x.dask, layer, argument, SharedSource(source))
    if type(x) is SourceArray or (found := array_inside(source)) is None:
        return None
    graph = ReadTasks.of(found.array, x.chunks, found.region, found.values).in_runs(x.name)
    return SourceArray(x.dask if graph is None else graph, x.name, x.chunks, meta=x._meta)  # noqa: SLF001


def _reads_stored(source: Any) -> bool:
    """Return whether there is a stored array inside xarray's wrappers."""
    while source is not None and not isinstance(source, (Array, StoredArray, SharedSource)):
        source = getattr(source, "array", None)
    return isinstance(source, (Array, StoredArray))


def _share(graph: HighLevelGraph, layer: Any, argument: Any, shared: Any) -> None:
    """Put a source into a graph, whose layer has another one in its arguments, or refers to it."""
    if isinstance(argument, TaskRef):
        layers: Any = graph.layers
        layers[argument.key] = MaterializedLayer({argument.key: shared})
    else:
        layer.indices = tuple((shared if value is argument else value, index) for value, index in layer.indices)


_GETTERS = (getter, getter_nofancy)


def array_inside(source: Any) -> ArrayInside | None:
    """Return the stored array that an array-like reads, or ``None``."""
    if isinstance(source, Array):
        return ArrayInside(source.stored, full_region(source.shape), read_published)
    return next((found for finder in _finders if (found := finder(source)) is not None), None)
