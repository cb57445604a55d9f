"""Dask array -> store: each store key is written by exactly one task.

Blocks that cut through store keys are regrouped in the graph before they are written, whatever dask's
``array.chunk-size`` says, so that two tasks never touch one key. Only the keys at the rim of a region may be covered
partly: those are changed under a lock and a version check.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast
from uuid import uuid4

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import compute as compute_all
from dask.base import optimize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import format_bytes
from numpy.typing import NDArray

from chunkmill.array.chunk_io import LockFactory, puts_at_once, write_part
from chunkmill.array.metered import metered
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.dask_arrays.aligned_chunks import write_chunks
from chunkmill.dask_arrays.blocks import BlockRegions, Carried
from chunkmill.dask_arrays.hazards import check_in_place
from chunkmill.dask_arrays.regroup import Pieces, regrouped
from chunkmill.display.report import ReportMixin
from chunkmill.errors import AlignmentError
from chunkmill.model.grid import Region
from chunkmill.model.user_values import as_dtype, check_unmasked, is_text
from chunkmill.runtime.cancellation import abandon_on_error, remove_partial_files, unless_cancelled
from chunkmill.runtime.cluster_locks import check_guarded
from chunkmill.runtime.journal import Journal
from chunkmill.runtime.preflight import check_process, describe_needs, writes_to
from chunkmill.runtime.scheduler import Scheduler, optimised
from chunkmill.stores.metered import Meter

__all__ = ["WriteReport", "block_number", "check_source", "report", "run", "write_blocks", "write_graph"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class WriteReport(ReportMixin):
    """What a write did.

    Attributes
    ----------
    n_keys
        Store keys dealt with; of these ``n_partial`` were covered partly, so that they were read, changed and written
        back under a lock, and ``n_empty`` held the fill value only, so that nothing is stored for them.
    bytes_written
        Encoded bytes stored.
    n_regrouped
        Blocks of the source that were cut or merged because they were not aligned to store keys.
    guard
        What keeps partial writes from losing others': ``"version"``, the store compares versions when it writes, on top
        of the lock; ``"lock"``, it cannot, and the lock alone guards.
    n_resumed
        Blocks that an earlier run had written; the other numbers do not count them.
    """

    n_keys: int
    n_partial: int
    n_empty: int
    bytes_written: int
    n_regrouped: int = 0
    guard: str = "version"
    n_resumed: int = 0

    def _title(self) -> str:
        return "write: done"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("store keys", f"{self.n_keys:,}: of these {self.n_partial:,} changed in part, {self.n_empty:,} empty"),
            ("written", format_bytes(self.bytes_written)),
            ("blocks regrouped", f"{self.n_regrouped:,}"),
            ("guard of partial writes", self.guard),
            *([("blocks of an earlier run", f"{self.n_resumed:,}")] if self.n_resumed else []),
        ]


def check_source(x: da.Array, shape: tuple[int, ...]) -> None:
    """Raise `AlignmentError` when `x` cannot be written to a region of `shape`, before anything is."""
    if any(np.isnan(n) for axis in x.chunks for n in axis):
        fix = "call x.compute_chunk_sizes() first"
        raise AlignmentError(expected="known chunk sizes", got=f"unknown ones: {x.chunks}", fix=fix)
    if x.shape != shape:
        raise AlignmentError(expected=f"shape {shape}", got=f"shape {x.shape}", fix="give the region that x covers")


def write_graph(
    x: da.Array, array: StoredArray, region: Region, *, lock: LockFactory, write_empty: bool = False
) -> tuple[da.Array, int]:
    """Return a dask array that, computed, writes `x` to `region` of `array`, and the number of blocks regrouped.

    The result holds four numbers: those of `WriteReport` in order.
    """
    counts, n_regrouped = write_blocks(x, array, region, lock=lock, write_empty=write_empty)
    return _summed(counts), n_regrouped


def _summed(counts: da.Array) -> da.Array:
    """Return the sum of the counts of all blocks.

    Not `da.sum`, which adds a step to every write, and few results at a time: these are numbers.
    """
    name = f"written-{uuid4().hex}"
    todo: list[Any] = [(counts.name, *index, 0) for index in np.ndindex(*counts.numblocks[:-1])]
    layer: dict[Any, Any] = {}
    while len(todo) > _SUMMED_AT_ONCE:
        parts = [todo[i : i + _SUMMED_AT_ONCE] for i in range(0, len(todo), _SUMMED_AT_ONCE)]
        todo = [(f"{name}-part", len(layer) + i) for i in range(len(parts))]
        layer |= {key: Task(key, _sum_of, *map(TaskRef, part)) for key, part in zip(todo, parts, strict=True)}
    layer[name, 0] = Task((name, 0), _sum_of, *map(TaskRef, todo))
    depended: Any = [counts]  # dask's own type of a collection does not fit its arrays
    graph = HighLevelGraph.from_collections(name, layer, dependencies=depended)
    return da.Array(graph, name, ((4,),), dtype=np.int64, meta=np.empty(0, np.int64))


_SUMMED_AT_ONCE = 64


def _sum_of(*counts: NDArray[np.int64]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([each.reshape(4) for each in counts], axis=0, dtype=np.int64)
    return total


def write_blocks(
    x: da.Array,
    array: StoredArray,
    region: Region,
    *,
    lock: LockFactory,
    write_empty: bool = False,
    journal: Journal | None = None,
) -> tuple[da.Array, int]:
    """Return what `write_graph` does before the sum: four numbers for each block, along a last axis."""
    check_source(x, region_shape(region))
    grid = array.write_layout.grid
    if not grid.aligned(region):
        check_guarded(array.store, array.path, lock)
    chunks = write_chunks(grid, region, x.chunks, array.dtype.itemsize)
    if is_text(array.dtype) and x.dtype != array.dtype:
        x = x.map_blocks(cast("Any", as_dtype), array.dtype, dtype=array.dtype)
    x = x.astype(array.dtype, copy=False)
    name = f"write-{array.path.rpartition('/')[2] or 'array'}-{uuid4().hex}"  # an effect: never the same twice
    start = tuple(cut.start for cut in region)
    needs = os.getpid(), pickle.dumps(describe_needs(writes_to([array]), targets=[array]))
    write = partial(
        write_block,
        array=array,
        start=start,
        lock=lock,
        write_empty=write_empty,
        journal=journal,
        name=name,
        needs=needs,
    )
    if chunks != x.chunks:
        counts = regrouped(x, chunks, write, name=name, n_results=4)
        check_in_place(counts, chunks, array, region)
        return counts, x.npartitions
    index = tuple(range(x.ndim))
    counts = da.blockwise(
        Carried(write),
        (*index, x.ndim),
        x,
        index,
        BlockRegions(chunks),
        index,
        dtype=np.int64,
        meta=np.empty((0,) * (x.ndim + 1), np.int64),
        adjust_chunks=dict.fromkeys(index, 1),
        new_axes={x.ndim: 4},
        align_arrays=False,
        name=name,
    )
    check_in_place(counts, chunks, array, region)
    return counts, 0


def write_block(
    block: NDArray[Any] | Pieces,
    within: Region,
    *,
    array: StoredArray,
    start: Sequence[int],
    lock: LockFactory,
    write_empty: bool,
    journal: Journal | None,
    name: str,
    needs: tuple[int, bytes],
) -> NDArray[np.int64]:
    """Write one block to its place and return its counts, shaped for the sum over all blocks."""
    home, packed = needs
    if os.getpid() != home:
        check_process(packed)  # perhaps a worker that joined when the others had been checked
    region = tuple(slice(cut.start + s, cut.stop + s) for cut, s in zip(within, start, strict=True))
    with unless_cancelled(name):
        if journal is not None:
            counts = _write_on_record(block, region, array, journal, lock=lock, write_empty=write_empty)
        else:
            counts = _write(block, region, array, lock=lock, write_empty=write_empty)
    return counts.reshape((1,) * block.ndim + (4,))


def _as_told(part: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return part of a block in the dtype that its dask array tells of; times that xarray encodes late have another."""
    if part.dtype == dtype:
        return part
    cast_to = as_dtype(part, dtype)
    if part.dtype.kind in "iu" and (cast_to != part).any():
        wrong = part[cast_to != part].flat[0]
        msg = f"{wrong} does not fit {dtype}: a block of the dask array holds {part.dtype}, and the array says {dtype}"
        raise ValueError(msg)
    return cast_to


