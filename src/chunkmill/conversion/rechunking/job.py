"""Rechunk the arrays of a job whose chunks change: strategy, stages of tasks, estimates.

Metadata, and arrays whose chunks stay, are handled by `chunkmill.conversion.convert_job`. Not here: which task reads
and writes which region (`chunkmill.conversion.rechunking.plan`), what a task does
(`chunkmill.conversion.rechunking.intermediate_files`, `chunkmill.conversion.rechunking.target_chunks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any

from dask.utils import format_bytes

from chunkmill.array.present_keys import NO_BLOCKS
from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.registry import build_pipeline, default_serializer
from chunkmill.conversion.array_plan import ArrayPlan
from chunkmill.conversion.estimate import (
    TransferEstimate,
    chunk_bytes,
    index_size,
    itemsize,
    most_encoded,
    n_decoding,
    stored_bytes,
    thread_overheads,
)
from chunkmill.conversion.rechunking.intermediate_files import write_inputs, write_intermediate_file
from chunkmill.conversion.rechunking.plan import RechunkPlan, choose_rechunk_strategy
from chunkmill.conversion.rechunking.source_chunks import (
    ArrayRechunk,
    Slices,
    sliced_axes,
    spill_inputs,
    spill_shows,
    write_shows,
)
from chunkmill.conversion.rechunking.strategies import IntermediateFormat, Limits, Side, Strategy, UnitCosts
from chunkmill.conversion.rechunking.target_chunks import write_target_block, writes_at_once, writing_bytes
from chunkmill.conversion.source_listing import Listed, n_left_out, narrowed, reads_little_twice, touched_blocks
from chunkmill.errors import JobError
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import NamedConfig
from chunkmill.runtime.stage import MAX_TASK_BYTES, MAX_TASK_KEYS, Stage, TaskSpecs
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store


@dataclass(frozen=True, slots=True)
class Settings:
    """Workers, memory and intermediate files of a job.

    Attributes
    ----------
    worker
        The workers that run the tasks.
    intermediate
        The store for intermediate files; the target's when ``None`` (a zip file's folder).
    compress
        Whether intermediate files are compressed (lz4).
    strategy
        Consider only this one.
    """

    worker: Worker
    intermediate: Store | None = None
    compress: bool = False
    strategy: Strategy | None = None

    def separate_store(self, target: Store) -> Store | None:
        """Return the store for intermediate files, where it is not the target's."""
        scratch = target.scratch()
        return scratch if self.intermediate is None and scratch is not target.innermost else self.intermediate


# --------------------------------------------------------------------------------------------------------------------
# Arrays, stores and intermediate files, as the planner sees them


def read_side(array: StoredArray, worker: Worker) -> Side:
    """Describe the source: memory to fetch and decode one of its chunks."""
    layout = array.read_layout
    ahead = worker.ahead_bytes if array.store.is_remote else 0
    working = most_encoded(array, layout) + chunk_bytes(array, layout) * n_decoding(layout.codecs)
    return Side(array.write_layout.grid, layout.grid, working, ahead, is_sharded=layout is not array.write_layout)


def sliced_sides(array: StoredArray, worker: Worker) -> tuple[Side, ...]:
    """Describe the source as slices of its chunks, along each axis that allows them."""
    whole, found = read_side(array, worker), []
    for axis in sliced_axes(array):
        slices = Slices(array, axis)
        working = slices.largest * (1 + n_decoding(array.read_layout.codecs))
        found.append(replace(whole, chunks=slices.grid, working_bytes=working, sliced=axis))
    return tuple(found)


def write_side(array: StoredArray, worker: Worker) -> Side:
    """Describe the target: memory to encode and store the values of as many keys as are stored at once."""
    grid = array.write_layout.grid
    return Side(grid, grid, writing_bytes(array) * max(1, writes_at_once(array, worker.ahead_bytes)))


def intermediate_codecs(array: StoredArray, *, compress: bool) -> CodecPipeline | None:
    """Return the codecs of sections in intermediate files, ``None`` where they are raw."""
    is_variable = array.dtype.kind in "OT"
    if not is_variable and not compress:
        return None
    chain = (default_serializer(array.dtype), NamedConfig("numcodecs.lz4", {"acceleration": 1}))
    if array.dtype.kind == "O":  # only the array's own codecs know what the objects are
        return array.read_layout.codecs
    return build_pipeline(chain, ChunkSpec((1,) * array.ndim, array.dtype, array.fill_value))


