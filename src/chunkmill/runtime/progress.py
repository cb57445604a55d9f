"""Progress bars of a job in a terminal or a notebook, with bytes per second and time left.

Nothing is shown where there is neither (``dask.config``: ``chunkmill.progress`` is ``"auto"``, ``True`` or ``False``).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Self

from dask.utils import format_bytes
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from chunkmill.runtime.job_monitor import JobMonitor
from chunkmill.stores.settings import setting

__all__ = ["JobProgress"]


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
        Is told the same.
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
