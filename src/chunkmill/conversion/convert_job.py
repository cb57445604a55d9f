"""Plan a conversion or a rechunk of an array, or of a group with everything below it, as one job.

One plan for each array (`ArrayPlan`); from their list the stages, the estimate and the job are built. Not here: the
target's metadata (`chunkmill.conversion.target_metadata`), the action for chunks (`chunkmill.conversion.actions`,
`chunkmill.conversion.rechunking.job`), the stages (`chunkmill.conversion.stages`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import CutGrid, chain_text, choose_action, n_groups
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
from chunkmill.conversion.rechunking.plan import too_little
from chunkmill.conversion.region_option import region_of
from chunkmill.conversion.stages import ConversionTasks, stages_of
from chunkmill.conversion.target_metadata import ConversionTarget, describe_nodes
from chunkmill.dask_arrays.hazards import check_apart
from chunkmill.errors import JobError
from chunkmill.formats.peers import is_specified, readers_text
from chunkmill.jobs.plan import Plan, plan_work
from chunkmill.jobs.sources import see_sources
from chunkmill.jobs.work import Described, PlannedStage, Work, shown_node
from chunkmill.journal.plans import JOB_PREFIX, fingerprint, journal_prefix
from chunkmill.model.inner_layout import inner_layout
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.nodes.target import Target
from chunkmill.runtime.scheduler import check_n_tasks
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS, count_tasks
from chunkmill.runtime.worker_memory import Worker

_FINE_TASK_BYTES = 16 << 20  # tasks own less only where there would be fewer than the least number of them
_MANY_TASKS = 1024  # from so many on, tasks own more instead


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
    shown = f"{shown_node(source)}{target.region and f', region {target.region}'}"
    work = Conversion(
        operation=operation,
        name=f"{operation} to {where}",
        sources=see_sources([old for old, _ in arrays]),
        target=Target(
            target.store, path, documents_format, [new for _, new in arrays], groups, target.overwrite, group
        ),
        settings=settings,
        exact=target.exact,
        is_remote=source.store.is_remote or target.store.is_remote,
        shown=(shown, f"{where} ({documents_format.name})"),
    )
    return plan_work(work, settings.worker)


@dataclass(frozen=True, kw_only=True)
class Conversion(Work):
    """Conversion or rechunk of an array, or of a group with everything below it.

    Attributes
    ----------
    settings
        Intermediate files and strategy.
    exact
        As in `ConversionTarget`.
    is_remote
        Whether requests of source or target cost latency.
    shown
        Source and target as plans show them.
    """

    version = 7
    settings: Settings
    exact: bool
    is_remote: bool
    shown: tuple[str, str]

    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> ConversionTasks:  # noqa: ARG002
        """Choose for each array the action, or how it is rechunked, and how much of it one task owns."""
        settings, target = replace(self.settings, worker=worker), self.target
        plans = _plan_arrays(self, settings)
        intermediate = self.settings.separate_store(target.store)
        prefix = f"{journal_prefix(target.path)}intermediate/"
        if intermediate is not None:  # a directory that jobs may share
            prefix = f"{JOB_PREFIX}{fingerprint(target.store.url, target.path)[:16]}-intermediate/"
        is_apart = intermediate is not None and any(plan.n_intermediate_files for plan in plans)
        return ConversionTasks(
            numbered=[(plan.action, _tasks_known(plan)) for plan in plans],
            task_bytes=max((_task_bytes(plan, worker.n_threads) for plan in plans), default=0),
            writes=(intermediate,) if is_apart and intermediate is not None else (),
            job=self.name,
            store=target.store,
            plans=plans,
            prefix=prefix,
            compress=settings.compress,
            ahead_bytes=worker.ahead_bytes,
        )

    def identity(self) -> tuple[Any, ...]:
        """Return the regions that are read, and where and how intermediate files are written."""
        apart = self.settings.separate_store(self.target.store)
        regions = [region_of(each.array) for each in self.sources]
        return (
            [region and [(cut.start, cut.stop) for cut in region] for region in regions],
            None if apart is None else apart.url,
            self.settings.compress,
        )

    def arguments(self) -> Mapping[str, Any]:
        """Return what is said of intermediate files, and the strategy."""
        settings = self.settings
        temp = None if settings.intermediate is None else settings.intermediate.url
        return {"temp": temp, "temp_codec": "lz4" if settings.compress else "raw", "strategy": settings.strategy}

    def described(self, tasks: ConversionTasks, worker: Worker) -> Described:
        """Return strategy, reason, rows and estimates."""
        plans, stages = tasks.plans, _estimated_stages(tasks)
        strategy, reason = _strategy(plans, len(self.target.groups))
        return {
            "source": self.shown[0],
            "target": self.shown[1],
            "strategy": strategy,
            "reason": reason,
            "costs": estimated_counts(plans, stages, worker.n_threads),
            "stages": stages,
            "arrays": [_row(plan) for plan in plans],
            "not_read_by": readers_text([(p.target.path, p.target.metadata) for p in plans], self.target.format.name),
            "drawn": _drawn(plans),
        }


def _task_bytes(plan: ArrayPlan, n_threads: int) -> int:
    """Return the memory of one task of an array that was planned for workers of that many threads."""
    return plan.memory.n_bytes if plan.rechunk is None else -(-plan.rechunk.estimate.peak_bytes // n_threads)


# --------------------------------------------------------------------------------------------------------------------
# One plan for each array


def _plan_arrays(work: Conversion, settings: Settings) -> tuple[ArrayPlan, ...]:
    """Choose the action for each array, and how much of it one task owns."""
    new = work.target.arrays
    total = sum(array.nbytes for array in new)
    fine = min(_FINE_TASK_BYTES, max(total // LEAST_TASKS, 1))
    max_bytes = min(MAX_TASK_BYTES, max(total // _MANY_TASKS, fine))
    n_keys = sum(array.write_layout.grid.n_chunks for array in new)
    max_keys = min(MAX_TASK_KEYS, max(n_keys // LEAST_TASKS, 1))
    if work.is_remote:
        # a task has as many requests under way as it owns keys; of twice as many the last are read while the first
        # are written
        largest = max((chunk_bytes(array, array.write_layout) for array in new), default=0)
        max_keys = max(max_keys, 2 * MOST_STORING)
        max_bytes = max(max_bytes, min(MAX_TASK_BYTES, 2 * MOST_STORING * largest))
    chosen = [
        ArrayPlan(
            old,
            array,
            seen,
            choose_action(
                old.metadata,
                array.metadata,
                exact=work.exact,
                max_bytes=max_bytes,
                max_keys=max_keys,
                align_bytes=MAX_TASK_BYTES,
                region=region_grids(old),
            ),
        )
        for (old, seen), array in zip(work.sources, new, strict=True)
    ]
    check_n_tasks(
        f"write all of {work.shown[0]}",
        sum(n_groups(plan.target.write_layout.grid, plan.action.group) for plan in chosen),
    )
    return tuple(_with_tasks(plan, settings, max_bytes=max_bytes, max_keys=max_keys) for plan in chosen)


def region_grids(array: StoredArray) -> tuple[CutGrid, CutGrid] | None:
    """Return the store keys and the chunks of a region of a stored array; ``None`` for a whole one."""
    if region_of(array) is None:
        return None
    keys, chunks = array.write_layout, array.read_layout
    return (keys.grid, keys.n_cut), (chunks.grid, chunks.n_cut)


def _with_tasks(plan: ArrayPlan, settings: Settings, *, max_bytes: int, max_keys: int) -> ArrayPlan:
    """Return the plan with what each task holds, and how the array is rechunked where its chunks change."""
    source, target, action = plan.source, plan.target, plan.action
    if action.name == "rechunk":
        return replace(plan, rechunk=plan_array_rechunk(source, target, settings))
    max_mem, n_threads = settings.worker.max_mem, settings.worker.n_threads
    budget = max_mem // n_threads if settings.worker.is_asked else None
    for overhead in thread_overheads(source, target):
        if budget is not None:
            action = fit_memory(source, target, plan.action, budget, overhead)
        memory = task_memory(source, target, action, budget, overhead)
        if budget is None or memory.n_bytes <= budget:
            break
    if budget is not None and memory.n_bytes > budget:
        since = "each thread holds a whole chunk, and a shard where its store takes it in one piece"
        raise too_little(f"convert {source.path!r}", max_mem, n_threads, memory.n_bytes * n_threads, since)
    n_keys = prod(action.group)
    share = max(n_keys / max_keys, n_keys * chunk_bytes(target, target.write_layout) / max_bytes)
    return replace(plan, action=action, memory=memory, share=share)


def _tasks_known(plan: ArrayPlan) -> tuple[Any, ...]:
    """Return what a rechunk's tasks and intermediate files depend on."""
    rechunk = plan.rechunk
    return () if rechunk is None else (rechunk.reads, rechunk.writes, rechunk.intermediate, rechunk.trailer_bytes)


# --------------------------------------------------------------------------------------------------------------------
# Estimates


def _estimated_stages(tasks: ConversionTasks) -> tuple[PlannedStage, ...]:
    """Return the stages of the job with the number of their tasks, and estimated bytes and requests."""
    stay = [plan for plan in tasks.plans if plan.rechunk is None]
    totals = {"convert": sum(estimate_transfers([(p.source, p.target, p.action) for p in stay]), TransferEstimate())}
    for plan in tasks.plans:
        if plan.rechunk is not None:
            for name, estimate in estimate_rechunk(plan.source, plan.target, plan.rechunk).items():
                totals[name] = totals.get(name, TransferEstimate()) + estimate
    return tuple(
        PlannedStage(stage.name, count_tasks(stage), total.bytes_read, total.bytes_written, total.n_requests)
        for stage in stages_of(tasks, "", fresh=True)
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
