"""Plan a transform as a job: blocks within memory, fingerprint, estimate, and stages.

Not here: the arguments (`chunkmill.transforms.transform`), what a task does (`chunkmill.transforms.tasks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from dask.utils import format_bytes

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.coarsen import Axis, coarsen
from chunkmill.conversion.convert_job import shown_node
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
from chunkmill.errors import AlignmentError, JobError
from chunkmill.formats.base import Format
from chunkmill.formats.peers import readers_text
from chunkmill.hints import Hint
from chunkmill.jobs.job import Job
from chunkmill.jobs.plan import JobCounts, Plan, PlannedStage
from chunkmill.jobs.sources import check_sources
from chunkmill.journal.names import fingerprint
from chunkmill.model.grid import ChunkGrid, RegularAxis
from chunkmill.nodes.target import Target
from chunkmill.runtime.scheduler import check_n_tasks
from chunkmill.runtime.stage import Stage, TaskSpecs, count_tasks
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD, Worker
from chunkmill.transforms.blocks import (
    ArrayAxes,
    Space,
    block_grid,
    grow_blocks,
    halo_share,
    read_amplification,
    unit_axes,
)
from chunkmill.transforms.function import function_fingerprint, shown_function
from chunkmill.transforms.tasks import (
    TransformTarget,
    TransformTasks,
    block_inputs,
    block_share,
    block_shows,
    write_block,
)

__all__ = ["TransformRequest", "TransformWriter"]


@dataclass(frozen=True)
class TransformWriter:
    """The tasks of a transform's job; can be pickled.

    Attributes
    ----------
    job, fingerprint
        Name of the job, and fingerprint of its plan.
    tasks
        What tasks share.
    units
        Length of a block along each axis, in the smallest blocks of whole store keys.
    """

    job: str
    fingerprint: str
    tasks: TransformTasks
    units: list[int]

    def stages(self, target: Target) -> list[Stage]:
        """Return the stage."""
        self.check_sources()
        if not target.is_fresh():
            target.check_own()
        pairs = zip(target.arrays, self.tasks.targets, strict=True)
        targets = tuple(each._replace(array=array) for array, each in pairs)
        return [self.stage(replace(self.tasks, targets=targets))]

    def stage(self, tasks: TransformTasks) -> Stage:
        """Return the stage of what tasks share."""
        return Stage(
            "transform",
            write_block,
            tasks,
            TaskSpecs.counted([tasks.blocks.n_chunks]),
            block_shows,
            block_share,
            inputs=block_inputs,
        )

    def check_sources(self) -> None:
        """Raise `JobError` where a source was deleted or replaced since the job was planned."""
        sources = self.tasks.sources
        check_sources(self.job, [source.array for source in sources], [source.seen for source in sources])


_VERSION = 2  # of what the journal's numbers mean
_FINE_TASK_BYTES = 16 << 20
"""Bytes that a task holds below which fewer tasks are as good as many."""

_MOST_TASK_BYTES = 256 << 20
"""Bytes that a task holds above which larger blocks spare little, and progress is seen late."""


@dataclass(frozen=True)
class TransformRequest:
    """Request of a transform, independent of its workers; can be pickled where the function can.

    Attributes
    ----------
    space
        Axes that the blocks divide.
    targets
        Format and array of each.
    axes
        How the axes of each target map to those of the space.
    tasks
        What tasks share, without blocks and targets.
    block
        Length of a block along each axis; ``None``: chosen.
    overwrite
        Whether nodes at the targets are replaced.
    call
        The arguments that a plan can hold.
    """

    space: Space
    targets: tuple[tuple[Format, StoredArray], ...]
    axes: tuple[ArrayAxes, ...]
    tasks: TransformTasks
    block: tuple[int, ...] | None
    overwrite: bool
    call: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Description of the job."""
        array = self.targets[0][1]
        more = f" and {len(self.targets) - 1} more" if len(self.targets) > 1 else ""
        return f"transform to {array.store.url}{f'/{array.path}' if array.path else ''}{more}"

    def plan(self, worker: Worker) -> Plan:
        """Plan the job for some workers."""
        writer = self._writer(self.blocks(worker))
        blocks = writer.tasks.blocks
        stage, costs = self._estimated(writer, worker)
        arrays = [source.array for source in self.tasks.sources]
        by_format: dict[str, list[Any]] = {}
        for documents_format, array in self.targets:
            by_format.setdefault(documents_format.name, []).append((array.path, array.metadata))
        return Plan(
            operation="transform",
            source=", ".join(map(shown_node, arrays)),
            target=", ".join(shown_node(array) for _, array in self.targets),
            strategy=shown_function(self.tasks.function.function),
            reason=self._reason(blocks),
            costs=costs,
            stages=(stage,),
            job=self.job(worker, writer),
            arrays=[
                *map(_row, ["source"] * len(arrays), arrays),
                *(_row("target", array) for _, array in self.targets),
            ],
            not_read_by="; ".join(filter(None, (readers_text(known, name) for name, known in by_format.items()))),
            drawn=(arrays[0], self.targets[0][1]),
        )

    def job(self, worker: Worker, writer: TransformWriter, tasks_at_once: int | None = None) -> Job:
        """Return the job of a writer."""
        at_once = tasks_at_once or worker.n_threads
        arrays = [array for _, array in self.targets]
        return Job(
            name=self.name,
            target=Target(arrays[0].store, arrays[0].path, self.targets[0][0], arrays, overwrite=self.overwrite),
            fingerprint=writer.fingerprint,
            sources=[source.array for source in self.tasks.sources],
            stages=writer.stages,
            check_result=writer.check_sources,
            choices=self._choices(writer),
            adopt=partial(self.adopt, worker),
            tasks_at_once=tasks_at_once,
            memory_of_tasks=at_once * self.task_bytes(writer.tasks.blocks.chunk_shape),
        )

    def adopt(self, worker: Worker, plan_hash: str, choices: Mapping[str, Any]) -> Job | None:
        """Return the job of that fingerprint, with the blocks of its plan; ``None`` for another job.

        Raises
        ------
        JobError
            One of its tasks needs more memory than a worker has now.
        """
        writer = self._begun(choices.get("units"), plan_hash)
        if writer is None:
            return None
        need = self.task_bytes(writer.tasks.blocks.chunk_shape)
        at_once = worker.max_mem // need
        if not at_once:
            reason = f"a task of the unfinished job holds {need:,} bytes, and max_mem is {worker.max_mem:,} now"
            hint = Hint("give {} or more, or workers of more memory", ("max_mem", need))
            raise JobError(job=self.name, reason=reason, hint=hint.also("{} begins again", ("resume", False)))
        return self.job(worker, writer, at_once if at_once < worker.n_threads else None)

    def _begun(self, multiples: Any, plan_hash: Any) -> TransformWriter | None:
        """Return the writer of the job of that fingerprint, whose blocks have so many units; ``None`` for another."""
        units = unit_axes(self.space, self.axes)
        if not isinstance(multiples, list) or [type(n) for n in multiples] != [int] * len(units) or 0 in multiples:
            return None
        writer = self._writer(block_grid(units, multiples))
        return writer if writer.fingerprint == plan_hash else None

    # ----------------------------------------------------------------------------------------------------------------
    # Blocks

    def blocks(self, worker: Worker) -> ChunkGrid:
        """Return the grid of blocks: as asked for, else as large as spares reading, within the memory of a task.

        Raises
        ------
        AlignmentError
            The blocks that were asked for cut through store keys of a target.
        JobError
            The memory allowed is too little; says how much is needed.
        """
        units = unit_axes(self.space, self.axes)
        check_n_tasks(f"write all of {self.targets[0][1].url}", block_grid(units, [1] * len(units)).n_chunks)
        sources = [source.axes for source in self.tasks.sources]
        if self.block is not None:
            blocks = block_grid(
                units, [_multiple(unit, n, units, self.block) for unit, n in zip(units, self.block, strict=True)]
            )
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
        held = self.task_bytes(blocks.chunk_shape)
        if held > worker.max_mem // worker.n_threads:
            needed = held * worker.n_threads
            reason = (
                f"a worker of {worker.n_threads} threads has {worker.max_mem:,} bytes, and each thread holds a block "
            )
            reason += f"of {blocks.chunk_shape}, of whole store keys of the targets: {needed:,} bytes are needed"
            hint = Hint("give {} or more, workers of fewer threads, or smaller chunks or shards", ("max_mem", needed))
            raise JobError(job=self.name, reason=reason, hint=hint)
        return blocks

    def task_bytes(self, shape: Sequence[int]) -> int:
        """Return the bytes that the task of a block of that shape holds: twice what the function takes and returns."""
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
        for (_, array), axes in zip(self.targets, self.axes, strict=True):
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

    # ----------------------------------------------------------------------------------------------------------------

    def _writer(self, blocks: ChunkGrid) -> TransformWriter:
        arrays = [array for _, array in self.targets]
        targets = tuple(map(TransformTarget, arrays, self.axes))
        tasks = replace(self.tasks, blocks=blocks, targets=targets)
        known = [
            [(s.array.url, s.array.path, s.array.metadata, s.seen.versions, s.axes.axes) for s in tasks.sources],
            [
                (a.url, a.path, a.metadata, f.name, axes.axes)
                for (f, a), axes in zip(self.targets, self.axes, strict=True)
            ],
            (blocks, tasks.halo, tasks.boundary),
        ]
        digest = fingerprint("transform", _VERSION, self.identity(), *known)
        units = _multiples(unit_axes(self.space, self.axes), blocks)
        return TransformWriter(self.name, digest, tasks, units)

    def identity(self) -> str:
        """Return what tells the function and its parameters from others."""
        function, params = self.tasks.function.function, dict(self.tasks.function.params)
        regions = self.tasks.source_region
        return function_fingerprint(function, params, regions)

    def _choices(self, writer: TransformWriter) -> dict[str, Any]:
        """Return what the plan stores: the blocks, and the arguments in words."""
        tasks = self.tasks
        function = f"{shown_function(tasks.function.function)} ({self.identity()[:12]})"
        arguments = {
            "operation": "transform",
            "function": function,
            "source": ", ".join(f"{each.array.url}/{each.array.path}" for each in tasks.sources),
            "target": ", ".join(f"{array.url}/{array.path} ({f.name})" for f, array in self.targets),
            "dtype": [str(array.dtype) for _, array in self.targets],
            "chunks": [array.chunks for _, array in self.targets],
            "shards": [array.shards for _, array in self.targets],
            "codecs": [[codec.name for codec in array.codecs] for _, array in self.targets],
            "params": dict(tasks.function.params),
            "halo": tasks.halo,
            "boundary": tasks.boundary,
            "source_region": None if tasks.source_region is None else shown_function(tasks.source_region),
        }
        return {
            "units": writer.units,
            "arguments": {name: _short(value) for name, value in arguments.items()},
            "call": dict(self.call),
        }

    def _reason(self, blocks: ChunkGrid) -> str:
        share = halo_share(blocks, [source.axes for source in self.tasks.sources], self.tasks.halo)
        text = f"{blocks.n_chunks:,} block{'s' * (blocks.n_chunks != 1)} of {blocks.chunk_shape}"
        if self.tasks.has_halo:
            text += f", with a halo of {share:.1%} more elements"
        if self.tasks.source_region is not None:
            text += f", which read the regions that {shown_function(self.tasks.source_region)} names"
        return text

    def _estimated(self, writer: TransformWriter, worker: Worker) -> tuple[PlannedStage, JobCounts]:
        sources, blocks = self.tasks.sources, writer.tasks.blocks
        axes = [source.axes for source in sources]
        sizes = sampled_bytes([source.array for source in sources])
        amplification = 1.0
        n_read = n_bytes = 0
        for source, size in zip(sources, sizes, strict=True):
            often = 1.0
            if self.tasks.source_region is None:
                often = read_amplification(blocks, [source.axes], self.tasks.halo)
            n_bytes += round(often * size)
            n_read += round(often * source.array.read_layout.grid.n_chunks)
            if source.array.read_layout is not source.array.write_layout:
                n_indexes = round(often * source.array.write_layout.grid.n_chunks)
                n_bytes, n_read = n_bytes + n_indexes * index_size(source.array.write_layout), n_read + n_indexes
        if self.tasks.source_region is None:
            amplification = read_amplification(blocks, axes, self.tasks.halo)
        n_keys = sum(array.write_layout.grid.n_chunks for _, array in self.targets)
        written = sum(
            stored_bytes(array, array.read_layout, array.read_layout.grid.n_chunks, array.nbytes)
            for _, array in self.targets
        )
        n_tasks = count_tasks(writer.stage(writer.tasks))
        stage = PlannedStage("transform", n_tasks, n_bytes, written, n_read + n_keys)
        costs = JobCounts(
            n_tasks=n_tasks,
            bytes_read=n_bytes,
            bytes_written=written,
            n_requests=n_read + n_keys,
            peak_memory_bytes=worker.n_threads * self.task_bytes(blocks.chunk_shape),
            read_amplification=amplification,
            n_keys=n_keys,
            actions={"transform": n_keys},
        )
        return stage, costs


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


def _multiples(units: Sequence[Axis], blocks: ChunkGrid) -> list[int]:
    """Return how many units the blocks have along each axis."""
    found = []
    for unit, axis in zip(units, blocks.axes, strict=True):
        most = max(unit.n_chunks, 1)
        first = -(-most // max(axis.n_chunks, 1))  # fewer make more blocks
        found.append(next((n for n in range(first, most) if coarsen(unit, n) == axis), most))
    return found


def _row(role: str, array: StoredArray) -> dict[str, Any]:
    return {
        "array": f"{role} {array.path or '/'}",
        "shape": array.shape,
        "dtype": str(array.dtype),
        "chunks": array.chunks,
        "shards": array.shards,
        "size": format_bytes(array.nbytes),
    }


_MOST_SHOWN = 200  # characters of an argument that a plan stores in words


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({fingerprint(text)[:8]})"
