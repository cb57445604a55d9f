"""Rechunking an array, or every array of a group, as one job within a given memory.

What becomes of metadata, and of arrays whose chunks stay, is a conversion's business
(`chunkmill.conversion.convert_job`). Not here: who reads and writes what (`chunkmill.conversion.rechunking.plan`), what
a task does (`chunkmill.conversion.rechunking.intermediate_files`, `chunkmill.conversion.rechunking.target_chunks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from dask.utils import format_bytes

from chunkmill.conversion.chunk_memory import index_size, itemsize, stored_bytes
from chunkmill.conversion.convert_tasks import ArrayTransfer
from chunkmill.conversion.estimate import Forecast, forecast
from chunkmill.conversion.plan import JobCounts, Plan, PlannedStage
from chunkmill.conversion.rechunking.intermediate_files import spill_file
from chunkmill.conversion.rechunking.plan import Limits, RechunkPlan, Strategy, choose_rechunk_strategy
from chunkmill.conversion.rechunking.sides import piece_coder, read_side, store_costs, temporary_files, write_side
from chunkmill.conversion.rechunking.source_chunks import ArrayRechunk, box_reads, box_shows, spill_reads, spill_shows
from chunkmill.conversion.rechunking.target_chunks import write_box
from chunkmill.errors import JobError
from chunkmill.runtime.job import Job, Stage, grouped
from chunkmill.runtime.journal import JOB_PREFIX, Journal, fingerprint
from chunkmill.runtime.worker import Worker
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import scratch_store

__all__ = ["Settings", "plan_rechunking", "rechunk_stages"]

_VERSION = 2  # of what the journal's numbers and the temporary files mean


@dataclass(frozen=True, slots=True)
class Settings:
    """How arrays are to be rechunked.

    Attributes
    ----------
    worker
        What runs the tasks.
    temporary
        The store for temporary files; the target's when ``None`` (a zip file's folder).
    compress
        Whether temporary files are compressed (lz4).
    strategy
        Consider only this one.
    operation
        What the plan and the job are called.
    """

    worker: Worker
    temporary: Store | None = None
    compress: bool = False
    strategy: Strategy | None = None
    operation: str = "rechunk"


def rechunk_stages(rechunks: Sequence[ArrayRechunk]) -> list[Stage]:
    """Return the stages that do all of `rechunks`: one that spills, where one of them does, and one that writes."""
    spills = [0 if r.plan.reads is None else r.plan.reads.n_chunks for r in rechunks]
    common = tuple(rechunks)
    spill = Stage("rechunk-spill", spill_file, common, _Specs(spills), spill_reads, spill_shows)
    writes = [r.plan.writes.n_chunks for r in rechunks]
    write = Stage("rechunk-write", write_box, common, _Specs(writes), box_reads, box_shows)
    return [spill, write] if any(spills) else [write]


class _Specs(Sequence[tuple[int, int]]):
    """Array and number of every task, in order: never a list of them all."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._stops = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return int(self._stops[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        which = int(np.searchsorted(self._stops, index, side="right")) - 1
        return which, index - int(self._stops[which])


def plan_rechunking(conversion: Plan, settings: Settings) -> Plan:
    """Return the plan that does what `conversion` would do, rechunking in bounded memory.

    Raises
    ------
    JobError
        Memory does not suffice; says what would.
    """
    return _Rechunking(conversion, settings).plan()


