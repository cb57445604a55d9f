"""State and progress of a running job: counted by the thread that runs it, shown as bars, read by other threads.

No bar is shown where there is neither a terminal nor a notebook (``dask.config``: ``chunkmill.progress`` is ``"auto"``,
``True`` or ``False``). Not here: running jobs (`chunkmill.jobs.job`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from importlib.util import find_spec
from typing import Any, Literal, Self

from dask.utils import format_bytes, format_time
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from chunkmill.config import setting
from chunkmill.errors import JobCancelled
from chunkmill.journal.heartbeat import Heartbeat
from chunkmill.log import LOG

__all__ = ["JobMonitor", "JobProgress", "JobState", "JobStatus"]

JobState = Literal["begins", "running", "done", "failed", "cancelled", "interrupted", "ended"]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """State and progress of a job, at one moment.

    Attributes
    ----------
    job
        Description: ``"convert to file:///data/x.zarr"``.
    state
        ``"begins"``: no task has begun. ``"running"``, ``"done"``, ``"failed"``, ``"cancelled"``. Seen from another
        process also ``"interrupted"``: its client has died, or cancelled it, and the same plan resumes it;
        ``"ended"``: it is done, or was discarded.
    stage
        The stage at work, or the last one.
    n_tasks_done, n_tasks
        Tasks of that stage.
    n_bytes
        Bytes read and written by this run.
    seconds
        Since this run began.
    seconds_left
        Estimated; ``None`` while nothing is known.
    waits_for
        What the job waits for where no worker takes tasks: such as paused workers, with the memory that they use; a
        scheduler or a store that does not answer.
    """

    job: str
    state: JobState
    stage: str = ""
    n_tasks_done: int = 0
    n_tasks: int = 0
    n_bytes: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None
    waits_for: str = ""

    @property
    def bytes_per_second(self) -> float:
        """Bytes read and written per second."""
        return self.n_bytes / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        text = f"{self.job}: {self.state}"
        if self.stage:
            text += f", {self.stage}: {self.n_tasks_done:,} of {self.n_tasks:,} tasks"
        if self.n_bytes:
            rate = format_bytes(int(self.bytes_per_second))
            text += f", {format_bytes(self.n_bytes)}, {rate}/s"
        if self.state == "running" and self.seconds_left is not None:
            text += f", about {format_time(self.seconds_left).strip()} left"
        if self.waits_for:
            text += f"; waits: {self.waits_for}"
        return text

    def _repr_html_(self) -> str:
        bar = f"<progress value='{self.n_tasks_done}' max='{max(self.n_tasks, 1)}'></progress>" if self.stage else ""
        return f"<div>{escape(str(self))}</div>{bar}"

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes."""
        return asdict(self)


_ROUNDING = 1e-9  # of shares
_SHOWN = ("stage", "n_tasks_done", "n_tasks", "n_bytes", "seconds", "seconds_left", "waits_for")


