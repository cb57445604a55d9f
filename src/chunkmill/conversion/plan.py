"""What a job will do, and what it did: plans and reports with the same columns, for people and for programs.

Not here: making plans (`chunkmill.conversion`), running them (`chunkmill.runtime.job`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask.utils import format_bytes, format_time

from chunkmill.display.report import ReportMixin
from chunkmill.errors import MetadataError, NodeNotFound
from chunkmill.hints import Hint
from chunkmill.nodes.group import Group
from chunkmill.nodes.hierarchy import is_bare, open_node
from chunkmill.runtime.job import Job, JobResult, run_job
from chunkmill.runtime.journal import Journal

__all__ = ["JobCounts", "Plan", "PlannedStage", "Report"]


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One stage of a plan, or of a report: how many tasks, bytes and requests."""

    name: str
    n_tasks: int
    bytes_read: int
    bytes_written: int
    n_requests: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The columns that plans foresee and reports have measured.

    Attributes
    ----------
    n_tasks
        Tasks that the scheduler sees.
    bytes_read, bytes_written, bytes_temporary
        Bytes that pass between workers and stores; temporary ones are written once and read once, and are part of both
        others. A plan counts decoded bytes where the encoded sizes are not known before.
    n_requests
        Gets, sets and deletes.
    peak_memory_bytes
        Of one worker, all its threads together. A plan: what its tasks hold at once. A report: the most resident
        memory of any process that took part, the interpreter's own and what came before the job included.
    read_amplification
        Bytes read from the source over the bytes of the source: 1 when every chunk is read once.
    n_keys
        Store keys of the target that are dealt with.
    n_keys_locked
        Of these, keys that are changed in part, under a lock.
    actions
        Store keys of the target by what is done for them: ``{"copy": 90, "recode": 10}``.
    """

    n_tasks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_temporary: int = 0
    n_requests: int = 0
    peak_memory_bytes: int = 0
    read_amplification: float = 1.0
    n_keys: int = 0
    n_keys_locked: int = 0
    actions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Report(ReportMixin):
    """What a job did, in the columns of its plan, measured.

    The attributes of `costs` are attributes of the report too.

    Attributes
    ----------
    operation, source, target, strategy
        As in the plan.
    costs
        See `JobCounts`. Of this run: what an earlier run had done is not in it.
    stages
        The same, stage by stage.
    seconds
        From beginning to end.
    n_resumed
        Tasks that an earlier run had done.
    """

    operation: str
    source: str
    target: str
    strategy: str
    costs: JobCounts
    stages: tuple[PlannedStage, ...]
    seconds: float
    n_resumed: int = 0

    def __getattr__(self, name: str) -> Any:
        return _column(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as plain values; the columns of `costs` are among them."""
        return _flat(super().to_dict())

    def _title(self) -> str:
        return f"{self.operation}: done"

    def _facts(self) -> list[tuple[str, str]]:
        resumed = f" ({self.n_resumed:,} of them done by an earlier run)" if self.n_resumed else ""
        moved = self.costs.bytes_read + self.costs.bytes_written
        speed = f", {format_bytes(int(moved / self.seconds))}/s" if self.seconds else ""
        return [
            ("from", self.source),
            ("to", self.target),
            ("strategy", self.strategy),
            ("seconds", f"{format_time(self.seconds).strip()}{resumed}{speed}"),
            *_cost_rows(self.costs),
        ]

    def _tables(self) -> list[list[tuple[str, ...]]]:
        return [list(_stage_rows(self.stages))]


