"""CPU of a cluster's scheduler for each task, and its memory, with 10, 50 and 200 workers that do nothing.

The scheduler has a process of its own, which is what is measured, less what it takes for as long without tasks; all
workers share another one. Jobs submit the tasks of their real plans, whose function is replaced by one that does
nothing; reads and writes run as they are, on a store that makes values up and drops them. The baseline are Dask's own
graphs of the same shape, whose tasks do nothing: as many independent ones for each stage of a job, ``zeros`` for reads,
which are summed for writes. Tasks that end at once are reported by workers several in one message, so that Dask's own
tasks of 0.1 ms cost the scheduler more than empty ones: they are compared with the stages of jobs.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any
from uuid import uuid4

import dask.array as da
from dask._task_spec import Task
from dask.utils import key_split
from distributed import Client, wait

import chunkmill as cm
from benchmarks import harness
from benchmarks.harness import Row
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, TaskResult, count_tasks
from chunkmill.runtime.stage_runner import JobMonitor, run_stages
from chunkmill.stores.local import LocalStore

N_WORKERS = (10, 50, 200)
EMPTY = "empty tasks of Dask"
BRIEF = "Dask's tasks of 0.1 ms"
MEMORY = "memory of the scheduler"
CASES = ("convert", "rechunk", "read", "write", MEMORY)
LARGE = 64 << 20  # bytes of a chunk that has a task of its own
MOST = 1.2
MOST_MEMORY = 1.1
N_MEMORY = 10_000  # tasks of one submission
N_WAVES = 3
# The low-level logs, of some 200 bytes a transition, grow until they have 100,000 entries each. What every worker looks
# at by itself (the stacks of its threads 100 times a second) is too much for one process with 200 of them.
_SETTINGS = {
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "100",
    "DASK_LOGGING__DISTRIBUTED": "warning",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
}
_LAST_MESSAGES = 0.3  # seconds: of each task's release, which were counted with the next contender


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    results = []
    for n_workers in N_WORKERS[:1] if quick else N_WORKERS:
        if not any(re.search(harness.ONLY, name(n_workers, case)) for case in CASES):
            continue
        with tempfile.TemporaryDirectory() as folder, idle_cluster(n_workers) as client:
            results += bench_cluster(client, n_workers, Path(folder), n_tasks=100 if quick else 800, quick=quick)
            if n_workers == N_WORKERS[0] and re.search(harness.ONLY, name(n_workers, MEMORY)):
                results.append(memory_of_waves(client, n_workers, Path(folder), n_tasks=100 if quick else N_MEMORY))
    return results


def name(n_workers: int, case: str) -> str:
    return f"{n_workers} workers, {case}"


def bench_cluster(client: Client, n_workers: int, folder: Path, *, n_tasks: int, quick: bool) -> list[Row]:
    results = []
    scheduler = SchedulerProcess(client)
    for case, (ours, *theirs) in cases(client, folder, n_tasks).items():
        if not re.search(harness.ONLY, name(n_workers, case)):
            continue
        order = [("chunkmill", ours), *zip((EMPTY, BRIEF), theirs, strict=False)]
        cpu: dict[str, list[float]] = {contender: [] for contender, _ in order}
        counts: dict[str, dict[str, float]] = {contender: {} for contender, _ in order}
        for i in range(-1, harness.rounds(quick)):
            for contender, function in order if i % 2 else order[::-1]:
                found = scheduler.measure(function)
                if i >= 0:
                    cpu[contender].append(found["cpu"] / found["n_tasks"])
                    counts[contender] = found
        limit = {"chunkmill": (EMPTY, MOST)}
        results += harness.rows("clusters", name(n_workers, case), cpu, baseline=EMPTY, targets=limit, counts=counts)
    return results


# --- a cluster, and its scheduler


@contextmanager
def idle_cluster(n_workers: int) -> Iterator[Client]:
    """Start a scheduler in one process and workers of one thread in another, and connect to them."""
    options = {"nthreads": 1, "dashboard": False, "memory_limit": 0}
    workers = {str(i): {"cls": "distributed.Worker", "opts": {**options, "name": str(i)}} for i in range(n_workers)}
    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "scheduler.json"
        command = ["distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        stack.enter_context(process(command))
        while not file.exists():
            time.sleep(0.05)
        client = stack.enter_context(Client(scheduler_file=str(file)))
        stack.enter_context(process(["dask", "spec", client.scheduler.address, "--spec", json.dumps(workers)]))
        client.wait_for_workers(n_workers)
        yield client


@contextmanager
def process(command: Sequence[str]) -> Iterator[None]:
    root = Path(__file__).parents[1]
    started = Popen([sys.executable, "-m", *command], env=os.environ | _SETTINGS, cwd=root, stderr=DEVNULL)
    try:
        yield
    finally:
        started.kill()
        started.wait()


class SchedulerProcess:
    """CPU and memory of the scheduler's process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        client.wait_for_workers(1)
        self._until_forgotten()
        before, start = self.cpu(), time.perf_counter()
        time.sleep(3)
        self.idle = (self.cpu() - before) / (time.perf_counter() - start)

    def cpu(self) -> float:
        return float(self._client.run_on_scheduler(time.process_time))

    def resident_peak(self) -> int:
        return int(self._client.run_on_scheduler(harness.resident_peak))

    def measure(self, function: Callable[[], Any]) -> dict[str, float]:
        """Return CPU seconds, above those of an idle scheduler, and the number of tasks that workers have finished."""
        before, begun, start = self.cpu(), self._client.run_on_scheduler(_n_finished), time.perf_counter()
        function()
        self._until_forgotten()
        seconds = time.perf_counter() - start
        cpu = self.cpu() - before - self.idle * seconds
        return {
            "cpu": cpu,
            "seconds": seconds,
            "n_tasks": self._client.run_on_scheduler(_n_finished) - begun,
        }

    def _until_forgotten(self) -> None:
        """Wait until the scheduler has forgotten the tasks, and heard from the workers that they have, too."""
        while self._client.run_on_scheduler(_n_known):
            time.sleep(0.05)
        time.sleep(_LAST_MESSAGES)