class _Rechunking:
    """A conversion, and plans for those of its arrays that get other chunks."""

    def __init__(self, conversion: Plan, settings: Settings) -> None:
        self.conversion, self.settings = conversion, settings
        self.apart = _apart(conversion.job.store, settings.temporary)
        self.temporary = self.apart or conversion.job.store
        (stage,) = conversion.job.stages("")
        self.transfers: Sequence[ArrayTransfer] = stage.common
        self.plans = {i: self._planned(t) for i, t in enumerate(self.transfers) if t.action.name == "rechunk"}
        self.left = [spec for spec in stage.tasks if spec[0] not in self.plans]
        self.n_left = len(grouped(replace(stage, tasks=self.left)))

    def _planned(self, transfer: ArrayTransfer) -> RechunkPlan:
        worker, temporary, source = self.settings.worker, self.temporary, transfer.source
        coder = piece_coder(source, compress=self.settings.compress)
        try:
            return choose_rechunk_strategy(
                read_side(source, worker),
                write_side(transfer.target),
                itemsize(source),
                Limits(worker.max_mem, worker.n_threads, worker.n_workers, overhead_bytes=worker.overhead_bytes),
                costs=store_costs(source.store, temporary, transfer.target.store),
                strategy=self.settings.strategy,
                temporary=temporary_files(temporary, coder, worker),
            )
        except JobError as error:  # of which array, where there are many
            raise JobError(job=f"{error.job} {source.path!r}", reason=error.reason, hint=error.hint) from None

    def plan(self) -> Plan:
        """Return the plan, with what it is expected to cost."""
        if not self.plans:
            return replace(self.conversion, operation=self.settings.operation, job=self._job())
        stages = self._planned_stages()
        estimates = [plan.estimate for plan in self.plans.values()]
        actions: dict[str, int] = {}
        for transfer in self.transfers:
            for action, n_keys in transfer.action.counts.items():
                actions[action] = actions.get(action, 0) + n_keys
        decoded = sum(e.decoded_bytes for e in estimates)
        once = sum(e.written_bytes for e in estimates)
        left = self.settings.worker.n_threads * max(transfer.memory.n_bytes for transfer in self.transfers)
        costs = JobCounts(
            n_tasks=sum(stage.n_tasks for stage in stages),
            bytes_read=sum(stage.bytes_read for stage in stages),
            bytes_written=sum(stage.bytes_written for stage in stages),
            bytes_temporary=sum(e.temporary_bytes for e in estimates),
            n_requests=sum(stage.n_requests for stage in stages),
            peak_memory_bytes=max(*(e.peak_bytes for e in estimates), left),
            read_amplification=decoded / once if once else 1.0,
            n_keys=sum(transfer.target.write_layout.grid.n_chunks for transfer in self.transfers),
            actions=actions,
        )
        rows = [self._row(i, row) for i, row in enumerate(self.conversion.arrays)]
        strategy, reason = self._strategy()
        return replace(
            self.conversion,
            operation=self.settings.operation,
            strategy=strategy,
            reason=reason,
            costs=costs,
            stages=stages,
            job=self._job(),
            arrays=rows,
        )

    def _planned_stages(self) -> tuple[PlannedStage, ...]:
        left = [(t.source, t.target, t.action) for i, t in enumerate(self.transfers) if i not in self.plans]
        moved = sum(forecast(left), Forecast())
        columns = moved.bytes_read, moved.bytes_written, moved.n_requests
        stages = [PlannedStage("convert", self.n_left, *columns)] if left else []
        spills, writes = _Sum("rechunk-spill"), _Sum("rechunk-write")
        for i, plan in self.plans.items():
            estimate, source, target = plan.estimate, self.transfers[i].source, self.transfers[i].target
            read = stored_bytes(source, source.read_layout, estimate.n_chunk_reads, estimate.decoded_bytes)
            read += estimate.n_index_reads * index_size(source.write_layout)
            written = stored_bytes(target, target.read_layout, target.read_layout.grid.n_chunks, estimate.written_bytes)
            if target.read_layout is not target.write_layout:
                written += target.write_layout.grid.n_chunks * index_size(target.write_layout)
            n_reads = estimate.n_chunk_reads + estimate.n_index_reads
            if plan.reads is None:
                writes.add(estimate.n_tasks[0], read, written, estimate.n_requests)
            else:
                n_files, temporary = estimate.n_tasks[0], estimate.temporary_bytes
                spills.add(n_files, read, temporary, n_reads + n_files)
                writes.add(estimate.n_tasks[1], temporary, written, estimate.n_requests - n_reads - n_files)
        return (*stages, *(total.stage() for total in (spills, writes) if total.n_arrays))

    def _strategy(self) -> tuple[str, str]:
        if len(self.transfers) == 1:
            return self.plans[0].strategy, _reason(self.plans[0])
        counted: dict[str, int] = {}
        for i, transfer in enumerate(self.transfers):
            name = self.plans[i].strategy if i in self.plans else transfer.action.name
            counted[name] = counted.get(name, 0) + 1
        each = ", ".join(f"{name} {n}" for name, n in counted.items())
        return " + ".join(counted), f"{len(self.transfers)} arrays: {each}"

    def _row(self, i: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**row, "action": self.plans[i].strategy, "why": _reason(self.plans[i])} if i in self.plans else row

    # --- the job

    def _job(self) -> Job:
        job, temporary = self.conversion.job, self.apart
        known = [(i, p.reads, p.writes, p.temporary, p.trailer_bytes) for i, p in sorted(self.plans.items())]
        mark = fingerprint(self.settings.operation, _VERSION, job.fingerprint, known, temporary and temporary.url)
        name = f"{self.settings.operation} {job.name.partition(' ')[2]}"
        prefix = f"{Journal(job.store, job.path, name, mark).prefix}pieces/"
        if temporary is not None:  # where other jobs may have theirs
            prefix = f"{JOB_PREFIX}{fingerprint(job.store.url, job.path)[:16]}-pieces/"

        def prepare() -> Mapping[str, bytes]:
            if temporary is not None:
                temporary.delete_prefix(prefix)  # of a job that was given up
            return job.prepare()

        def publish(documents: Mapping[str, bytes]) -> Iterable[str] | None:
            written = job.publish(documents)
            if temporary is not None:
                temporary.delete_prefix(prefix)
            return written

        writes = job.writes if temporary is None else (*job.writes, temporary)
        return replace(
            job,
            name=name,
            fingerprint=mark,
            prepare=prepare,
            stages=lambda run: self._stages(prefix, run),
            publish=publish,
            writes=writes,
        )

    def _stages(self, prefix: str, run: str) -> list[Stage]:
        """Return the conversion's stage without the arrays that are rechunked, and the rechunk's."""
        (stage,) = self.conversion.job.stages(run)
        transfers: Sequence[ArrayTransfer] = stage.common
        stages = [replace(stage, tasks=self.left)] if self.left else []
        rechunks = [self._rechunk(transfers[i], plan, f"{prefix}{run}/{i}/") for i, plan in self.plans.items()]
        return [*stages, *rechunk_stages(rechunks)] if rechunks else [stage]

    def _rechunk(self, transfer: ArrayTransfer, plan: RechunkPlan, prefix: str) -> ArrayRechunk:
        return ArrayRechunk(
            transfer.source,
            transfer.target,
            plan,
            self.temporary,
            prefix,
            piece_coder(transfer.source, compress=self.settings.compress),
            self.settings.worker.ahead_bytes,
            transfer.action.materialize,
            transfer.fresh,
        )


def _apart(target: Store, given: Store | None) -> Store | None:
    """Return the store for temporary files where it is not the target's."""
    return scratch_store(target) if given is None else given


class _Sum:
    """Adds up what a stage is expected to do for many arrays."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_arrays = 0
        self.total = np.zeros(4, object)  # Python's integers: any size

    def add(self, *numbers: int) -> None:
        self.n_arrays += 1
        self.total += numbers

    def stage(self) -> PlannedStage:
        return PlannedStage(self.name, *self.total)


def _reason(plan: RechunkPlan) -> str:
    """Say what the strategy does, and what the other one would have."""
    estimate = plan.estimate
    what = f"each task owns {plan.writes.chunk_shape} of the target"
    if plan.reads is None:
        what += f" and reads what is under it, {estimate.amplification:.3g} times the source in all"
    else:
        file = prod(plan.reads.chunk_shape) * plan.itemsize
        what = f"{estimate.n_tasks[0]:,} files of up to {format_bytes(file)}, then {what}"
    for other in plan.others:
        times = f"{other.seconds / estimate.seconds:.2g} times as long" if estimate.seconds else "as long"
        what += f"; {other.strategy} would take {times}, reading the source {other.amplification:.3g} times"
    return what
