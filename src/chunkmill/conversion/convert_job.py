"""Plan a conversion or a rechunk of an array, or of a group with everything below it, as one job.

One plan for each array (`ArrayPlan`); from their list the stages, the estimate and the job are built. Not here: the
target's metadata (`chunkmill.conversion.target_metadata`), the action for chunks (`chunkmill.conversion.actions`,
`chunkmill.conversion.rechunking.job`), callbacks of the job (`chunkmill.conversion.target_writer`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Literal

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import RegionLayout, chain_text, choose_action, n_groups
from chunkmill.conversion.array_plan import ArrayPlan, estimated_counts
from chunkmill.conversion.estimate import (
    MOST_STORING,
    TransferEstimate,
    chunk_bytes,
    estimate_transfers,
    fit_memory,
    task_memory,
    thread_overheads,
)
from chunkmill.conversion.rechunking.job import (
    Settings,
    estimate_rechunk,
    explain_strategy,
    plan_array_rechunk,
)
from chunkmill.conversion.region_option import region_of, whole
from chunkmill.conversion.target_metadata import ConversionTarget, describe_nodes
from chunkmill.conversion.target_writer import TargetWriter, stages_of
from chunkmill.dask_arrays.hazards import check_apart
from chunkmill.errors import JobError
from chunkmill.formats.base import Format
from chunkmill.formats.peers import is_specified, readers_text
from chunkmill.hints import Hint
from chunkmill.jobs.job import Job
from chunkmill.jobs.plan import Plan, PlannedStage
from chunkmill.jobs.sources import SeenSource, see_sources
from chunkmill.journal.journal import Journal
from chunkmill.journal.names import JOB_PREFIX, fingerprint
from chunkmill.model.inner_layout import inner_layout
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.nodes.target import Target
from chunkmill.runtime.scheduler import check_n_tasks
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS, count_tasks
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store

__all__ = ["plan_job", "region_layout", "shown_node"]


_FINE_TASK_BYTES = 16 << 20  # tasks own less only where there would be fewer than the least number of them
_MANY_TASKS = 1024  # from so many on, tasks own more instead
_VERSION = 6  # of what the journal's numbers and the intermediate files mean


def plan_job(
    operation: Literal["convert", "rechunk"], source: StoredNode, target: ConversionTarget, settings: Settings
) -> Plan:
    """Plan to write `source`, and everything below it, to `target`; nothing is written before the plan runs.

    Raises
    ------
    UnsupportedFeature
        The format cannot hold something; says which node, and what would be lost.
    JobError
        The memory allowed is too little; says how much is needed.
    """
    check_apart(source, target.store, target.path, overwrite=bool(target.overwrite))
    documents_format = format_of_store(target.store, target.format)
    path = documents_format.normalize_path(target.path)
    groups, arrays = describe_nodes(source, target, documents_format, path)
    where = f"{target.store.url}/{path}" if path else target.store.url
    group = path if target.adds else None
    if group is not None:
        groups.pop(group)
        added = [at for at in (*groups, *(new.path for _, new in arrays)) if at.rpartition("/")[0] == group]
        if not added:
            raise JobError(job=f"{operation} to {where}", reason="the source is a group without nodes")
        path = min(added)
    seen = see_sources([whole(old) for old, _ in arrays])
    request = JobRequest(
        operation,
        f"{operation} to {where}",
        source.url,
        source.path,
        target.store,
        path,
        documents_format,
        groups,
        tuple((*pair, each) for pair, each in zip(arrays, seen, strict=True)),
        exact=target.exact,
        overwrite=target.overwrite,
        is_remote=source.store.is_remote or target.store.is_remote,
        group=group,
    )
    settings, writer, plan_hash, at_once = request.planned_or_begun(settings)
    plans = writer.plans
    stages = _estimated_stages(writer)
    strategy, reason = _strategy(plans, len(groups))
    return Plan(
        operation=operation,
        source=f"{shown_node(source)}{target.region and f', region {target.region}'}",
        target=f"{where} ({documents_format.name})",
        strategy=strategy,
        reason=reason,
        costs=estimated_counts(plans, stages, settings.worker.n_threads),
        stages=stages,
        job=request.job(settings, writer, plan_hash, at_once),
        arrays=[_row(plan) for plan in plans],
        not_read_by=readers_text([(p.target.path, p.target.metadata) for p in plans], documents_format.name),
        drawn=_drawn(plans),
    )


_Made = tuple[Settings, TargetWriter, str, int | None]  # with a fingerprint, and the most tasks at once in a process


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Request of a job, independent of its workers; can be pickled.

    A job that was interrupted is planned again for the workers for which it was begun, and then resumed on others.

    Attributes
    ----------
    operation, name
        ``"rechunk"`` or ``"convert"``; the description of the job.
    source_url, source_path
        Of the topmost node of the source.
    store, path, format
        Of the target.
    groups
        Metadata of the target's groups by path.
    arrays
        Source and target of each array, and the source's documents when it was planned.
    exact, overwrite
        As in `ConversionTarget`.
    is_remote
        Whether requests of source or target cost latency.
    group
        As in `Target`.
    """

    operation: str
    name: str
    source_url: str
    source_path: str
    store: Store
    path: str
    format: Format
    groups: Mapping[str, GroupMetadata]
    arrays: tuple[tuple[StoredArray, StoredArray, SeenSource], ...]
    exact: bool
    overwrite: bool | None
    is_remote: bool
    group: str | None = None

    def planned(self, settings: Settings) -> tuple[TargetWriter, str]:
        """Plan the tasks for these settings; return the writer, and the fingerprint of the plan."""
        plans = _plan_arrays(self, settings)
        intermediate = settings.separate_store(self.store)
        known: list[Any] = [
            (
                p.source.path,
                p.source.metadata,
                p.seen.versions,
                p.target.path,
                p.target.metadata,
                p.action,
                _tasks_known(p),
            )
            for p in plans
        ]
        regions = [region for p in plans if (region := region_of(p.source)) is not None]
        known += [tuple((cut.start, cut.stop) for cut in region) for region in regions]
        apart = None if intermediate is None else intermediate.url
        plan_hash = fingerprint(
            self.operation, _VERSION, self.source_url, self.format, self.groups, known, apart, settings.compress
        )
        prefix = f"{Journal(self.store, self.path, self.name, plan_hash).prefix}intermediate/"
        if intermediate is not None:  # a directory that jobs may share
            prefix = f"{JOB_PREFIX}{fingerprint(self.store.url, self.path)[:16]}-intermediate/"
        writer = TargetWriter(
            self.name,
            self.store,
            plans,
            intermediate if any(plan.n_intermediate_files for plan in plans) else None,
            prefix,
            settings.compress,
            settings.worker.ahead_bytes,
        )
        return writer, plan_hash

    def job(self, settings: Settings, writer: TargetWriter, plan_hash: str, tasks_at_once: int | None = None) -> Job:
        """Return the job of a plan for these settings."""
        arrays = [plan.target for plan in writer.plans]
        return Job(
            name=self.name,
            target=Target(self.store, self.path, self.format, arrays, self.groups, self.overwrite, self.group),
            fingerprint=plan_hash,
            sources=[plan.source for plan in writer.plans],
            stages=writer.stages,
            check_result=writer.check_result,
            publish=writer.publish,
            writes=() if writer.intermediate is None else (writer.intermediate,),
            choices=self._choices(settings),
            adopt=partial(self.adopt, settings),
            tasks_at_once=tasks_at_once,
            memory_of_tasks=(tasks_at_once or settings.worker.n_threads)
            * max((_task_bytes(plan, settings.worker.n_threads) for plan in writer.plans), default=0),
        )

    def planned_or_begun(self, settings: Settings) -> _Made:
        """Plan the tasks; where memory is too little for that, return the plan of the unfinished job at the target."""
        try:
            return settings, *self.planned(settings), None
        except JobError:
            journal = Journal(self.store, self.path, self.name, "")
            journal.has_this_plan()
            if (other := journal.other) and (made := self._begun(settings, other.fingerprint, other.choices)):
                return made
            raise

    def adopt(self, settings: Settings, plan_hash: str, choices: Mapping[str, Any]) -> Job | None:
        """Return the job of that fingerprint, planned with the choices of its plan; ``None`` for another job."""
        made = self._begun(settings, plan_hash, choices)
        return None if made is None else self.job(*made)

    def _begun(self, settings: Settings, plan_hash: str, choices: Mapping[str, Any]) -> _Made | None:
        """Return the plan of an unfinished job, and how many of its tasks a worker holds now.

        Raises
        ------
        JobError
            One of its tasks needs more memory than a worker has now.
        """
        try:
            begun = replace(settings, worker=Worker(*choices["worker"]), max_mem=choices["max_mem"])
            writer, planned = self.planned(begun)
        except (KeyError, TypeError, ValueError, JobError):  # of another version
            return None
        if planned != plan_hash:
            return None
        need = max((_task_bytes(plan, begun.worker.n_threads) for plan in writer.plans), default=0)
        limit = settings.worker.max_mem if settings.max_mem is None else settings.max_mem
        at_once = limit // need if need else settings.worker.n_threads
        if not at_once and settings.max_mem is None:
            at_once = 2 * limit // need  # not more than is in use before dask writes values to disk
        if not at_once:
            reason = f"a task of the unfinished job holds {need:,} bytes, planned with max_mem "
            reason += f"{begun.worker.max_mem:,}, and max_mem is {limit:,} now"
            hint = Hint("give {} or more, or workers of more memory", ("max_mem", need))
            raise JobError(job=self.name, reason=reason, hint=hint.also("{} begins again", ("resume", False)))
        return begun, writer, plan_hash, at_once if at_once < settings.worker.n_threads else None

    def _choices(self, settings: Settings) -> dict[str, Any]:
        worker = settings.worker
        targets = {new.path: new for _, new, _ in self.arrays}
        arguments = {
            "operation": self.operation,
            "source": "/".join(name for name in (self.source_url, self.source_path) if name),
            "format": self.format.name,
            "nodes": len(self.groups) + len(targets),
            "chunks": _by_path({path: new.chunks for path, new in targets.items()}),
            "shards": _by_path({path: new.shards for path, new in targets.items()}),
            "codecs": _by_path({path: [c.name for c in new.codecs] for path, new in targets.items()}),
            "temp": None if settings.intermediate is None else settings.intermediate.url,
            "temp_codec": "lz4" if settings.compress else "raw",
            "strategy": settings.strategy,
        }
        return {
            "worker": [worker.max_mem, worker.n_threads, worker.n_workers],
            "max_mem": settings.max_mem,
            "arguments": {name: str(value) for name, value in arguments.items()},
            "source": [self.source_url, self.source_path],
            "into": self.overwrite is None,
            "group": self.group,
        }