def _n_known(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def _fill_cache_of_names() -> None:
    for i in range(100_000):
        key_split((f"filler-{i:032x}", i, f"a/{i}.0"))


def _n_finished(dask_scheduler: Any) -> int:
    return sum(prefix.state_counts["memory"] for prefix in dask_scheduler.task_prefixes.values())


# --- what it is asked to run


def cases(client: Client, folder: Path, n_tasks: int) -> dict[str, tuple[Callable[[], Any], ...]]:
    """Return, by name, what submits our tasks and what submits as many of Dask's: empty ones, those of 0.1 ms."""
    rows = cm.create_array(folder / "rows", "a", shape=(n_tasks, LARGE), dtype="u1", chunks=(1, LARGE))
    many = cm.create_array(folder / "many", "a", shape=(2 * n_tasks, LARGE), dtype="u1", chunks=(1, LARGE))
    columns = (2 * n_tasks, -(-LARGE // (2 * n_tasks)))
    convert = cm.plan_convert(rows, (folder / "convert", "a"), format="zarr2", codecs="gzip")
    rechunk = cm.plan_rechunk(many, (folder / "rechunk", "a"), chunks=columns, strategy="spill", max_mem="1 GiB")
    store = MadeUp(folder / "small")
    small = cm.create_array(store, "a", shape=(n_tasks, 8), dtype="u1", chunks=(1, 8), codecs="raw")
    zeros = da.zeros((n_tasks, 8), dtype="u1", chunks=(1, 8))
    return {
        "convert": (
            lambda: run_stages(idle_stages(convert), JobMonitor("convert"), Scheduler()),
            lambda: run_of_dask(client, convert, 0),
            lambda: run_of_dask(client, convert, 1e-4),
        ),
        "rechunk": (
            lambda: run_stages(idle_stages(rechunk), JobMonitor("rechunk"), Scheduler()),
            lambda: run_of_dask(client, rechunk, 0),
            lambda: run_of_dask(client, rechunk, 1e-4),
        ),
        "read": (lambda: wait(cm.from_store(store, small.path).persist()), lambda: wait(zeros.persist())),
        "write": (
            lambda: cm.to_store(zeros, MadeUp(folder / uuid4().hex), "a", codecs="raw"),
            lambda: zeros.sum(split_every={0: 64, 1: 1}).compute(),
        ),
    }


def idle_stages(plan: cm.Plan) -> list[Stage]:
    """Return the stages of a plan with all of their tasks, which do nothing."""
    return [replace(stage, function=nothing, touched={}) for stage in plan.job.stages(plan.job.target)]


def nothing(common: Any, spec: Any) -> TaskResult:  # noqa: ARG001 - as the functions of stages
    return TaskResult({"n_keys": 1, "bytes_read": LARGE, "bytes_written": LARGE})


def run_of_dask(client: Client, plan: cm.Plan, seconds: float) -> None:
    """Run as many tasks of Dask for each stage of a plan, one stage after the other."""
    call = (time.sleep, seconds) if seconds else (int, 0)
    for stage in idle_stages(plan):
        name = f"empty-{uuid4().hex}"
        keys = [(name, i) for i in range(count_tasks(stage))]
        client.get({key: Task(key, *call) for key in keys}, keys)


class MadeUp(LocalStore):
    """Files, but for chunks: each has the same value, and none is written."""

    def get(self, key: str, byte_range: Any = None) -> bytes | None:
        return bytes(8) if "/c/" in key else super().get(key, byte_range)

    def set(self, key: str, value: Any) -> None:
        if "/c/" not in key:
            super().set(key, value)

    def set_if(self, key: str, value: Any, version: str | None) -> bool:
        return True if "/c/" in key else super().set_if(key, value, version)


def memory_of_waves(client: Client, n_workers: int, folder: Path, *, n_tasks: int = N_MEMORY) -> Row:
    """Return the scheduler's memory after a job of one submission, and after one of several.

    Dask keeps the names of the last 100,000 tasks, some 0.6 kB each, of every client: they are made before.
    """
    scheduler = SchedulerProcess(client)
    client.run_on_scheduler(_fill_cache_of_names)
    peaks = {}
    for n in (1, N_WAVES):
        url = folder / f"waves-{n}"
        source = cm.create_array(url, "a", shape=(n * n_tasks, LARGE), dtype="u1", chunks=(1, LARGE))
        plan = cm.plan_convert(source, (folder / f"target-{n}", "a"), format="zarr2", codecs="gzip")
        seconds = scheduler.measure(
            lambda plan=plan: run_stages(idle_stages(plan), JobMonitor("convert"), Scheduler())
        )["seconds"]
        peaks[n] = scheduler.resident_peak()
    row = Row("clusters", name(n_workers, MEMORY), f"{N_WAVES} waves", [seconds])
    row.counts = {"peak_1": peaks[1], f"peak_{N_WAVES}": peaks[N_WAVES]}
    grown = peaks[N_WAVES] / peaks[1]
    row.target, row.met = f"{grown:.2f} of one wave, target {MOST_MEMORY:.2f}", grown <= MOST_MEMORY
    return row


# --- as tests


def test_cases_have_the_number_of_tasks_that_they_are_compared_with(tmp_path):
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0") as client:
        scheduler = client.cluster.scheduler
        found = cases(client, tmp_path, 64)
        assert (*found, MEMORY) == CASES
        for functions in found.values():
            counts = []
            for function in functions:
                before = _n_finished(scheduler)
                function()
                counts.append(_n_finished(scheduler) - before)
            assert max(counts) - min(counts) <= 3  # those that all tasks share


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
