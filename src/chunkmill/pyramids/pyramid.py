"""`plan_pyramid` and `pyramid`: check the arguments, describe the levels, and plan stages and memory.

Not here: the source and the levels (`chunkmill.pyramids.image`), tasks (`chunkmill.pyramids.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import lcm
from typing import Any, Literal

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import ChosenAction, choose_action
from chunkmill.conversion.convert_job import region_layout, shown_node
from chunkmill.conversion.estimate import estimate_transfers
from chunkmill.conversion.ome import check_ome
from chunkmill.conversion.options import by_array, is_keep, with_options_of
from chunkmill.conversion.region_option import RegionOption, region_of, whole
from chunkmill.dask_arrays.hazards import check_apart
from chunkmill.errors import JobError
from chunkmill.formats.base import WritableFormatName
from chunkmill.formats.registry import READ_ONLY
from chunkmill.hints import Hint
from chunkmill.jobs.call import with_call
from chunkmill.jobs.job import Job
from chunkmill.jobs.plan import JobCounts, Plan, PlannedStage, Report
from chunkmill.jobs.sources import see_sources
from chunkmill.journal.names import fingerprint
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import kept_units
from chunkmill.model.ome_zarr import OME_VERSIONS
from chunkmill.nodes.api import check_storage_options, open_target
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.target import Target
from chunkmill.pyramids.computed import channel_names, open_image_source
from chunkmill.pyramids.downsample import Method, Reduction, check_method
from chunkmill.pyramids.image import (
    DescribedLevels,
    LevelTarget,
    describe_base,
    describe_levels,
    level_convention,
    target_next_to,
)
from chunkmill.pyramids.labels import LabelList, labels_of, with_omero
from chunkmill.pyramids.levels import LevelBlocks, divide, peak_bytes
from chunkmill.pyramids.tasks import PyramidWriter, base_bytes
from chunkmill.runtime.computed import ComputedStore
from chunkmill.runtime.stage import LEAST_TASKS, count_tasks
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD, Worker, current_worker

__all__ = ["plan_levels_job", "plan_pyramid", "pyramid"]


@with_call
def plan_pyramid(
    source: Any,
    target: Any = None,
    *,
    factors: Any = 2,
    levels: int | None = None,
    method: Method | Reduction = "mean",
    format: WritableFormatName | None = None,  # noqa: A002 - as in plan_convert
    chunks: Any = "keep",
    shards: Any = "keep",
    codecs: Any = "keep",
    scale: Any = None,
    units: Any = None,
    translation: Any = None,
    region: RegionOption = None,
    name: str | None = None,
    channels: Sequence[str] | Mapping[str, Any] | bool | None = None,
    label_of: Any = None,
    ome: Literal["auto", "0.4", "0.5", "0.6"] | None = "auto",
    max_mem: int | str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a multiscale pyramid of an array: a group of levels, of which the first is a copy of the array.

    Each element of the source is read and decoded once, where whole store keys of source and target fit into a task's
    memory together; else chunks at the borders of tasks are read again. Nothing is visible before all levels are
    written.

    Parameters
    ----------
    source
        A url, ``(url, path)`` or an Array; or a group that describes a multiscale image (OME-Zarr, N5-viewer,
        BigDataViewer, COSEM), whose finest level is taken. Also an array of Dask, numpy or xarray, whose blocks are
        computed by the tasks that read them; or a list of arrays of one shape, joined along a new axis ``c``. Of
        xarray's, evenly spaced coordinates give length, place (that of the first) and unit (``attrs["units"]``) of
        voxels, and texts along an axis of channels their names.
    target
        A url or ``(url, path)`` of a new group; ``None``: the group of the source, an array whose name ends with 0,
        which is the first level: the others are written to the same group, with its metadata unless you say otherwise.
    factors
        Elements that become one, from each level to the next: an int for all axes but those named time or channel; a
        tuple by axis; a dict by dimension name (1 for the others); a list of those by level; ``"isotropic"``: 2 along
        the axes whose voxels are shorter than the others'.
    levels
        Number of levels, the first included; ``None``: until one chunk holds the last, or as `factors` lists.
    method
        Reduction from each level to the next: ``"mean"`` (integers rounded half to even), ``"median"``, ``"min"``,
        ``"max"``, ``"mode"`` (labels) or ``"stride"``, as TensorStore's downsample driver defines them; or a function
        of an array and ``axis=`` that can be imported by name.
    format
        Format of the target: ``"zarr2"``, ``"zarr3"``, ``"n5"``, ``"zarr3-draft"``; the source's when ``None``.
    chunks, shards, codecs
        As in `chunkmill.plan_convert`, for all levels.
    scale, units
        Length of a voxel, and its unit: by axis, or a dict by dimension name; a single one is that of the axes of
        space. The source's metadata by default. Units may be names or symbols: ``"micrometer"``, ``"um"``, ``"µm"``.
    translation
        Position of the centre of the first voxel, like `scale`; the source's by default, moved by `region`.
    region
        Only this region of the source: slices, or a dict of ranges by dimension, as in `chunkmill.plan_convert`.
    name
        Name of the image; the source's, or the last part of the target's path or url by default.
    channels
        Name of each channel, written as ``omero`` of OME-Zarr with a colour and a window of values for each; ``True``:
        numbers; a dict: members of ``omero``, which take the place of the default ones; ``None``: what the source has;
        ``False``: not the names of coordinates either. The window is from the 0.1st to the 99.9th percentile of the
        coarsest level: at most 16 Mi values of a channel are read for it, once they are written.
    label_of
        Image whose voxels the source labels: its group in OME-Zarr. The labels are written to the group
        ``labels/<name>`` below the image, whose format, voxels, units and factors they have; by the method ``"mode"``,
        unless you choose another than ``"mean"``.
    ome
        Version of OME-Zarr to describe the levels by; ``"auto"``: 0.4 in Zarr v2, 0.5 in Zarr v3, or 0.6 where the
        source's image has it, in N5 what N5-viewer and COSEM's readers take; ``None``: nothing.
    max_mem
        Largest memory of the tasks of one worker in bytes, or as text; as in `chunkmill.plan_convert`.
    overwrite
        Replace what is at the target.
    storage_options
        For the filesystems of sources and target, as in `chunkmill.plan_convert`.

    Returns
    -------
    Plan
        Prints levels, tasks, bytes and memory; ``plan.run()`` runs it, and resumes it when it was interrupted.

    Raises
    ------
    JobError
        `max_mem` is too little; says how much is needed.
    UnsupportedFeature
        The format, or OME-Zarr, cannot hold something.
    ValueError, TypeError
        Factors, levels or a method that do not fit the array.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np
    >>> a = cm.create_array("memory://doc-plan-pyramid", "a", shape=(64, 64), dtype="u2", chunks=(16, 16))
    >>> plan = plan_pyramid(a, ("memory://doc-plan-pyramid", "image"))
    >>> [row["shape"] for row in plan.arrays]
    [(64, 64), (32, 32), (16, 16)]
    """
    _check_usable(source, target, region=region, label_of=label_of, options=storage_options)
    base = describe_base(
        open_image_source(source, storage_options),
        scale,
        units,
        region=region,
        translation=translation,
        name=name,
        own=ome == "0.6",
    )
    if isinstance(base.array.store, ComputedStore) and is_keep(codecs):
        codecs = "default"
    names = [axis.name for axis in base.axes]
    chunks = by_array(chunks, base.array, "chunks", lambda _: names)
    shards = by_array(shards, base.array, "shards", lambda _: names)
    check_method("mode" if label_of is not None and method == "mean" else method, base.array.dtype)
    label = None
    if label_of is not None:
        base, where, label, of_image = labels_of(label_of, base, storage_options)
        if format not in {None, where.format.name} or ome not in {"auto", where.convention}:
            msg = f"format={format!r}, ome={ome!r}: labels are as their image, {where.format.name} and OME-Zarr "
            raise ValueError(f"{msg}{where.convention}; leave both out")
        if levels is None and factors == 2 and of_image:  # noqa: PLR2004 - the default
            factors = of_image
        method = "mode" if method == "mean" else method
    elif target is None:
        where = target_next_to(base, format, ome)
    else:
        store, path, format = open_target(target, storage_options, format)  # noqa: A001
        documents_format = format_of_store(store, format or READ_ONLY.get(base.array.format, base.array.format))
        path = documents_format.normalize_path(path)
        check_apart(base.array, store, path, overwrite=True)
        check_ome(documents_format, None if ome == "auto" else ome)
        convention = level_convention(documents_format, base.described) if ome == "auto" else ome
        stem = "s" if convention == "n5-viewer" else ""
        where = LevelTarget(store, path, documents_format, convention, stem)
    described = describe_levels(
        base,
        where,
        factors=factors,
        levels=levels,
        method=method,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
    )
    if channels is None and where.convention in OME_VERSIONS and not where.exists:
        channels = channel_names(source)
    if channels is not None and channels is not False:
        described = with_omero(described, where, channels)
    exact = not (isinstance(codecs, str) and codecs == "keep")
    return plan_levels_job(
        base.array, where, described, method, current_worker(max_mem), exact=exact, overwrite=overwrite, label=label
    )


