"""Write dask arrays to a store: each store key is written by exactly one task.

Blocks whose boundaries fall inside store keys are regrouped in the graph before they are written, whatever dask's
``array.chunk-size`` is, so that two tasks never write one key. Only keys at the boundary of a region may be covered
partly: those are changed under a lock and a version check. Not here: what a task does
(`chunkmill.dask_arrays.write_task`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload
from uuid import uuid4

import numpy as np
from dask._task_spec import Alias, Task, TaskRef
from dask.array import core as da
from dask.array.blockwise import blockwise
from dask.base import compute as compute_all
from dask.base import optimize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import format_bytes, format_time
from distributed.protocol.pickle import dumps
from numpy.typing import NDArray

from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import LockFactory, cut_evenly
from chunkmill.dask_arrays.blocks import BlockRegions, SharedFunction
from chunkmill.dask_arrays.hazards import check_in_place
from chunkmill.dask_arrays.regroup import regroup, write_chunks
from chunkmill.dask_arrays.write_task import (
    ChangedCounts,
    Counts,
    WriteCounts,
    WriteTask,
    applied,
    finished,
    with_changes,
)
from chunkmill.display.report import ReportMixin
from chunkmill.errors import AlignmentError
from chunkmill.model.grid import MOST_AXES, Region
from chunkmill.nodes.documents import declare_arrays
from chunkmill.runtime.cancellation import abandon_on_error, remove_partial_files
from chunkmill.runtime.cluster_tasks import scheduler_needed, sync_other_machines
from chunkmill.runtime.locks import automatic_lock, check_guarded
from chunkmill.runtime.preflight import check_writers, describe_needs, writes_to
from chunkmill.runtime.scheduler import Scheduler, optimised

T = TypeVar("T")
P = ParamSpec("P")
Report_co = TypeVar("Report_co", covariant=True)
Stored_co = TypeVar("Stored_co", covariant=True)


class _Writes(Protocol[P, Report_co, Stored_co]):
    """Function whose result depends on `compute` and `return_stored`; calls without both have its other types."""

    @overload
    def __call__(self, *args: Any, return_stored: Literal[True], **options: Any) -> Stored_co: ...
    @overload
    def __call__(self, *args: Any, compute: Literal[False], **options: Any) -> Delayed: ...
    @overload
    def __call__(self, *args: P.args, **options: P.kwargs) -> Report_co: ...


def returning(
    report: type[Report_co],  # noqa: ARG001 - for type checkers
    stored: type[Stored_co],  # noqa: ARG001
) -> Callable[[Callable[P, Any]], _Writes[P, Report_co, Stored_co]]:
    """Decorate a public function that writes: type checkers learn what it returns."""
    return lambda function: cast("Any", function)


@dataclass(frozen=True, slots=True, repr=False)
class WriteReport(ReportMixin):
    """Result of a write.

    Attributes
    ----------
    n_keys
        Store keys written.
    n_partial
        Of these, keys that were covered partly, so that they were read, changed and written back under a lock.
    n_empty
        Of these, keys that hold the fill value only, so that nothing is stored for them.
    bytes_written
        Encoded bytes stored.
    n_regrouped
        Blocks of the source that were rechunked because they were not aligned to store keys.
    guard
        Protection of partial writes against lost updates: ``"version"``, the store compares versions when it writes, in
        addition to the lock; ``"lock"``, the lock alone.
    n_resumed
        Blocks that an earlier run had written, which the other numbers do not include.
    n_retried
        How often another writer had changed a key between reading it and writing it back, so that it was changed again.
    seconds_waited
        Time that the tasks together waited for locks of partial writes.
    """

    n_keys: int
    n_partial: int
    n_empty: int
    bytes_written: int
    n_regrouped: int = 0
    guard: str = "version"
    n_resumed: int = 0
    n_retried: int = 0
    seconds_waited: float = 0.0

    def _title(self) -> str:
        return "write: done"

    def _facts(self) -> list[tuple[str, str]]:
        price = f"; {self.n_retried:,} retried, {format_time(self.seconds_waited).strip()} waited for locks"
        how = f"under a lock{', versions compared' * (self.guard == 'version')}{price * bool(self.n_partial)}"
        return [
            ("store keys", f"{self.n_keys:,}, of which {self.n_empty:,} hold only the fill value and are not stored"),
            ("changed in part", f"{self.n_partial:,} of them, read and written back {how}"),
            ("written", format_bytes(self.bytes_written)),
            ("blocks regrouped", f"{self.n_regrouped:,}, to fit the store keys"),
            *([("blocks of an earlier run", f"{self.n_resumed:,}")] if self.n_resumed else []),
        ]


def check_source(x: da.Array, shape: tuple[int, ...]) -> None:
    """Raise `AlignmentError` where `x` cannot be written to a region of `shape`."""
    if x.ndim >= MOST_AXES:  # the counts of a block have one axis more
        fix = "write it from memory: a[...] = x.compute()"
        raise AlignmentError(expected=f"a dask array of at most {MOST_AXES - 1} axes", got=x.ndim, fix=fix)
    if any(np.isnan(n) for axis in x.chunks for n in axis):
        fix = "call x.compute_chunk_sizes() first"
        raise AlignmentError(expected="known chunk sizes", got=f"unknown chunk sizes: {x.chunks}", fix=fix)
    if x.shape != shape:
        raise AlignmentError(expected=f"shape {shape}", got=f"shape {x.shape}", fix="pass the region that x covers")


def write_graph(
    x: da.Array,
    array: StoredArray,
    region: Region,
    *,
    lock: LockFactory,
    write_empty: bool = False,
    stored: StoredArray | None = None,
    absent: Sequence[str] = (),
    compute: bool = True,
) -> tuple[da.Array, int]:
    """Return a dask array that, computed, writes `x` to `region` of `array`, and the number of blocks regrouped.

    The result is one block of `WriteCounts`. Without `compute`, each store key has a task of its own. `stored` is the
    array as it must be in the store when tasks write: `array` itself, or a shorter one that is appended to; ``None``
    for an array that is not published yet. `absent`, as of `WriteTask`.
    """
    check_source(x, region_shape(region))
    grid = array.write_layout.grid
    if not grid.aligned(region):
        check_guarded(array.store, array.path, lock)
    chunks = write_chunks(grid, region, x.chunks, array.dtype.itemsize)
    n_regrouped = 0 if chunks == x.chunks else x.npartitions
    if x.size and not compute:
        chunks = grid.within(region).dask_chunks
    if stored is not array:
        declare_arrays([array])
    write = WriteTask(
        array=array,
        start=tuple(cut.start for cut in region),
        blocks=(regions := BlockRegions(chunks)).grid,
        lock=lock,
        write_empty=write_empty,
        stored=stored,
        # unique: dask must not take it for a result that it has
        name=f"write-{array.path.rpartition('/')[2] or 'array'}-{uuid4().hex}",
        client_process=os.getpid(),
        needs=dumps(describe_needs(writes_to([array]), targets=[array])),
        absent=absent,
    )
    if chunks != x.chunks:
        counts = regroup(x, chunks, write, name=write.name, n_results=len(WriteCounts._fields), dtype=array.dtype)
    else:
        index = tuple(range(x.ndim))
        counts = blockwise(
            SharedFunction(write),
            (*index, x.ndim),
            x,
            index,
            regions,
            index,
            dtype=np.int64,
            meta=np.empty((0,) * (x.ndim + 1), np.int64),
            adjust_chunks=dict.fromkeys(index, 1),
            new_axes={x.ndim: len(WriteCounts._fields)},
            align_arrays=False,
            name=write.name,
        )
    check_in_place(counts, chunks, array, region)
    return _sum_blocks(counts), n_regrouped


def _sum_blocks(counts: da.Array) -> da.Array:
    """Return the sum of the counts of all blocks as one block."""
    if counts.npartitions == 1:
        return counts
    name = f"written-{uuid4().hex}"
    layer = _sums(name, [(counts.name, *index) for index in product(*map(range, counts.numblocks))])
    graph = HighLevelGraph({**counts.dask.layers, name: layer}, {**counts.dask.dependencies, name: {counts.name}})
    return da.Array(graph, name, ((len(WriteCounts._fields),),), dtype=np.int64, meta=np.empty(0, np.int64))


def _sums(name: str, todo: Sequence[Any]) -> dict[Any, Any]:
    """Return tasks that sum the counts that have the keys `todo`, the last of them as ``(name, 0)``.

    Not `da.sum`, which adds a step to every write, and few results at a time: these are numbers.
    """
    layer: dict[Any, Any] = {}
    while len(todo) > _SUMMED_AT_ONCE:  # no part is a single one, with which dask would fuse its sum
        parts = [todo[part] for part in cut_evenly(len(todo), -(-len(todo) // _SUMMED_AT_ONCE))]
        todo = [(f"{name}-partial", len(layer) + i) for i in range(len(parts))]
        layer |= {key: Task(key, _sum, *map(TaskRef, part)) for key, part in zip(todo, parts, strict=True)}
    layer[name, 0] = Task((name, 0), _sum, *map(TaskRef, todo))
    return layer


_SUMMED_AT_ONCE = 64


def _sum(*counts: Counts) -> NDArray[np.int64] | ChangedCounts:
    """Return the sum of counts; changes of a transaction are merged here, in a tree of tasks on the workers."""
    blocks = [finished(each).ravel() for each in counts]
    total = WriteCounts.of(np.concatenate([*blocks, np.empty(0, np.int64)])).as_block(0)
    return with_changes(total, counts)


def run(
    counts: Sequence[da.Array],
    finish: Callable[..., T],
    *,
    compute: bool,
    arrays: Sequence[StoredArray] = (),
    regions: Sequence[Region] = (),
) -> T | Delayed:
    """Compute the results of `write_graph` for `arrays` and return ``finish(*computed)``, or a `Delayed` that does so.

    In the graph of the `Delayed`, the key of each task that writes holds the store key. Not by
    ``delayed(finish)(*counts)``, which would hide the arrays from dask's fusion and double their graph.
    """
    if compute:
        with abandon_on_error(counts), remove_partial_files(arrays):
            return _finished(finish, *_computed(counts, arrays))
    for array in arrays:
        if array.store.commits:
            msg = f"compute=False: {array.store.url} is committed when this call ends: compute now, or give a session "
            raise ValueError(msg + "of the repository, and commit it when all is computed")
    name = f"written-{uuid4().hex}"
    arranged = optimize(*counts)
    layer: dict[Any, Any] = dict(HighLevelGraph.merge(*(each.dask for each in arranged)))
    totals = [f"{name}-{i}" for i in range(len(arranged))]
    for total, each, array, region in zip(totals, arranged, arrays, regions, strict=True):
        written = list(_pop_sums(layer, (each.name, *(0 for _ in each.numblocks))))
        own = [(written[0][0], key) for key in array.keys(region)]  # none, of an empty region
        for old, key in zip(written, own, strict=False):
            task = layer.pop(old)
            if type(task) is Alias:  # dask has fused it with what it writes
                task = layer.pop(task.target)
            task.key = key  # in place, since no other graph has it
            layer[key] = task
        layer |= _sums(total, own)
    layer[name] = Task(name, partial(_finished, finish), *(TaskRef((total, 0)) for total in totals))
    return Delayed(name, HighLevelGraph.from_collections(name, layer))


def _pop_sums(graph: dict[Any, Any], key: Any) -> Iterator[Any]:
    """Remove the sums that lead to `key`, and yield the keys of the tasks that write, in order."""
    if getattr(graph[key], "func", None) is not _sum:
        yield key
        return
    for ref in graph.pop(key).args:
        yield from _pop_sums(graph, ref.key)


def _finished(finish: Callable[..., T], *counts: NDArray[np.int64] | ChangedCounts) -> T:
    return finish(*map(applied, counts))


def write_appended(values: da.Array, array: StoredArray, region: Region, *, stored: StoredArray) -> None:
    """Write the values of `Array.append` into `region` of the longer `array`, which is not published yet.

    `stored` is the array as its document describes it.
    """
    check_writers([array])
    counts, _ = write_graph(values, array, region, lock=automatic_lock, stored=stored)
    run([counts], lambda *_: None, compute=True, arrays=[array])
    sync_other_machines([array.store], Scheduler().client, f"append to {array.path!r} in {array.url}")


def _computed(counts: Sequence[da.Array], arrays: Sequence[StoredArray]) -> Sequence[NDArray[np.int64] | ChangedCounts]:
    if not counts:  # a dataset without dask arrays
        return []
    scheduler = Scheduler()
    if scheduler.client is not None:
        name = f"write to {_shown(arrays)}"
        with scheduler_needed(scheduler.client, name), scheduler.span(name):
            return compute_all(*counts)  # type: ignore[no-any-return]
    keys = [(c.name, *(0 for _ in c.numblocks)) for c in counts]
    graph = HighLevelGraph.merge(*(c.dask for c in counts))
    tasks = optimised(graph, keys)
    if scheduler.in_process and not any(array.store.is_remote for array in arrays):
        tasks = _grouped(tasks, scheduler.threads_per_worker)
    return scheduler.compute(tasks, keys)


def _grouped(graph: dict[Any, Any], n_threads: int) -> dict[Any, Any]:
    """Return the graph with neighbouring writes that wait for no other task in one, for dask takes 60 µs a task."""
    sums = [task for task in graph.values() if isinstance(task, Task) and task.func is _sum]
    keys = {ref.key for task in sums for ref in task.args if type(ref) is TaskRef}
    ready = {key for key in keys if not graph[key].dependencies}
    size = min(_WRITES_TOGETHER, len(ready) // (_GROUPS_A_THREAD * n_threads))
    for task in sums if size > 1 else ():
        own = [ref.key for ref in task.args if ref.key in ready]
        rest = [ref for ref in task.args if ref.key not in ready]
        for group in (own[i : i + size] for i in range(0, len(own), size)):
            rest.append(TaskRef(group[0]))
            graph[group[0]] = Task(group[0], _sum, *map(graph.pop, group))
        graph[task.key] = Task(task.key, _sum, *rest)
    return graph


_GROUPS_A_THREAD = 32  # so that threads end together
_WRITES_TOGETHER = 8  # more would gain little, and progress bars would stand still


def _shown(arrays: Sequence[StoredArray]) -> str:
    paths = sorted({array.path for array in arrays} - {""})
    shown = f"{paths[0]!r} in " if len(paths) == 1 else f"{len(paths)} arrays in " if paths else ""
    return shown + ", ".join(sorted({array.url for array in arrays}))


def report(array: StoredArray, counts: WriteCounts | NDArray[np.int64], n_regrouped: int) -> WriteReport:
    """Return the `WriteReport` of a write to `array`, of its counts or of the block that its graph computes."""
    own = WriteCounts.of(counts) if isinstance(counts, np.ndarray) else counts
    guard = "version" if array.store.compares_versions else "lock"
    return WriteReport(*own[:4], n_regrouped, guard, n_retried=own.n_retried, seconds_waited=own.waited / 1e9)
