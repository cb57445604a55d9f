"""Plan jobs, and report what they did: the same columns, first estimated, then measured.

Not here: running them (`chunkmill.jobs.job`), kinds of jobs (`chunkmill.jobs.work`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dask.utils import format_bytes

from chunkmill.array.stored_array import StoredArray
from chunkmill.display.nodes import grid_svg
from chunkmill.display.report import (
    ReportMixin,
    Text,
    counted,
    format_seconds,
    report_text,
    side_by_side,
    text_width,
)
from chunkmill.errors import JobError, MetadataError, NodeNotFound
from chunkmill.hints import Hint
from chunkmill.jobs.job import Job, JobResult, begun_job, run_job
from chunkmill.jobs.work import JobCounts, PlannedStage, Work
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import Plan as StoredPlan
from chunkmill.nodes.opening import has_no_documents, open_stored
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.runtime.worker_memory import Worker

Rows = list[tuple[str, str]]


# --------------------------------------------------------------------------------------------------------------------
# Bytes, memory, tasks


def cost_rows(costs: JobCounts, memory: Rows) -> Rows:
    """Return rows of what is read, written and temporary, of `memory`, tasks, keys and actions.

    Bytes of intermediate files, which are written and read once, have a row of their own.
    """
    kept, read, often = costs.bytes_temporary, costs.bytes_temporary_read, costs.read_amplification
    again = f"; each element {often:.2g} times" if often > _ONCE else ""
    how = "written and read once" if kept == read else f"written, and {format_bytes(read)} read"
    files = [("temporary", f"{format_bytes(kept)} of intermediate files, {how}")] if kept or read else []
    actions = ", ".join(f"{name} {n:,}{_SAID.get(name, '')}" for name, n in costs.actions.items())
    return [
        ("read", f"{format_bytes(costs.bytes_read - read)}{again}"),
        ("written", f"{format_bytes(costs.bytes_written - kept)}, {counted(costs.n_keys, 'store key')}"),
        *files,
        *memory,
        ("tasks", f"{costs.n_tasks:,}, with {counted(costs.n_requests, 'request')}"),
        *([("actions", actions)] if actions else []),
    ]


_ONCE = 1.005  # shown as 1.0
_SAID = {"copy": " (copied without decoding)", "recode": " (decoded and encoded again)"}
_SAID |= {"reframe": " (copied without decoding, under other headers)", "repack": " (moved without decoding)"}
_MAX_LINES = 15  # of a plan's text


def stage_rows(stages: Sequence[PlannedStage]) -> Iterable[tuple[str, ...]]:
    """Yield a table of stages; the column of seconds only where they are measured."""
    timed = any(stage.seconds is not None for stage in stages)
    yield ("stage", "tasks", "read", "written", "requests", *(["time"] if timed else []))
    for stage in stages:
        seconds = [format_seconds(stage.seconds) if stage.seconds is not None else ""] if timed else []
        read, written = format_bytes(stage.bytes_read), format_bytes(stage.bytes_written)
        yield (stage.name, f"{stage.n_tasks:,}", read, written, f"{stage.n_requests:,}", *seconds)


def array_rows(arrays: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    """Yield a table of arrays; columns of which nothing is known are left out, and why where there is one array."""
    names = [name for name in (arrays[0] if arrays else ()) if any(row[name] is not None for row in arrays)]
    if len(arrays) == 1 and "why" in names:
        names.remove("why")  # the plan says it in its strategy
    if names:
        yield tuple(names)
        yield from (tuple("" if row[name] is None else str(row[name]) for name in names) for row in arrays)


@dataclass(frozen=True, repr=False, kw_only=True)
class Report(ReportMixin, JobCounts):
    """Measured counts of a job that is done, in the columns of its plan.

    Those of `JobCounts` are of this run only: tasks of an earlier, interrupted run are counted in `n_resumed`.

    Attributes
    ----------
    operation, source, target, strategy
        As in the plan.
    stages
        The same, stage by stage.
    seconds
        From beginning to end.
    n_resumed
        Tasks that an earlier run had done.
    all_runs
        The same counts of this run and of those that it resumed together; ``None`` where it resumed none.
    memory_of_tasks_bytes
        Bytes that the tasks of one worker hold at once, as planned; `peak_memory_bytes` is measured, of the process.
    """

    operation: str
    source: str
    target: str
    strategy: str
    stages: tuple[PlannedStage, ...]
    seconds: float
    n_resumed: int = 0
    all_runs: JobCounts | None = None
    memory_of_tasks_bytes: int = 0

    def _title(self) -> str:
        return f"{self.operation}: done"

    def _facts(self) -> list[tuple[str, str]]:
        every = () if self.all_runs is None else cost_rows(self.all_runs, [])
        said = f"{counted(self.n_resumed, 'task')} of earlier runs, not in these counts; all runs together: "
        said += "; ".join(f"{name} {value}" for name, value in every)
        resumed = [("resumed", said)] if every else []
        moved = self.bytes_read + self.bytes_written
        speed = f", {format_bytes(int(moved / self.seconds))}/s" if self.seconds else ""
        most, planned = format_bytes(self.peak_memory_bytes), format_bytes(self.memory_of_tasks_bytes)
        memory = [("memory", f"{most} at most in one process; of these {planned} were planned for its tasks")]
        return [
            ("time", f"{format_seconds(self.seconds)}{speed}"),
            *cost_rows(self, memory),
            *resumed,
            ("from", self.source),
            ("to", self.target),
            ("strategy", self.strategy),
        ]

    def _tables(self) -> list[list[tuple[str, ...]]]:
        return [list(stage_rows(self.stages))]


@dataclass(frozen=True, repr=False, kw_only=True)
class Plan(ReportMixin, JobCounts):
    """A job before it runs: what it will do, and its estimated `JobCounts`. `run` runs it. Plans can be pickled.

    Attributes
    ----------
    operation
        ``"rechunk"`` or ``"convert"``.
    source, target
        Location and format of both, as text.
    strategy, reason
        The strategy chosen, and why, compared with the others.
    stages
        The same, stage by stage.
    job
        The job that `run` runs.
    arrays
        One row of facts for each array of a group; the names are the table's head.
    not_read_by
        Readers of Zarr that lack a codec or data type of the target, and which; empty where there are none.
    drawn
        Two arrays whose chunk grids the HTML shows before and after.
    """

    operation: str
    source: str
    target: str
    strategy: str
    reason: str
    stages: tuple[PlannedStage, ...]
    job: Job = field(repr=False)
    arrays: Sequence[Mapping[str, Any]] = ()
    not_read_by: str = ""
    drawn: tuple[StoredArray, StoredArray] | None = field(default=None, repr=False)

    def run(self, resume: bool = True, progress: bool | str | None = None) -> Report:
        """Run the job on the current dask scheduler or Client; in threads where none is set.

        Parameters
        ----------
        resume : bool
            Resume an earlier, interrupted run of the same plan; ``False``: discard what it did.
        progress : bool, str or None
            Show progress; ``None``: in a terminal and a notebook only, or as ``chunkmill.progress`` in dask's config
            says.

        Returns
        -------
        Report
            Measured counts, bytes and seconds.

        Raises
        ------
        NodeExists
            There is a node at the target already.
        JobError
            There is an unfinished job of another plan at the target, a worker lacks a codec or access to a store, or
            the source was deleted or replaced since the plan was made: nothing is published then.
        """
        return self.report(run_job(self.job, resume=resume, progress=progress))

    def at_target(self, resume: bool = True) -> str:
        """Describe what is at the target now, and what `run` would do about it; empty when there is nothing.

        Parameters
        ----------
        resume : bool
            The same argument as of `run`.
        """
        job, unfinished = self.job, None
        if resume:
            try:
                unfinished = job.unfinished()
            except JobError:
                unfinished = False
        if unfinished:
            return "an unfinished job of this plan, which will be resumed"
        if unfinished is False:
            hint = Hint("an unfinished job of another plan, so that this fails")
            return hint.also("{} discards it", ("resume", False))
        found = None if job.target.overwrite is None else _found(job)
        if found is None:
            return ""
        if job.target.overwrite:
            if job.target.keeps_old():
                return f"{found}, which will be replaced when the new one is complete"
            return f"{found}, which will be replaced: it is deleted first, since the store cannot hold both"
        hint = Hint(f"{found} is there already, so that this fails")
        return hint.also("{} replaces it", ("overwrite", True))

    def report(self, result: JobResult) -> Report:
        """Return the counts that a run has measured, in the columns of the plan."""
        stages, costs = _measured(result)
        every = tuple(replace(stage, n_resumed=0, counts=stage.of_all_runs) for stage in result.stages)
        return Report(
            operation=self.operation,
            source=self.source,
            target=self.target,
            strategy=self.strategy,
            stages=stages,
            seconds=result.seconds,
            n_resumed=result.n_resumed,
            all_runs=_measured(replace(result, stages=every))[1] if result.n_resumed else None,
            memory_of_tasks_bytes=self.peak_memory_bytes,
            **asdict(costs),
        )

    def _title(self) -> str:
        return f"{self.operation}: plan"

    def _facts(self) -> list[tuple[str, str]]:
        worker = self.job.worker
        workers = f"{counted(worker.n_workers, 'worker')} of {counted(worker.n_threads, 'thread')}"
        return [
            *cost_rows(self, [("memory", f"{format_bytes(self.peak_memory_bytes)} for all tasks at once on a worker")]),
            ("planned for", f"{workers}, each with {format_bytes(worker.max_mem)} for its tasks"),
            ("from", self.source),
            ("to", self.target),
            ("strategy", f"{self.strategy}: {self.reason}" if self.reason else self.strategy),
            *([("not read by", self.not_read_by)] if self.not_read_by else []),
        ]

    def _tables(self) -> list[list[tuple[str, ...]]]:
        return [list(stage_rows(self.stages)), list(array_rows(self.arrays))]

    def __repr__(self) -> str:
        lines = self.explain().split("\n")
        if len(lines) > _MAX_LINES:  # the table of arrays is left out as a whole
            few = report_text(self._title(), self._facts(), self._tables()[:1], width=text_width()).split("\n")
            lines = [*few[: _MAX_LINES - 1], "  … plan.explain() shows every stage and array, and the reasons"]
        return "\n".join(lines)

    def explain(self) -> str:
        """Return all that is known of the plan: every stage and array, and why it is done so.

        Examples
        --------
        >>> import chunkmill as cm
        >>> a = cm.create_array("memory://doc-explain", shape=(8, 6), dtype="i4", chunks=(2, 3))
        >>> "strategy" in cm.plan_rechunk(a, "memory://doc-explain-target", chunks=(4, 6)).explain()
        True
        """
        return Text(report_text(self._title(), self._facts(), self._tables(), width=text_width()))

    def _drawing(self) -> str:
        if self.drawn is None:
            return ""
        before, after = (grid_svg(each.chunk_grid) for each in self.drawn)
        return side_by_side(before, "→", after)


def _measured(result: JobResult) -> tuple[tuple[PlannedStage, ...], JobCounts]:
    counts = result.counts
    n_owned = counts.get("n_elements_owned", 0)
    names = ("bytes_read", "bytes_written", "n_requests")
    stages = tuple(
        PlannedStage(s.name, s.n_tasks - s.n_resumed, seconds=s.seconds, **{n: s.counts.get(n, 0) for n in names})
        for s in result.stages
    )
    return stages, JobCounts.of(
        stages,
        **{n: counts.get(n, 0) for n in ("bytes_temporary", "bytes_temporary_read", "peak_memory_bytes", "n_keys")},
        read_amplification=counts["n_elements_read"] / n_owned if n_owned else 1.0,
        actions={name[7:]: n for name, n in counts.items() if name.startswith("action_")},
    )


def plan_work(work: Work, worker: Worker) -> Plan:
    """Plan some work for workers of that kind; nothing is written before the plan runs.

    Raises
    ------
    JobError
        The memory allowed is too little for a new job, and for the unfinished one that is there.
    """
    try:
        job = Job.fitted(work, worker)
    except JobError:
        journal = Journal(work.target.store, StoredPlan(work.target.path, work.name))
        journal.has_this_plan()
        begun = begun_job(work, worker, journal.other)
        if begun is None:
            raise
        job = begun
    about: dict[str, Any] = {**work.described(job.tasks, job.worker)}
    return Plan(operation=work.operation, job=job, **asdict(about.pop("costs")), **about)


def _found(job: Job) -> str | None:
    """Describe the node at the target of a job; ``None`` when there is none."""
    try:
        node = open_stored(job.target.store, job.target.path, consolidated=False)
    except NodeNotFound:
        return None
    except MetadataError:
        return "a node that does not open"
    if isinstance(node, StoredGroup):
        return None if has_no_documents(node) else f"a group of format {node.format}"
    return f"an array of format {node.format}"
