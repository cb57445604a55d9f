"""Run stages of tasks one after the other on the scheduler that dask is set to; the client is the barrier between them.

When a job is resumed, tasks on record are run again where their values are not as recorded, or their inputs have
changed. Progress is shown as bars. Not here: begin and end of the journal (`chunkmill.jobs.job`), what a task does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import Any, Self

from dask.utils import format_bytes
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

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


def _resumed(
    journal: Journal, stage: Stage, number: int, on_record: Collection[int], *, redone: bool
) -> tuple[set[int], dict[str, int]]:
    """Return the tasks on record that are not done again, and their counts.

    Their values are there, and their inputs as they were (P7). With `redone`, tasks of an earlier stage were done
    again: those that may depend on them, and cannot tell, are.
    """
    kept = journal.records.forget_false(number, on_record, stage.files)
    inputs, listings, changed, counts = stage.inputs, Listings(), list[int](), dict[str, int]()
    for (task, specs), (_, record) in zip(
        tasks_to_run(stage, only=kept), journal.records.read_many(number, sorted(kept)), strict=True
    ):
        then = None if record is None else record.reads
        now = None if inputs is None or then is None else digest_now(inputs, stage.common, specs, listings)
        if inputs is not None and (redone if now is None else now != then):
            changed.append(task)
        elif record is not None:
            add_counts(counts, record.counts)
    journal.records.forget(number, changed)
    return kept - set(changed), counts


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of a stage in this run; `n_resumed` tasks and counts `of_all_runs` are those of earlier clients, too."""

    name: str
    n_tasks: int
    n_resumed: int
    seconds: float
    counts: Mapping[str, int]
    details: Sequence[Any] = ()
    of_all_runs: Mapping[str, int] = field(default_factory=dict)


def run_once(stages: Sequence[Stage], monitor: JobMonitor, arrays: Iterable[StoredArray]) -> list[StageResult]:
    """Run stages that only read: without a journal, and checking first that the workers can read `arrays`."""
    scheduler, needs = Scheduler(of_job=True), None
    scheduler.check_may_wait(monitor.job)
    if not scheduler.in_process and any(len(stage.tasks) for stage in stages):
        needs = describe_needs(monitor.job, sources=list(arrays))
        check_workers(scheduler, needs)
    return run_stages(stages, monitor, scheduler, needs=needs)


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
    on_record = [{task for of, task in done if of == number} for number in range(len(stages))]
    n_of = [count_tasks(stage, on_record=own) for stage, own in zip(stages, on_record, strict=True)]
    monitor.plan(n_of, map(len, on_record))
    with needed:
        for number, (stage, own, n_tasks) in enumerate(zip(stages, on_record, n_of, strict=True)):
            begun = time.perf_counter()
            monitor.say(f"preparing {stage.name}")
            kept, of_all_runs = own, dict[str, int]()
            if journal is not None and own:
                kept, of_all_runs = _resumed(journal, stage, number, own, redone=n_redone > 0)
            monitor.begin_stage(stage.name, len(kept))
            here = LocalStage(stage.function, stage.common, journal, number, stage.inputs, stage.files, at_once=at_once)
            tasks = chain(tasks_to_run(stage, own), tasks_to_run(stage, only=own - kept))
            counts, details = _run_tasks(scheduler, stage, here, tasks, ran=ran, needs=needs, monitor=monitor)
            if n_tasks > len(kept) and scheduler.in_process:  # it never falls: the tasks need not ask
                add_counts(counts, {"peak_memory_bytes": peak_memory()})
            add_counts(of_all_runs, counts)
            seconds = time.perf_counter() - begun
            n_redone += len(own - kept)
            text = "%s: stage %s ends after %.1f s: %d of %d tasks were done by an earlier run"
            LOG.info(text, monitor.job, stage.name, seconds, len(kept), n_tasks)
            results.append(StageResult(stage.name, n_tasks, len(kept), seconds, counts, details, of_all_runs))
        monitor.say("completing")
    if journal is not None and scheduler.client is not None:
        sync_other_machines([journal.store] if needs is None else needs.writes, scheduler.client, monitor.job, ran)
    return results


def _run_tasks(
    scheduler: Scheduler,
    stage: Stage,
    here: LocalStage,
    tasks: Iterable[Any],
    *,
    ran: dict[str, set[str]],
    needs: Needs | None,
    monitor: JobMonitor,
) -> tuple[dict[str, int], list[Any]]:
    """Run tasks of a stage, return their counts and details; `ran` gets the machines and workers."""
    total, all_details = dict(stage.left_out), list[Any]()
    attempt = None if here.journal is None else here.journal.heartbeat
    options: dict[str, Any] = {
        "blocks": BlockInputs.of(stage.inputs, stage.common, stage.tasks),
        "shown": stage.show,
        "check": monitor.check,
        "waiting": monitor.wait_for,
        "before_cancel": None if attempt is None else attempt.end,
    }

    def add(result: tuple[Mapping[str, int], Sequence[Any], Changes | None]) -> None:
        counts, details, changes = result
        if changes is not None:
            changes.apply()
        add_counts(total, counts)
        all_details.extend(details)
        monitor.advance(counts)

    def take(result: tuple[Any, str, str | None]) -> None:
        found, machine, worker = result
        ran.setdefault(machine, set()).add(worker or "")
        add(found)

    try:
        with scheduler.span(monitor.job):
            if scheduler.in_process:
                scheduler.run(stage.name, run_task, replace(here, in_client=True), tasks, add, **options)
            else:
                run, packed = partial(run_and_say_where, run_task), PackedStage.of(here, needs, monitor.job)
                scheduler.run(stage.name, run, packed, tasks, take, **options)
    except BaseException:
        if attempt is not None:
            abandon([attempt.key], scheduler.client)
        raise
    return total, all_details


