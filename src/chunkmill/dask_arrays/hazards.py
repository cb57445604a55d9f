"""Find the stored arrays that a dask graph reads, to refuse deleting or overwriting them (P1, P6).

Found are the arrays of `read_graph`, ``da.from_array`` and ``da.from_zarr``, and the lazy variables of xarray's engines
``chunkmill`` and ``zarr``. Before a node is deleted, they are also found in tasks of a graph that was optimised before,
and in functions of users.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import cloudpickle
from dask._task_spec import Alias, DataNode, Task, TaskRef, convert_legacy_graph
from dask.array import core as da
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.layers import ArraySliceDep

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.blocks import BlockRegions, SharedFunction, SharedSource
from chunkmill.dask_arrays.kinds import ExpressionLayer
from chunkmill.errors import JobError
from chunkmill.jobs.sources import canonical_location
from chunkmill.model.grid import DaskChunks, Region
from chunkmill.nodes.array import Array
from chunkmill.stores.base import Store


def check_not_read(sources: Iterable[Any], store: Store, path: str, option: str = "mode='w'") -> None:
    """Raise `JobError` where `sources` read from the node at `path`, which `option` deletes."""
    target = canonical_location(store.url, path)
    searched: set[int] = set()
    for source in sources:
        found = locations_read(source, searched)
        if (inside := next((each for each in found if each.startswith(target)), None)) is not None:
            reason = f"{option} would delete {inside.rstrip('/')}, which the data are read from"
            hint = "load or persist() them first, or write elsewhere"
            raise JobError(job=f"write {target.rstrip('/')}", reason=reason, hint=hint)


def check_in_place(counts: da.Array, chunks: DaskChunks, array: StoredArray, region: Region) -> None:
    """Raise `JobError` where a task reads elements of `array` that another task overwrites.

    A task that dask repeats after it lost a worker would compute with old and new elements. A task may read the
    elements that it overwrites itself. `counts` are the results of the tasks, `chunks` the blocks of `region`.
    """
    target = canonical_location(array.store.url, array.path)
    graph = counts.dask
    for name, layer in graph.layers.items():
        if isinstance(layer, ExpressionLayer) and target in _locations(layer):
            nodes = layer.by_node(name)
            graph = HighLevelGraph(graph.layers | nodes.layers, graph.dependencies | nodes.dependencies)
    layers = graph.layers
    found = {name for name, layer in layers.items() if target in _locations(layer)}
    over = {name for name in layers if name != counts.name and found & {name, *graph.dependencies[name]}}
    reads = {name: blocks for name in over if (blocks := _blocks(layers[name])) is not None}
    written = BlockRegions(chunks, [cut.start for cut in region])
    if _is_block_by_block(graph, reads, written):
        return
    tasks = convert_legacy_graph(dict(graph))
    for index in product(*map(range, written.numblocks)):
        own = written.region(index)
        seen: set[Any] = set()
        todo: list[Any] = [(counts.name, *index, 0)]
        while todo:
            key = todo.pop()
            if isinstance(key, tuple) and key[0] in reads:
                if _overlaps(read := _region(reads[key[0]], key[1:]), region) and not _within(read, region, own):
                    reason = (
                        f"{_shown(own)} is computed from {_shown(read)} of the same array, which other tasks overwrite"
                    )
                    hint = "load or persist() the data first, or write elsewhere"
                    raise JobError(job=f"write {target.rstrip('/')}", reason=reason, hint=hint)
            elif key not in seen and key in tasks:
                seen.add(key)
                todo.extend(tasks[key].dependencies)


def _is_block_by_block(graph: HighLevelGraph, reads: Mapping[str, _Blocks], written: BlockRegions) -> bool:
    """Return whether the layers alone show that each task reads only the block that it writes."""
    layers, dependencies = graph.layers, graph.dependencies
    order = graph._toposort_layers()  # noqa: SLF001 - as dask's own optimisations do
    derived = set(reads)
    for name in order:
        layer = layers[name]
        if name in reads or not derived & dependencies[name]:
            continue
        derived.add(name)
        if not isinstance(layer, Blockwise):
            return False
        own = layer.output_indices[: len(written.numblocks)]
        if any(source in derived and index != own for source, index in layer.indices):
            return False
    first = (0,) * len(written.numblocks)
    start = written.region(first)
    return all(blocks.chunks == written.chunks and _region(blocks, first) == start for blocks in reads.values())


_Blocks = BlockRegions | ArraySliceDep


def _blocks(layer: Any) -> _Blocks | None:
    """Return the regions that the blocks of a layer read; ``None`` where they are unknown."""
    return next((regions for regions in getattr(layer, "io_deps", {}).values() if isinstance(regions, _Blocks)), None)


def _region(blocks: _Blocks, index: tuple[int, ...]) -> Region:
    return blocks.region(index) if isinstance(blocks, BlockRegions) else blocks[index]


def _overlaps(a: Region, b: Region) -> bool:
    return all(max(x.start, y.start) < min(x.stop, y.stop) for x, y in zip(a, b, strict=True))


def _within(read: Region, written: Region, own: Region) -> bool:
    """Return whether the task's `own` region contains the elements read, apart from those outside `written`."""
    return all(
        max(x.start, w.start) >= o.start and min(x.stop, w.stop) <= o.stop
        for x, w, o in zip(read, written, own, strict=True)
    )


