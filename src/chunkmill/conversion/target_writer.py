"""Run a conversion that is planned: make room in the target, build the stages of tasks, publish the documents.

Not here: planning (`chunkmill.conversion.convert_job`), running stages (`chunkmill.jobs.job`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from chunkmill.array.present_keys import Numbers, TouchedBlocks
from chunkmill.conversion.array_plan import ArrayPlan
from chunkmill.conversion.convert_tasks import (
    ArrayTransfer,
    transfer_group,
    transfer_inputs,
    transfer_share,
    transfer_shows,
)
from chunkmill.conversion.rechunking.job import rechunk_stages
from chunkmill.conversion.rechunking.planner_input import intermediate_codecs
from chunkmill.conversion.rechunking.source_chunks import ArrayRechunk
from chunkmill.conversion.source_listing import (
    Listed,
    check_slices,
    check_still_absent,
    group_grid,
    list_sources,
    n_left_out,
    narrowed,
    see_slices,
    touched_blocks,
)
from chunkmill.formats.base import Format
from chunkmill.jobs.sources import check_sources
from chunkmill.journal.names import JOB_PREFIX, TAG_PREFIX
from chunkmill.journal.recovery import record_published
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes import placement, replacing
from chunkmill.nodes.consolidated import refreshed
from chunkmill.nodes.documents import check_own, publish
from chunkmill.nodes.replacing import StagedNode
from chunkmill.runtime.stage import Stage, TaskSpecs
from chunkmill.stores.base import Store

__all__ = ["TargetWriter", "stages_of"]


@dataclass(frozen=True, slots=True)
class TargetWriter:
    """The callbacks of a conversion's job; can be pickled.

    Attributes
    ----------
    job
        Name of the job, for messages.
    path
        Path of the topmost node in `store`.
    groups
        Metadata of the target's groups by path.
    plans
        The target's arrays.
    overwrite
        Whether a node that is there is deleted; ``None``: it is the array that is written into.
    intermediate
        The store of intermediate files, where it is not the target's.
    prefix
        Start of the keys of intermediate files.
    compress
        Whether intermediate files are compressed.
    ahead_bytes
        Bytes that a task may fetch ahead of their use, from stores whose requests cost latency.
    replacement
        Where the target's nodes are staged; ``None``: they replace none.
    group
        Path of the group that is there, which the nodes are added to; `path` is that of the first of them. ``None``:
        the topmost node is new.
    listed
        What was listed when the run began.
    sliced
        Digests of the sources that are read by slices, of the same time.
    """

    job: str
    store: Store
    path: str
    format: Format
    groups: Mapping[str, GroupMetadata]
    plans: Sequence[ArrayPlan]
    overwrite: bool | None
    intermediate: Store | None
    prefix: str
    compress: bool
    ahead_bytes: int
    replacement: StagedNode | None = None
    group: str | None = None
    listed: dict[int, tuple[Numbers, Numbers]] = field(default_factory=dict, compare=False, repr=False)
    sliced: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def staged(self, run: str, replaced: Mapping[str, str] | None) -> TargetWriter | None:
        """Return the writer that stages the nodes, in the run of that name (`Job.staged`)."""
        replacements = replacing.stage_nodes(self.store, [self.path], self.format.name, run, replaced)
        if replacements is None:
            return None
        (replacement,) = replacements
        plans = [replace(plan, target=replacement.array(plan.target)) for plan in self.plans]
        return replace(self, plans=plans, replacement=replacement)

    @property
    def replaced(self) -> Mapping[str, str]:
        """Documents seen of the node that is replaced."""
        return {} if self.replacement is None else self.replacement.seen

    def keeps_old(self) -> bool | None:
        """Return whether a node that is there stays until the new ones are complete; ``None`` where there is none."""
        return replacing.all_keep_old(self.store, [self.path], self.format.name)

    def prepare(self, run: str, again: bool) -> Mapping[str, bytes]:
        """Make room, and return the documents of the topmost node and of its parents.

        Raises
        ------
        JobError
            A source was deleted or replaced since the job was planned; nothing is deleted then.
        """
        if self.replacement is not None:
            return self.replacement.above
        if self.overwrite is None:
            return {}
        if self.overwrite:
            self._check_sources()
        return self._make_room(run, again=again)

    def check_free(self, run: str) -> None:
        """Raise `NodeExists` where a node was made at the target since `prepare`; jobs were looked for before."""
        if self.overwrite is False:
            self._make_room(run, has_begun=True)

    def _make_room(self, run: str, *, has_begun: bool = False, again: bool = False) -> dict[str, bytes]:
        name, documents = self.format.name, dict[str, bytes]()
        for path, metadata in self._topmost().items():
            # for the others no jobs were looked for
            options: Any = {"overwrite": bool(self.overwrite), "run": run, "again": again}
            options["is_free_of_jobs"] = has_begun and path == self.path
            if isinstance(metadata, GroupMetadata):
                documents |= placement.create_group(self.store, path, metadata, format=name, **options)[1]
            else:
                documents |= placement.create_array(self.store, path, metadata, format=name, **options)[1]
        return documents if self.group is None else {}

    def _topmost(self) -> dict[str, GroupMetadata | ArrayMetadata]:
        """Return the metadata of the topmost nodes by their paths."""
        nodes: dict[str, Any] = {**self.groups, **{plan.target.path: plan.target.metadata for plan in self.plans}}
        if self.group is None:
            return {self.path: nodes[self.path]}
        return {path: metadata for path, metadata in nodes.items() if path.rpartition("/")[0] == self.group}

    def stages(self, run: str) -> list[Stage]:
        """Return the stages of a run; absent chunks are deleted where there is something at the target already.

        Intermediate files are named after the run: tasks of an interrupted one may still be writing theirs.
        """
        if self.intermediate is not None:  # of jobs that were abandoned: their place is this run's by now
            for name in self.intermediate.list_dir(self.prefix):
                if name != f"{run}/":
                    self.intermediate.delete_prefix(self.prefix + name)
        self._check_sources()
        fresh = self.is_fresh()
        self.check_targets(fresh=fresh)
        self.listed.clear()
        self.listed.update(list_sources(self.plans, fresh=fresh))
        self.sliced.clear()
        self.sliced.update(see_slices(self.plans))
        return stages_of(self, run, fresh=fresh, listed=self.listed)

    def check_targets(self, *, fresh: bool) -> None:
        """Raise `NodeExists` where others have made a node while this job was interrupted, before writing over it."""
        if not fresh and self.overwrite is False:
            check_own(self.store, self.format, self._node_documents())

    def is_fresh(self) -> bool:
        """Return whether there is nothing yet where the nodes are written."""
        prefixes = [self.format.chunk_prefix(path) for path in self._topmost()]
        if self.replacement is not None:
            prefixes = [self.replacement.staged]
        return all(self.store.is_empty(at, besides=(JOB_PREFIX, TAG_PREFIX)) for at in prefixes)

    def check_result(self) -> None:
        """Check before anything is published that the sources are those that were read.

        Raises
        ------
        JobError
            A source was deleted or replaced since the job was planned, or chunks were written that are read by slices.
        ChunkError
            A chunk of a source that was listed as absent has appeared.
        """
        if self.replacement is None or not self.replacement.is_in_place():
            self._check_sources()
            check_still_absent(self.plans, self.listed)
            check_slices(self.job, self.plans, self.sliced)
        self.listed.clear()
        self.sliced.clear()

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write all documents, the topmost last, and consolidated metadata where the format has them."""
        written = [] if self.overwrite is None else self._write_documents(documents)
        if self.overwrite is None:
            self.store.flush()
        if self.intermediate is not None:
            self.intermediate.delete_prefix(self.prefix)
        return written

    def _check_sources(self) -> None:
        check_sources(self.job, [plan.source for plan in self.plans], [plan.seen for plan in self.plans])

    def _node_documents(self) -> dict[str, dict[str, bytes]]:
        """Return the documents of each node by its path, groups first."""
        nodes = {path: self.format.emit_group(path, group) for path, group in self.groups.items()}
        arrays = (plan.target for plan in self.plans)
        return nodes | {array.path: self.format.emit_array(array.path, array.metadata) for array in arrays}

    def _write_documents(self, documents: Mapping[str, bytes]) -> list[str]:
        nodes = self._node_documents()
        below = {key: value for documents in nodes.values() for key, value in documents.items()}
        if self.group is not None:
            with refreshed(self.store, self.format, nodes):
                publish(self.store, self.format, self.group, {}, below=nodes, again=True)
            return [*below]
        consolidated = {}
        has_consolidated = self.format.consolidated_key(self.path) is not None and not self.store.has_transactions
        if self.path in self.groups and has_consolidated:
            consolidated = self.format.emit_consolidated(self.path, below)
        if self.replacement is not None:
            self.replacement.finish({**below, **consolidated}, above=documents, below=nodes)
            return [*below, *consolidated, *documents]
        top = {**{key: value for key, value in documents.items() if key not in consolidated}, **consolidated}
        others = {path: documents for path, documents in nodes.items() if path != self.path}
        if others:
            below = {key: value for documents in others.values() for key, value in documents.items()}
            record_published(self.store, self.path, self.format.group_keys(self.path)[0], below)
        with refreshed(self.store, self.format, nodes) if self.path else nullcontext():
            publish(self.store, self.format, self.path, top, below=others, again=True)
        return [*below, *top]


