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
from chunkmill.conversion.actions import chain_text, choose_action, n_groups
from chunkmill.conversion.estimate import (
    MOST_STORING,
    NO_BUDGET,
    TransferEstimate,
    chunk_bytes,
    estimate_transfers,
    fit_memory,
)
from chunkmill.conversion.rechunking.job import estimate_rechunk, explain_strategy, plan_array_rechunk
from chunkmill.conversion.rechunking.strategies import Strategy
from chunkmill.conversion.region_option import RegionOption, shown_regions
from chunkmill.conversion.stages import ArrayPlan, ConversionTasks, stages_of
from chunkmill.formats.peers import is_specified, readers_text
from chunkmill.jobs.plan import Plan, plan_work
from chunkmill.jobs.sources import see_sources
from chunkmill.jobs.work import Described, JobCounts, PlannedStage, Work, shown_node
from chunkmill.journal.plans import JOB_PREFIX, fingerprint, journal_prefix
from chunkmill.model.metadata import inner_layout
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.nodes.target import Target
from chunkmill.runtime.scheduler import check_n_tasks
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS, count_tasks
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store

_FINE_TASK_BYTES = 16 << 20  # tasks own less only where there would be fewer than the least number of them
_MANY_TASKS = 1024  # from so many on, tasks own more instead


@dataclass(frozen=True, slots=True)
class Settings:
    """Workers, memory and intermediate files of a job.

    Attributes
    ----------
    worker
        The workers that run the tasks.
    intermediate
        The store for intermediate files; the target's when ``None`` (a zip file's folder).
    strategy
        Consider only this one.
    """

    worker: Worker
    intermediate: Store | None = None
    strategy: Strategy | None = None

    def separate_store(self, target: Store) -> Store | None:
        """Return the store for intermediate files, where it is not the target's."""
        scratch = target.scratch()
        return scratch if self.intermediate is None and scratch is not target.innermost else self.intermediate


