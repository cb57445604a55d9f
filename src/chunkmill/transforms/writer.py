"""Callbacks of a transform's job: room for its targets, its stage, publication, and the record of filled blocks.

The journal is named after the first target; the paths of the others are leased while tasks run. Blocks for which the
function failed are named by an attribute of the targets, by which the same job finds them again. Not here: what a task
does (`chunkmill.transforms.tasks`), planning (`chunkmill.transforms.transform_job`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import check_sources
from chunkmill.conversion.arrays_writer import ArraysWriter
from chunkmill.journal.lease import leased
from chunkmill.nodes.array import Array
from chunkmill.nodes.opening import find_stored
from chunkmill.runtime.stage import Stage, TaskSpecs
from chunkmill.runtime.stage_runner import StageResult
from chunkmill.transforms.tasks import (
    FilledBlock,
    TransformTasks,
    block_inputs,
    block_reads,
    block_share,
    block_shows,
    write_block,
)

__all__ = ["FILLED", "TransformWriter"]

FILLED = "chunkmill_filled"
"""Attribute of a target with blocks that were filled: fingerprint of the job, size of its blocks, and their regions."""


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
    filled
        Blocks that were filled in this run.
    """

    job: str
    fingerprint: str
    writer: ArraysWriter
    tasks: TransformTasks
    units: list[int]
    filled: list[FilledBlock] = field(default_factory=list, compare=False, repr=False)

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
        """Make room for every target, unless they are there, and have blocks that this job has filled.

        Raises
        ------
        JobError
            A source was deleted or replaced since the job was planned; nothing is deleted then.
        """
        if self.writer.overwrite:
            self._check_sources()
        return {} if self._is_there() else self.writer.prepare()

    def check_free(self, run: str) -> None:
        """Raise `NodeExists` where a node was made at a target since `prepare`."""
        if not self._is_there():
            self.writer.check_free(run)

    @contextmanager
    def leases(self, run: str) -> Iterator[None]:
        """Hold the paths of all targets but the first, which the journal holds."""
        with ExitStack() as held:
            for array in () if self.writer.replacements else self.writer.arrays[1:]:
                held.enter_context(leased(self.writer.store, array.path, self.job, run=run))
            yield

    def stages(self, run: str) -> list[Stage]:  # noqa: ARG002 - nothing is written but values of the targets
        """Return the stage; of targets that are there, only the blocks that were filled are left to do."""
        self._check_sources()
        self.filled.clear()
        fresh = self.writer.is_fresh()
        if not self._is_there():
            self.writer.check_targets(fresh=fresh)
        return [self.stage(fresh=fresh, left=self._filled_before())]

    def stage(self, *, fresh: bool, left: Collection[int] | None = None) -> Stage:
        """Return the stage, of targets that are `fresh` or not; of the blocks `left` alone, where they are given."""

        def narrow(specs: Sequence[Any]) -> Sequence[Any]:
            return [spec for spec in specs if spec[1] in (left or ())]

        return Stage(
            "transform",
            write_block,
            replace(self.tasks, fresh=fresh),
            TaskSpecs.counted([self.tasks.blocks.n_chunks]),
            block_reads,
            block_shows,
            block_share,
            narrow=None if left is None else narrow,
            inputs=block_inputs,
        )

    def on_results(self, results: Sequence[StageResult]) -> None:
        """Take the blocks that were filled from the results of tasks."""
        self.filled[:] = sorted(each for result in results for each in result.details)

    def check_result(self) -> None:
        """Raise `JobError` where a source was deleted or replaced since the job was planned; nothing is published."""
        if self.writer.replacement is None or not self.writer.replacement.is_decided():
            self._check_sources()

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write the documents of the targets."""
        if not self._is_there():
            return self._described().publish(documents)
        for array in self.writer.arrays:
            self._update(array)
        return []

    def _check_sources(self) -> None:
        sources = self.tasks.sources
        check_sources(self.job, [source.array for source in sources], [source.seen for source in sources])

    # ----------------------------------------------------------------------------------------------------------------
    # Blocks that were filled

    def _attribute(self) -> dict[str, Any]:
        regions = [[list(pair) for pair in each.region] for each in self.filled]
        return {FILLED: {"fingerprint": self.fingerprint, "units": self.units, "regions": regions}} if regions else {}

    def _described(self) -> ArraysWriter:
        """Return the writer, such that the documents name the blocks that were filled."""
        attribute = self._attribute()
        arrays = (
            [_with_attributes(array, attribute) for array in self.writer.arrays] if attribute else self.writer.arrays
        )
        return replace(self.writer, arrays=arrays)

    def _is_there(self) -> bool:
        """Return whether arrays that this job has written, with blocks that it filled, are at the targets."""
        return not self.writer.overwrite and all(self._found(array) is not None for array in self.writer.arrays)

    def _found(self, array: StoredArray) -> Mapping[str, Any] | None:
        """Return what the attributes of an array that is there say of the blocks that this job has filled."""
        there = find_stored(array.store, array.path)
        attribute: Any = None if there is None else there.attributes.get(FILLED)
        is_ours = isinstance(attribute, Mapping) and attribute.get("fingerprint") == self.fingerprint
        return attribute if is_ours and isinstance(there, StoredArray) else None

    def _filled_before(self) -> set[int] | None:
        """Return the numbers of the blocks that an earlier run of this job filled; ``None``: it has not been done."""
        if not self._is_there():
            return None
        attribute = self._found(self.writer.arrays[0]) or {}
        blocks = self.tasks.blocks
        return {
            blocks.number_of(blocks.first_touched(tuple(slice(*pair) for pair in region)))
            for region in attribute["regions"]
        }

    def _update(self, array: StoredArray) -> None:
        """Set, or delete, the attribute of an array that is there."""
        there = find_stored(array.store, array.path)
        if not isinstance(there, StoredArray):
            return
        node = Array(_writable(there))
        if attribute := self._attribute():
            node.update_attributes(attribute)
        elif FILLED in there.attributes:
            node.del_attributes(FILLED)


def _writable(array: StoredArray) -> StoredArray:
    return StoredArray(array.store, array.path, array.metadata, array.format, array.prefix)


def _with_attributes(array: StoredArray, attributes: Mapping[str, Any]) -> StoredArray:
    metadata = replace(array.metadata, attributes={**array.metadata.attributes, **attributes})
    return StoredArray(array.store, array.path, metadata, array.format, array.prefix)
