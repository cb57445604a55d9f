"""Rechunk the arrays of a job whose chunks change: strategy, stages of tasks, estimates.

Metadata, and arrays whose chunks stay, are handled by `chunkmill.conversion.convert_job`. Not here: which task reads
and writes which region (`chunkmill.conversion.rechunking.plan`), what a task does
(`chunkmill.conversion.rechunking.intermediate_files`, `chunkmill.conversion.rechunking.target_chunks`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dask.utils import format_bytes

from chunkmill.array.stored_array import StoredArray
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
from chunkmill.conversion.rechunking.plan import RechunkPlan, choose_rechunk_strategy
from chunkmill.conversion.rechunking.source_chunks import (
    Slices,
    sliced_axes,
)
from chunkmill.conversion.rechunking.strategies import Limits, Side, Strategy, UnitCosts
from chunkmill.conversion.rechunking.target_chunks import writes_at_once, writing_bytes
from chunkmill.errors import JobError
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store

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


def plan_array_rechunk(
    source: StoredArray,
    target: StoredArray,
    worker: Worker,
    store: Store,
    strategy: Strategy | None = None,
) -> RechunkPlan:
    """Choose how one array gets the chunks of `target`.

    Parameters
    ----------
    store
        Of intermediate files, in which each value has a place: none of variable length.
    strategy
        Consider only this one.

    Raises
    ------
    JobError
        The array has no place in intermediate files, which `strategy` asks for.
    """
    if strategy == "spill" and source.dtype.kind in "OT":
        reason = "values of variable length have no place in intermediate files: leave strategy= out"
        raise JobError(job=f"rechunk {source.path!r}", reason=reason)
    ahead_bytes = worker.ahead_bytes if store.is_remote else 0
    for overhead in thread_overheads(source, target):
        plan = choose_rechunk_strategy(
            read_side(source, worker),
            write_side(target, worker),
            itemsize(source),
            Limits(worker.max_mem, worker.n_threads, worker.n_workers, overhead_bytes=overhead),
            costs=store_costs(source.store, store, target.store),
            strategy="direct" if source.dtype.kind in "OT" else strategy,
            ahead_bytes=ahead_bytes,
            slices=sliced_sides(source, worker),
        )
        if plan.estimate.peak_bytes <= worker.max_mem:
            break
    if not source.read_layout.n_cut:
        return plan
    decoded = plan.estimate.n_chunk_reads * chunk_bytes(source, source.read_layout)  # whole, for a region of them
    return replace(plan, estimate=replace(plan.estimate, decoded_bytes=decoded))


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
        ratio = f"{other.seconds / estimate.seconds:.2g}" if estimate.seconds else "1"
        times = f"{ratio} times as long" if ratio != "1" else "as long"
        name = other.strategy if other.strategy != estimate.strategy else f"{other.strategy} with whole chunks"
        text += f"; {name} would take {times}, reading the source {_times(other.amplification)}"
    return text
