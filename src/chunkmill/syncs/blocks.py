"""Sync the targets of a transform: the blocks whose sources have changed are made again.

The function is given again, since lineage holds no code; options are those of the lineage. Not here: what a block's
task does (`chunkmill.transforms.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.present_keys import Numbers
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.lineage import ArrayPair
from chunkmill.conversion.options import argument
from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.model.grid import Region
from chunkmill.runtime.stage import Stage, TaskSpecs
from chunkmill.syncs.tasks import SyncedArray
from chunkmill.transforms.blocks import array_region
from chunkmill.transforms.tasks import TransformTasks, block_inputs, block_reads, block_share, block_shows, write_block
from chunkmill.transforms.transform import plan_transform
from chunkmill.transforms.writer import TransformWriter

__all__ = ["TransformedAgain", "plan_again"]

_FUNCTION = "function"


@dataclass(frozen=True)
class TransformedAgain:
    """A transform as it is planned now.

    Attributes
    ----------
    writer
        Its callbacks, of which tasks and leases are used.
    pairs
        The arrays of its lineage.
    memory
        Bytes that the tasks of a worker hold.
    """

    writer: TransformWriter
    pairs: Sequence[ArrayPair]
    memory: int

    @property
    def tasks(self) -> TransformTasks:
        """Arrays, function and blocks that its tasks share."""
        return self.writer.tasks

    def leases(self, run: str) -> AbstractContextManager[Any]:
        """Hold the paths of all targets but the first."""
        return self.writer.leases(run)

    def touched(
        self,
        changed: Mapping[tuple[str, str], Numbers],
        ends: Mapping[tuple[str, str], tuple[int, ...]],
        left: Mapping[int, Numbers],
    ) -> tuple[Numbers, int]:
        """Return the numbers of the blocks to make again, and how many store keys of the sources have changed.

        Parameters
        ----------
        changed, ends
            By url and path of a source, the numbers of those store keys, and its shape when the targets were made.
        left
            By number of a target, store keys that are to be written in any case.
        """
        sources = [source.array for source in self.tasks.sources]
        places = [(array.url, array.path) for array in sources]
        masks = [_mask(array, changed[place]) for array, place in zip(sources, places, strict=True)]
        wanted = [_mask(target.array, left[which]) for which, target in enumerate(self.tasks.targets)]
        n_changed = sum(len(changed[place]) for place in places)
        shapes = [ends[place] for place in places]
        if not n_changed and not any(map(np.any, wanted)) and shapes == [array.shape for array in sources]:
            return np.zeros(0, np.int64), 0
        found = [
            number
            for number in range(self.tasks.blocks.n_chunks)
            if self._is_touched(number, masks, shapes)
            or any(mask[self._keys(number, which)].any() for which, mask in enumerate(wanted))
        ]
        return np.array(found, np.int64), n_changed

    def _is_touched(self, number: int, masks: Sequence[NDArray[Any]], ends: Sequence[Sequence[int]]) -> bool:
        reads = self.tasks.reads(self.tasks.region(number))
        for source, read, mask, end in zip(self.tasks.sources, reads, masks, ends, strict=True):
            cuts = zip(read.region, end, source.array.shape, strict=True)
            if any(old < n and cut.stop > old for cut, old, n in cuts):
                return True  # it read what is made up beyond an end that was there
            if mask[_touched_keys(source.array, read.inside)].any():
                return True
        return False

    def _keys(self, number: int, which: int) -> Region:
        target = self.tasks.targets[which]
        return _touched_keys(target.array, array_region(self.tasks.region(number), target.axes))

    def keys_of(self, numbers: Numbers, which: int, target: StoredArray) -> Numbers:
        """Return the numbers of the store keys of a target that some blocks write."""
        found = np.zeros(target.write_layout.grid.grid_shape, bool)
        for number in numbers.tolist():
            found[self._keys(number, which)] = True
        return np.flatnonzero(found.reshape(-1))

    def stage(self, numbers: Numbers, arrays: Sequence[SyncedArray]) -> Stage:
        """Return the stage that makes some blocks again."""
        pairs = zip(self.tasks.targets, arrays, strict=True)
        targets = tuple(target._replace(array=each.target) for target, each in pairs)
        tasks = replace(self.tasks, targets=targets, fresh=False, fills=False)
        stage = self.writer.stage(fresh=False)
        common = replace(tasks, numbers_stores=stage.files is not None)
        return Stage(
            "sync",
            write_block,
            common,
            TaskSpecs([(0, numbers.tolist())]),
            block_reads,
            block_shows,
            block_share,
            inputs=block_inputs,
            files=stage.files,
        )


def _mask(array: StoredArray, numbers: Numbers) -> NDArray[Any]:
    """Return an array in the shape of the grid of store keys, true at some of them."""
    mask = np.zeros(array.write_layout.grid.n_chunks, bool)
    mask[numbers] = True
    return mask.reshape(array.write_layout.grid.grid_shape)


def _touched_keys(array: StoredArray, region: Region) -> Region:
    """Return the part of the grid of store keys that a region touches."""
    axes = zip(array.write_layout.grid.axes, region, strict=True)
    empty = slice(0, 0)
    return tuple(
        slice(axis.index(cut.start), axis.index(cut.stop - 1) + 1) if cut.start < cut.stop else empty
        for axis, cut in axes
    )


def plan_again(
    job: str,
    made: Mapping[str, Any],
    source: Any,
    target: tuple[Any, str],
    *,
    function: Callable[..., Any] | None,
    options: Mapping[str, Any],
) -> TransformedAgain:
    """Plan the transform that made a target again, with options of its lineage, and those that are given.

    Raises
    ------
    JobError
        The function is not given, or is another one, as are its parameters.
    """
    call = made["call"]
    shown = made.get("arguments", {}).get(_FUNCTION, "")
    hint = Hint("give {}, and what else is missing as {}", ("function", ...), ("options", {}))
    if function is None:
        reason = f"lineage holds no code, and the target was made by {shown}; it lacks {call.get('missing')}"
        raise JobError(job=job, reason=reason, hint=hint)
    kept = {name: argument(value) for name, value in call["options"].items()}
    first, *others = kept.pop("target")
    del first  # it is where it is now
    kept |= {"overwrite": False, **options}
    plan = plan_transform(function, source, [target, *others] if others else target, **kept)
    if (now := plan.job.choices["arguments"][_FUNCTION]) != shown:
        reason = f"the target was made by {shown}, and the function is {now} now"
        hint = Hint("transform again with {}, or give what was given then in {}", ("overwrite", True), ("options", {}))
        raise JobError(job=job, reason=reason, hint=hint)
    writer = cast("TransformWriter", plan.job.stages.__self__)  # type: ignore[attr-defined]
    return TransformedAgain(writer, plan.pairs, plan.job.memory_of_tasks)
