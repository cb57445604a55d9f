"""Plan a conversion or a rechunk of an array, or of a group with everything below it, as one job.

One plan for each array (`ArrayPlan`); from their list the stages, the estimate and the job are built. Not here: the
target's metadata (`chunkmill.conversion.target_metadata`), the action for chunks (`chunkmill.conversion.actions`,
`chunkmill.conversion.rechunking.job`), callbacks of the job (`chunkmill.conversion.target_writer`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Literal

from chunkmill.conversion.actions import RegionLayout, choose_action, n_groups
from chunkmill.conversion.array_plan import ArrayPlan, check_groups, see_sources
from chunkmill.conversion.estimate import (
    MOST_STORING,
    TransferEstimate,
    chunk_bytes,
    estimate_transfers,
    fit_memory,
    task_memory,
)
from chunkmill.conversion.plan import JobCounts, Plan, PlannedStage
from chunkmill.conversion.rechunking.job import Settings, estimate_rechunk, explain_strategy, plan_array_rechunk
from chunkmill.conversion.target_writer import TargetWriter, stages_of
from chunkmill.dask_arrays.hazards import canonical_location
from chunkmill.errors import JobError, MetadataError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.peers import readers_text
from chunkmill.hints import Hint
from chunkmill.journal.journal import Journal
from chunkmill.journal.names import JOB_PREFIX, fingerprint
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.cropped import region_of, whole
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.group import Group, Node
from chunkmill.runtime.job import Job
from chunkmill.runtime.scheduler import check_n_tasks
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS, count_tasks
from chunkmill.stores.base import Store

__all__ = ["ConversionTarget", "check_apart", "plan_job", "region_layout", "shown_node"]

_FINE_TASK_BYTES = 16 << 20  # tasks own less only where there would be fewer than the least number of them
_MANY_TASKS = 1024  # from so many on, tasks own more instead
_VERSION = 4  # of what the journal's numbers and the intermediate files mean


@dataclass(frozen=True, slots=True)
class ConversionTarget:
    """Store and path that a conversion writes to, and how it describes the nodes there.

    Attributes
    ----------
    describe_array, describe_group
        Source node, format and target path -> the target's metadata; `UnsupportedFeature` for what it cannot hold.
    exact
        Whether codecs were asked for, so that bytes are moved only where their parameters are the same too.
    overwrite
        Whether a node that is there is replaced; ``None``: it is an array to write into.
    chosen
        Paths below the source of the nodes to convert; ``None``: all.
    crop
        Source array -> the region of it to convert; ``None``: all of it.
    region
        That region as text.
    """

    store: Store
    path: str
    format: str
    describe_array: Callable[[Array, Format, str], ArrayMetadata]
    describe_group: Callable[[Group, Format, str], GroupMetadata]
    exact: bool = False
    overwrite: bool | None = False
    chosen: Collection[str] | None = None
    crop: Callable[[Array], Array] | None = None
    region: str = ""


def plan_job(
    operation: Literal["convert", "rechunk"], source: Node, target: ConversionTarget, settings: Settings
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
    groups, arrays = _described(source, target, documents_format, path)
    plans = _plan_arrays(source, arrays, target, settings)
    where = f"{target.store.url}/{path}" if path else target.store.url
    name, intermediate = f"{operation} to {where}", settings.separate_store(target.store)
    known: list[Any] = [
        (p.source.path, p.source.metadata, p.seen.versions, p.target.path, p.target.metadata, p.action, _tasks_known(p))
        for p in plans
    ]
    regions = [region for p in plans if (region := region_of(p.source)) is not None]
    known += [tuple((cut.start, cut.stop) for cut in region) for region in regions]
    apart = None if intermediate is None else intermediate.url
    mark = fingerprint(operation, _VERSION, source.url, documents_format, groups, known, apart, settings.compress)
    prefix = f"{Journal(target.store, path, name, mark).prefix}intermediate/"
    if intermediate is not None:  # a directory that jobs may share
        prefix = f"{JOB_PREFIX}{fingerprint(target.store.url, path)[:16]}-intermediate/"
    writer = TargetWriter(
        name,
        target.store,
        path,
        documents_format,
        groups,
        plans,
        target.overwrite,
        intermediate if any(plan.n_intermediate_files for plan in plans) else None,
        prefix,
        settings.compress,
        settings.worker.ahead_bytes,
    )
    stages = _estimated_stages(writer)
    strategy, reason = _strategy(plans, len(groups))
    return Plan(
        operation=operation,
        source=f"{shown_node(source)}{target.region and f', region {target.region}'}",
        target=f"{where} ({documents_format.name})",
        strategy=strategy,
        reason=reason,
        costs=_estimated_counts(plans, stages, settings.worker.n_threads),
        stages=stages,
        job=_job(name, mark, writer),
        arrays=[_row(plan) for plan in plans],
        not_read_by=readers_text([(p.target.path, p.target.metadata) for p in plans], documents_format.name),
        drawn=_drawn(plans),
    )


def _job(name: str, mark: str, writer: TargetWriter) -> Job:
    replacement = writer.replacement
    return Job(
        name=name,
        store=writer.store,
        path=writer.path,
        fingerprint=mark,
        sources=[plan.source for plan in writer.plans],
        targets=[plan.target for plan in writer.plans],
        prepare=writer.prepare,
        stages=writer.stages,
        check_result=writer.check_result,
        publish=writer.publish,
        writes=() if writer.intermediate is None else (writer.intermediate,),
        check_free=writer.check_free,
        overwrite=writer.overwrite,
        beside=partial(_job_beside, name, mark, writer) if writer.overwrite and replacement is None else None,
        keeps_old=writer.keeps_old,
        old_prefix=None if replacement is None else replacement.old_prefix,
        replaced=writer.replaced,
    )


def _job_beside(name: str, mark: str, writer: TargetWriter, run: str, replaced: Mapping[str, str] | None) -> Job | None:
    beside = writer.beside(run, replaced)
    return None if beside is None else _job(name, mark, beside)


def check_apart(source: Node, store: Store, path: str, *, overwrite: bool) -> None:
    """Raise `JobError` where writing the target would change the source, however their urls and paths are written."""
    a = canonical_location(source.store.url, source.path)
    b = canonical_location(store.url, path)
    if a == b:
        reason = f"source and target are the same place, {a}"
    elif overwrite and a.startswith(b):
        reason = f"the source, {a}, is inside the target, {b}, and would be deleted with what is there"
    elif b.startswith(a):
        reason = f"the target, {b}, is inside the source, {a}, which it would change"
    else:
        return
    raise JobError(job="write the target", reason=reason, hint="give another url or path as the target")


# --------------------------------------------------------------------------------------------------------------------
# One plan for each array


def _described(
    source: Node, target: ConversionTarget, documents_format: Format, root: str
) -> tuple[dict[str, GroupMetadata], list[tuple[Array, Array]]]:
    """Describe every node of the target: groups by path, and pairs of source and target array."""
    groups: dict[str, GroupMetadata] = {}
    arrays: list[tuple[Array, Array]] = []
    empty: dict[str, Group] = {}
    for node in hierarchy.walk(source):
        empty.pop(node.path.rpartition("/")[0], None)
        if isinstance(node, Group):
            empty[node.path] = node
        below = node.path[len(source.path) :].strip("/")
        if target.chosen is not None and below not in target.chosen:
            continue
        path = _normalized("/".join(name for name in (root, below) if name), documents_format)
        if isinstance(node, Group):
            groups[path] = target.describe_group(node, documents_format, path)
        else:
            array = node if target.crop is None else target.crop(node)
            metadata = target.describe_array(array, documents_format, path)
            arrays.append((array, hierarchy.array_at(target.store, path, metadata, documents_format)))
    check_groups([*empty.values()])
    return groups, arrays


def _normalized(path: str, documents_format: Format) -> str:
    try:
        return documents_format.normalize_path(path)
    except MetadataError as error:
        feature = f"a node at {path!r}"
        raise UnsupportedFeature(format=documents_format.name, feature=feature, hint=str(error)) from error


def _plan_arrays(
    source: Node, arrays: Sequence[tuple[Array, Array]], target: ConversionTarget, settings: Settings
) -> tuple[ArrayPlan, ...]:
    """Choose the action for each array, and how much of it one task owns."""
    total = sum(new.nbytes for _, new in arrays)
    fine = min(_FINE_TASK_BYTES, max(total // LEAST_TASKS, 1))
    max_bytes = min(MAX_TASK_BYTES, max(total // _MANY_TASKS, fine))
    n_keys = sum(new.write_layout.grid.n_chunks for _, new in arrays)
    max_keys = min(MAX_TASK_KEYS, max(n_keys // LEAST_TASKS, 1))
    if source.store.is_remote or target.store.is_remote:
        # a task has as many requests under way as it owns keys; of twice as many the last are read beside the first
        # being written
        largest = max((chunk_bytes(new, new.write_layout) for _, new in arrays), default=0)
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
                exact=target.exact,
                max_bytes=max_bytes,
                max_keys=max_keys,
                align_bytes=MAX_TASK_BYTES,
                region=region_layout(old),
            ),
        )
        for (old, new), known in zip(arrays, see_sources([whole(old) for old, _ in arrays]), strict=True)
    ]
    check_n_tasks(
        f"write all of {source.url}",
        sum(n_groups(plan.target.write_layout.grid, plan.action.group) for plan in chosen),
    )
    return tuple(_with_tasks(plan, settings, max_bytes=max_bytes, max_keys=max_keys) for plan in chosen)


def region_layout(array: Array) -> RegionLayout | None:
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
    if budget is not None:
        action = fit_memory(source, target, action, budget)
    memory = task_memory(source, target, action, budget)
    if budget is not None and memory.n_bytes > budget:
        raise _too_little(source, max_mem, memory.n_bytes, n_threads)
    n_keys = prod(action.group)
    share = max(n_keys / max_keys, n_keys * chunk_bytes(target, target.write_layout) / max_bytes)
    return ArrayPlan(source, target, plan.seen, action, None, memory, share)


def _too_little(array: Array, max_mem: int | None, n_bytes: int, n_threads: int) -> JobError:
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


def _estimated_counts(plans: Sequence[ArrayPlan], stages: Sequence[PlannedStage], n_threads: int) -> JobCounts:
    estimates = [plan.rechunk.estimate for plan in plans if plan.rechunk is not None]
    decoded, once = (
        sum(sizes) for sizes in ([e.decoded_bytes for e in estimates], [e.written_bytes for e in estimates])
    )
    actions: Counter[str] = Counter()
    for plan in plans:
        actions.update(plan.action.counts)
    held = [n_threads * plan.memory.n_bytes for plan in plans]
    return JobCounts(
        n_tasks=sum(stage.n_tasks for stage in stages),
        bytes_read=sum(stage.bytes_read for stage in stages),
        bytes_written=sum(stage.bytes_written for stage in stages),
        bytes_temporary=sum(estimate.intermediate_bytes for estimate in estimates),
        n_requests=sum(stage.n_requests for stage in stages),
        peak_memory_bytes=max([*held, *(estimate.peak_bytes for estimate in estimates)], default=0),
        read_amplification=decoded / once if once else 1.0,
        n_keys=sum(plan.target.write_layout.grid.n_chunks for plan in plans),
        actions=dict(actions),
    )


# --------------------------------------------------------------------------------------------------------------------
# As text


def _strategy(plans: Sequence[ArrayPlan], n_groups: int) -> tuple[str, str]:
    if len(plans) == 1:
        return plans[0].strategy, _reason(plans[0])
    counted = Counter(plan.strategy for plan in plans)
    each = ", ".join(f"{name} {n}" for name, n in counted.items()) or "nothing to move"
    groups = f" in {n_groups} groups" if n_groups else ""
    return " + ".join(counted) or "metadata only", f"{len(plans)} arrays{groups}: {each}"


def _reason(plan: ArrayPlan) -> str:
    return plan.action.reason if plan.rechunk is None else explain_strategy(plan.rechunk)


def shown_node(node: Node) -> str:
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


def _drawn(plans: Iterable[ArrayPlan]) -> tuple[Array, Array] | None:
    """Return the largest array whose chunks or shards change, before and after."""
    changed = [plan for plan in plans if plan.source.write_layout.grid != plan.target.write_layout.grid]
    plan = max(changed, key=lambda plan: plan.source.nbytes, default=None)
    return None if plan is None else (plan.source, plan.target)
