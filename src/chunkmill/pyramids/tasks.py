"""Tasks of a pyramid, and what is published after its levels.

A task reads a region of one level once, and writes whole store keys of the levels below it. The first level is copied
along the way where the target has one of its own: encoded bytes move unopened where they mean the same in the target.
Absent chunks stay absent at every level. Not here: the division into blocks (`chunkmill.pyramids.levels`), running
stages (`chunkmill.jobs.job`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_region, write_region
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, metered, metered_source
from chunkmill.conversion.actions import ChosenAction
from chunkmill.conversion.convert_tasks import ArrayTransfer, transfer_keys
from chunkmill.conversion.estimate import TaskMemory, chunk_bytes, input_bytes, met_bytes, n_decoding
from chunkmill.conversion.region_option import region_of
from chunkmill.jobs.sources import SeenSource, Source, check_absences
from chunkmill.jobs.work import Tasks
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import ChunkCoords, Region
from chunkmill.model.multiscales import Multiscale
from chunkmill.nodes.target import Target
from chunkmill.pyramids.downsample import Method, Reduction, downsample
from chunkmill.pyramids.image import name_levels
from chunkmill.pyramids.labels import LabelList, with_windows
from chunkmill.pyramids.levels import LevelBlocks, block_region, region_above, tasks_of, under
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, Stage, TaskResult
from chunkmill.stores.base import REQUESTS_AT_ONCE
from chunkmill.stores.memory import RememberedReads
from chunkmill.stores.wrapper import Meter


@dataclass(frozen=True, slots=True)
class LevelStage:
    """One stage: the level that its tasks read, and those that they write.

    Attributes
    ----------
    source
        The array that is read: the base, or a level that an earlier stage has written.
    seen
        The base's documents when the job was planned; ``None`` where a level is read.
    copy, action
        The first level, where it is written too, and the action for its chunks; ``None``: it exists.
    blocks
        The blocks of each level, that which is read included.
    targets
        The arrays of the levels below that which is read.
    fresh
        Whether there is nothing under the targets' keys yet.
    """

    source: StoredArray
    seen: SeenSource | None
    copy: StoredArray | None
    action: ChosenAction | None
    blocks: tuple[LevelBlocks, ...]
    targets: tuple[StoredArray, ...]
    method: Method | Reduction
    fresh: bool

    def coords(self, number: int) -> ChunkCoords:
        """Return the block of a task in the last level."""
        return tuple(int(i) for i in np.unravel_index(number, self.blocks[-1].n_blocks))


def level_inputs(stages: Sequence[LevelStage], spec: int) -> Iterator[StoreKeys]:
    """Yield what the task of `spec` reads."""
    (stage,) = stages
    yield StoreKeys.of(stage.source, region_above(stage.blocks, 0, stage.coords(spec)))


def level_shows(stages: Sequence[LevelStage], spec: int) -> str:
    """Return the first store key that the task of `spec` writes."""
    (stage,) = stages
    target = (stage.targets or (stage.copy or stage.source,))[-1]
    return target.first_key(block_region(stage.blocks[-1], stage.coords(spec)))


def base_bytes(base: StoredArray, stage: Sequence[LevelBlocks]) -> int:
    """Return what a task of a stage holds of the base besides its elements.

    These are Dask blocks under all of its block of the last level; and of one block that is read the encoded chunks
    which go beyond it, and one decoded.
    """
    if stage[0].shape != base.shape:  # it reads a level that is stored
        return 0
    aligned = region_of(base) is None
    shape = [n * prod(level.factors[axis] for level in stage[1:]) for axis, n in enumerate(stage[-1].block)]
    own = prod(map(min, stage[0].shape, stage[0].block)) * base.dtype.itemsize
    beyond = max(0, met_bytes(base, stage[0].block, aligned=aligned) - own)
    decoded = chunk_bytes(base, base.read_layout) * n_decoding(base.read_layout.codecs) if beyond else 0
    return input_bytes(base, shape, aligned=aligned) + beyond + decoded


def write_block(stages: Sequence[LevelStage], spec: int) -> TaskResult:
    """Write one block of the last level of the stage, and all that is under it."""
    (stage,) = stages
    meter, counts = Meter(), Counter[str]()
    source = metered_source(stage.source, meter)
    remembered = RememberedReads(source.store)
    targets = tuple(metered(target, meter) for target in stage.targets)
    copy = None if stage.copy is None else metered(stage.copy, meter)
    _Work(stage, source.with_store(remembered), remembered, targets, copy, counts).block(
        len(stage.blocks) - 1, stage.coords(spec)
    )
    return TaskResult.of(meter, **counts)


@dataclass(frozen=True, slots=True)
class _Work:
    stage: LevelStage
    source: StoredArray
    remembered: RememberedReads
    targets: tuple[StoredArray, ...]
    copy: StoredArray | None
    counts: Counter[str]

    def block(self, level: int, coords: ChunkCoords) -> NDArray[Any] | None:
        """Write a block of a level, and return its values; ``None`` where all of it is absent."""
        return self._first(coords) if level == 0 else self._below(level, coords)

    def _first(self, coords: ChunkCoords) -> NDArray[Any] | None:
        """Read a block, and copy it where the first level is written."""
        region = block_region(self.stage.blocks[0], coords)
        self.remembered.forget()
        values = read_region(self.source, region)
        present = self.remembered.any_present
        self.counts["n_elements_read"] += values.size
        if self.stage.seen is not None:
            check_absences(self.source, self.stage.seen, region, self.remembered.absent)
            self.counts["n_elements_owned"] += values.size
        if self.copy is not None:
            self._copy(region, values)
        self.remembered.forget()
        return values if present else None

    def _copy(self, region: Region, values: NDArray[Any]) -> None:
        stage = self.stage
        assert self.copy is not None and stage.action is not None  # noqa: S101, PT018 - the caller asks
        keys = [overlap.coords for overlap in self.copy.write_layout.grid.overlaps(region)]
        self.counts["n_keys"] += len(keys)
        if not stage.action.moves:
            write_region(self.copy, region, values)
            self.counts[f"action_{stage.action.name}"] += len(keys)
            return
        memory = TaskMemory(0, n_background=REQUESTS_AT_ONCE if self.copy.store.is_remote else 0)
        actions = Counter[str]()
        transfer_keys(ArrayTransfer(self.source, self.copy, stage.action, stage.fresh, memory), keys, actions)
        for name, n in actions.items():
            self.counts[f"action_{name}"] += n

    def _below(self, level: int, coords: ChunkCoords) -> NDArray[Any] | None:
        """Reduce the blocks of the level above, and write the store keys of this one."""
        blocks, target = self.stage.blocks[level], self.targets[level - 1]
        region = block_region(blocks, coords)
        values: NDArray[Any] | None = None
        for above, where in under(blocks, self.stage.blocks[level - 1], coords):
            found = self.block(level - 1, above)
            if found is None:
                continue
            if values is None:
                fill = np.zeros((), target.dtype) if target.fill_value is None else target.fill_value
                values = np.full(region_shape(region), fill, target.dtype)
            values[where] = downsample(found, blocks.factors, self.stage.method)
            del found  # before the next one is read
        n_keys = sum(1 for _ in target.write_layout.grid.overlaps(region))
        self.counts["n_keys"] += n_keys
        if values is not None:
            write_region(target, region, values)
            self.counts["action_reduce"] += n_keys
        else:
            self.counts["action_absent"] += n_keys
            if not self.stage.fresh:
                for key in target.keys(region):
                    target.store.delete(key)
        return values


@dataclass(frozen=True, kw_only=True)
class PyramidTasks(Tasks):
    """Tasks of a pyramid, and what is published after its levels.

    Attributes
    ----------
    source
        The array that the pyramid is made from.
    action
        The action for the chunks of the first level; ``None``: it exists, and is the source.
    blocks
        For each stage the blocks of its levels; see `chunkmill.pyramids.levels.divide`.
    image
        What the attributes of the group tell of the levels.
    convention
        How they tell it, in a group that exists (see `LevelTarget.convention`).
    has_windows
        Whether the channels get windows of the values that are written.
    label
        The list of label images that the new one is added to; ``None``: it is none.
    """

    source: Source
    action: ChosenAction | None
    blocks: tuple[tuple[LevelBlocks, ...], ...]
    method: Method | Reduction
    image: Multiscale
    convention: str | None
    has_windows: bool
    label: LabelList | None

    def stages(self, target: Target, *, fresh: bool) -> list[Stage]:
        """Return the stages: each reads the last level of the stage before."""
        base, seen = self.source
        levels = [*(() if self.action is not None else (base,)), *target.arrays]
        stages, first = [], 0
        for number, blocks in enumerate(self.blocks):
            is_first = number == 0
            copies = is_first and self.action is not None
            targets = levels[first + 1 : first + len(blocks)]
            level = LevelStage(
                base if is_first else levels[first],
                seen if is_first else None,
                levels[0] if copies else None,
                self.action if copies else None,
                blocks,
                tuple(targets),
                self.method,
                fresh,
            )
            begins, ends = first if copies else first + 1, first + len(targets)
            name = f"level {ends}" if begins == ends else f"levels {begins} to {ends}"
            specs = range(tasks_of(blocks))
            stages.append(Stage(name, write_block, (level,), specs, level_shows, _share, inputs=level_inputs))
            first += len(blocks) - 1
        return stages

    def publish(self, target: Target) -> list[str]:
        """Publish the levels and the group, or the attributes that name them; then list labels in the group above."""
        if self.has_windows:
            group = with_windows(target.groups[target.path], self.image, target.arrays[-1])
            target = replace(target, groups={**target.groups, target.path: group})
        written = target.publish()
        if self.action is None:
            name_levels(self.source.array, self.image, self.convention)
        if self.label is not None:
            self.label.add()
        return written


def _share(stages: Sequence[LevelStage], spec: Any) -> float:  # noqa: ARG001 - all blocks are alike
    """Return the fraction of one task's budget that a block uses: small blocks share tasks, of which some remain."""
    (stage,) = stages
    n_bytes = prod(stage.blocks[0].shape) * stage.source.dtype.itemsize
    n_blocks = tasks_of(stage.blocks)
    return max(n_bytes / n_blocks / MAX_TASK_BYTES, LEAST_TASKS / max(n_blocks, 1))
