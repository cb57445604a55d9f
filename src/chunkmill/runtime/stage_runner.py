"""Run stages of tasks one after the other on the scheduler that dask is set to; the client is the barrier between them.

When a job is resumed, tasks on record are run again where their values are not as recorded, or their inputs have
changed. Progress is shown as bars. Not here: begin and end of the journal (`chunkmill.jobs.job`), what a task does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from dask.utils import format_bytes
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from chunkmill.array.stored_array import StoredArray
from chunkmill.config import setting
from chunkmill.errors import JobCancelled
from chunkmill.journal.heartbeat import Heartbeat
from chunkmill.journal.journal import Journal
from chunkmill.journal.records import Listings, digest_now
from chunkmill.log import LOG
from chunkmill.runtime.cancellation import abandon
from chunkmill.runtime.cluster_tasks import run_and_say_where, scheduler_needed, sync_other_machines
from chunkmill.runtime.preflight import Needs, check_client_workers, check_scheduler, describe_needs
from chunkmill.runtime.scheduler import BlockInputs, Scheduler
from chunkmill.runtime.stage import Stage, count_tasks, tasks_to_run
from chunkmill.runtime.task import AtOnce, LocalStage, PackedStage, add_counts, run_task
from chunkmill.runtime.worker_memory import peak_memory
from chunkmill.stores.base import Changes


def _resumed(journal: Journal, stage: Stage, number: int, on_record: Collection[int], *, redone: bool) -> set[int]:
    """Return the tasks on record that are not done again: their values are there, and their inputs as they were.

    With `redone`, tasks of an earlier stage were done again: those that may depend on them, and cannot tell, are.
    """
    kept = journal.records.forget_false(number, on_record, stage.files)
    inputs, listings, changed = stage.inputs, Listings(), list[int]()
    if inputs is None or not kept:
        return kept
    for (task, specs), (_, record) in zip(
        tasks_to_run(stage, only=kept), journal.records.read_many(number, sorted(kept)), strict=True
    ):
        then = None if record is None else record.reads
        now = None if then is None else digest_now(inputs, stage.common, specs, listings)
        if redone if now is None else now != then:
            changed.append(task)
    journal.records.forget(number, changed)
    return kept - set(changed)


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of a stage in this run; tasks that an earlier client had done are counted in `n_resumed` only."""

    name: str
    n_tasks: int
    n_resumed: int
    seconds: float
    counts: Mapping[str, int]
    details: Sequence[Any] = ()


def run_once(
    stages: Sequence[Stage],
    *,
    name: str,
    arrays: Iterable[StoredArray],
    title: str = "",
    progress: bool | str | None = None,
) -> list[StageResult]:
    """Run stages that only read: without a journal, and checking first that the workers can read `arrays`.

    Parameters
    ----------
    name
        Of the job, in errors: ``"verify"``.
    title
        Of the job on the dashboard; `name` by default.
    """
    scheduler = Scheduler(of_job=True)
    scheduler.check_may_wait(name)
    needs = None
    if not scheduler.in_process and any(len(stage.tasks) for stage in stages):
        needs = describe_needs(name, sources=list(arrays))
        check_workers(scheduler, needs)
    return run_stages(stages, JobMonitor(title or name, progress), scheduler, needs=needs)


def check_workers(scheduler: Scheduler, needs: Needs) -> None:
    """Check that the workers have what they need; `JobError` says which lacks what."""
    if scheduler.client is not None:
        check_client_workers(scheduler.client, needs)
    else:
        check_scheduler(scheduler.get, needs)


