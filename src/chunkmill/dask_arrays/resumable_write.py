"""Write a whole array by a job, so that an interrupted write resumes with the blocks that are missing (P7).

Only blocks without a record are computed, and fetched as they are: no worker holds results that would be computed
again, with everything they depend on, if it died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.array import core as da
from dask.array.blockwise import blockwise

from chunkmill.array.selection import full_region, region_shape
from chunkmill.array.stored_array import StoredArray, metered
from chunkmill.array.threads import LockFactory
from chunkmill.dask_arrays.blocks import BlockRegions
from chunkmill.dask_arrays.hazards import check_in_place
from chunkmill.dask_arrays.regroup import write_chunks
from chunkmill.dask_arrays.write import WriteReport, report
from chunkmill.dask_arrays.write_task import WriteCounts, write_keys
from chunkmill.jobs.job import Job, run_job
from chunkmill.jobs.work import Tasks, Work
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.user_values import block_as_dtype, checked_block
from chunkmill.nodes.target import Target
from chunkmill.runtime.computed import ComputedStore
from chunkmill.runtime.preflight import writes_to
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.worker_memory import Worker, current_worker
from chunkmill.stores.wrapper import Meter


@dataclass(frozen=True, kw_only=True)
class GraphWrite(Work):
    """Write of a Dask array; `lock` is of the target's store keys."""

    values: da.Array
    lock: LockFactory

    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> GraphTasks:  # noqa: ARG002
        """Return a task for each block of whole store keys, the same on all workers."""
        x, (array,) = self.values, self.target.arrays
        where = full_region(array.shape)
        chunks = write_chunks(array.write_layout.grid, where, x.chunks, array.dtype.itemsize)
        values = x if chunks == x.chunks else x.rechunk(chunks, method="tasks")
        axes: tuple[int, ...] = tuple(range(x.ndim))
        options: Any = {"new_axes": {x.ndim: 1}, "dtype": int, "meta": np.empty((0,) * (x.ndim + 1))}
        check_in_place(blockwise(_write_block, (*axes, x.ndim), values, axes, **options), chunks, array, where)
        blocks = BlockRegions(chunks).grid
        return GraphTasks(numbered=chunks, values=ComputedStore(values), blocks=blocks, lock=self.lock)

    def identity(self) -> tuple[Any, ...]:
        """Return name, chunks and dtype of the Dask array."""
        return self.values.name, self.values.chunks, self.values.dtype

    @property
    def same_again(self) -> str:
        """Addition to the hint: how a Dask array gets the same name."""
        how = "it has the same name again when it is built in the same way from files or equal values, or with a name="
        return f". A source is identified by its name and chunks, here {self.values.name!r}: {how} or a seed"


@dataclass(frozen=True, kw_only=True)
class GraphTasks(Tasks):
    """Tasks of the write of a Dask array, by number of the block."""

    values: ComputedStore
    blocks: ChunkGrid
    lock: LockFactory

    def stages(self, target: Target, *, fresh: bool) -> list[Stage]:  # noqa: ARG002 - all is written
        """Return the stage."""
        (array,) = target.arrays
        n_blocks = self.blocks.n_chunks if array.size else 0
        return [Stage("write", _write_block, (self, array), range(n_blocks), inputs=_block_read)]


def _block_read(common: tuple[GraphTasks, StoredArray], number: int) -> Iterator[StoreKeys]:
    tasks, _ = common
    yield StoreKeys(tasks.values, "", ["/".join(map(str, ("c", *tasks.blocks.coords_of(number))))])


def _write_block(common: tuple[GraphTasks, StoredArray], number: int) -> TaskResult:
    (tasks, array), meter = common, Meter()
    coords = tasks.blocks.coords_of(number)
    region = tasks.blocks.region(coords)
    block = checked_block(tasks.values.block(coords), coords, region_shape(region))
    counts = write_keys(metered(array, meter), block_as_dtype(block, array.dtype, coords), region, lock=tasks.lock)
    return TaskResult(meter.counts() | counts._asdict(), meter.writes)


def resumable_write(x: da.Array, target: Target, *, lock: LockFactory) -> WriteReport:
    """Write `x` to the one array of the target on the current scheduler; an unfinished write of the same `x` resumes.

    Raises
    ------
    JobError
        The target holds an unfinished job that writes something else.
    """
    (array,) = target.arrays
    work = GraphWrite(operation="to_store", name=writes_to([array]), sources=(), target=target, values=x, lock=lock)
    job = Job.fitted(work, current_worker())
    result = run_job(job, progress=False)
    counts = WriteCounts(*(result.counts.get(each, 0) for each in WriteCounts._fields))
    n_regrouped = 0 if job.tasks.numbered == x.chunks else x.npartitions
    return replace(report(array, counts, n_regrouped), n_resumed=result.n_resumed)