def _write(
    block: NDArray[Any] | Pieces, region: Region, array: StoredArray, *, lock: LockFactory, write_empty: bool
) -> NDArray[np.int64]:
    check_unmasked(block)  # of a dask array that does not tell
    overlaps = list(array.write_layout.grid.overlaps(region))

    def write(keys: slice) -> NDArray[np.int64]:
        counts = np.zeros(4, np.int64)
        for overlap in overlaps[keys]:
            place: tuple[Any, ...] = (*overlap.in_region, ...)  # the dots keep a 0-d block an array
            part = _as_told(block[place], array.dtype)
            n_bytes = write_part(array, overlap, part, lock=lock, write_empty=write_empty)
            counts += (1, not overlap.whole, n_bytes == 0, n_bytes)
        return counts

    n_threads = puts_at_once(array, overlaps)
    total: NDArray[np.int64] = np.sum(in_threads(write, cut_evenly(len(overlaps), 8 * n_threads), n_threads), axis=0)
    return total


def _write_on_record(
    block: NDArray[Any] | Pieces,
    region: Region,
    array: StoredArray,
    journal: Journal,
    *,
    lock: LockFactory,
    write_empty: bool,
) -> NDArray[np.int64]:
    """Write a block and put that on record; when it is on record, dask is repeating a task: return what it returned."""
    number = block_number(array, region)
    recorded = journal.recall(0, number)
    if recorded is None:
        meter = Meter()
        counts = _write(block, region, metered(array, meter), lock=lock, write_empty=write_empty)
        recorded = dict(zip(_COUNTS, map(int, counts), strict=True))
        journal.record(0, number, recorded, meter.writes)
    return np.array([recorded[name] for name in _COUNTS], np.int64)


