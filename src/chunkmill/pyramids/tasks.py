"""Tasks of a pyramid.

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

from numpy.typing import NDArray

from chunkmill.array.chunk_io import fill_values, read_region, write_region
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, metered, metered_source
from chunkmill.conversion.actions import ChosenAction
from chunkmill.conversion.convert_tasks import ArrayTransfer, transfer_keys
from chunkmill.conversion.estimate import TaskMemory, chunk_bytes, input_bytes, met_bytes, n_decoding
from chunkmill.jobs.sources import SeenSource, check_absences
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.pyramids.downsample import Method, Reduction, downsample
from chunkmill.pyramids.levels import LevelBlocks, region_read, under
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, TaskResult
from chunkmill.stores.base import REQUESTS_AT_ONCE
from chunkmill.stores.wrapper import Meter, RememberedReads


@dataclass(frozen=True, slots=True)
class LevelStage:
    """One stage: the level that its tasks read, and those that they write.

    Attributes
    ----------
    source
        The array that is read: the base, or a level that an earlier stage has written.
    seen
        The base's documents when the job was planned; ``None`` where a level is read.
    copy
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
    copy: tuple[StoredArray, ChosenAction] | None
    blocks: tuple[LevelBlocks, ...]
    targets: tuple[StoredArray, ...]
    method: Method | Reduction
    fresh: bool

    @property
    def written(self) -> ChunkGrid:
        """Blocks of the last level, one a task."""
        return self.blocks[-1].blocks


def level_inputs(stages: Sequence[LevelStage], spec: int) -> Iterator[StoreKeys]:
    """Yield what the task of `spec` reads."""
    (stage,) = stages
    yield StoreKeys.of(stage.source, region_read(stage.blocks, stage.written.coords_of(spec)))


def level_shows(stages: Sequence[LevelStage], spec: int) -> str:
    """Return the first store key that the task of `spec` writes."""
    (stage,) = stages
    target = (*((stage.copy or (stage.source,))[:1]), *stage.targets)[-1]
    return target.first_key(stage.written.region(stage.written.coords_of(spec)))


def base_bytes(base: StoredArray, stage: Sequence[LevelBlocks]) -> int:
    """Return what a task of a stage holds of the base besides its elements.

    These are Dask blocks under all of its block of the last level; and of one block that is read the encoded chunks
    which go beyond it, and one decoded.
    """
    read, aligned = stage[0].blocks, base.region is None
    if read.shape != base.shape:  # it reads a level that is stored
        return 0
    last = enumerate(stage[-1].blocks.chunk_shape)
    shape = [n * prod(level.factors[axis] for level in stage[1:]) for axis, n in last]
    own = prod(map(min, read.shape, read.chunk_shape)) * base.dtype.itemsize
    beyond = max(0, met_bytes(base, read.chunk_shape, aligned=aligned) - own)
    decoded = chunk_bytes(base, base.read_layout) * n_decoding(base.read_layout.codecs) if beyond else 0
    return input_bytes(base, shape, aligned=aligned) + beyond + decoded


def write_block(stages: Sequence[LevelStage], spec: int) -> TaskResult:
    """Write one block of the last level of the stage, and all that is under it."""
    (stage,) = stages
    meter, counts = Meter(), Counter[str]()
    remembered = RememberedReads(metered_source(stage.source, meter).store)
    targets = tuple(metered(target, meter) for target in stage.targets)
    copy = None if stage.copy is None else (metered(stage.copy[0], meter), stage.copy[1])
    own = replace(stage, source=stage.source.with_store(remembered), targets=targets, copy=copy)
    _Work(own, remembered, counts).block(len(stage.blocks) - 1, stage.written.coords_of(spec))
    return TaskResult.of(meter, **counts)


@dataclass(frozen=True, slots=True)
class _Work:
    stage: LevelStage
    remembered: RememberedReads
    counts: Counter[str]

    def block(self, level: int, coords: ChunkCoords) -> NDArray[Any] | None:
        """Write a block of a level, reduced from blocks above; return its values, ``None`` where all are absent."""
        if level == 0:
            return self._first(coords)
        own, target = self.stage.blocks[level], self.stage.targets[level - 1]
        region = own.blocks.region(coords)
        values: NDArray[Any] | None = None
        for above, where in under(own, self.stage.blocks[level - 1], coords):
            found = self.block(level - 1, above)
            if found is None:
                continue
            if values is None:
                values = fill_values(target, region_shape(region)).copy()
            values[where] = downsample(found, own.factors, self.stage.method)
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

    def _first(self, coords: ChunkCoords) -> NDArray[Any] | None:
        """Read a block of a source that is as it was planned (P9), and copy it where the first level is written."""
        region = self.stage.blocks[0].blocks.region(coords)
        self.remembered.forget()
        values = read_region(self.stage.source, region)
        present = self.remembered.any_present
        self.counts["n_elements_read"] += values.size
        if self.stage.seen is not None:
            check_absences(self.stage.source, self.stage.seen, region, self.remembered.absent)
            self.counts["n_elements_owned"] += values.size
        if self.stage.copy is not None:
            self._copy(*self.stage.copy, region, values)
        self.remembered.forget()
        return values if present else None

    def _copy(self, copy: StoredArray, action: ChosenAction, region: Region, values: NDArray[Any]) -> None:
        keys = [overlap.coords for overlap in copy.write_layout.grid.overlaps(region)]
        self.counts["n_keys"] += len(keys)
        if not action.moves:
            write_region(copy, region, values)
            self.counts[f"action_{action.name}"] += len(keys)
            return
        memory = TaskMemory(0, n_background=REQUESTS_AT_ONCE if copy.store.is_remote else 0)
        actions = Counter[str]()
        transfer_keys(ArrayTransfer(self.stage.source, copy, action, self.stage.fresh, memory), keys, actions)
        self.counts.update({f"action_{name}": n for name, n in actions.items()})


def block_share(stages: Sequence[LevelStage], spec: Any) -> float:  # noqa: ARG001 - all blocks are alike
    """Return the fraction of one task's budget that a block uses: small blocks share tasks, of which some remain."""
    (stage,) = stages
    n_blocks = stage.written.n_chunks
    return max(stage.source.nbytes / n_blocks / MAX_TASK_BYTES, LEAST_TASKS / n_blocks)
