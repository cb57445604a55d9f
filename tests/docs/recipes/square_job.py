"""Square an array into a new one, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chunkmill.squaring.plan import plan_tasks

from chunkmill.array.chunk_io import read_region, write_chunk
from chunkmill.array.stored_array import StoredArray, metered
from chunkmill.display.report import ReportMixin
from chunkmill.jobs.job import Job, run_job
from chunkmill.journal.names import fingerprint
from chunkmill.nodes import opening
from chunkmill.nodes.api import NodeLocation, open_source, open_target
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.target import Target
from chunkmill.runtime.stage import Stage, TaskResult
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


def square(source: NodeLocation, target: NodeLocation, *, resume: bool = True) -> SquareReport:
    """Write the squares of the array `source` to a new array, on the current dask scheduler or Client."""
    array = open_source(source)
    if not isinstance(array, StoredArray):
        raise TypeError(f"{array!r} is not an array")
    store, path, _ = open_target(target)
    new = opening.array_at(store, path, array.metadata, array.format)

    def stages(target: Target) -> list[Stage]:
        tasks = plan_tasks(array.write_layout.grid.n_chunks, _CHUNKS_A_TASK)
        return [Stage("square", square_chunks, (array, *target.arrays), tasks, chunks_read)]

    job = Job(
        name=f"square to {store.url}/{path}",
        target=Target(store, new.path, format_of_store(store, array.format), [new]),
        fingerprint=fingerprint("square", array.url, array.path, array.metadata, _CHUNKS_A_TASK),
        sources=[array],
        stages=stages,
    )
    result = run_job(job, resume=resume)
    return SquareReport(result.n_tasks, result.n_resumed, result.counts.get("n_keys", 0))


def square_chunks(arrays: tuple[StoredArray, StoredArray], task: tuple[int, int]) -> TaskResult:
    """Square the chunks of one task."""
    meter = Meter()
    source, target = (metered(one, meter) for one in arrays)
    grid = source.write_layout.grid
    for number in range(*task):
        coords = grid.coords_of(number)
        write_chunk(target, coords, read_region(source, grid.region(coords)) ** 2)
    return TaskResult.of(meter, n_keys=task[1] - task[0])


def chunks_read(arrays: tuple[StoredArray, StoredArray], task: tuple[int, int]) -> Iterable[tuple[StoredArray, Any]]:
    """Return the store keys that a task reads, so that it is sent the references of these alone."""
    source = arrays[0]
    grid = source.write_layout.grid
    yield source, [key for number in range(*task) for key in source.keys(grid.region(grid.coords_of(number)))]
