"""Plan a transform as a job: blocks within memory, fingerprint, estimate, and stages.

Not here: the arguments (`chunkmill.transforms.transform`), what a task does (`chunkmill.transforms.tasks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from dask.utils import format_bytes

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.coarsen import Axis, block_grid
from chunkmill.conversion.estimate import (
    chunk_bytes,
    index_size,
    input_bytes,
    itemsize,
    most_encoded,
    n_decoding,
    n_encoding,
    sampled_bytes,
    stored_bytes,
)
from chunkmill.errors import AlignmentError
from chunkmill.formats.peers import readers_text
from chunkmill.hints import Hint
from chunkmill.jobs.call import shown_function
from chunkmill.jobs.work import Described, JobCounts, PlannedStage, Tasks, Work, shown_node
from chunkmill.model.grid import ChunkGrid, RegularAxis
from chunkmill.nodes.target import Target
from chunkmill.runtime.scheduler import check_n_tasks
from chunkmill.runtime.stage import Stage, TaskSpecs, count_tasks
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD, Worker
from chunkmill.transforms.blocks import ArrayAxes, Space, grow_blocks, read_amplification, unit_axes
from chunkmill.transforms.tasks import TransformTasks, block_inputs, block_share, block_shows, write_block


@dataclass(frozen=True, kw_only=True)
class BlockTasks(Tasks):
    """Tasks of a transform, one for each block; `shared` is what they share."""

    shared: TransformTasks

    def stages(self, target: Target, *, fresh: bool) -> list[Stage]:  # noqa: ARG002 - all is written
        """Return the stage."""
        shared = replace(self.shared, targets=tuple(target.arrays))
        specs = TaskSpecs.counted([shared.blocks.n_chunks])
        return [Stage("transform", write_block, shared, specs, block_shows, block_share, inputs=block_inputs)]


_FINE_TASK_BYTES = 16 << 20
"""Bytes that a task holds below which fewer tasks are as good as many."""

_MOST_TASK_BYTES = 256 << 20
"""Bytes that a task holds above which larger blocks spare little, and progress is seen late."""


@dataclass(frozen=True, kw_only=True)
class Transform(Work):
    """A function of blocks of stored arrays; can be pickled where the function can.

    Attributes
    ----------
    space
        Axes that the blocks divide.
    tasks
        What tasks share, without blocks and targets.
    block
        Length of a block along each axis; ``None``: chosen.
    function
        Fingerprint of the function and its parameters as they were planned: what it refers to may change as it runs.
    """

    version = 3
    space: Space
    tasks: TransformTasks
    block: tuple[int, ...] | None
    function: str

    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> BlockTasks:
        """Divide the space into blocks, of the length that was asked for when the job began."""
        block = self.block if choices is None else choices["block"]
        blocks = self.blocks(worker, block)
        return BlockTasks(
            numbered=blocks,
            task_bytes=self.task_bytes(blocks.chunk_shape),
            since=f"each thread holds a block of {blocks.chunk_shape}, of whole store keys of the targets",
            choices={"block": block},
            shared=replace(self.tasks, blocks=blocks),
        )

    def identity(self) -> tuple[Any, ...]:
        """Return what tells the function, its parameters and what it is given from others."""
        tasks = self.tasks
        axes = [each.axes for each in (*(source.axes for source in tasks.sources), *tasks.axes)]
        return self.function, axes, tasks.halo, tasks.boundary

    def arguments(self) -> Mapping[str, Any]:
        """Return the function, and what it is given."""
        tasks = self.tasks
        return {
            "function": f"{shown_function(tasks.function.function)} ({self.function[:12]})",
            "dtype": [str(array.dtype) for array in self.target.arrays],
            "params": dict(tasks.function.params),
            "halo": tasks.halo,
            "boundary": tasks.boundary,
            "source_region": None if tasks.source_region is None else shown_function(tasks.source_region),
        }

    def described(self, tasks: BlockTasks, worker: Worker) -> Described:
        """Return blocks, rows and estimates."""
        old, new = [source.array for source in self.sources], self.target.arrays
        stages, n_keys = (self._estimated(tasks),), sum(array.write_layout.grid.n_chunks for array in new)
        costs = JobCounts.of(
            stages,
            peak_memory_bytes=worker.n_threads * tasks.task_bytes,
            read_amplification=self._amplification(tasks.shared.blocks, [each.axes for each in self.tasks.sources]),
            n_keys=n_keys,
            actions={"transform": n_keys},
        )
        return {
            "source": ", ".join(map(shown_node, old)),
            "target": ", ".join(map(shown_node, new)),
            "strategy": shown_function(self.tasks.function.function),
            "reason": self._reason(tasks.shared.blocks),
            "costs": costs,
            "stages": stages,
            "arrays": [*(_row("source", array) for array in old), *(_row("target", array) for array in new)],
            "not_read_by": readers_text([(array.path, array.metadata) for array in new], self.target.format.name),
            "drawn": (old[0], new[0]),
        }

    # ----------------------------------------------------------------------------------------------------------------
    # Blocks

    def blocks(self, worker: Worker, block: Sequence[int] | None) -> ChunkGrid:
        """Return the grid of blocks: as asked for, else as large as spares reading, within the memory of a task.

        Raises
        ------
        AlignmentError
            The blocks that were asked for cut through store keys of a target.
        """
        units = unit_axes(self.space, self.tasks.axes)
        check_n_tasks(f"write all of {self.target.arrays[0].url}", block_grid(units, [1] * len(units)).n_chunks)
        sources = [source.axes for source in self.tasks.sources]
        if block is not None:
            blocks = block_grid(units, [_multiple(unit, n, units, block) for unit, n in zip(units, block, strict=True)])
        elif self.tasks.source_region is not None:
            blocks = block_grid(units, [1] * len(units))
        else:
            blocks = grow_blocks(
                units,
                sources,
                self.tasks.halo,
                n_bytes=self.task_bytes,
                budget=min(worker.max_mem // worker.n_threads, _MOST_TASK_BYTES),
                n_least=4 * worker.n_threads * worker.n_workers,
                fine_bytes=_FINE_TASK_BYTES,
            )
        return blocks

    def task_bytes(self, shape: Sequence[int]) -> int:
        """Return the bytes that the task of such a block holds (P12): twice what the function takes and returns."""
        wide = [n + before + after for n, (before, after) in zip(shape, self.tasks.halo, strict=True)]
        taken = inputs = returned = opened = 0
        aligned = not self.tasks.has_halo and self.tasks.source_region is None
        for source, read in zip(self.tasks.sources, self._read_shapes(shape, wide), strict=True):
            array, layout = source.array, source.array.read_layout
            size = prod(read) * itemsize(array)
            taken += size * (2 if self.tasks.has_halo else 1)
            inputs += input_bytes(array, read, aligned=aligned)
            held = most_encoded(array, layout) + chunk_bytes(array, layout) * n_decoding(layout.codecs)
            opened = max(opened, held + size * array.store.is_remote)
        for array, axes in zip(self.target.arrays, self.tasks.axes, strict=True):
            layout = array.write_layout
            lengths = zip(axes.axes, array.shape, strict=True)
            size = prod(n if axis is None else wide[axis] for axis, n in lengths) * itemsize(array)
            returned += size
            encoded = chunk_bytes(array, layout) * n_encoding(layout.codecs)
            opened = max(opened, encoded + size * array.store.is_remote)
        return inputs + 2 * (taken + returned) + opened + THREAD_OVERHEAD

    def _read_shapes(self, shape: Sequence[int], wide: Sequence[int]) -> list[Sequence[int]]:
        """Return the shape that a block of that shape, and of that with its halo, takes from each source."""
        if self.tasks.source_region is None:
            each = ((source.axes.axes, source.array.shape) for source in self.tasks.sources)
            return [[n if a is None else wide[a] for a, n in zip(*own, strict=True)] for own in each]
        lengths = [*zip(shape, self.space.shape, strict=True)]
        first = tuple(slice(0, min(n, whole)) for n, whole in lengths)
        last = tuple(slice(max(0, whole - n), whole) for n, whole in lengths)
        shapes = [
            [tuple(cut.stop - cut.start for cut in each.region) for each in self.tasks.reads(r)] for r in (first, last)
        ]
        return [max(pair, key=prod) for pair in zip(*shapes, strict=True)]

    def _reason(self, blocks: ChunkGrid) -> str:
        text = f"{blocks.n_chunks:,} block{'s' * (blocks.n_chunks != 1)} of {blocks.chunk_shape}"
        if self.tasks.has_halo:
            text += ", with a halo"
        if self.tasks.source_region is not None:
            text += f", which read the regions that {shown_function(self.tasks.source_region)} names"
        return text

    def _amplification(self, blocks: ChunkGrid, sources: Sequence[ArrayAxes]) -> float:
        return 1.0 if self.tasks.source_region is not None else read_amplification(blocks, sources, self.tasks.halo)

    def _estimated(self, tasks: BlockTasks) -> PlannedStage:
        n_requests = n_bytes = written = 0
        for source, size in zip(self.tasks.sources, sampled_bytes([s.array for s in self.tasks.sources]), strict=True):
            often = self._amplification(tasks.shared.blocks, [source.axes])
            chunks, keys = source.array.read_layout, source.array.write_layout
            n_bytes += round(often * size)
            n_requests += round(often * chunks.grid.n_chunks)
            if chunks is not keys:
                n_indexes = round(often * keys.grid.n_chunks)
                n_bytes, n_requests = n_bytes + n_indexes * index_size(keys), n_requests + n_indexes
        for array in self.target.arrays:
            written += stored_bytes(array, array.read_layout, array.read_layout.grid.n_chunks, array.nbytes)
            n_requests += array.write_layout.grid.n_chunks
        n_tasks = count_tasks(*tasks.stages(self.target, fresh=True))
        return PlannedStage("transform", n_tasks, n_bytes, written, n_requests)


def _multiple(unit: Axis, n: int, units: Sequence[Axis], block: Sequence[int]) -> int:
    """Return how many units a block of `n` elements has along an axis."""
    length = unit.size if n == -1 or n >= unit.size else n
    if length == unit.size:
        return max(unit.n_chunks, 1)
    if isinstance(unit, RegularAxis) and length > 0 and length % unit.chunk == 0:
        return length // unit.chunk
    lengths = tuple(each.widest for each in units)
    fix = Hint("give {} of multiples of these, or smaller chunks or shards", ("block", ...))
    raise AlignmentError(
        expected=f"multiples of {lengths}, which are whole store keys", got=f"block={tuple(block)}", fix=fix
    )


def _row(role: str, array: StoredArray) -> dict[str, Any]:
    return {
        "array": f"{role} {array.path or '/'}",
        "shape": array.shape,
        "dtype": str(array.dtype),
        "chunks": array.chunks,
        "shards": array.shards,
        "size": format_bytes(array.nbytes),
    }