def _shown(region: Region) -> str:
    return f"[{', '.join(f'{cut.start}:{cut.stop}' for cut in region)}]"


def _locations(layer: Any) -> Iterator[str]:
    known = getattr(layer, "collection_annotations", None) or {}
    if isinstance(layer, ExpressionLayer):
        yield from (found for array in layer.arrays_read() for found in _location_of(array))
    elif hasattr(layer, "read"):  # of a node of such a layer
        yield from _location_of(layer.read)
    elif {"url", "path"} <= known.keys():
        yield canonical_location(known["url"], known["path"])
    elif isinstance(layer, Blockwise):  # from_array(…, inline_array=True)
        yield from (found for value, index in layer.indices if index is None for found in _location_of(value))
    elif isinstance(layer, MaterializedLayer) and len(layer) == 1:  # from_array: the source has a key of its own
        yield from _location_of(next(iter(layer.values())))


def locations_read(x: Any, searched: set[int]) -> Iterator[str]:
    """Yield the locations of the stored arrays that any task of `x` refers to, but for the layers `searched` before.

    Each is as `canonical_location` returns it. Pickle visits what a worker would receive: arguments, fused tasks, and
    what functions close over.
    """
    search = _Search()
    for layer in x.dask.layers.values() if isinstance(x, da.Array) else ():
        if id(layer) in searched:
            continue
        searched.add(id(layer))
        for each in layer.mapping.values() if isinstance(layer, MaterializedLayer) else (layer,):
            with suppress(Exception):  # what cannot be pickled is not searched further
                search.dump(each)
            yield from search.found
            search.found.clear()


class _Search(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler that keeps nothing but the locations of stored arrays."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), pickle.HIGHEST_PROTOCOL, buffer_callback=lambda _: None)
        self.found: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        """Note a stored array; look into functions that travel as bytes, and into no keys and slices."""
        if type(value) in {slice, TaskRef, Alias}:
            return list, ()
        if type(value) is Task:  # in a fifth of the time
            return list, ([value.func, value.args, value.kwargs],)
        if type(value) is DataNode:
            return list, ([value.value],)
        if isinstance(value, (SharedFunction, SharedSource)):
            return list, ([value.function if isinstance(value, SharedFunction) else value.array],)
        if isinstance(value, StoredArray) or (
            type(value).__module__.startswith("zarr.") and hasattr(value, "store_path")
        ):
            self.found.update(_location_of(value))
            return list, ()
        return super().reducer_override(value)


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


def _location_of(value: Any) -> Iterator[str]:
    """Yield the location of the stored array in `value`, through the wrappers of dask and xarray."""
    for _ in range(_DEPTH):
        if isinstance(value, (Array, StoredArray)):
            yield canonical_location(value.store.url, value.path)
        elif (stored := getattr(value, "store_path", None)) is not None:  # zarr-python's array
            yield _location_in_zarr_python(stored)
        else:
            value = next((inner for name in _WRAPPED if (inner := getattr(value, name, None)) is not None), None)
            continue
        return


def _location_in_zarr_python(stored: Any) -> str:
    filesystem = getattr(stored.store, "fs", None)
    url = str(stored.store) if filesystem is None else filesystem.unstrip_protocol(stored.store.path)
    return canonical_location(url, stored.path)


_WRAPPED = ("array", "_array", "value")  # in xarray's lazy arrays, its wrapper of zarr-python, dask's data nodes
_DEPTH = 16