@dataclass(frozen=True, repr=False)
class Plan(ReportMixin):
    """What a job will do, before anything is done; `run` does it.

    The attributes of `costs` are attributes of the plan too.

    Attributes
    ----------
    operation
        ``"rechunk"`` or ``"convert"``.
    source, target
        Where from and where to, for people.
    strategy, reason
        What was chosen, and why, against what.
    costs
        What it is expected to cost: see `JobCounts`.
    stages
        The same, stage by stage.
    job
        What `run` runs.
    arrays
        One row of facts for each array of a group, for people: the names are the table's head.
    drawing
        HTML to show beside the tables, of the grids.
    n_source_bytes
        Bytes to be read if every chunk of the source is read once: what the read amplification is measured by.
    """

    operation: str
    source: str
    target: str
    strategy: str
    reason: str
    costs: JobCounts
    stages: tuple[PlannedStage, ...]
    job: Job = field(repr=False)
    arrays: Sequence[Mapping[str, Any]] = ()
    drawing: str = field(default="", repr=False)
    n_source_bytes: int | None = None

    def __getattr__(self, name: str) -> Any:
        return _column(self, name)

    def run(self, resume: bool = True, progress: bool | str | None = None) -> Report:
        """Do it, on the current dask scheduler or Client; in threads where none is set.

        Parameters
        ----------
        resume
            Go on where an earlier run of the same plan stopped; ``False``: discard what it did.
        progress
            Show progress; ``None``: in a terminal and a notebook only, or as ``chunkmill.progress`` in dask's config
            says.

        Raises
        ------
        NodeExists
            There is something at the target already.
        JobError
            There is an unfinished job of another plan at the target, or a worker lacks something.
        """
        return self.report(run_job(self.job, resume=resume, progress=progress))

    def at_target(self, resume: bool = True) -> str:
        """Return what is at the target now and what `run` would do about it, in words; empty when nothing is.

        Parameters
        ----------
        resume
            As it would be given to `run`.
        """
        job = self.job
        journal = Journal(job.store, job.path, job.name, job.fingerprint)
        unfinished = journal.has_this_plan() if resume else None
        if unfinished:
            return "an unfinished job of this plan, which goes on"
        if unfinished is False:
            hint = Hint("an unfinished job of another plan, so that this fails")
            return hint.also("{} discards it", ("resume", False))
        found = None if job.overwrite is None else _found(job)
        if found is None:
            return ""
        if job.overwrite:
            return f"{found}, which will be replaced"
        hint = Hint(f"{found} is there already, so that this fails")
        return hint.also("{} replaces it", ("overwrite", True))

    def report(self, result: JobResult) -> Report:
        """Put what was measured into the columns of the plan."""
        counts = result.counts
        read = counts.get("bytes_source", counts.get("bytes_read", 0) - counts.get("bytes_temporary", 0))
        stages = tuple(
            PlannedStage(
                stage.name,
                stage.n_tasks,
                stage.counts.get("bytes_read", 0),
                stage.counts.get("bytes_written", 0),
                stage.counts.get("n_requests", 0),
                stage.seconds,
            )
            for stage in result.stages
        )
        actions = {name[7:]: n for name, n in counts.items() if name.startswith("action_")}
        costs = JobCounts(
            n_tasks=result.n_tasks,
            bytes_read=counts.get("bytes_read", 0),
            bytes_written=counts.get("bytes_written", 0),
            bytes_temporary=counts.get("bytes_temporary", 0),
            n_requests=counts.get("n_requests", 0),
            peak_memory_bytes=counts.get("peak_memory_bytes", 0),
            read_amplification=read / self.n_source_bytes if self.n_source_bytes else self.costs.read_amplification,
            n_keys=counts.get("n_keys", 0),
            n_keys_locked=counts.get("n_keys_locked", 0),
            actions=actions,
        )
        return Report(
            self.operation, self.source, self.target, self.strategy, costs, stages, result.seconds, result.n_resumed
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as plain values; the columns of `costs` are among them."""
        return _flat(super().to_dict())

    def _title(self) -> str:
        return f"{self.operation}: plan"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("from", self.source),
            ("to", self.target),
            ("strategy", f"{self.strategy}: {self.reason}" if self.reason else self.strategy),
            *_cost_rows(self.costs),
        ]

    def _tables(self) -> list[list[tuple[str, ...]]]:
        return [list(_stage_rows(self.stages)), list(_array_rows(self.arrays))]

    def _drawing(self) -> str:
        return self.drawing


def _found(job: Job) -> str | None:
    """Return what is at the target of a job, in words."""
    try:
        node = open_node(job.store, job.path, consolidated=False)
    except NodeNotFound:
        return None
    except MetadataError:
        return "a node that does not open"
    if isinstance(node, Group):
        return None if is_bare(node) else f"a group of format {node.format}"
    return f"an array of format {node.format}"


def _column(owner: Plan | Report, name: str) -> Any:
    if not name.startswith("_") and name in JobCounts.__dataclass_fields__:
        return getattr(owner.costs, name)
    msg = f"{type(owner).__name__!r} object has no attribute {name!r}"
    raise AttributeError(msg)


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= value if name == "costs" else {name: value}
    return flat


# --------------------------------------------------------------------------------------------------------------------
# For people


def _cost_rows(costs: JobCounts) -> list[tuple[str, str]]:
    temporary = f", temporary {format_bytes(costs.bytes_temporary)}" if costs.bytes_temporary else ""
    actions = ", ".join(f"{name} {n:,}" for name, n in costs.actions.items()) or "none"
    return [
        ("tasks", f"{costs.n_tasks:,}"),
        ("bytes", f"read {format_bytes(costs.bytes_read)}, written {format_bytes(costs.bytes_written)}{temporary}"),
        ("requests", f"{costs.n_requests:,}"),
        ("peak memory", f"{format_bytes(costs.peak_memory_bytes)} a worker"),
        ("read amplification", f"{costs.read_amplification:.2f}"),
        ("store keys", f"{costs.n_keys:,}, of these under a lock {costs.n_keys_locked:,}"),
        ("actions", actions),
    ]


def _stage_rows(stages: Sequence[PlannedStage]) -> Iterable[tuple[str, ...]]:
    timed = any(stage.seconds is not None for stage in stages)
    yield ("stage", "tasks", "read", "written", "requests", *(["seconds"] if timed else []))
    for stage in stages:
        seconds = [f"{stage.seconds:.1f}"] if timed and stage.seconds is not None else []
        read, written = format_bytes(stage.bytes_read), format_bytes(stage.bytes_written)
        yield (stage.name, f"{stage.n_tasks:,}", read, written, f"{stage.n_requests:,}", *seconds)


def _array_rows(arrays: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    if not arrays:
        return
    yield tuple(arrays[0])
    yield from (tuple(map(str, row.values())) for row in arrays)