class JobMonitor:
    """Counts of a running job, and the wish that it stop.

    Parameters
    ----------
    job
        Description of the job.
    expected
        Stage -> bytes that it is expected to read and write: for the time left.
    """

    def __init__(self, job: str, expected: Mapping[str, int] | None = None) -> None:
        self.job = job
        self.run = ""
        self._attempt: Heartbeat | None = None
        self._expected = dict(expected or {})
        self._state: JobState = "begins"
        self._begun = time.perf_counter()
        self._seconds: float | None = None
        self._stage, self._n_done, self._n_tasks, self._n_bytes = "", 0, 0, 0
        self._before = self._resumed = 0.0  # shares of the job: the stages before this one; tasks of earlier runs
        self._cancelled = False
        self._waits_for: dict[str, str] = {}  # by what it waits for
        self.moved = time.monotonic()  # when a task ended, or a stage began

    @property
    def is_cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled

    def cancel(self) -> None:
        """Make the job stop: tasks at work before they write another key, the others do not begin."""
        self._cancelled = True
        if self._attempt is not None:
            self._attempt.end()

    def check(self) -> None:
        """Raise `JobCancelled` where the job is to stop."""
        if self._cancelled:
            raise JobCancelled(job=self.job, reason="it was cancelled", hint="the same plan resumes it")

    def begin(self, run: str, attempt: Heartbeat | None, *, resumes: bool) -> None:
        """Begin, or resume, a run of that name."""
        self.run, self._attempt = run, attempt
        self.check()  # cancelled just before
        LOG.info("%s: %s", self.job, "resumes an interrupted run" if resumes else "begins")

    def shown(self) -> dict[str, Any]:
        """Return what the heartbeats of the job tell other processes."""
        status = self.status()
        return {name: getattr(status, name) for name in _SHOWN}

    def begin_stage(self, name: str, n_tasks: int, n_done: int) -> None:
        """Begin a stage of `n_tasks`, of which `n_done` were done by an earlier run."""
        self.check()
        self._before += self._share(self._stage)
        self._resumed += self._share(name) * n_done / max(n_tasks, 1)
        self._state, self._stage, self._n_done, self._n_tasks = "running", name, n_done, n_tasks
        self.moved = time.monotonic()
        LOG.info("%s: stage %s begins: %d tasks", self.job, name, n_tasks)

    def wait_for(self, text: str, cause: str = "workers") -> None:
        """Say what the job waits for, because of one cause; nothing where that has ended."""
        self._waits_for = {**self._waits_for, cause: text}

    def advance(self, counts: Mapping[str, int], n_tasks: int = 1) -> None:
        """Count tasks that have ended; those without counts were done by an earlier run."""
        self.check()
        if not counts:
            self._resumed += self._share(self._stage) * n_tasks / max(self._n_tasks, 1)
        self._n_done += n_tasks
        self.moved = time.monotonic()
        self._n_bytes += counts.get("bytes_read", 0) + counts.get("bytes_written", 0)

    def end(self, state: JobState) -> None:
        """Note that the job has ended."""
        self._seconds = time.perf_counter() - self._begun
        self._state = state

    def status(self) -> JobStatus:
        """Return state and progress."""
        seconds = time.perf_counter() - self._begun if self._seconds is None else self._seconds
        done = self._before + self._share(self._stage) * self._n_done / max(self._n_tasks, 1)
        here = done - self._resumed
        left = (1 - done) / here * seconds if here > _ROUNDING else None
        return JobStatus(
            self.job,
            self._state,
            self._stage,
            self._n_done,
            self._n_tasks,
            self._n_bytes,
            seconds,
            None if left is None else max(0.0, left),
            "; ".join(filter(None, self._waits_for.values())),
        )

    def _share(self, stage: str) -> float:
        """Return the fraction of the job that a stage is expected to be."""
        if not stage:
            return 0.0
        total = sum(self._expected.values())
        return self._expected.get(stage, 0) / total if total else 1 / max(len(self._expected), 1)


class _Throughput(ProgressColumn):
    """Bytes read and written, and bytes per second since the bar began."""

    def render(self, task: Task) -> Text:
        n_bytes = task.fields["n_bytes"]
        seconds = task.finished_time if task.finished else task.elapsed
        speed = f" {format_bytes(n_bytes / seconds)}/s" if seconds else ""
        return Text(f"{format_bytes(n_bytes)}{speed}", style="progress.download")


class JobProgress:
    """Progress bars of one job, one a stage; a context manager.

    Parameters
    ----------
    show
        ``None``: as configured; ``"auto"`` shows bars in a terminal and in a notebook only.
    monitor
        Hears the same.
    """

    def __init__(self, show: bool | str | None = None, monitor: JobMonitor | None = None) -> None:
        if show is None:
            show = setting("progress")
        console = Console(stderr=True)
        if show == "auto":
            # rich draws in notebooks through ipywidgets, and complains where there are none
            show = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        whole = Column(no_wrap=True)
        self._progress = Progress(
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
        self._monitor = monitor
        self._bar: Any = None
        self._n_bytes = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: str, n_tasks: int, n_done: int) -> None:
        """Begin a stage of `n_tasks`, of which `n_done` were done by an earlier run."""
        self._n_bytes = 0
        self._bar = self._progress.add_task(name, total=n_tasks, n_bytes=0)
        if self._monitor is not None:
            self._monitor.begin_stage(name, n_tasks, n_done)
        if n_done:
            self._progress.update(self._bar, completed=n_done)

    def advance(self, counts: Mapping[str, int], *, n_tasks: int = 1) -> None:
        """Advance the bar by a task, with its counts, or by several."""
        self._n_bytes += counts.get("bytes_read", 0) + counts.get("bytes_written", 0)
        if not self._progress.disable:  # 8 µs a task, also of bars that are not shown
            self._progress.update(self._bar, advance=n_tasks, n_bytes=self._n_bytes)
        if self._monitor is not None:
            self._monitor.advance(counts, n_tasks)