# --------------------------------------------------------------------------------------------------------------------
# Progress: counted by the thread that runs a job, shown as bars, read by other threads


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
        self._begun = self._run_begun = self._stage_begun = time.perf_counter()
        self._stage, self._at, self._n_before, self._n_run = "", 0, 0, 0
        self._all, self._done = [0], [0]  # tasks of all stages, of which the first one stands for the time before
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
            TextColumn("{task.fields[done]}", style="progress.download", table_column=whole),
            TextColumn("elapsed", table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TextColumn("{task.fields[left]}", table_column=whole),
            console=console,
            disable=not show,
        )
        self._bar: Any = None
        self._bar_of_text: Any = None

    @contextmanager
    def showing(self, after: float = 0.0) -> Iterator[Self]:
        """Show bars inside, also where no task is at work; none of what takes less than `after` seconds."""
        self.say("preparing")
        if after and not self.bars.disable:
            timer = threading.Timer(after, self.bars.start)
            timer.start()
        else:
            timer = None
            self.bars.start()
        try:
            yield self
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()  # it may be about to start them
            self.say("")
            self.bars.stop()

    def say(self, text: str) -> None:
        """Show what is done before and after the tasks of a stage by a bar without end; nothing for no text."""
        if self._bar_of_text is not None:
            self.bars.remove_task(self._bar_of_text)
        self._bar_of_text = self.bars.add_task(text, total=None, done="", left="") if text else None

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

    def plan(self, n_tasks: Iterable[int], n_done: Iterable[int]) -> None:
        """Take the tasks of each stage to come, and the number of those that an earlier run had done."""
        self._all, self._done, self._run_begun = [0, *n_tasks], [0, *n_done], time.perf_counter()

    def begin_stage(self, name: str, n_done: int) -> None:
        """Begin the next stage, of which `n_done` tasks were done by an earlier run."""
        self.check()
        self._at += 1
        self._stage, self._n_before, self._done[self._at], n_tasks = name, n_done, n_done, self._all[self._at]
        self._stage_begun, self._n_stage_bytes = time.perf_counter(), 0
        self.say("")
        self._bar = self.bars.add_task(name, total=n_tasks, completed=n_done, **self._numbers())
        LOG.info("%s: stage %s begins: %d tasks", self.job, name, n_tasks)

    def wait_for(self, text: str) -> None:
        """Say what the job waits for; nothing where that has ended."""
        self._waits_for = text

    def advance(self, counts: Mapping[str, int]) -> None:
        """Count a task that has ended."""
        self.check()
        n_bytes = counts.get("bytes_read", 0) + counts.get("bytes_written", 0)
        self._done[self._at] += 1
        self._n_run += 1
        self._n_bytes += n_bytes
        self._n_stage_bytes += n_bytes
        if not self.bars.disable:  # 8 µs a task, also of bars that are not shown
            self.bars.update(self._bar, advance=1, **self._numbers())

    def _numbers(self) -> dict[str, Any]:
        n_tasks, n_done = self._all[self._at], self._done[self._at]
        left, n_bytes = self.seconds_left(), self._n_stage_bytes
        speed = format_bytes(int(n_bytes / max(time.perf_counter() - self._stage_begun, 1e-3)))
        done = f"{n_done:,}/{n_tasks:,} tasks {n_done / max(n_tasks, 1):.0%}"
        left_text = "" if left is None or n_done == n_tasks else f"left {timedelta(seconds=round(left))}"
        return {"done": f"{done} {format_bytes(n_bytes)} {speed}/s" if n_bytes else done, "left": left_text}

    def seconds_left(self) -> float | None:
        """Estimate the time that all stages still take: from this one's tasks so far, or else from all of this run."""
        if not self._n_run:
            return None
        now, n_done = time.perf_counter(), self._done[self._at]
        n_here, n_left = n_done - self._n_before, self._all[self._at] - n_done
        of_any = (now - self._run_begun) / self._n_run
        of_stage = (now - self._stage_begun) / n_here if n_here else of_any
        return n_left * of_stage + (sum(self._all) - sum(self._done) - n_left) * of_any

    def shown(self) -> dict[str, Any]:
        """Return what the heartbeats of the job tell other processes."""
        return {
            "stage": self._stage,
            "n_stage_done": self._done[self._at],
            "n_stage_tasks": self._all[self._at],
            "n_tasks_done": sum(self._done),
            "n_tasks": sum(self._all),
            "n_bytes": self._n_bytes,
            "seconds": time.perf_counter() - self._begun,
            "seconds_left": self.seconds_left(),
            "waits_for": self._waits_for,
        }
