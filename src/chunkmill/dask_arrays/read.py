"""Read stored arrays as dask arrays: `from_store`, and its graph, one symbolic layer with a task for each block.

Nothing is stored for each chunk until the scheduler needs it: the layer computes the region of a block from its index.

In stores whose requests cost latency, the requests of neighbouring blocks are begun together, by a task of its own.
A scheduler runs as many tasks as it has threads, and each would wait for its own request: 300 chunks at 20 ms took two
threads 3.5 s. So blocks are put in runs, by their numbers in C order. One task for each run begins the requests of
those of its blocks that culling left; the tasks of the blocks depend on it, and take their bytes from its result. In
dask's symbolic graph that takes two arguments of the layer that reads: `RunOfBlock` tells each task its run, and the
keys of `RunsLayer`, which no task uses, tell that layer at culling which blocks are left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from functools import cached_property, partial
from itertools import groupby, product
from math import prod
from typing import Any, NamedTuple

import dask
import numpy as np
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.array import core as da
from dask.base import tokenize
from dask.blockwise import Blockwise, BlockwiseDep, blockwise, blockwise_token
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.utils import parse_bytes

from chunkmill.array.selection import full_region, region_shape
from chunkmill.array.staleness import read_published
from chunkmill.array.stored_array import ReadMissing, StoredArray
from chunkmill.array.threads import MAX_BEGUN_BYTES, BegunReads, TakingReads
from chunkmill.dask_arrays.blocks import BlockRegions, SharedFunction
from chunkmill.dask_arrays.kinds import ArrayKind
from chunkmill.errors import RegionError
from chunkmill.formats.base import FormatName
from chunkmill.model.grid import ChunkGrid, DaskChunks, Region
from chunkmill.nodes.api import NodeLocation, check_storage_options, check_url, no_array, open_array, url_and_path
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.group import Group

ReadValues = Callable[[StoredArray, Region], Any]
"""Function that reads the values of a block, from the array itself or from one over another store."""

# Dask holds the chunk lengths of each axis as a tuple of Python ints: 80 MB for this many.
_MAX_BLOCKS_PER_AXIS = 10_000_000

_FEW_OF = 4  # a slice of more than a quarter of the blocks is left to Dask, whose work grows with the slice as well

# `chunks="auto"`: blocks become smaller until there are so many, down to a size that is worth a task
_FEW_BLOCKS = 64
_SMALL_BLOCK = 4 << 20

Index = tuple[int, ...]

_MOST_REQUESTS = 32  # of a run: on two threads 16 took 1.3 times as long as 32, and 64 no less
_MOST_OF_BLOCKS = 64  # the same where a block takes several: with 32, 300 requests of 20 ms took 1.25 times as long
_LEAST_RUNS = 4  # with fewer, a cluster takes the blocks' tasks for ones that may run anywhere


def from_store(
    url: NodeLocation,
    path: str = "",
    *,
    chunks: int | str | Sequence[Any] | Mapping[Any, Any] | None = None,
    region: slice | Sequence[Any] | None = None,
    format: FormatName | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    read_missing: ReadMissing = "fill",
    name: str | None = None,
    base: str | os.PathLike[str] | None = None,
    chunked_array_type: ArrayKind | None = None,
) -> da.Array:
    """Return an array in a store, or a region of it, as a dask array; like ``da.from_zarr``, for every format.

    Parameters
    ----------
    url
        As in `open`; or ``(url, path)``, an `Array`, or a `Group` that `path` starts from.
    path, format, storage_options, read_missing, base
        As in `open`.
    chunks, region, chunked_array_type
        As in `Array.to_dask`: by default all of the array, one task for each store key.
    name
        Name of the dask array; dask takes arrays of one name for equal. Derived from what is read when ``None``.

    Returns
    -------
    dask.array.Array
        Lazy dask array with the shape and dtype of the array (or region); absent chunks read as the fill value.

    Raises
    ------
    NodeNotFound, MetadataError, UnknownCodec, StoreError
        As in `open_array`. A chunk that cannot be read raises `ChunkError` when it is computed.
    RegionError
        `chunks` or `region` does not fit the array.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-from", shape=(6, 4), dtype="f4", chunks=(3, 2), fill_value=1)
    >>> float(cm.from_store("memory://doc-from").sum().compute())
    24.0
    """
    if isinstance(url, (Array, Group)) and any(each is not None for each in (format, storage_options, base)):
        raise TypeError(f"format=, storage_options= and base= are of a url: the {type(url).__name__} is open already")
    options: dict[str, Any] = {"format": format, "storage_options": storage_options, "base": base}
    array = open_array_at(url, path, read_missing=read_missing, **options)
    return array.to_dask(chunks, region=region, name=name, chunked_array_type=chunked_array_type)


def open_array_at(place: Any, path: str = "", *, read_missing: ReadMissing = "fill", **options: Any) -> Array:
    """Return the array at a url or ``(url, path)``, below a Group, or the array itself.

    Raises
    ------
    NodeNotFound
        There is no array.
    TypeError
        `place` is something else.
    """
    check_storage_options(options.get("storage_options"), place)
    if isinstance(place, Array):
        if path:
            raise TypeError(f"path={path!r}: the array {place.path!r} has no nodes below it")
        return place if read_missing == "fill" else Array(place.stored.with_read_missing(read_missing))
    if isinstance(place, Group):
        if not path:
            raise no_array(place)
        return Group(place.stored.with_read_missing(read_missing)).array(path)
    url, above = url_and_path(place, "url")
    check_url(url)
    return open_array(url, join_path(above, path), read_missing=read_missing, **options)


def read_graph(
    array: StoredArray,
    chunks: Any = None,
    region: Region | None = None,
    name: str | None = None,
) -> da.Array:
    """Return `region` of `array`, by default the whole array, as a dask array (for `chunks` see `Array.to_dask`).

    The array is inlined in the layer's tasks: with a task of its own, dask would visit every key at the first slice.
    """
    region = full_region(array.shape) if region is None else region
    dask_chunks = block_chunks(array, chunks, region)
    tasks = ReadTasks.of(array, dask_chunks, region)
    if name is None:
        name = f"read-{array.path.rpartition('/')[2] or 'array'}-{tokenize(array, dask_chunks, tasks.regions.start)}"
    if (graph := tasks.in_runs(name)) is None:
        graph = HighLevelGraph.from_collections(name, tasks.alone(name), dependencies=())
    return SourceArray(graph, name, dask_chunks, meta=np.empty((0,) * array.ndim, array.dtype), dtype=array.dtype)


class SourceArray(da.Array):
    """Dask array over a stored one, of which a slice names the blocks that it needs, and no others.

    When a graph is computed, Dask asks each of its layers for all keys: 0.5 s for the slice of an array of 10^6 blocks.
    Below a slice, the layer of this array is culled beforehand. Its keys are those of the array, so that slices of one
    array share the blocks that they read; in the graph it has a name of its own.

    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> da.Array:
        """Return a part as Dask does."""
        part: da.Array = super().__getitem__(index)
        layers = self.dask.layers
        own, source = part.dask.layers.get(part.name), layers.get(self.name)
        if not (isinstance(own, MaterializedLayer) and isinstance(source, Blockwise)):
            return part
        if len(own) * _FEW_OF > self.npartitions or part.dask.dependencies[part.name] != {self.name}:
            return part
        needed = {key for task in own.values() for key in task.dependencies}
        name = f"{self.name}-for-{part.name}"
        culled, below = source.cull(needed, ())
        culled.collection_annotations = source.collection_annotations
        kept = {name: culled, part.name: own}
        dependencies = {part.name: {name}, name: self.dask.dependencies[self.name]}
        needed = set().union(*below.values())
        for each in dependencies[name]:
            kept[each], _ = layers[each].cull(needed, needed)
            dependencies[each] = self.dask.dependencies[each]
        part.dask = HighLevelGraph(kept, dependencies)
        return part