def plan_conversion(
    operation: Literal["convert", "rechunk"],
    node: StoredNode,
    sources: Sequence[StoredArray],
    target: Target,
    settings: Settings,
    *,
    exact: bool = False,
    region: RegionOption = None,
) -> Plan:
    """Plan to write arrays of `node` to those of `target`; nothing is written before the plan runs.

    Parameters
    ----------
    exact
        Whether codecs were asked for, so that bytes are moved only where their parameters are the same too.
    region
        The argument that the sources were cropped by.

    Raises
    ------
    JobError
        The memory allowed is too little; says how much is needed.
    """
    path = target.path if target.group is None else target.group
    where = f"{target.store.url}/{path}" if path else target.store.url
    shown_region = "" if region is None else f", region {shown_regions(region)}"
    work = Conversion(
        operation=operation,
        name=f"{operation} to {where}",
        sources=see_sources(sources),
        target=target,
        settings=settings,
        exact=exact,
        shown=(f"{shown_node(node)}{shown_region}", f"{where} ({target.format.name})"),
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
        As in `plan_conversion`.
    shown
        Source and target as plans show them.
    """

    version = 8
    settings: Settings
    exact: bool
    shown: tuple[str, str]

    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> ConversionTasks:  # noqa: ARG002
        """Choose for each array the action, or how it is rechunked, and how much of it one task owns."""
        target, apart = self.target, self.settings.separate_store(self.target.store)
        plans = _plan_arrays(self, worker)
        prefix = f"{journal_prefix(target.path)}intermediate/"
        if apart is not None:  # a directory that jobs may share
            prefix = f"{JOB_PREFIX}{fingerprint(target.store.url, target.path)[:16]}-intermediate/"
        has_files = any(plan.n_intermediate_files for plan in plans)
        return ConversionTasks(
            numbered=[
                (p.action, p.rechunk and (p.rechunk.reads, p.rechunk.writes, p.rechunk.trailer_bytes)) for p in plans
            ],
            task_bytes=max((plan.task_bytes(worker.n_threads) for plan in plans), default=0),
            since=_since(plans, worker),
            writes=() if apart is None or not has_files else (apart,),
            job=self.name,
            store=target.store,
            plans=plans,
            prefix=prefix,
            ahead_bytes=worker.ahead_bytes,
        )

    def identity(self) -> tuple[Any, ...]:
        """Return the regions that are read, where intermediate files are written, and the strategy asked for."""
        apart = self.settings.separate_store(self.target.store)
        regions = [[(cut.start, cut.stop) for cut in each.array.region or ()] for each in self.sources]
        return regions, None if apart is None else apart.url, self.settings.strategy

    def arguments(self) -> Mapping[str, Any]:
        """Return what is said of intermediate files, and the strategy."""
        settings = self.settings
        temp = None if settings.intermediate is None else settings.intermediate.url
        return {"temp": temp, "strategy": settings.strategy}

    def described(self, tasks: ConversionTasks, worker: Worker) -> Described:
        """Return strategy, reason, rows and estimates."""
        plans, stages = tasks.plans, _estimated_stages(tasks)
        strategy, reason = _strategy(plans, len(self.target.groups))
        estimates = [plan.rechunk.estimate for plan in plans if plan.rechunk is not None]
        decoded, once = sum(e.decoded_bytes for e in estimates), sum(e.written_bytes for e in estimates)
        actions: Counter[str] = Counter()
        for plan in plans:
            actions.update(plan.action.counts)
        held = [worker.n_threads * plan.memory.n_bytes for plan in plans]
        return {
            "source": self.shown[0],
            "target": self.shown[1],
            "strategy": strategy,
            "reason": reason,
            "costs": JobCounts.of(
                stages,
                bytes_temporary=sum(estimate.intermediate_bytes for estimate in estimates),
                peak_memory_bytes=max([*held, *(estimate.peak_bytes for estimate in estimates)], default=0),
                read_amplification=decoded / once if once else 1.0,
                n_keys=sum(plan.target.write_layout.grid.n_chunks for plan in plans),
                actions=dict(actions),
            ),
            "stages": stages,
            "arrays": [_row(plan) for plan in plans],
            "not_read_by": readers_text([(p.target.path, p.target.metadata) for p in plans], self.target.format.name),
            "drawn": _drawn(plans),
        }


# --------------------------------------------------------------------------------------------------------------------
# One plan for each array


def _plan_arrays(work: Conversion, worker: Worker) -> tuple[ArrayPlan, ...]:
    """Choose the action for each array, and how much of it one task owns."""
    new = work.target.arrays
    total = sum(array.nbytes for array in new)
    fine = min(_FINE_TASK_BYTES, max(total // LEAST_TASKS, 1))
    max_bytes = min(MAX_TASK_BYTES, max(total // _MANY_TASKS, fine))
    n_keys = sum(array.write_layout.grid.n_chunks for array in new)
    max_keys = min(MAX_TASK_KEYS, max(n_keys // LEAST_TASKS, 1))
    if work.target.store.is_remote or any(each.array.store.is_remote for each in work.sources):
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
                layouts=(old.read_layout, old.write_layout),
            ),
        )
        for (old, seen), array in zip(work.sources, new, strict=True)
    ]
    check_n_tasks(
        f"write all of {work.shown[0]}",
        sum(n_groups(plan.target.write_layout.grid, plan.action.group) for plan in chosen),
    )
    return tuple(_with_tasks(plan, work.settings, worker, max_bytes=max_bytes, max_keys=max_keys) for plan in chosen)


def _with_tasks(plan: ArrayPlan, settings: Settings, worker: Worker, *, max_bytes: int, max_keys: int) -> ArrayPlan:
    """Return the plan with what each task holds, and how the array is rechunked where its chunks change."""
    source, target = plan.source, plan.target
    if plan.action.name == "rechunk":
        store = settings.separate_store(target.store) or target.store
        return replace(plan, rechunk=plan_array_rechunk(source, target, worker, store, settings.strategy))
    budget = worker.max_mem // worker.n_threads if worker.is_asked else NO_BUDGET
    action, memory = fit_memory(source, target, plan.action, budget)
    n_keys = prod(action.group)
    share = max(n_keys / max_keys, n_keys * chunk_bytes(target, target.write_layout) / max_bytes)
    return replace(plan, action=action, memory=memory, share=share)


def _since(plans: Sequence[ArrayPlan], worker: Worker) -> str:
    """Return why no task holds less; nothing where all fit, or where chunks stay and nobody has asked for so little."""
    n = worker.n_threads
    refused = [p for p in plans if (p.rechunk or worker.is_asked) and n * p.task_bytes(n) > worker.max_mem]
    if not refused:
        return ""
    plan = max(refused, key=lambda p: p.task_bytes(n))
    held = "a whole chunk, and a shard where its store takes it in one piece"
    if plan.rechunk is not None:
        held = "a whole source chunk or target chunk (shard, when sharded), decoded and encoded"
    return f"each thread holds {held}" + (f", of {plan.source.path!r}" if plan.source.path else "")


# --------------------------------------------------------------------------------------------------------------------
# Estimates


def _estimated_stages(tasks: ConversionTasks) -> tuple[PlannedStage, ...]:
    """Return the stages of the job with the number of their tasks, and estimated bytes and requests."""
    stay = [plan for plan in tasks.plans if plan.rechunk is None]
    found = {"convert": estimate_transfers([(p.source, p.target, p.action) for p in stay])}
    for plan in tasks.plans:
        if plan.rechunk is not None:
            for name, estimate in estimate_rechunk(plan.source, plan.target, plan.rechunk).items():
                found.setdefault(name, []).append(estimate)
    return tuple(
        PlannedStage(
            stage.name, count_tasks(stage), *map(sum, zip(TransferEstimate(), *found[stage.name], strict=True))
        )
        for stage in stages_of(tasks, "", fresh=True)
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
