"""Plan the job of a pyramid whose levels are described: stages, estimates.

Not here: describing levels (`chunkmill.pyramids.level_arrays`), running the job (`chunkmill.runtime.job`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import lcm

from chunkmill.conversion.actions import ChosenAction, choose_action
from chunkmill.conversion.array_plan import ArrayPlan
from chunkmill.conversion.convert_job import shown_node
from chunkmill.conversion.counts import JobCounts, PlannedStage
from chunkmill.conversion.estimate import estimate_transfers
from chunkmill.conversion.plan import Plan
from chunkmill.conversion.source_guard import see_sources
from chunkmill.conversion.target_writer import TargetWriter
from chunkmill.display.array import array_grid_svg
from chunkmill.display.report import side_by_side
from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.journal.journal_names import fingerprint
from chunkmill.nodes.array import Array
from chunkmill.pyramids.beside import BesideWriter
from chunkmill.pyramids.blocks import LevelBlocks, divide, peak_bytes
from chunkmill.pyramids.downsample import Method, Reduction
from chunkmill.pyramids.job import PyramidWriter
from chunkmill.pyramids.level_arrays import DescribedLevels, LevelTarget
from chunkmill.runtime.job import Job
from chunkmill.runtime.stage import LEAST_TASKS, count_tasks
from chunkmill.runtime.worker import THREAD_OVERHEAD, Worker

__all__ = ["plan_levels_job"]

_VERSION = 1  # of what the journal's numbers mean

_MOST_ALIGNED = 256 << 20
"""Bytes of a task above which blocks that read parts of the source's store keys are better: there are more of them."""


def plan_levels_job(
    base: Array,
    target: LevelTarget,
    described: DescribedLevels,
    method: Method | Reduction,
    worker: Worker,
    *,
    exact: bool,
    overwrite: bool,
) -> Plan:
    """Plan to write the levels.

    Parameters
    ----------
    exact
        Whether codecs were asked for, so that bytes are moved only where their parameters are the same too.

    Raises
    ------
    JobError
        The memory allowed is too little; says how much is needed.
    """
    arrays = described.arrays
    at = arrays[1].path if target.exists and len(arrays) > 1 else target.path
    where = f"{target.store.url}/{target.path}" if target.path else target.store.url
    name = f"pyramid to {target.store.url}/{at}" if at else f"pyramid to {where}"
    action = choose_action(base.metadata, arrays[0].metadata, exact=exact, max_bytes=1, max_keys=1)
    blocks, peak_memory = _blocks(name, base, described, worker)
    (seen,) = see_sources([base])
    documents: TargetWriter | BesideWriter
    if target.exists:
        image = described.image
        documents = BesideWriter(
            name, target.store, at, target.format, arrays[1:], base, seen, image, target.convention, overwrite
        )
    else:
        documents = TargetWriter(
            job=name,
            store=target.store,
            path=target.path,
            format=target.format,
            groups={target.path: described.group},
            plans=[ArrayPlan(base, array, seen, action) for array in arrays],
            overwrite=overwrite,
            intermediate=None,
            prefix="",
            compress=False,
            ahead_bytes=0,
        )
    writer = PyramidWriter(documents, base, seen, arrays, None if target.exists else action, blocks, method)
    shown = _shown(method)
    known = [(array.path, array.metadata) for array in arrays]
    source = (base.url, base.path, base.metadata, seen.versions)
    # attributes of a group that exists are changed at the end: a repetition after that is the same job
    group = replace(described.image, name=None) if target.exists else described.group
    mark = fingerprint("pyramid", _VERSION, source, target.format, group, known, blocks, shown)
    stages, n_read = _estimated(writer, action)
    n_reduced = sum(array.write_layout.grid.n_chunks for array in arrays[1:])
    n_first = 0 if target.exists else arrays[0].write_layout.grid.n_chunks
    actions = {action.name: n_first, "reduce": n_reduced}
    costs = JobCounts(
        n_tasks=sum(stage.n_tasks for stage in stages),
        bytes_read=sum(stage.bytes_read for stage in stages),
        bytes_written=sum(stage.bytes_written for stage in stages),
        n_requests=sum(stage.n_requests for stage in stages),
        peak_memory_bytes=peak_memory,
        read_amplification=n_read / max(base.size, 1),
        n_keys=sum(actions.values()),
        actions={each: n for each, n in actions.items() if n},
    )
    first = "exists" if target.exists else f"is written: {action.name}, {action.reason}"
    n = f"{len(stages)} stage{'' if len(stages) == 1 else 's'}"
    return Plan(
        operation="pyramid",
        source=shown_node(base),
        target=f"{where} ({target.format.name})",
        strategy=shown,
        reason=f"{len(arrays)} levels in {n}; the first {first}",
        costs=costs,
        stages=stages,
        job=_job(name, mark, writer),
        arrays=[
            {
                "level": array.path.rpartition("/")[2],
                "shape": array.shape,
                "factors": shape.factors,
                "chunks": array.chunks,
                "shards": array.shards,
            }
            for array, shape in zip(arrays, described.shapes, strict=True)
        ],
        drawing=side_by_side(array_grid_svg(arrays[0]), "→", array_grid_svg(arrays[-1])),
    )


