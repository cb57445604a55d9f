"""The plan of one array of a conversion: source, target, action, memory.

Not here: choosing (`chunkmill.conversion.convert_job`), running (`chunkmill.conversion.target_writer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chunkmill.conversion.actions import ChosenAction, n_groups
from chunkmill.conversion.estimate import TaskMemory
from chunkmill.conversion.rechunking.plan import RechunkPlan
from chunkmill.conversion.source_guard import SeenSource
from chunkmill.nodes.array import Array

__all__ = ["ArrayPlan"]


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

    source: Array
    target: Array
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