def run_stages(
    stages: Sequence[Stage],
    monitor: JobMonitor,
    scheduler: Scheduler,
    *,
    needs: Needs | None = None,
    journal: Journal | None = None,
    done: Collection[tuple[int, int]] = (),
    tasks_at_once: int | None = None,
) -> list[StageResult]:
    """Run stages one after the other: for `run_job`, and without a journal for `run_once`.

    Parameters
    ----------
    monitor
        Hears of the progress, and may cancel.
    needs
        Checked once in every process that takes part.
    journal, done
        Where tasks are recorded, and stage and number of those on record: they are run again where their values are
        not as recorded, or their inputs have changed.
    tasks_at_once
        Most tasks that a process may run at the same time; ``None``: as many as it has threads.
    """
    at_once = None if tasks_at_once is None else AtOnce(tasks_at_once)
    results: list[StageResult] = []
    n_redone = 0
    ran: dict[str, set[str]] = {}
    needed = nullcontext() if scheduler.client is None else scheduler_needed(scheduler.client, monitor.job)
    with needed, monitor.bars:
        for number, stage in enumerate(stages):
            begun = time.perf_counter()
            own = {task for of, task in done if of == number}
            kept = own if journal is None else _resumed(journal, stage, number, own, redone=n_redone > 0)
            n_tasks = count_tasks(stage)
            if stage.touched:
                n_tasks = len(own) + sum(1 for _ in tasks_to_run(stage, own))
            monitor.begin_stage(stage.name, n_tasks, len(kept))
            total = _Total(monitor, dict(stage.left_out))
            here = LocalStage(stage.function, stage.common, journal, number, stage.inputs, stage.files, at_once=at_once)
            with _tasks_running(scheduler, stage, here, ran, needs=needs, monitor=monitor) as run:
                run(tasks_to_run(stage, own), total.add)
                run(tasks_to_run(stage, only=own - kept), total.add)
            if total.n_run and scheduler.in_process:  # it never falls: the tasks need not ask
                add_counts(total.counts, {"peak_memory_bytes": peak_memory()})
            seconds = time.perf_counter() - begun
            n_redone += len(own - kept)
            text = "%s: stage %s ends after %.1f s: %d of %d tasks were done by an earlier run"
            LOG.info(text, monitor.job, stage.name, seconds, len(kept), n_tasks)
            results.append(StageResult(stage.name, n_tasks, len(kept), seconds, total.counts, total.details))
    if journal is not None and scheduler.client is not None:
        sync_other_machines([journal.store] if needs is None else needs.writes, scheduler.client, monitor.job, ran)
    return results


@contextmanager
def _tasks_running(
    scheduler: Scheduler,
    stage: Stage,
    here: LocalStage,
    ran: dict[str, set[str]],
    *,
    needs: Needs | None,
    monitor: JobMonitor,
) -> Iterator[Callable[..., None]]:
    """Yield what runs tasks of a stage: called with their arguments, and what takes their results."""
    attempt = None if here.journal is None else here.journal.heartbeat
    blocks = BlockInputs.of(stage.inputs, stage.common, stage.tasks)
    more: dict[str, Any] = {"shown": stage.show, "check": monitor.check, "waiting": monitor.wait_for}
    if attempt is not None:
        more["before_cancel"] = attempt.end
    packed = None if scheduler.in_process else PackedStage.of(here, needs)

    def run(tasks: Iterable[Any], on_result: Callable[[Any], None]) -> None:
        def take(result: tuple[Any, str, str | None]) -> None:
            found, machine, worker = result
            ran.setdefault(machine, set()).add(worker or "")
            on_result(found)

        if packed is None:
            scheduler.run(stage.name, run_task, replace(here, in_client=True), tasks, on_result, blocks=blocks)
        else:
            function = partial(run_and_say_where, run_task)
            scheduler.run(stage.name, function, packed, tasks, take, blocks=blocks, **more)

    try:
        with scheduler.span(monitor.job):
            yield run
    except BaseException:
        if attempt is not None:
            abandon([attempt.key], scheduler.client)
        raise


class _Total:
    """Sums of the results of a stage's tasks, as they come."""

    def __init__(self, monitor: JobMonitor, counts: dict[str, int]) -> None:
        self.monitor = monitor
        self.counts = counts
        self.details: list[Any] = []
        self.n_run = 0

    def add(self, result: tuple[Mapping[str, int], Sequence[Any], Changes | None]) -> None:
        counts, details, changes = result
        if changes is not None:
            changes.apply()
        add_counts(self.counts, counts)
        self.details.extend(details)
        self.monitor.advance(counts)
        self.n_run += 1


# --------------------------------------------------------------------------------------------------------------------
# Progress: counted by the thread that runs a job, shown as bars, read by other threads


