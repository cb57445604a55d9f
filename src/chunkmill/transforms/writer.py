"""Callbacks of a transform's job: room for its targets, its stage, publication.

The journal is named after the first target; the paths of the others are leased while tasks run. Not here: what a task
does (`chunkmill.transforms.tasks`), planning (`chunkmill.transforms.transform_job`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from chunkmill.conversion.array_plan import check_sources
from chunkmill.conversion.arrays_writer import ArraysWriter
from chunkmill.journal.lease import leased
from chunkmill.runtime.stage import Stage, TaskSpecs
from chunkmill.transforms.tasks import (
    TransformTasks,
    block_inputs,
    block_reads,
    block_share,
    block_shows,
    write_block,
)

__all__ = ["TransformWriter"]


@dataclass(frozen=True)
class TransformWriter:
    """The callbacks of a transform's job; can be pickled.

    Attributes
    ----------
    job, fingerprint
        Name of the job, and fingerprint of its plan.
    writer
        Of the targets' arrays.
    tasks
        What tasks share.
    units
        Length of a block along each axis, in the smallest blocks of whole store keys.
    """

    job: str
    fingerprint: str
    writer: ArraysWriter
    tasks: TransformTasks
    units: list[int]

    @property
    def can_keep_old(self) -> bool:
        """True if what is at the targets is replaced, and may stay until all is complete."""
        return self.writer.overwrite and self.writer.replacement is None

    def staged(self, run: str, replaced: Mapping[str, str] | None) -> TransformWriter | None:
        """Return the writer that stages what replaces the targets, in the run of that name (`Job.staged`)."""
        staged = self.writer.staged(run, replaced)
        if staged is None:
            return None
        pairs = zip(staged.arrays, self.tasks.targets, strict=True)
        targets = [target._replace(array=array) for array, target in pairs]
        return replace(self, writer=staged, tasks=replace(self.tasks, targets=tuple(targets)))

    def prepare(self) -> Mapping[str, bytes]:
        """Make room for every target.

        Raises
        ------
        JobError
            A source was deleted or replaced since the job was planned; nothing is deleted then.
        """
        if self.writer.overwrite:
            self._check_sources()
        return self.writer.prepare()

    def check_free(self, run: str) -> None:
        """Raise `NodeExists` where a node was made at a target since `prepare`."""
        self.writer.check_free(run)

    @contextmanager
    def leases(self, run: str) -> Iterator[None]:
        """Hold the paths of all targets but the first, which the journal holds."""
        with ExitStack() as held:
            for array in () if self.writer.replacements else self.writer.arrays[1:]:
                held.enter_context(leased(self.writer.store, array.path, self.job, run=run))
            yield

    def stages(self, run: str) -> list[Stage]:  # noqa: ARG002 - nothing is written but values of the targets
        """Return the stage."""
        self._check_sources()
        fresh = self.writer.is_fresh()
        self.writer.check_targets(fresh=fresh)
        return [self.stage(fresh=fresh)]

    def stage(self, *, fresh: bool) -> Stage:
        """Return the stage, of targets that are `fresh` or not."""
        return Stage(
            "transform",
            write_block,
            replace(self.tasks, fresh=fresh),
            TaskSpecs.counted([self.tasks.blocks.n_chunks]),
            block_reads,
            block_shows,
            block_share,
            inputs=block_inputs,
        )

    def check_result(self) -> None:
        """Raise `JobError` where a source was deleted or replaced since the job was planned; nothing is published."""
        if self.writer.replacement is None or not self.writer.replacement.is_decided():
            self._check_sources()

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write the documents of the targets."""
        return self.writer.publish(documents)

    def _check_sources(self) -> None:
        sources = self.tasks.sources
        check_sources(self.job, [source.array for source in sources], [source.seen for source in sources])