def _check_usable(source: Any, target: Any, *, region: Any, label_of: Any, options: Any) -> None:
    """Raise `ValueError` for arguments that others make useless."""
    if label_of is not None and target is not None:
        raise ValueError(f"target={target!r}: label_of= says where labels are written; leave the target out")
    check_storage_options(options, *(source if isinstance(source, list) else [source]), target, label_of)
    if target is None and label_of is None and region is not None:
        raise ValueError(f"region={region!r}: levels of a crop need a target: the source has the whole image")


@with_options_of(plan_pyramid)
def pyramid(
    source: Any,
    target: Any = None,
    **options: Any,
) -> Report:
    """Make a multiscale pyramid of an array: `plan_pyramid`, and run.

    Parameters
    ----------
    source, target, factors, levels, method, format, chunks, shards, codecs
        As in `plan_pyramid`.
    scale, units, translation, region, name, channels, label_of, ome, max_mem, overwrite, storage_options
        As in `plan_pyramid`.

    Returns
    -------
    Report
        Store keys by action, bytes, seconds.

    Raises
    ------
    JobError, UnsupportedFeature, NodeExists, ChunkError
        As in `plan_pyramid` and `chunkmill.convert`.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np
    >>> _ = cm.to_store(np.arange(64, dtype="u2").reshape(8, 8), "memory://doc-pyramid", "a", chunks=(2, 2))
    >>> report = pyramid(("memory://doc-pyramid", "a"), ("memory://doc-pyramid", "image"), scale=(0.5, 0.5))
    >>> image = cm.open_group("memory://doc-pyramid", "image").multiscales[0]
    >>> [(level.array.shape, level.scale) for level in image]
    [((8, 8), (0.5, 0.5)), ((4, 4), (1.0, 1.0)), ((2, 2), (2.0, 2.0))]
    """
    return plan_pyramid(source, target, **options).run()


