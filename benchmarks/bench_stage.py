"""CPU of the tasks of a job's stage that do nothing, in threads, next to Dask's empty tasks of the same graph.

``stage`` runs them as jobs that only read do (`verify`); with a journal, each is recorded too: in memory, and in files.
CPU decides, since threads wait for each other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import dask
from dask._task_spec import DataNode, Task, TaskRef

from benchmarks import harness
from benchmarks.harness import Row
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import Plan
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.stage_runner import JobMonitor, run_stages
from chunkmill.stores.base import Store
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

STAGE, EMPTY = "chunkmill", "empty tasks"
MEMORY, FILES = "chunkmill, journal in memory", "chunkmill, journal in files"
SCHEDULERS = ("sync", "threads")
N_TASKS = 10_000
RESULT = TaskResult({"n_keys": 1, "bytes_written": 1})


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    n_tasks = 1000 if quick else N_TASKS
    found = []
    for scheduler in SCHEDULERS:
        with (
            tempfile.TemporaryDirectory() as folder,
            dask.config.set(scheduler=scheduler, num_workers=harness.N_THREADS),
        ):
            found += bench_stage(scheduler, n_tasks, Path(folder), quick=quick)
    return found


def bench_stage(scheduler: str, n_tasks: int, folder: Path, *, quick: bool) -> list[Row]:
    numbers = count()
    contenders = {
        EMPTY: lambda: run_empty(n_tasks),
        STAGE: lambda: run_stages([stage(n_tasks)], JobMonitor("empty", False), Scheduler()),
        MEMORY: lambda: run_recorded(MemoryStore(), n_tasks),
        FILES: lambda: run_recorded(LocalStore(folder / str(next(numbers))), n_tasks),
    }
    times = harness.alternate(contenders, harness.rounds(quick))
    alone = {name: [each.cpu_alone() for each in own] for name, own in times.items()}
    targets = dict.fromkeys((STAGE, MEMORY, FILES), (EMPTY, 1.0))
    return harness.rows("stage", f"{n_tasks} tasks, {scheduler}, CPU", alone, targets=targets, baseline=EMPTY)


def stage(n_tasks: int) -> Stage:
    return Stage("empty", do_nothing, None, [(0, i, i + 1) for i in range(n_tasks)])


def do_nothing(common: Any, spec: Any) -> TaskResult:  # noqa: ARG001 - as a stage calls it
    return RESULT


def run_recorded(store: Store, n_tasks: int) -> None:
    """Run a stage as a job runs it for the first time, and leave its journal there."""
    journal = Journal(store, Plan("a", "empty", "empty"))
    journal.begin()
    with journal.running():
        run_stages([stage(n_tasks)], JobMonitor("empty", False), Scheduler(), journal=journal)


def run_empty(n_tasks: int) -> None:
    """Run the same graph with tasks that do nothing."""
    shared = TaskRef("shared")
    keys = [("empty", i) for i in range(n_tasks)]
    tasks = {key: Task(key, _nothing, shared, i, [(0, i, i + 1)]) for i, key in enumerate(keys)}
    Scheduler().compute({"shared": DataNode("shared", None), **tasks}, keys)


def _nothing(shared: Any, number: int, specs: Any) -> tuple[Mapping[str, int], list[Any]]:  # noqa: ARG001
    return {}, []


# --- as tests


def test_a_recorded_stage_has_a_record_for_each_task():
    store = MemoryStore()
    with dask.config.set(scheduler="sync"):
        run_recorded(store, 20)
    assert len(Journal(store, Plan("a", "empty", "empty")).records.names()) == 20


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
