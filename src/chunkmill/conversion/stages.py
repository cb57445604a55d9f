"""Build the stages of tasks of a conversion that is planned, and check what they have read.

Not here: planning (`chunkmill.conversion.convert_job`), running stages (`chunkmill.jobs.job`), the target
(`chunkmill.nodes.target`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from chunkmill.array.present_keys import Numbers, TouchedBlocks
from chunkmill.conversion.array_plan import ArrayPlan
from chunkmill.conversion.coarsen import block_grid
from chunkmill.conversion.convert_tasks import (
    ArrayTransfer,
    transfer_group,
    transfer_inputs,
    transfer_share,
    transfer_shows,
)
from chunkmill.conversion.rechunking.job import intermediate_codecs, rechunk_stages
from chunkmill.conversion.rechunking.source_chunks import ArrayRechunk
from chunkmill.conversion.source_listing import (
    Listed,
    check_slices,
    check_still_absent,
    list_sources,
    n_left_out,
    narrowed,
    see_slices,
    touched_blocks,
)
from chunkmill.jobs.work import Tasks
from chunkmill.model.grid import ChunkGrid
from chunkmill.nodes.target import Target
from chunkmill.runtime.stage import Stage, TaskSpecs
from chunkmill.stores.base import Store


@dataclass(frozen=True, kw_only=True)
class ConversionTasks(Tasks):
    """Tasks of a conversion.

    Attributes
    ----------
    job
        Name of the job, for messages.
    store
        Of the target.
    plans
        The target's arrays.
    prefix
        Start of the keys of intermediate files, in the store that `writes` names, or the target's.
    compress
        Whether intermediate files are compressed.
    ahead_bytes
        Bytes that a task may fetch ahead of their use, from stores whose requests cost latency.
    listed
        What was listed when the run began.
    sliced
        Digests of the sources that are read by slices, of the same time.
    """

    job: str
    store: Store
    plans: Sequence[ArrayPlan]
    prefix: str
    compress: bool
    ahead_bytes: int
    listed: dict[int, tuple[Numbers, Numbers]] = field(default_factory=dict, compare=False, repr=False)
    sliced: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def stages(self, target: Target, *, fresh: bool) -> list[Stage]:
        """Return the stages of a run, whose tasks leave out what a listing of the sources lacks.

        Intermediate files are named after the run: tasks of an interrupted one may still be writing theirs.
        """
        for intermediate in self.writes:  # of jobs that were abandoned: their place is this run's by now
            for name in intermediate.list_dir(self.prefix):
                if name != f"{target.run}/":
                    intermediate.delete_prefix(self.prefix + name)
        pairs = zip(self.plans, target.arrays, strict=True)
        tasks = replace(self, plans=[replace(plan, target=array) for plan, array in pairs])
        self.listed.clear()
        self.listed.update(list_sources(tasks.plans, fresh=fresh))
        self.sliced.clear()
        self.sliced.update(see_slices(self.plans))
        return stages_of(tasks, target.run, fresh=fresh, listed=self.listed)

    def check_result(self) -> None:
        """Raise where chunks were written that were listed as absent, or are read by slices."""
        check_still_absent(self.plans, self.listed)
        check_slices(self.job, self.plans, self.sliced)
        self.listed.clear()
        self.sliced.clear()

    def publish(self, target: Target) -> Sequence[str]:
        """Publish the target, and delete intermediate files that are not in the journal, which is deleted with its."""
        written = target.publish()
        for intermediate in self.writes:
            intermediate.delete_prefix(self.prefix)
        return written


def stages_of(tasks: ConversionTasks, run: str, *, fresh: bool, listed: Listed = MappingProxyType({})) -> list[Stage]:
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
    plans = tasks.plans
    stages = []
    is_rechunked = any(plan.rechunk is not None for plan in plans)
    if not is_rechunked or any(plan.rechunk is None for plan in plans):
        transfers = tuple(ArrayTransfer(p.source, p.target, p.action, fresh, p.memory, p.share, p.seen) for p in plans)
        specs = TaskSpecs.counted([plan.n_groups for plan in plans])
        grids = {
            i: block_grid(plans[i].target.write_layout.grid.axes, plans[i].action.group)
            for i in listed
            if plans[i].rechunk is None
        }
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
        rechunks = [_rechunk(tasks, run, i, plan, fresh=fresh) for i, plan in enumerate(plans)]
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


def _rechunk(tasks: ConversionTasks, run: str, number: int, plan: ArrayPlan, *, fresh: bool) -> ArrayRechunk | None:
    if plan.rechunk is None:
        return None
    return ArrayRechunk(
        plan.source,
        plan.target,
        plan.rechunk,
        next(iter(tasks.writes), tasks.store),
        f"{tasks.prefix}{run}/{number}/",
        intermediate_codecs(plan.source, compress=tasks.compress),
        tasks.ahead_bytes,
        plan.action.materialize,
        fresh,
        plan.seen,
    )