_MOST_SHOWN = 200  # characters of an argument that a plan stores in words


def _by_path(values: Mapping[str, Any]) -> str:
    text = str(next(iter(values.values()))) if len(values) == 1 else str(dict(values))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({fingerprint(text)[:8]})"


def _task_bytes(plan: ArrayPlan, n_threads: int) -> int:
    """Return the memory of one task of an array that was planned for workers of that many threads."""
    return plan.memory.n_bytes if plan.rechunk is None else -(-plan.rechunk.estimate.peak_bytes // n_threads)


# --------------------------------------------------------------------------------------------------------------------
# One plan for each array


def _plan_arrays(request: JobRequest, settings: Settings) -> tuple[ArrayPlan, ...]:
    """Choose the action for each array, and how much of it one task owns."""
    arrays = request.arrays
    total = sum(new.nbytes for _, new, _ in arrays)
    fine = min(_FINE_TASK_BYTES, max(total // LEAST_TASKS, 1))
    max_bytes = min(MAX_TASK_BYTES, max(total // _MANY_TASKS, fine))
    n_keys = sum(new.write_layout.grid.n_chunks for _, new, _ in arrays)
    max_keys = min(MAX_TASK_KEYS, max(n_keys // LEAST_TASKS, 1))
    if request.is_remote:
        # a task has as many requests under way as it owns keys; of twice as many the last are read while the first
        # are written
        largest = max((chunk_bytes(new, new.write_layout) for _, new, _ in arrays), default=0)
        max_keys = max(max_keys, 2 * MOST_STORING)
        max_bytes = max(max_bytes, min(MAX_TASK_BYTES, 2 * MOST_STORING * largest))
    chosen = [
        ArrayPlan(
            old,
            new,
            known,
            choose_action(
                old.metadata,
                new.metadata,
                exact=request.exact,
                max_bytes=max_bytes,
                max_keys=max_keys,
                align_bytes=MAX_TASK_BYTES,
                region=region_layout(old),
            ),
        )
        for old, new, known in arrays
    ]
    check_n_tasks(
        f"write all of {request.source_url}",
        sum(n_groups(plan.target.write_layout.grid, plan.action.group) for plan in chosen),
    )
    return tuple(_with_tasks(plan, settings, max_bytes=max_bytes, max_keys=max_keys) for plan in chosen)


def region_layout(array: StoredArray) -> RegionLayout | None:
    """Return the chunks of a region of a stored array; ``None`` for a whole one."""
    if region_of(array) is None:
        return None
    keys, chunks = array.write_layout, array.read_layout
    return RegionLayout(keys.grid, chunks.grid, keys.n_cut, chunks.n_cut)


def _with_tasks(plan: ArrayPlan, settings: Settings, *, max_bytes: int, max_keys: int) -> ArrayPlan:
    """Return the plan with what each task holds, and how the array is rechunked where its chunks change."""
    source, target, action = plan.source, plan.target, plan.action
    if action.name == "rechunk":
        return ArrayPlan(source, target, plan.seen, action, plan_array_rechunk(source, target, settings))
    max_mem, n_threads = settings.max_mem, settings.worker.n_threads
    budget = None if max_mem is None else max_mem // n_threads
    for overhead in thread_overheads(source, target):
        if budget is not None:
            action = fit_memory(source, target, plan.action, budget, overhead)
        memory = task_memory(source, target, action, budget, overhead)
        if budget is None or memory.n_bytes <= budget:
            break
    if max_mem is not None and budget is not None and memory.n_bytes > budget:
        raise _too_little(source, max_mem, memory.n_bytes, n_threads)
    n_keys = prod(action.group)
    share = max(n_keys / max_keys, n_keys * chunk_bytes(target, target.write_layout) / max_bytes)
    return ArrayPlan(source, target, plan.seen, action, None, memory, share)


def _too_little(array: StoredArray, max_mem: int, n_bytes: int, n_threads: int) -> JobError:
    needed = n_bytes * n_threads
    reason = (
        f"{max_mem} bytes for a worker of {n_threads} threads are too little: the smallest that works is {needed} "
        f"bytes ({needed / 2**20:.1f} MiB), since each thread holds a whole chunk, and a shard where its "
        "store takes it in one piece"
    )
    hint = Hint("give {} or more, workers of fewer threads, or smaller chunks or shards", ("max_mem", needed))
    return JobError(job=f"convert {array.path!r}", reason=reason, hint=hint)


def _tasks_known(plan: ArrayPlan) -> tuple[Any, ...]:
    """Return what a rechunk's tasks and intermediate files depend on."""
    rechunk = plan.rechunk
    return () if rechunk is None else (rechunk.reads, rechunk.writes, rechunk.intermediate, rechunk.trailer_bytes)


# --------------------------------------------------------------------------------------------------------------------
# Estimates


def _estimated_stages(writer: TargetWriter) -> tuple[PlannedStage, ...]:
    """Return the stages of the job with the number of their tasks, and estimated bytes and requests."""
    stay = [plan for plan in writer.plans if plan.rechunk is None]
    totals = {"convert": sum(estimate_transfers([(p.source, p.target, p.action) for p in stay]), TransferEstimate())}
    for plan in writer.plans:
        if plan.rechunk is not None:
            for name, estimate in estimate_rechunk(plan.source, plan.target, plan.rechunk).items():
                totals[name] = totals.get(name, TransferEstimate()) + estimate
    return tuple(
        PlannedStage(stage.name, count_tasks(stage), total.bytes_read, total.bytes_written, total.n_requests)
        for stage in stages_of(writer, "", fresh=True)
        for total in [totals[stage.name]]
    )


# --------------------------------------------------------------------------------------------------------------------
# As text


def _strategy(plans: Sequence[ArrayPlan], n_groups: int) -> tuple[str, str]:
    if len(plans) == 1:
        return plans[0].strategy, _reason(plans[0])
    by_name = Counter(plan.strategy for plan in plans)
    each = ", ".join(f"{name} {n}" for name, n in by_name.items()) or "nothing to move"
    groups = f" in {n_groups} group{'s' * (n_groups > 1)}" if n_groups else ""
    return " + ".join(by_name) or "metadata only", f"{len(plans)} arrays{groups}: {each}{_replaced_codecs(plans)}"


def _reason(plan: ArrayPlan) -> str:
    absent = "; absent chunks are written out, since fill values differ" if plan.action.materialize else ""
    if plan.rechunk is None:
        return f"{plan.action.reason}{absent}"
    return f"{explain_strategy(plan.rechunk)}{absent}{_replaced_codecs([plan])}"


def _replaced_codecs(plans: Sequence[ArrayPlan]) -> str:
    """Return which codecs are replaced by others, of those that the target's specification does not know."""
    kinds = {
        f"{chain_text(inner_layout(old.metadata).codecs)} becomes {chain_text(inner_layout(new.metadata).codecs)}"
        for old, new in ((plan.source, plan.target) for plan in plans if not plan.action.moves)
        if is_specified(new.metadata, new.format) and not is_specified(old.metadata, new.format)
    }
    return f"; {', '.join(sorted(kinds))}, which the target's format specifies" if kinds else ""


def shown_node(node: StoredNode) -> str:
    """Return url, path and format of a node, as plans show them."""
    return f"{node.url}/{node.path} ({node.format})" if node.path else f"{node.url} ({node.format})"


def _row(plan: ArrayPlan) -> Mapping[str, Any]:
    old, new = plan.source, plan.target
    return {
        "array": old.path or "/",
        "shape": old.shape,
        "dtype": str(old.dtype),
        "chunks": old.chunks if old.chunks == new.chunks else f"{old.chunks} → {new.chunks}",
        "shards": new.shards if old.shards == new.shards else f"{old.shards or 'none'} → {new.shards or 'none'}",
        "action": plan.strategy,
        "why": _reason(plan),
    }


def _drawn(plans: Iterable[ArrayPlan]) -> tuple[StoredArray, StoredArray] | None:
    """Return the largest array whose chunks or shards change, before and after."""
    changed = [plan for plan in plans if plan.source.write_layout.grid != plan.target.write_layout.grid]
    plan = max(changed, key=lambda plan: plan.source.nbytes, default=None)
    return None if plan is None else (plan.source, plan.target)