def intermediate_files(store: Store, codecs: CodecPipeline | None, worker: Worker) -> IntermediateFormat:
    """Describe intermediate files in `store`."""
    ahead = worker.ahead_bytes if store.is_remote else 0
    return IntermediateFormat("raw" if codecs is None else "coded", ahead, int(store.is_remote))


_REMOTE_REQUEST = 5e-3  # 40 ms each, eight at once
_REMOTE_BYTE = 1e-8  # 100 MB/s for each thread
_REMOTE_TASK = 0.16  # four requests one after the other: its record, its first value, its last, its record


def read_costs(*, is_remote: bool) -> UnitCosts:
    """Return the unit costs of a source, of which requests cost latency or not; all others are local."""
    return UnitCosts(decoded_byte=_REMOTE_BYTE, source_request=_REMOTE_REQUEST) if is_remote else UnitCosts()


def store_costs(source: Store, intermediate: Store, target: Store) -> UnitCosts:
    """Return the unit costs of requests and bytes with these stores."""
    costs = read_costs(is_remote=source.is_remote)
    if intermediate.is_remote:
        costs = replace(costs, intermediate_byte=2 * _REMOTE_BYTE, intermediate_request=_REMOTE_REQUEST)
    if target.is_remote:
        costs = replace(costs, written_byte=_REMOTE_BYTE, target_request=_REMOTE_REQUEST, task=_REMOTE_TASK)
    return costs


# --------------------------------------------------------------------------------------------------------------------
# Jobs


def plan_array_rechunk(source: StoredArray, target: StoredArray, settings: Settings) -> RechunkPlan:
    """Choose how one array gets the chunks of `target`.

    Raises
    ------
    JobError
        Memory does not suffice; names the array, and the memory that would.
    """
    worker, store = settings.worker, settings.separate_store(target.store) or target.store
    files = intermediate_files(store, intermediate_codecs(source, compress=settings.compress), worker)
    for overhead in thread_overheads(source, target):
        try:
            plan = choose_rechunk_strategy(
                read_side(source, worker),
                write_side(target, worker),
                itemsize(source),
                Limits(worker.max_mem, worker.n_threads, worker.n_workers, overhead_bytes=overhead),
                costs=store_costs(source.store, store, target.store),
                strategy=settings.strategy,
                intermediate=files,
                slices=sliced_sides(source, worker),
            )
            break
        except JobError as error:
            refused = JobError(job=f"{error.job} {source.path!r}", reason=error.reason, hint=error.hint)
    else:
        raise refused
    if not source.read_layout.n_cut:
        return plan
    decoded = plan.estimate.n_chunk_reads * chunk_bytes(source, source.read_layout)  # whole, for a region of them
    return replace(plan, estimate=replace(plan.estimate, decoded_bytes=decoded))


def rechunk_stages(
    plans: Sequence[ArrayPlan], rechunks: Sequence[ArrayRechunk | None], listed: Listed = MappingProxyType({})
) -> list[Stage]:
    """Return the stages that rechunk arrays: one that spills, where an array does, and one that writes.

    `rechunks` has an entry for each array of `plans`, ``None`` for those whose chunks stay; `listed` names the store
    keys that there are of some arrays.
    """
    by_key = {
        which for which in listed if rechunks[which] is not None and reads_little_twice(plans[which], listed[which])
    }
    common = tuple(
        each if each is None else replace(each, by_key=which in by_key) for which, each in enumerate(rechunks)
    )
    files, blocks = [plan.n_intermediate_files for plan in plans], [plan.n_target_blocks for plan in plans]
    grids = {i: plan.rechunk for i, plan in enumerate(plans) if plan.rechunk is not None}
    into_files = {i: plan.files for i, plan in grids.items() if plan.reads is not None}
    filled = touched_blocks(plans, listed, into_files, of_target=False)
    filled |= dict.fromkeys(by_key & into_files.keys(), NO_BLOCKS)
    written = touched_blocks(plans, listed, {i: plan.writes for i, plan in grids.items()})
    both = written.keys() & (filled.keys() | grids.keys() - into_files.keys())  # else blocks would miss files
    filled, written = ({i: each[i] for i in each.keys() & both} for each in (filled, written))
    n_absent = sum(n_left_out(each, grids[i].writes, plans[i].target.write_layout.grid) for i, each in written.items())
    spill = Stage(
        "rechunk-spill",
        write_intermediate_file,
        common,
        TaskSpecs.counted(files),
        spill_shows,
        _share(into_files, plans),
        narrow=narrowed(filled),
        inputs=spill_inputs,
        files=next((each.intermediate for each in rechunks if each is not None), None),
    )
    write = Stage(
        "rechunk-write",
        write_target_block,
        common,
        TaskSpecs.counted(blocks),
        write_shows,
        _share({i: plan.writes for i, plan in grids.items()}, plans),
        narrow=narrowed(written),
        left_out={"n_keys": n_absent, "action_absent": n_absent} if n_absent else {},
        inputs=write_inputs,
    )
    return [spill, write] if any(files) else [write]