_COUNTS = ("n_keys", "n_partial", "n_empty", "bytes_written")


def block_number(array: StoredArray, region: Region) -> int:
    """Return the number of the first store key in `region`: no two blocks of a write share one."""
    grid = array.write_layout.grid
    number = 0
    for axis, cut, n in zip(grid.axes, region, grid.grid_shape, strict=True):
        number = number * n + axis.index(cut.start)
    return number


def run(
    counts: Sequence[da.Array], finish: Callable[..., T], *, compute: bool, arrays: Sequence[StoredArray] = ()
) -> T | Delayed:
    """Compute what `write_graph` gave for `arrays` and return ``finish(*computed)``; or a `Delayed` that does so.

    Not by ``delayed(finish)(*counts)``: that would hide the arrays from dask's fusion and double their graph.
    """
    if compute:
        with abandon_on_error(counts), remove_partial_files(arrays):
            return finish(*_computed(counts, arrays))
    name = f"written-{uuid4().hex}"
    optimised = optimize(*counts)
    keys = [TaskRef((c.name, *(0 for _ in c.numblocks))) for c in optimised]
    layer: dict[Any, Any] = {name: Task(name, finish, *keys)}
    return Delayed(name, HighLevelGraph.from_collections(name, layer, dependencies=optimised))


def _computed(counts: Sequence[da.Array], arrays: Sequence[StoredArray]) -> Sequence[NDArray[np.int64]]:
    if not counts:  # a dataset of which all is written already
        return []
    scheduler = Scheduler()
    if scheduler.client is not None:
        with scheduler.span(f"write to {_shown(arrays)}"):
            return compute_all(*counts)  # type: ignore[no-any-return]
    keys = [(c.name, *(0 for _ in c.numblocks)) for c in counts]
    graph = HighLevelGraph.merge(*(c.dask for c in counts))
    return scheduler.compute(optimised(graph, keys), keys)


def _shown(arrays: Sequence[StoredArray]) -> str:
    paths = sorted({array.path for array in arrays} - {""})
    shown = f"{paths[0]!r} in " if len(paths) == 1 else f"{len(paths)} arrays in " if paths else ""
    return shown + ", ".join(sorted({array.url for array in arrays}))


def report(array: StoredArray, counts: Sequence[int] | NDArray[np.int64], n_regrouped: int) -> WriteReport:
    """Turn the computed counts of a write to `array` into a `WriteReport`."""
    n_keys, n_partial, n_empty, n_bytes = (int(n) for n in counts)
    guard = "version" if array.store.compares_versions else "lock"
    return WriteReport(n_keys, n_partial, n_empty, n_bytes, n_regrouped, guard)