_VERSION = 1  # of what the journal's numbers mean

_MOST_ALIGNED = 256 << 20
"""Bytes of a task above which blocks that read parts of the source's store keys are better: there are more of them."""


def plan_levels_job(
    base: StoredArray,
    target: LevelTarget,
    described: DescribedLevels,
    method: Method | Reduction,
    worker: Worker,
    *,
    exact: bool,
    overwrite: bool,
    label: LabelList | None = None,
) -> Plan:
    """Plan to write the levels, for workers of that kind.

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
    layout = region_layout(base)
    action = choose_action(base.metadata, arrays[0].metadata, exact=exact, max_bytes=1, max_keys=1, region=layout)
    blocks, peak_memory = _blocks(name, base, described, worker)
    (seen,) = see_sources([whole(base)])
    exists = target.exists
    has_windows = _has_omero(described.group) and not exists
    writer = PyramidWriter(
        name,
        base,
        seen,
        arrays,
        None if exists else action,
        blocks,
        method,
        described.image,
        target.convention,
        has_windows,
        label,
    )
    groups, above = {} if exists else {target.path: described.group}, target.path if exists else None
    written = Target(target.store, at, target.format, arrays[1:] if exists else arrays, groups, overwrite, above)
    shown = _shown(method)
    known = [(array.path, array.metadata) for array in arrays]
    region = [(cut.start, cut.stop) for cut in region_of(base) or ()]
    source = (base.url, base.path, base.metadata, seen.versions, *([region] if region else []))
    # attributes of a group that exists are changed at the end: a repetition after that is the same job
    group = replace(described.image, name=None) if target.exists else described.group
    digest = fingerprint("pyramid", _VERSION, source, target.format, group, known, blocks, shown)
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
    again = partial(plan_levels_job, base, target, described, method, exact=exact, overwrite=overwrite, label=label)
    options = {
        "name": name,
        "fingerprint": digest,
        "choices": _choices(base, target, described, shown, worker),
        "adopt": partial(_adopt, again, worker),
        "memory_of_tasks": peak_memory,
    }
    first = "exists" if target.exists else f"is written: {action.name}, {action.reason}"
    n = f"{len(stages)} stage{'' if len(stages) == 1 else 's'}"
    units = kept_units(axis.unit for axis in described.image.axes)
    return Plan(
        operation="pyramid",
        source=shown_node(base),
        target=f"{where} ({target.format.name})",
        strategy=shown,
        reason=f"{len(arrays)} levels in {n}{_shown_factors(described)}; the first {first}{units}",
        costs=costs,
        stages=stages,
        job=_job(writer, written, options),
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
        drawn=(arrays[0], arrays[-1]),
    )


def _shown_factors(described: DescribedLevels) -> str:
    """Return the factors from each level to the next, equal ones counted."""
    runs = [(by, len(list(same))) for by, same in groupby(level.factors for level in described.shapes[1:])]
    return "".join(f"{', then' if i else ' by'} {by} x {n}" for i, (by, n) in enumerate(runs))


def _has_omero(group: GroupMetadata) -> bool:
    return "omero" in group.attributes or "omero" in (group.attributes.get("ome") or {})


def _choices(
    base: StoredArray, target: LevelTarget, described: DescribedLevels, method: str, worker: Worker
) -> dict[str, Any]:
    """Return what a stored plan says of the workers that it was made for, and of the arguments, in words."""
    arguments = {
        "source": base.url if not base.path else f"{base.url}/{base.path}",
        "format": target.format.name,
        "method": method,
        "factors": [level.factors for level in described.shapes[1:]],
        "chunks": [array.chunks for array in described.arrays],
        "shards": [array.shards for array in described.arrays],
        "codecs": [codec.name for codec in described.arrays[-1].codecs],
    }
    return {
        "worker": [worker.max_mem, worker.n_threads, worker.n_workers],
        "arguments": {name: str(value) for name, value in arguments.items()},
    }


def _adopt(again: Callable[[Worker], Plan], worker: Worker, plan_hash: str, choices: Mapping[str, Any]) -> Job | None:
    """Return the job of that fingerprint, planned for the workers that it began with; ``None`` for another one.

    Raises
    ------
    JobError
        One of its tasks needs more memory than a worker has now.
    """
    try:
        begun = Worker(*choices["worker"])
        job = again(begun).job
    except (KeyError, TypeError, ValueError, JobError):  # of another version
        return None
    if job.fingerprint != plan_hash:
        return None
    need = job.memory_of_tasks // begun.n_threads
    writer: PyramidWriter = job.stages.__self__  # type: ignore[attr-defined]
    if worker.max_mem < need:
        itemsize = writer.base.dtype.itemsize
        pairs = (pair for stage in writer.pairs() for pair in stage)
        needed = max(peak_bytes(pair, itemsize) for pair in pairs) + THREAD_OVERHEAD
        if worker.max_mem < needed:
            reason = f"a task of the unfinished job holds {need:,} bytes, planned with max_mem {begun.max_mem:,}, and "
            reason += f"max_mem is {worker.max_mem:,} now; the smallest that works is {needed:,}"
            hint = Hint("give {} or more, or workers of more memory", ("max_mem", needed))
            raise JobError(job=job.name, reason=reason, hint=hint.also("{} begins again", ("resume", False)))
        writer, need = replace(writer, in_pairs=True), needed
    at_once = min(worker.max_mem // need, worker.n_threads)
    options = {each: getattr(job, each) for each in ("name", "fingerprint", "choices", "adopt")}
    options["memory_of_tasks"] = at_once * need
    return _job(writer, job.target, {**options, "tasks_at_once": at_once if at_once < worker.n_threads else None})


def _job(writer: PyramidWriter, target: Target, options: Mapping[str, Any]) -> Job:
    return Job(
        target=target,
        sources=[writer.base],
        stages=writer.stages,
        check_result=writer.check_sources,
        publish=writer.publish,
        **options,
    )


def _shown(method: Method | Reduction) -> str:
    if isinstance(method, str):
        return method
    return f"{getattr(method, '__module__', '')}.{getattr(method, '__qualname__', repr(method))}"


def _blocks(
    job: str, base: StoredArray, described: DescribedLevels, worker: Worker
) -> tuple[tuple[tuple[LevelBlocks, ...], ...], int]:
    """Divide the levels into stages; return them, and the memory of a worker.

    Blocks are of whole store keys of the source too, where memory allows, so that each is read once.
    """
    itemsize = base.dtype.itemsize
    inputs = partial(base_bytes, base)
    budget = worker.max_mem // worker.n_threads - THREAD_OVERHEAD
    keys = [array.write_layout.grid.chunk_shape for array in described.arrays]
    aligned = keys[0]
    if region_of(base) is None:
        aligned = tuple(map(lcm, keys[0], base.write_layout.grid.chunk_shape))
    found: list[tuple[int, Any]] = []
    for first in dict.fromkeys((aligned, keys[0])):
        stages = divide(
            [level.shape for level in described.shapes],
            [level.factors for level in described.shapes],
            [first, *keys[1:]],
            itemsize=itemsize,
            budget=budget,
            n_least=max(LEAST_TASKS, 4 * worker.n_threads * worker.n_workers),
            inputs=inputs,
        )
        found.append((max(peak_bytes(stage, itemsize) + inputs(stage) for stage in stages), stages))
        if found[-1][0] <= min(budget, _MOST_ALIGNED):
            break
    peak, stages = found[-1] if found[-1][0] <= budget else min(found, key=lambda each: each[0])
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