class ReadTasks(NamedTuple):
    """Functions that the tasks of a region call, and their arguments."""

    array: StoredArray
    region: Region
    regions: BlockRegions
    read: Callable[..., Any]

    @classmethod
    def of(
        cls,
        array: StoredArray,
        chunks: DaskChunks,
        region: Region,
        values: ReadValues = read_published,
        cuts: Sequence[Sequence[slice]] | None = None,
    ) -> ReadTasks:
        """Return those for blocks that divide the region, or for `cuts` inside it."""
        start = tuple(cut.start for cut in region)
        return cls(array, region, BlockRegions(chunks, start, cuts), partial(read_block, array, values=values))

    @property
    def run_length(self) -> int:
        """Number of blocks that begin their requests together; 0: none."""
        array, blocks, keys = self.array, self.regions.grid, self.array.write_layout.grid
        if not array.store.is_remote or not array.ndim or not _cut_as(keys, blocks, self.region):
            return 0
        is_by_range = array.read_layout is not array.write_layout  # of shards
        if is_by_range and (array.read_missing == "error" or not keys.aligned(self.region)):
            return 0
        per_block = prod(max(1, a.widest // k.widest) for a, k in zip(blocks.axes, keys.axes, strict=True))
        n_blocks = prod(self.regions.numblocks)
        return run_length(n_blocks, per_block, per_block * begun_bytes(array), MAX_BEGUN_BYTES // 2)

    def alone(self, name: str) -> Blockwise:
        """Return the layer of blocks that begin their own requests."""
        index = tuple(range(len(self.regions.numblocks)))
        call = SharedFunction(self.read)
        own = {"numblocks": {}, "dependencies": (), "_data_producer": True}
        layer: Blockwise = blockwise(call, name, index, self.regions, index, **own)
        layer.collection_annotations = _shown(self.array)
        return layer

    def in_runs(self, name: str) -> HighLevelGraph | None:
        """Return a graph whose blocks begin their requests together; ``None`` where that is of no use."""
        if not (length := self.run_length):
            return None
        runs = RunOfBlock(f"begin-{name}", self.regions.numblocks, length)
        begins = RunsLayer(f"begun-{name}", runs, SharedFunction(partial(begun_reads, self.array)), self.regions)
        index = tuple(f".{i}" for i in range(len(self.regions.numblocks)))
        arguments = [TaskRef(blockwise_token(i)) for i in range(2)]
        # not a data producer by dask's word, which would let a cluster run it elsewhere than where its run was begun
        task = Task(name, SharedFunction(self.read), *arguments)
        inputs: list[tuple[Any, Any]] = [(self.regions, index), (runs, index), (begins.name, index)]
        layer = _ReadLayer(name, index, task, inputs, numblocks={begins.name: self.regions.numblocks})
        layer.alone = self.alone(name)
        layer.collection_annotations = begins.collection_annotations = _shown(self.array)
        return HighLevelGraph({name: layer, begins.name: begins}, {name: {begins.name}, begins.name: set()})


def _shown(array: StoredArray) -> dict[str, Any]:
    """Return what dask's graph views display.

    Not as `annotations`, which are sent with each task: dask does not fuse a layer that has its own, so that reading a
    block and computing with it would be two tasks.
    """
    return {"url": array.url, "path": array.path, "format": array.format}


def begun_reads(array: StoredArray, regions: Iterable[Region]) -> BegunReads:
    """Return the reads of all store keys of `regions`, under way."""
    keys = [key for region in regions for key in array.keys(region)]
    return BegunReads(array.store, keys, value_bytes=begun_bytes(array))


def begun_bytes(array: StoredArray) -> int:
    """Return the size to expect of a value: that of its elements, since the codecs tell no other."""
    return array.dtype.itemsize * prod(array.write_layout.grid.chunk_shape)


def read_block(
    array: StoredArray, region: Region, reads: BegunReads | None = None, *, values: ReadValues = read_published
) -> Any:
    """Read one block: the task of each key of the layer."""
    return values(array.with_store(TakingReads(array.store, reads)) if reads else array, region)


def _cut_as(keys: ChunkGrid, blocks: ChunkGrid, region: Region) -> bool:
    """Return whether no key is in two blocks."""
    if blocks.dask_chunks == keys.within(region).dask_chunks:
        return True
    regular = keys.is_regular and blocks.is_regular
    return regular and all(
        block % key == 0 and cut.start % key == 0
        for block, key, cut in zip(blocks.chunk_shape, keys.chunk_shape, region, strict=True)
    )


def block_chunks(array: StoredArray, chunks: Any, region: Region) -> DaskChunks:
    """Return dask's chunks for reading `region` of `array`; see `Array.to_dask` for `chunks`."""
    grid = array.write_layout.grid
    if chunks is None:
        return _grid_chunks(array, grid.within(region))
    if chunks == "auto":
        return _grouped_chunks(array, region)
    shape = region_shape(region)
    previous = grid.chunk_shape if grid.is_regular else _grid_chunks(array, grid.within(region))
    try:
        normalized = da.normalize_chunks(chunks, shape, dtype=sized(array.dtype), previous_chunks=previous)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise RegionError(index=f"chunks={chunks!r}", shape=array.shape, reason=str(error)) from None
    return tuple(tuple(map(int, axis)) for axis in normalized)


def _grid_chunks(array: StoredArray, grid: ChunkGrid) -> DaskChunks:
    if max(grid.grid_shape, default=0) > _MAX_BLOCKS_PER_AXIS:
        reason = f"{grid.grid_shape} store keys are too many for dask; pass larger blocks (chunks=) or a region"
        raise RegionError(index="chunks=None", shape=array.shape, reason=reason)
    return grid.dask_chunks


def _grouped_chunks(array: StoredArray, region: Region) -> DaskChunks:
    """Return blocks of whole store keys, up to dask's ``array.chunk-size``.

    Where that makes few blocks they are smaller, so that all threads have work. Blocks grow along the first axis first:
    then each chunk is contiguous in the block's memory and is decoded into it.
    """
    grid = array.write_layout.grid
    if not grid.is_regular:
        return _grid_chunks(array, grid.within(region))
    itemsize = sized(array.dtype).itemsize
    few = prod(region_shape(region)) * itemsize // _FEW_BLOCKS
    limit = min(parse_bytes(dask.config.get("array.chunk-size")), max(_SMALL_BLOCK, few))
    multiples = [1] * array.ndim
    n_bytes = prod(grid.chunk_shape) * itemsize
    n_keys = grid.within(region).grid_shape
    for axis in range(array.ndim):
        room = max(1, limit // max(1, n_bytes * prod(multiples)))
        multiples[axis] = max(1, min(n_keys[axis], room))
    shape = [n * m for n, m in zip(grid.chunk_shape, multiples, strict=True)]
    return _grid_chunks(array, ChunkGrid.regular(array.shape, shape).within(region))


def sized(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype whose size dask can compute: values of variable length count as 16 bytes."""
    return np.dtype("V16") if dtype.hasobject else dtype


# --------------------------------------------------------------------------------------------------------------------
# Runs of blocks


def run_length(n_blocks: int, requests_a_block: int, block_bytes: int, max_bytes: int) -> int:
    """Return the number of blocks in a run; 0 where runs are of no use.

    Examples
    --------
    >>> run_length(300, 1, 1 << 18, 1 << 25), run_length(40, 1, 1 << 18, 1 << 25), run_length(300, 1, 1 << 24, 1 << 25)
    (32, 10, 2)
    >>> run_length(300, 64, 1 << 24, 1 << 25), run_length(5, 1, 1 << 18, 1 << 25)
    (0, 0)
    """
    most = _MOST_REQUESTS if requests_a_block == 1 else _MOST_OF_BLOCKS
    length = min(most // requests_a_block, n_blocks // _LEAST_RUNS, max_bytes // max(1, block_bytes))
    return length if length > 1 else 0


class RunOfBlock(BlockwiseDep):
    """Mapping of a block's index to the key of the task that begins the requests of its run."""

    def __init__(self, name: str, numblocks: Index, length: int) -> None:
        self.name, self.numblocks, self.length = name, numblocks, length

    def __getitem__(self, index: Index) -> TaskRef:
        return TaskRef(self.key(index))

    def key(self, index: Sequence[int]) -> tuple[str, int]:
        """Return the key of the task that begins the requests of a block."""
        number = 0
        for i, n in zip(index, self.numblocks, strict=True):
            number = number * n + i
        return self.name, number // self.length

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "chunkmill.RunOfBlock", self.name, self.numblocks, self.length


class _ReadLayer(Blockwise):
    """Tasks that read blocks. Cloned (by ``dask.graph_manipulation``), they begin their own requests."""

    alone: Blockwise

    def clone(self, keys: set[Any], seed: Any, bind_to: Any = None) -> tuple[Layer, bool]:
        return self.alone.clone(keys, seed, bind_to)


class RunsLayer(Layer):
    """Tasks that begin requests, computed when the scheduler needs them.

    Its keys by name are those of blocks, for dask to cull; the tasks, one for each run, have the keys of `runs`. Of
    runs in which culling left few blocks, several are begun by one task. Few runs on a cluster begin nothing: the tasks
    of their blocks may be run elsewhere, and would request everything again.
    """

    def __init__(
        self,
        name: str,
        runs: RunOfBlock,
        begin: SharedFunction,
        regions: BlockRegions,
    ) -> None:
        # dask joins layers of equal annotations where two of them have a common successor: before it culls
        super().__init__(annotations={**dask.config.get("annotations", {}), "begins": name})
        self.name, self.runs, self.begin, self.regions = name, runs, begin, regions
        self.wanted: Collection[Index] | None = None
        self.is_sent = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, is_sent=True)

    @property
    def has_legacy_tasks(self) -> bool:
        """False: tasks are dask's own."""
        return False

    def is_materialized(self) -> bool:
        """Return whether the tasks are made."""
        return "_tasks" in self.__dict__

    def get_output_keys(self) -> AbstractSet[Any]:
        """Return a key for each block, for culling."""
        return {(self.name, *index) for index in self._blocks()}

    def cull(self, keys: set[Any], all_hlg_keys: Collection[Any]) -> tuple[Layer, Mapping[Any, set[Any]]]:  # noqa: ARG002
        """Return the layer of the blocks that are needed."""
        own = [key for key in keys if type(key) is tuple and key[0] == self.name]
        other = copy(self)
        other.__dict__.pop("_tasks", None)
        other.wanted = sorted(key[1:] for key in own)
        return other, {key: set() for key in own}

    def clone(self, keys: set[Any], seed: Any, bind_to: Any = None) -> tuple[Layer, bool]:  # noqa: ARG002
        """Return no tasks: cloned blocks begin their own requests."""
        return MaterializedLayer({}), False

    def _blocks(self) -> Iterable[Index]:
        return product(*map(range, self.runs.numblocks)) if self.wanted is None else self.wanted

    @cached_property
    def _tasks(self) -> dict[Any, Any]:
        tasks: dict[Any, Any] = {}
        blocks: list[Index] = []
        first: Any = None
        for key, run in groupby(self._blocks(), self.runs.key):
            if len(blocks) < self.runs.length and first is not None:
                tasks[key] = Alias(key, first)
                blocks.extend(run)
                continue
            if first is not None:
                tasks[first] = self._task(first, blocks)
            first, blocks = key, list(run)
        if first is not None:
            tasks[first] = self._task(first, blocks)
        if self.is_sent and sum(type(task) is Task for task in tasks.values()) < _LEAST_RUNS:
            return {key: DataNode(key, None) for key in tasks}
        return tasks

    def _task(self, key: Any, blocks: Sequence[Index]) -> Task:
        return Task(key, self.begin, self.regions.together(blocks), _data_producer=True)

    def __getitem__(self, key: Any) -> Any:
        return self._tasks[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)
