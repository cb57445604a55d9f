"""Stages of whole-store jobs: a function over many small task specs, and the grouping of specs into tasks.

Not here: running them (`chunkmill.runtime.job`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chunkmill.runtime.reference_shipping import Reads
from chunkmill.stores.metered import Meter

__all__ = ["LEAST_TASKS", "MAX_TASK_BYTES", "MAX_TASK_KEYS", "Stage", "TaskResult", "count_tasks", "grouped"]

MAX_TASKS = 100_000
"""More task specs than this are grouped, so that the scheduler sees no more tasks."""

# Upper bounds of what one task of a job owns: large enough that the overhead of scheduler and journal (0.3 ms a task
# together) is small, small enough that progress is seen and memory is spared. Smaller jobs are divided into more tasks,
# so that every worker has something to do.
MAX_TASK_BYTES = 64 << 20
MAX_TASK_KEYS = 1024
LEAST_TASKS = 32


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one task.

    Attributes
    ----------
    counts
        Numbers to be summed over all tasks (``"n_keys"``, ``"bytes_read"``, …); the largest is kept of those that
        begin with ``"peak_"``.
    writes
        Store key -> size and crc32c of what was written, ``None`` where nothing is stored: for the journal.
    details
        Further results for the client, few and small.
    """

    counts: Mapping[str, int]
    writes: Mapping[str, Any] = field(default_factory=dict)
    details: Sequence[Any] = ()

    @classmethod
    def of(cls, meter: Meter, **counts: int) -> TaskResult:
        """Return what `meter` counted, and further `counts`."""
        return cls(meter.counts() | counts, meter.writes)


@dataclass(frozen=True, slots=True)
class Stage:
    """Tasks that do not depend on each other.

    Attributes
    ----------
    name
        Shown on the dashboard and the progress bar: ``"convert"``, ``"rechunk-spill"``.
    function
        Called as ``function(common, spec)`` for every spec. It must be importable by name, and may be called twice for
        a spec, later or at the same time: its effect must be the same each time.
    common
        Shared by all tasks, such as the arrays: pickled once, and unpickled once in each process.
    tasks
        The specs: small, picklable, in the same order in every run of the plan (the journal knows them by number).
    reads
        Arrays, and the store keys of each, that the task of a spec reads: it is sent the references of these alone.
        ``None``: reference sets are sent whole.
    shows
        The store key shown for the task of a spec: the first that it deals with.
    share
        Fraction of one task's budget that a spec uses; consecutive specs are grouped into a task up to a total of 1.
    """

    name: str
    function: Callable[[Any, Any], TaskResult]
    common: Any
    tasks: Sequence[Any]
    reads: Reads | None = None
    shows: Callable[[Any, Any], str] | None = None
    share: Callable[[Any, Any], float] | None = None

    def show(self, arguments: tuple[Any, ...]) -> str:
        """Return the store key shown for a task, from its arguments: its number, and a group of specs."""
        return "" if self.shows is None else self.shows(self.common, arguments[1][0])


def grouped(stage: Stage) -> Sequence[Sequence[Any]]:
    """Return the specs of each task of a stage.

    Examples
    --------
    >>> grouped(Stage("x", print, None, [2, 3, 9, 4, 6], share=lambda _, spec: spec / 10))
    [[2, 3], [9], [4, 6]]
    """
    size = max(1, -(-len(stage.tasks) // MAX_TASKS))
    if stage.share is None or size > 1:
        return [stage.tasks[start : start + size] for start in range(0, len(stage.tasks), size)]
    groups: list[list[Any]] = []
    done = 1.0
    for spec in stage.tasks:
        share = stage.share(stage.common, spec)
        if not groups or done + share > 1:
            groups.append([])
            done = 0
        groups[-1].append(spec)
        done += share
    return groups


def count_tasks(stage: Stage) -> int:
    """Return the number of groups of `grouped`, without making them where it is arithmetic."""
    n_specs = len(stage.tasks)
    if stage.share is None or n_specs > MAX_TASKS:
        return -(-n_specs // max(1, -(-n_specs // MAX_TASKS)))
    return len(grouped(stage))