class _Throughput(ProgressColumn):
    """Bytes read and written, and bytes per second since the bar began."""

    def render(self, task: Task) -> Text:
        n_bytes = task.fields["n_bytes"]
        seconds = task.finished_time if task.finished else task.elapsed
        speed = f" {format_bytes(n_bytes / seconds)}/s" if seconds else ""
        return Text(f"{format_bytes(n_bytes)}{speed}", style="progress.download")


class JobMonitor:
    """Counts of a running job, shown as bars, one a stage; and the wish that it stop.

    Parameters
    ----------
    job
        Name of the job.
    show
        ``None``: as configured; ``"auto"`` shows bars in a terminal and in a notebook only.
    """

    def __init__(self, job: str, show: bool | str | None = None) -> None:
        self.job = job
        self.is_cancelled = False
        self._attempt: Heartbeat | None = None
        self._begun = self._stage_begun = time.perf_counter()
        self._stage, self._n_resumed, self._n_done, self._n_tasks = "", 0, 0, 0
        self._n_bytes = self._n_stage_bytes = 0
        self._waits_for = ""
        show = setting("progress", show)
        console = Console(stderr=True)
        if show == "auto":
            # rich draws in notebooks through ipywidgets, and complains where there are none
            show = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        whole = Column(no_wrap=True)
        self.bars = Progress(
            TextColumn("{task.description}", table_column=whole),
            BarColumn(bar_width=12),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} tasks", table_column=whole),
            _Throughput(table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TextColumn("left", table_column=whole),
            TimeRemainingColumn(table_column=whole),
            console=console,
            disable=not show,
        )
        self._bar: Any = None

    def cancel(self) -> None:
        """Make the job stop: tasks at work before they write another key, the others do not begin."""
        self.is_cancelled = True
        if self._attempt is not None:
            self._attempt.end()

    def check(self) -> None:
        """Raise `JobCancelled` where the job is to stop."""
        if self.is_cancelled:
            raise JobCancelled(job=self.job, reason="it was cancelled", hint="the same plan resumes it")

    def begin(self, attempt: Heartbeat | None, *, resumes: bool) -> None:
        """Begin, or resume, a run."""
        self._attempt = attempt
        self.check()  # cancelled just before
        LOG.info("%s: %s", self.job, "resumes an interrupted run" if resumes else "begins")

    def begin_stage(self, name: str, n_tasks: int, n_done: int) -> None:
        """Begin a stage of `n_tasks`, of which `n_done` were done by an earlier run."""
        self.check()
        self._stage, self._n_resumed, self._n_done, self._n_tasks = name, n_done, n_done, n_tasks
        self._stage_begun, self._n_stage_bytes = time.perf_counter(), 0
        self._bar = self.bars.add_task(name, total=n_tasks, completed=n_done, n_bytes=0)
        LOG.info("%s: stage %s begins: %d tasks", self.job, name, n_tasks)

    def wait_for(self, text: str) -> None:
        """Say what the job waits for; nothing where that has ended."""
        self._waits_for = text

    def advance(self, counts: Mapping[str, int]) -> None:
        """Count a task that has ended."""
        self.check()
        n_bytes = counts.get("bytes_read", 0) + counts.get("bytes_written", 0)
        self._n_done += 1
        self._n_bytes += n_bytes
        self._n_stage_bytes += n_bytes
        if not self.bars.disable:  # 8 µs a task, also of bars that are not shown
            self.bars.update(self._bar, advance=1, n_bytes=self._n_stage_bytes)

    def shown(self) -> dict[str, Any]:
        """Return what the heartbeats of the job tell other processes; the time left is that of the stage at work."""
        now, n_here = time.perf_counter(), self._n_done - self._n_resumed
        return {
            "stage": self._stage,
            "n_tasks_done": self._n_done,
            "n_tasks": self._n_tasks,
            "n_bytes": self._n_bytes,
            "seconds": now - self._begun,
            "seconds_left": (self._n_tasks - self._n_done) * (now - self._stage_begun) / n_here if n_here else None,
            "waits_for": self._waits_for,
        }