def _job(name: str, mark: str, writer: PyramidWriter) -> Job:
    documents = writer.documents
    replacement = documents.replacement
    return Job(
        name=name,
        store=documents.store,
        path=documents.path,
        fingerprint=mark,
        sources=[writer.base],
        targets=list(writer.levels if writer.action is not None else writer.levels[1:]),
        prepare=writer.prepare,
        stages=writer.stages,
        check_result=writer.documents.check_result,
        publish=writer.publish,
        check_free=writer.check_free,
        overwrite=documents.overwrite,
        beside=partial(_job_beside, name, mark, writer) if writer.can_keep_old else None,
        keeps_old=documents.keeps_old,
        old_prefix=None if replacement is None else replacement.old_prefix,
        replaced=documents.replaced,
    )


def _job_beside(
    name: str, mark: str, writer: PyramidWriter, run: str, replaced: Mapping[str, str] | None
) -> Job | None:
    """Return the job that writes beside the nodes that it replaces, in the run of that name (`Job.beside`)."""
    beside = writer.beside(run, replaced)
    return None if beside is None else _job(name, mark, beside)


def _shown(method: Method | Reduction) -> str:
    if isinstance(method, str):
        return method
    return f"{getattr(method, '__module__', '')}.{getattr(method, '__qualname__', repr(method))}"


def _blocks(
    job: str, base: Array, described: DescribedLevels, worker: Worker
) -> tuple[tuple[tuple[LevelBlocks, ...], ...], int]:
    """Divide the levels into stages; return them, and the memory of a worker.

    Blocks are of whole store keys of the source too, where memory allows, so that each is read once.
    """
    itemsize = base.dtype.itemsize
    budget = worker.max_mem // worker.n_threads - THREAD_OVERHEAD
    keys = [array.write_layout.grid.chunk_shape for array in described.arrays]
    aligned = tuple(map(lcm, keys[0], base.write_layout.grid.chunk_shape))
    for first in (aligned, keys[0]):
        stages = divide(
            [level.shape for level in described.shapes],
            [level.factors for level in described.shapes],
            [first, *keys[1:]],
            itemsize=itemsize,
            budget=budget,
            n_least=max(LEAST_TASKS, 4 * worker.n_threads * worker.n_workers),
        )
        peak = max(peak_bytes(stage, itemsize) for stage in stages)
        if peak <= min(budget, _MOST_ALIGNED):
            break
    needed = (peak + THREAD_OVERHEAD) * worker.n_threads
    if peak > budget:
        reason = f"a worker of {worker.n_threads} threads has {worker.max_mem:,} bytes, and each thread holds whole "
        reason += f"store keys of two levels: the smallest that works is {needed:,} bytes ({needed / 2**20:.1f} MiB)"
        hint = Hint("give {} or more, workers of fewer threads, or smaller chunks or shards", ("max_mem", needed))
        raise JobError(job=job, reason=reason, hint=hint)
    return tuple(map(tuple, stages)), needed


def _estimated(writer: PyramidWriter, action: ChosenAction) -> tuple[tuple[PlannedStage, ...], int]:
    """Return the stages with estimated bytes and requests, and the elements that are read."""
    (moved,) = estimate_transfers([(writer.base, writer.levels[0], action)])
    ratio = moved.bytes_written / max(writer.levels[0].nbytes, 1)
    if writer.action is None:  # it is read, and not written
        moved = replace(moved, bytes_written=0, n_requests=moved.n_requests // 2)
    planned: list[PlannedStage] = []
    first = n_read = 0
    for blocks, stage in zip(writer.blocks, writer.stages_when(fresh=True), strict=True):
        source, targets = writer.levels[first], writer.levels[first + 1 : first + len(blocks)]
        written = round(ratio * sum(array.nbytes for array in targets))
        n_keys = sum(array.write_layout.grid.n_chunks for array in targets)
        n_read += source.size
        if not planned:
            read, written, n_keys = moved.bytes_read, moved.bytes_written + written, moved.n_requests + n_keys
        else:
            read = round(ratio * source.nbytes)
            n_keys += source.write_layout.grid.n_chunks
        planned.append(PlannedStage(stage.name, count_tasks(stage), read, written, n_keys))
        first += len(blocks) - 1
    return tuple(planned), n_read