def _share(blocks: Mapping[int, ChunkGrid], plans: Sequence[ArrayPlan]) -> Callable[[object, Any], float] | None:
    """Return the fraction of one task's budget that a block uses, where there are so many that small ones share tasks.

    As of 10^5 small arrays: a scheduler takes some 3 ms for a task, such a block 1 ms.
    """
    per_task = min(MAX_TASK_KEYS, sum(grid.n_chunks for grid in blocks.values()) // _MANY_TASKS)
    if per_task <= 1:
        return None
    budget = MAX_TASK_BYTES // 4
    shares = {
        which: max(prod(grid.chunk_shape) * itemsize(plans[which].source) / budget, 1 / per_task)
        for which, grid in blocks.items()
    }
    return lambda _, spec: shares[spec[0]]


_MANY_TASKS = 1024


def estimate_rechunk(source: StoredArray, target: StoredArray, plan: RechunkPlan) -> dict[str, TransferEstimate]:
    """Return the estimated bytes and requests of each stage, by its name."""
    estimate = plan.estimate
    if plan.source.sliced is None:
        read = stored_bytes(source, source.read_layout, estimate.n_chunk_reads, estimate.decoded_bytes)
    else:
        read = Slices(source, plan.source.sliced).stored_bytes(estimate.decoded_bytes)
    read += estimate.n_index_reads * index_size(source.write_layout)
    written = stored_bytes(target, target.read_layout, target.read_layout.grid.n_chunks, estimate.written_bytes)
    if target.read_layout is not target.write_layout:
        written += target.write_layout.grid.n_chunks * index_size(target.write_layout)
    if plan.reads is None:
        return {"rechunk-write": TransferEstimate(read, written, estimate.n_requests)}
    n_files, intermediate = estimate.n_tasks[0], estimate.intermediate_bytes
    n_spill = estimate.n_chunk_reads + estimate.n_index_reads + n_files
    return {
        "rechunk-spill": TransferEstimate(read, intermediate, n_spill),
        "rechunk-write": TransferEstimate(intermediate, written, estimate.n_requests - n_spill),
    }


def _times(amplification: float) -> str:
    return "once" if f"{amplification:.3g}" == "1" else f"{amplification:.3g} times"


def explain_strategy(plan: RechunkPlan) -> str:
    """Describe the strategy of a plan, and the cost of the other one."""
    estimate = plan.estimate
    text = f"each task owns {plan.writes.chunk_shape} of the target"
    if plan.reads is None:
        text += f" and reads what is under it, {_times(estimate.amplification)} the source in all"
        if plan.source.sliced is not None:
            mean = format_bytes(estimate.decoded_bytes // max(estimate.n_chunk_reads, 1))
            text += f", in {estimate.n_chunk_reads:,} slices of raw chunks of {mean} on average"
    else:
        file = prod(plan.reads.chunk_shape) * plan.itemsize
        text = f"{estimate.n_tasks[0]:,} files of up to {format_bytes(file)}, then {text}"
    for other in plan.others:
        times = f"{other.seconds / estimate.seconds:.2g} times as long" if estimate.seconds else "as long"
        name = other.strategy if other.strategy != estimate.strategy else f"{other.strategy} with whole chunks"
        text += f"; {name} would take {times}, reading the source {_times(other.amplification)}"
    return text
