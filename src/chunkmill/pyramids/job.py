"""The job of a pyramid: room in the target, stages of tasks, documents.

Not here: planning (`chunkmill.pyramids.pyramid`), what tasks do (`chunkmill.pyramids.tasks`), running stages
(`chunkmill.runtime.job`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import ChosenAction
from chunkmill.conversion.source_guard import SeenSource, check_sources
from chunkmill.conversion.target_writer import TargetWriter
from chunkmill.nodes.array import Array
from chunkmill.pyramids.beside import BesideWriter
from chunkmill.pyramids.blocks import LevelBlocks, tasks_of
from chunkmill.pyramids.downsample import Method, Reduction
from chunkmill.pyramids.tasks import LevelStage, level_inputs, level_reads, level_shows, write_block
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, Stage

__all__ = ["PyramidWriter"]


@dataclass(frozen=True, slots=True)
class PyramidWriter:
    """The callbacks of a pyramid's job; can be pickled.

    Attributes
    ----------
    documents
        Makes room in the target and publishes: its plans are those of the levels, each with `base` as its source.
    base
        The array that the pyramid is made from.
    seen
        Its documents when the job was planned.
    levels
        The arrays of all levels.
    action
        The action for the chunks of the first level; ``None``: it exists, and is `base`.
    blocks
        For each stage the blocks of its levels; see `chunkmill.pyramids.blocks.divide`.
    """

    documents: TargetWriter | BesideWriter
    base: Array
    seen: SeenSource
    levels: tuple[Array, ...]
    action: ChosenAction | None
    blocks: tuple[tuple[LevelBlocks, ...], ...]
    method: Method | Reduction

    @property
    def can_keep_old(self) -> bool:
        """True if what is at the target is replaced, and may stay until the new is complete."""
        return bool(self.documents.overwrite) and self.documents.replacement is None

    def beside(self, run: str, replaced: Mapping[str, str] | None) -> PyramidWriter | None:
        """Return the writer that writes beside what is at the target, in the run of that name (`Job.beside`)."""
        documents = self.documents.beside(run, replaced)
        if documents is None:
            return None
        if isinstance(documents, TargetWriter):
            return replace(self, documents=documents, levels=tuple(plan.target for plan in documents.plans))
        return replace(self, documents=documents, levels=(self.base, *documents.levels))

    def prepare(self) -> Mapping[str, bytes]:
        """Make room, and return the documents of the group and of its parents."""
        return self.documents.prepare()

    def check_free(self, run: str) -> None:
        """Raise `NodeExists` where a node was made at the target since `prepare`."""
        self.documents.check_free(run)

    def stages(self, run: str) -> list[Stage]:  # noqa: ARG002 - nothing is written but values of the target
        """Return the stages; absent chunks are deleted where there is something at the target already."""
        check_sources(self.documents.job, [self.base], [self.seen])
        fresh = self.documents.is_fresh()
        self.documents.check_targets(fresh=fresh)
        return self.stages_when(fresh=fresh)

    def stages_when(self, *, fresh: bool) -> list[Stage]:
        """Return the stages, of a target that is `fresh` or not: each reads the last level of the stage before."""
        stages, first = [], 0
        for number, blocks in enumerate(self.blocks):
            is_first = number == 0
            copies = is_first and self.action is not None
            targets: Sequence[StoredArray] = self.levels[first + 1 : first + len(blocks)]
            level = LevelStage(
                self.base if is_first else self.levels[first],
                self.seen if is_first else None,
                self.levels[0] if copies else None,
                self.action if copies else None,
                blocks,
                tuple(targets),
                self.method,
                fresh,
            )
            begins, ends = first if copies else first + 1, first + len(targets)
            name = f"level {ends}" if begins == ends else f"levels {begins} to {ends}"
            specs = range(tasks_of(blocks))
            stages.append(
                Stage(name, write_block, (level,), specs, level_reads, level_shows, _share, inputs=level_inputs)
            )
            first += len(blocks) - 1
        return stages

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write the documents of all levels, and of the group last."""
        return self.documents.publish(documents)


def _share(stages: Sequence[LevelStage], spec: Any) -> float:  # noqa: ARG001 - all blocks are alike
    """Return the fraction of one task's budget that a block uses: small blocks share tasks, of which some remain."""
    (stage,) = stages
    n_bytes = prod(stage.blocks[0].shape) * stage.source.dtype.itemsize
    n_blocks = tasks_of(stage.blocks)
    return max(n_bytes / n_blocks / MAX_TASK_BYTES, LEAST_TASKS / max(n_blocks, 1))