def stages_of(writer: TargetWriter, run: str, *, fresh: bool, listed: Listed = MappingProxyType({})) -> list[Stage]:
    """Return the stages of a job: one for the arrays whose chunks stay, and those of the arrays that are rechunked.

    Parameters
    ----------
    run
        Name of the run, which its intermediate files are named after.
    fresh
        Whether there is nothing at the target yet, so that absent chunks need not be deleted.
    listed
        Store keys that there are, of mostly empty arrays: nothing is done for the others.
    """
    plans = writer.plans
    stages = []
    is_rechunked = any(plan.rechunk is not None for plan in plans)
    if not is_rechunked or any(plan.rechunk is None for plan in plans):
        transfers = tuple(
            ArrayTransfer(p.source, p.target, p.action, fresh, p.memory, p.share, p.seen, p.keys_at_once) for p in plans
        )
        specs = TaskSpecs.counted([plan.n_groups for plan in plans])
        grids = {i: group_grid(plans[i]) for i in listed if plans[i].rechunk is None}
        touched = touched_blocks(plans, listed, grids)
        stages.append(
            Stage(
                "convert",
                transfer_group,
                transfers,
                specs,
                transfer_shows,
                transfer_share,
                narrow=narrowed(touched),
                left_out=_left_out(plans, grids, touched),
                inputs=transfer_inputs,
            )
        )
    if is_rechunked:
        rechunks = [_rechunk(writer, run, i, plan, fresh=fresh) for i, plan in enumerate(plans)]
        stages += rechunk_stages(plans, rechunks, listed)
    return stages


def _left_out(
    plans: Sequence[ArrayPlan], grids: Mapping[int, ChunkGrid], touched: Mapping[int, TouchedBlocks]
) -> dict[str, int]:
    """Return the counts of absent store keys, and of their chunks, in groups that have nothing to do."""
    n_keys = n_absent = 0
    for which, each in touched.items():
        target, copies = plans[which].target, plans[which].action.name == "copy"
        n_keys += n_left_out(each, grids[which], target.write_layout.grid)
        n_absent += n_left_out(each, grids[which], (target.write_layout if copies else target.read_layout).grid)
    return {"n_keys": n_keys, "action_absent": n_absent} if n_keys else {}


def _rechunk(writer: TargetWriter, run: str, number: int, plan: ArrayPlan, *, fresh: bool) -> ArrayRechunk | None:
    if plan.rechunk is None:
        return None
    return ArrayRechunk(
        plan.source,
        plan.target,
        plan.rechunk,
        writer.store if writer.intermediate is None else writer.intermediate,
        f"{writer.prefix}{run}/{number}/",
        intermediate_codecs(plan.source, compress=writer.compress),
        writer.ahead_bytes,
        plan.action.materialize,
        fresh,
        plan.seen,
        parts=plan.parts,
    )
