"""Plan a conversion or a rechunk of an array, or of a group with everything below it, as one job.

One plan for each array (`ArrayPlan`); from their list the stages, the estimate and the job are built. Not here: the
target's metadata (`chunkmill.conversion.target_metadata`), the tasks and other workers
(`chunkmill.conversion.job_request`), callbacks of the job (`chunkmill.conversion.target_writer`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import ArrayPlan, check_groups, estimated_counts, see_sources
from chunkmill.conversion.estimate import (
    TransferEstimate,
    estimate_transfers,
)
from chunkmill.conversion.job_request import JobRequest
from chunkmill.conversion.options import refuse_chosen
from chunkmill.conversion.plan import Plan, PlannedStage
from chunkmill.conversion.rechunking.job import (
    Settings,
    estimate_rechunk,
    explain_strategy,
)
from chunkmill.conversion.region_option import whole
from chunkmill.conversion.target_writer import TargetWriter, stages_of
from chunkmill.dask_arrays.hazards import canonical_location
from chunkmill.errors import JobError, MetadataError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.peers import readers_text
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes import opening
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.runtime.stage import count_tasks
from chunkmill.stores.base import Store

__all__ = ["ConversionTarget", "check_apart", "plan_job", "shown_node"]


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
    adds
        Whether the nodes below a group are added to the group that is at `path`.
    """

    store: Store
    path: str
    format: str
    describe_array: Callable[[StoredArray, Format, str], ArrayMetadata]
    describe_group: Callable[[StoredGroup, Format, str], GroupMetadata]
    exact: bool = False
    overwrite: bool | None = False
    chosen: Collection[str] | None = None
    crop: Callable[[StoredArray], StoredArray] | None = None
    region: str = ""
    adds: bool = False


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
    groups, arrays = _described(source, target, documents_format, path)
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


def check_apart(source: StoredNode, store: Store, path: str, *, overwrite: bool) -> None:
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
    source: StoredNode, target: ConversionTarget, documents_format: Format, root: str
) -> tuple[dict[str, GroupMetadata], list[tuple[StoredArray, StoredArray]]]:
    """Describe every node of the target: groups by path, and pairs of source and target array."""
    groups: dict[str, GroupMetadata] = {}
    arrays: list[tuple[StoredArray, StoredArray]] = []
    empty: dict[str, StoredGroup] = {}
    for node in opening.walk(source, on_error=partial(refuse_chosen, source, target.chosen)):
        empty.pop(node.path.rpartition("/")[0], None)
        if isinstance(node, StoredGroup):
            empty[node.path] = node
        below = node.path[len(source.path) :].strip("/")
        if target.chosen is not None and below not in target.chosen:
            continue
        path = _normalized("/".join(name for name in (root, below) if name), documents_format)
        if isinstance(node, StoredGroup):
            groups[path] = target.describe_group(node, documents_format, path)
        else:
            array = node if target.crop is None else target.crop(node)
            metadata = target.describe_array(array, documents_format, path)
            arrays.append((array, opening.array_at(target.store, path, metadata, documents_format)))
    check_groups([*empty.values()])
    return groups, arrays


def _normalized(path: str, documents_format: Format) -> str:
    try:
        return documents_format.normalize_path(path)
    except MetadataError as error:
        feature = f"a node at {path!r}"
        raise UnsupportedFeature(format=documents_format.name, feature=feature, hint=str(error)) from error


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
    return " + ".join(by_name) or "metadata only", f"{len(plans)} arrays{groups}: {each}"


def _reason(plan: ArrayPlan) -> str:
    if plan.rechunk is None:
        return plan.action.reason
    parts = f", in parts of {plan.parts.writes.chunk_shape}" if plan.parts else ""
    return f"{explain_strategy(plan.rechunk)}{parts}"


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
