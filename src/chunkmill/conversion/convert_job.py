"""Conversion of an array, or of a group with everything below it, as one job.

Not here: what the target's description is (`chunkmill.conversion.target_metadata`), what is done with chunks
(`chunkmill.conversion.actions`, `chunkmill.conversion.convert_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from chunkmill.conversion.actions import ChosenAction, choose_action, n_groups
from chunkmill.conversion.chunk_memory import chunk_bytes
from chunkmill.conversion.convert_tasks import (
    ArrayTransfer,
    transfer_group,
    transfer_reads,
    transfer_share,
    transfer_shows,
)
from chunkmill.conversion.estimate import Forecast, TaskMemory, fitted, forecast, task_memory
from chunkmill.conversion.plan import JobCounts, Plan, PlannedStage
from chunkmill.dask_arrays.hazards import canonical_location
from chunkmill.errors import JobError, MetadataError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.registry import get_format
from chunkmill.hints import Hint
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import publish, refresh_consolidated
from chunkmill.nodes.group import Group, Node
from chunkmill.runtime.job import Job, Stage, grouped
from chunkmill.runtime.journal import JOB_PREFIX, fingerprint
from chunkmill.runtime.scheduler import Scheduler, check_n_tasks
from chunkmill.stores.base import Store

__all__ = ["Target", "plan_conversion"]

# What one task owns of the target at most: enough that the scheduler's share and the journal's (0.3 ms a task together)
# are small, little enough that progress is seen and memory is spared. Smaller jobs are cut finer, so that every worker
# has something to do.
_MAX_TASK_BYTES = 64 << 20
_MAX_TASK_KEYS = 512
_FINE_TASK_BYTES = 16 << 20  # finer only where there would not even be the least number of tasks
_MANY_TASKS = 1024
_LEAST_TASKS = 32
_VERSION = 2  # of what the journal's numbers mean


@dataclass(frozen=True, slots=True)
class Target:
    """Where a conversion goes, and what the nodes become there.

    Attributes
    ----------
    describe_array, describe_group
        Source node, format and target path -> the target's metadata; `UnsupportedFeature` for what it cannot hold.
    exact
        Whether codecs were asked for, so that bytes are moved only where their parameters are the same too.
    """

    store: Store
    path: str
    format: str
    describe_array: Callable[[Array, Format, str], ArrayMetadata]
    describe_group: Callable[[Group, Format, str], GroupMetadata]
    exact: bool = False
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class _Item:
    """One array of the job.

    Attributes
    ----------
    memory
        What one of its tasks holds.
    share
        How much of what one task may do the store keys of one group are: small arrays share tasks.
    """

    source: Array
    target: Array
    action: ChosenAction
    memory: TaskMemory = field(default_factory=lambda: TaskMemory(0))
    share: float = 1.0

    @property
    def n_tasks(self) -> int:
        return n_groups(self.target.write_layout.grid, self.action.group)


def plan_conversion(source: Node, target: Target, *, max_mem: int | None = None) -> Plan:
    """Plan the conversion of `source` and of everything below it; nothing is written before the plan runs.

    Arrays whose chunks change are in the plan, with the action ``"rechunk"``; how they change is for
    `chunkmill.conversion.rechunking.job.plan_rechunking`, which takes the plan on.

    Raises
    ------
    UnsupportedFeature
        The format cannot hold something; says which node, and what would be lost.
    JobError
        It cannot be done within `max_mem`; says what it takes.
    """
    _check_apart(source, target)
    documents_format = _format_of(target)
    root = documents_format.normalize_path(target.path)
    groups: dict[str, GroupMetadata] = {}
    arrays: list[tuple[Array, Array]] = []
    for node in hierarchy.walk(source):
        below = node.path[len(source.path) :].strip("/")
        path = _normalized("/".join(part for part in (root, below) if part), documents_format)
        if isinstance(node, Group):
            groups[path] = target.describe_group(node, documents_format, path)
        else:
            metadata = target.describe_array(node, documents_format, path)
            prefix = documents_format.chunk_prefix(path)
            arrays.append((node, Array(target.store, path, metadata, documents_format.name, prefix)))
    scheduler = Scheduler()
    items = _planned(arrays, target, max_mem, scheduler.threads_per_worker)
    conversion = _Conversion(source, target, documents_format, root, groups, items)
    return conversion.plan(scheduler.threads_per_worker)


def _check_apart(source: Node, target: Target) -> None:
    """Raise `JobError` where writing the target would change the source, by whatever urls and paths they are given."""
    a, b = canonical_location(source.store.url, source.path), canonical_location(target.store.url, target.path)
    if a == b:
        reason = f"source and target are the same place, {a}"
    elif target.overwrite and a.startswith(b):
        reason = f"the source, {a}, lies inside the target, {b}, and would be deleted with what is there"
    elif b.startswith(a):
        reason = f"the target, {b}, lies inside the source, {a}, which it would change"
    else:
        return
    raise JobError(job="write the target", reason=reason, hint="give another url or path as the target")


def _normalized(path: str, documents_format: Format) -> str:
    try:
        return documents_format.normalize_path(path)
    except MetadataError as error:
        feature = f"a node at {path!r}"
        raise UnsupportedFeature(format=documents_format.name, feature=feature, hint=str(error)) from error


def _format_of(target: Target) -> Format:
    """Return the format as the documents at the root of the target's store configure it."""
    fresh = get_format(target.format)
    found = {key: value for key in fresh.root_keys() if (value := target.store.get(key)) is not None}
    return fresh.configured(found) or fresh if found else fresh


