"""One array of a conversion: its action, or how it is rechunked, and what its tasks hold.

Not here: choosing (`chunkmill.conversion.convert_job`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import ChosenAction, n_groups
from chunkmill.conversion.estimate import TaskMemory
from chunkmill.conversion.rechunking.plan import RechunkPlan
from chunkmill.jobs.sources import SeenSource
from chunkmill.jobs.work import JobCounts, PlannedStage


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """One array of a job.

    Attributes
    ----------
    seen
        The source's documents when the job was planned.
    action
        The action for its chunks.
    rechunk
        The tasks that read and write the array, where its chunks change; ``None`` where they stay.
    memory
        Memory of one task, where the chunks stay.
    share
        Fraction of one task's budget that a group of its store keys uses: small arrays share tasks.
    """

    source: StoredArray
    target: StoredArray
    seen: SeenSource
    action: ChosenAction
    rechunk: RechunkPlan | None = None
    memory: TaskMemory = field(default_factory=lambda: TaskMemory(0))
    share: float = 1.0

    @property
    def n_groups(self) -> int:
        """Groups of store keys that keep their chunks."""
        return 0 if self.rechunk is not None else n_groups(self.target.write_layout.grid, self.action.group)

    @property
    def n_intermediate_files(self) -> int:
        """Intermediate files to write."""
        return 0 if self.rechunk is None or self.rechunk.reads is None else self.rechunk.reads.n_chunks

    @property
    def n_target_blocks(self) -> int:
        """Blocks of the target that get other chunks."""
        return 0 if self.rechunk is None else self.rechunk.writes.n_chunks

    @property
    def strategy(self) -> str:
        """The action, or the strategy of a rechunk."""
        return self.action.name if self.rechunk is None else self.rechunk.strategy


def estimated_counts(plans: Sequence[ArrayPlan], stages: Sequence[PlannedStage], n_threads: int) -> JobCounts:
    """Return the counts of a job whose stages are estimated, before it runs."""
    estimates = [plan.rechunk.estimate for plan in plans if plan.rechunk is not None]
    decoded, once = (
        sum(sizes) for sizes in ([e.decoded_bytes for e in estimates], [e.written_bytes for e in estimates])
    )
    actions: Counter[str] = Counter()
    for plan in plans:
        actions.update(plan.action.counts)
    held = [n_threads * plan.memory.n_bytes for plan in plans]
    return JobCounts.of(
        stages,
        bytes_temporary=sum(estimate.intermediate_bytes for estimate in estimates),
        peak_memory_bytes=max([*held, *(estimate.peak_bytes for estimate in estimates)], default=0),
        read_amplification=decoded / once if once else 1.0,
        n_keys=sum(plan.target.write_layout.grid.n_chunks for plan in plans),
        actions=dict(actions),
    )
