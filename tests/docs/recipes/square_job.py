"""Square an array into a new one, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chunkmill.squaring.plan import plan_tasks

from chunkmill.array.chunk_io import read_region, write_chunk
from chunkmill.array.stored_array import StoredArray, metered
from chunkmill.display.report import ReportMixin
from chunkmill.jobs.job import Job, run_job
from chunkmill.jobs.sources import see_sources
from chunkmill.jobs.work import Tasks, Work
from chunkmill.nodes import opening
from chunkmill.nodes.api import NodeLocation, open_source, open_target
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.target import Target
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.worker_memory import Worker, current_worker
from chunkmill.stores.wrapper import Meter

__all__ = ["SquareReport", "square"]

_CHUNKS_A_TASK = 4


@dataclass(frozen=True, slots=True, repr=False)
class SquareReport(ReportMixin):
    """What `square` did."""

    n_tasks: int
    n_resumed: int
    n_keys: int

    def _title(self) -> str:
        return "square: done"

    def _facts(self) -> list[tuple[str, str]]:
        return [("tasks", f"{self.n_tasks:,}"), ("store keys", f"{self.n_keys:,}")]


@dataclass(frozen=True, kw_only=True)
class Squaring(Work):
    """The squares of an array."""

    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> SquareTasks:
        """Return one task for some chunks, on any workers."""
        array = self.sources[0].array
        tasks = plan_tasks(array.write_layout.grid.n_chunks, _CHUNKS_A_TASK)
        return SquareTasks(numbered=tasks, task_bytes=4 * array.nbytes // array.write_layout.grid.n_chunks, array=array)


@dataclass(frozen=True, kw_only=True)
class SquareTasks(Tasks):
    """Tasks that square chunks."""

    array: StoredArray

    def stages(self, target: Target, *, fresh: bool) -> list[Stage]:
        """Return the only stage."""
        return [Stage("square", square_chunks, (self.array, *target.arrays), self.numbered)]


def square(source: NodeLocation, target: NodeLocation, *, resume: bool = True) -> SquareReport:
    """Write the squares of the array `source` to a new array, on the current dask scheduler or Client."""
    array = open_source(source)
    if not isinstance(array, StoredArray):
        raise TypeError(f"{array!r} is not an array")
    store, path, _ = open_target(target)
    new = opening.array_at(store, path, array.metadata, array.format)

    work = Squaring(
        operation="square",
        name=f"square to {store.url}/{path}",
        sources=see_sources([array]),
        target=Target(store, new.path, format_of_store(store, array.format), [new]),
    )
    job = Job.fitted(work, current_worker())
    result = run_job(job, resume=resume)
    return SquareReport(sum(stage.n_tasks for stage in result.stages), result.n_resumed, result.counts.get("n_keys", 0))


def square_chunks(arrays: tuple[StoredArray, StoredArray], task: tuple[int, int]) -> TaskResult:
    """Square the chunks of one task."""
    meter = Meter()
    source, target = (metered(one, meter) for one in arrays)
    grid = source.write_layout.grid
    for number in range(*task):
        coords = grid.coords_of(number)
        write_chunk(target, coords, read_region(source, grid.region(coords)) ** 2)
    return TaskResult.of(meter, n_keys=task[1] - task[0])