def _planned(arrays: Sequence[tuple[Array, Array]], target: Target, max_mem: int | None, n_threads: int) -> list[_Item]:
    """Choose the action for each array, and how much of it one task owns."""
    total = sum(new.nbytes for _, new in arrays)
    fine = min(_FINE_TASK_BYTES, max(total // _LEAST_TASKS, 1))
    max_bytes = min(_MAX_TASK_BYTES, max(total // _MANY_TASKS, fine))
    n_keys = sum(new.write_layout.grid.n_chunks for _, new in arrays)
    max_keys = min(_MAX_TASK_KEYS, max(n_keys // _LEAST_TASKS, 1))
    budget = None if max_mem is None else max_mem // n_threads
    items = []
    for old, new in arrays:
        action = choose_action(
            old.metadata,
            new.metadata,
            exact=target.exact,
            max_bytes=max_bytes,
            max_keys=max_keys,
            align_bytes=_MAX_TASK_BYTES,
        )
        if action.name == "rechunk":
            items.append(_Item(old, new, action))
            continue
        if budget is not None:
            action = fitted(old, new, action, budget)
        memory = task_memory(old, new, action, budget)
        if budget is not None and memory.n_bytes > budget:
            raise _too_little(old, max_mem, memory.n_bytes, n_threads)
        n_keys = prod(action.group)
        share = max(n_keys / max_keys, n_keys * chunk_bytes(new, new.write_layout) / max_bytes)
        items.append(_Item(old, new, action, memory, share))
    return items


def _too_little(array: Array, max_mem: int | None, n_bytes: int, n_threads: int) -> JobError:
    needed = n_bytes * n_threads
    reason = (
        f"{max_mem} bytes for a worker of {n_threads} threads are too little: the smallest that works is {needed} "
        f"bytes ({needed / 2**20:.1f} MiB), since each thread holds a whole chunk, and a shard where its "
        "store takes it in one piece"
    )
    hint = Hint("give {} or more, workers of fewer threads, or smaller chunks or shards", ("max_mem", needed))
    return JobError(job=f"convert {array.path!r}", reason=reason, hint=hint)


@dataclass(frozen=True, slots=True)
class _Conversion:
    """A planned conversion: what the callbacks of its job need."""

    source: Node
    target: Target
    documents_format: Format
    path: str
    groups: Mapping[str, GroupMetadata]
    items: Sequence[_Item]

    # --- the job

    def plan(self, n_threads: int) -> Plan:
        """Return the plan, with what it is expected to cost."""
        check_n_tasks(f"write all of {self.source.url}", sum(item.n_tasks for item in self.items))
        specs = [(i, number) for i, item in enumerate(self.items) for number in range(item.n_tasks)]
        total = sum(forecast([(i.source, i.target, i.action) for i in self.items]), Forecast())
        actions: dict[str, int] = {}
        for item in self.items:
            for name, n in item.action.counts.items():
                actions[name] = actions.get(name, 0) + n
        n_tasks = len(grouped(self._stage(specs, fresh=True)))
        costs = JobCounts(
            n_tasks=n_tasks,
            bytes_read=total.bytes_read,
            bytes_written=total.bytes_written,
            n_requests=total.n_requests,
            peak_memory_bytes=n_threads * max((item.memory.n_bytes for item in self.items), default=0),
            n_keys=sum(item.target.write_layout.grid.n_chunks for item in self.items),
            actions=actions,
        )
        stage = PlannedStage("convert", n_tasks, costs.bytes_read, costs.bytes_written, costs.n_requests)
        where = f"{self.target.store.url}/{self.path}" if self.path else self.target.store.url
        strategy, reason = self._strategy()
        return Plan(
            operation="convert",
            source=_shown(self.source),
            target=f"{where} ({self.documents_format.name})",
            strategy=strategy,
            reason=reason,
            costs=costs,
            stages=(stage,),
            job=self._job(specs, where),
            arrays=[_row(item) for item in self.items],
            drawing=_drawing(self.items),
        )

    def _strategy(self) -> tuple[str, str]:
        if len(self.items) == 1:
            return self.items[0].action.name, self.items[0].action.reason
        counted: dict[str, int] = {}
        for item in self.items:
            counted[item.action.name] = counted.get(item.action.name, 0) + 1
        each = ", ".join(f"{name} {n}" for name, n in counted.items()) or "nothing to move"
        return " + ".join(counted) or "metadata only", f"{len(self.items)} arrays in {len(self.groups)} groups: {each}"

    def _job(self, specs: Sequence[tuple[int, int]], where: str) -> Job:
        known = [
            (item.source.path, item.source.metadata, item.target.path, item.target.metadata, item.action)
            for item in self.items
        ]
        return Job(
            name=f"convert to {where}",
            store=self.target.store,
            path=self.path,
            fingerprint=fingerprint("convert", _VERSION, self.source.url, self.documents_format, self.groups, known),
            sources=[item.source for item in self.items],
            targets=[item.target for item in self.items],
            prepare=self._prepare,
            stages=partial(self._stages, specs),
            publish=self._publish,
            overwrite=self.target.overwrite,
        )

    def _prepare(self) -> Mapping[str, bytes]:
        """Make room, and return the documents of the node at the top and of its parents."""
        store, name, overwrite = self.target.store, self.documents_format.name, self.target.overwrite
        if isinstance(self.source, Array):
            metadata = self.items[0].target.metadata
            return hierarchy.create_array(store, self.path, metadata, format=name, overwrite=overwrite)[1]
        group = self.groups[self.path]
        return hierarchy.create_group(store, self.path, group, format=name, overwrite=overwrite)[1]

    def _stages(self, specs: Sequence[tuple[int, int]], _run: str) -> list[Stage]:
        store, prefix = self.target.store, self.documents_format.chunk_prefix(self.path)
        fresh = all(name.startswith(JOB_PREFIX) for name in store.list_dir(prefix))
        return [self._stage(specs, fresh=fresh)]

    def _stage(self, specs: Sequence[tuple[int, int]], *, fresh: bool) -> Stage:
        transfers = tuple(ArrayTransfer(i.source, i.target, i.action, fresh, i.memory, i.share) for i in self.items)
        return Stage("convert", transfer_group, transfers, specs, transfer_reads, transfer_shows, transfer_share)

    def _publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write all documents, what is on top last, and consolidated metadata where the format has them."""
        documents_format, store = self.documents_format, self.target.store
        below: dict[str, bytes] = {}
        for path, group in self.groups.items():
            below |= documents_format.emit_group(path, group)
        for item in self.items:
            below |= documents_format.emit_array(item.target.path, item.target.metadata)
        top = dict(documents)
        if isinstance(self.source, Group) and documents_format.consolidated_key(self.path) is not None:
            consolidated = documents_format.emit_consolidated(self.path, below)
            top = {**consolidated, **{key: value for key, value in top.items() if key not in consolidated}}
        below = {key: value for key, value in below.items() if key not in top}
        publish(store, documents_format, self.path, top, below=below, again=True)
        if self.path:
            refresh_consolidated(store, documents_format, {**below, **documents})
        return [*below, *top]


# --------------------------------------------------------------------------------------------------------------------
# For people


def _shown(node: Node) -> str:
    return f"{node.url}/{node.path} ({node.format})" if node.path else f"{node.url} ({node.format})"


def _row(item: _Item) -> dict[str, Any]:
    old, new = item.source, item.target
    return {
        "array": old.path or "/",
        "shape": old.shape,
        "dtype": str(old.dtype),
        "chunks": old.chunks if old.chunks == new.chunks else f"{old.chunks} → {new.chunks}",
        "shards": new.shards if old.shards == new.shards else f"{old.shards} → {new.shards}",
        "action": item.action.name,
        "why": item.action.reason,
    }


def _drawing(items: Sequence[_Item]) -> str:
    """Draw the grids of the largest array whose chunks or shards change."""
    changed = [item for item in items if item.source.write_layout.grid != item.target.write_layout.grid]
    if not changed:
        return ""
    from chunkmill.display.array import array_grid_svg  # noqa: PLC0415 - it stands above

    item = max(changed, key=lambda item: item.source.nbytes)
    return f"{array_grid_svg(item.source)} → {array_grid_svg(item.target)}"
