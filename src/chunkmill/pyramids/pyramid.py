"""`plan_pyramid` and `pyramid`: check the arguments, describe the levels, and plan stages and memory.

Not here: the source and the levels (`chunkmill.pyramids.image`), tasks (`chunkmill.pyramids.tasks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import lcm
from typing import Any, Literal, Self

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import ChosenAction, choose_action
from chunkmill.conversion.estimate import estimate_transfers
from chunkmill.conversion.options import by_array, is_keep
from chunkmill.conversion.region_option import ChunksOption, RegionOption
from chunkmill.dask_arrays.sources import check_apart
from chunkmill.formats.base import WritableFormatName
from chunkmill.formats.registry import READ_ONLY
from chunkmill.jobs.call import function_fingerprint, shown_function, with_call
from chunkmill.jobs.plan import Plan, Report, plan_work
from chunkmill.jobs.sources import see_sources
from chunkmill.jobs.work import Described, JobCounts, PlannedStage, Tasks, Work, shown_node
from chunkmill.model.ome_zarr import OME_VERSIONS
from chunkmill.nodes.api import NodeLocation, check_storage_options, open_target, with_options_of
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
    level_names,
    target_next_to,
)
from chunkmill.pyramids.labels import label_listed, labels_of, with_omero, with_windows
from chunkmill.pyramids.levels import LevelBlocks, LevelShape, divide, peak_bytes
from chunkmill.pyramids.tasks import LevelStage, base_bytes, block_share, level_inputs, level_shows, write_block
from chunkmill.runtime.computed import ComputedStore
from chunkmill.runtime.stage import LEAST_TASKS, Stage, count_tasks
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD, Worker, current_worker


@with_call
def plan_pyramid(
    source: Any,
    target: NodeLocation | None = None,
    *,
    factors: int | str | Sequence[Any] | Mapping[str, int] = 2,
    levels: int | None = None,
    method: Method | Reduction = "mean",
    format: WritableFormatName | None = None,  # noqa: A002 - as in plan_convert
    chunks: ChunksOption = "keep",
    shards: ChunksOption = "keep",
    codecs: Any = "keep",
    scale: float | Sequence[float] | Mapping[str, float] | None = None,
    units: str | Sequence[str | None] | Mapping[str, str] | None = None,
    translation: float | Sequence[float] | Mapping[str, float] | None = None,
    region: RegionOption = None,
    name: str | None = None,
    channels: Sequence[str] | Mapping[str, Any] | bool | None = None,
    label_of: NodeLocation | None = None,
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
    if label_of is not None and method == "mean":
        method = "mode"
    check_method(method, base.array.dtype)
    if label_of is not None:
        base, where, of_image = labels_of(label_of, base, storage_options)
        if format not in {None, where.format.name} or ome not in {"auto", where.convention}:
            msg = f"format={format!r}, ome={ome!r}: labels are as their image, {where.format.name} and OME-Zarr "
            raise ValueError(f"{msg}{where.convention}; leave both out")
        if levels is None and factors == 2 and of_image:  # noqa: PLR2004 - the default
            factors = of_image
    elif target is None:
        where = target_next_to(base, format, ome)
    else:
        store, path, format = open_target(target, storage_options, format)  # noqa: A001
        documents_format = format_of_store(store, format or READ_ONLY.get(base.array.format, base.array.format))
        path = documents_format.normalize_path(path)
        check_apart(base.array, store, path, overwrite=True)
        convention = level_convention(documents_format, base.described, ome)
        where = LevelTarget(store, path, documents_format, convention, "s" if convention == "n5-viewer" else "")
    layout = {"chunks": chunks, "shards": shards, "codecs": codecs}
    described = describe_levels(base, where, factors=factors, levels=levels, method=method, **layout)
    if channels is None and where.convention in OME_VERSIONS and not where.exists:
        channels = channel_names(source)
    if channels is not None and channels is not False:
        described = with_omero(described, where, channels)
    more = {"exact": not is_keep(codecs), "is_label": label_of is not None}
    work = Pyramid.of(base.array, where, described, overwrite, method=method, **more)
    return plan_work(work, current_worker(max_mem))


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
    target: NodeLocation | None = None,
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


_MOST_ALIGNED = 256 << 20
"""Bytes of a task above which blocks that read parts of the source's store keys are better: there are more of them."""


@dataclass(frozen=True, kw_only=True)
class Pyramid(Work):
    """Levels of an image, made from its first.

    Attributes
    ----------
    where, levels
        Where they are written, and what is written there.
    method
        That of the levels below the first.
    exact
        Whether codecs were asked for, so that bytes are moved only where their parameters are the same too.
    is_label
        Whether the image is one of labels, which the group above lists.
    """

    version = 3
    where: LevelTarget
    levels: DescribedLevels
    method: Method | Reduction
    exact: bool
    is_label: bool

    @classmethod
    def of(cls, base: StoredArray, where: LevelTarget, levels: DescribedLevels, overwrite: bool, **more: Any) -> Self:
        """Return the work of the levels of an array."""
        arrays, exists, store = levels.arrays, where.exists, where.store
        at = arrays[1].path if exists and len(arrays) > 1 else where.path
        groups, above = ({}, where.path) if exists else ({where.path: levels.group}, None)
        target = Target(store, at, where.format, arrays[1:] if exists else arrays, groups, overwrite, above)
        name = f"pyramid to {store.url}/{at}" if at else f"pyramid to {store.url}"
        sources = see_sources([base])
        return cls(operation="pyramid", name=name, sources=sources, target=target, where=where, levels=levels, **more)

    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> PyramidTasks:  # noqa: ARG002
        """Divide the levels into stages, and those into blocks."""
        blocks, task_bytes = _blocks(self.sources[0].array, self.levels, worker)
        since = "each thread holds whole store keys of two levels"
        return PyramidTasks(numbered=blocks, task_bytes=task_bytes, since=since, work=self, blocks=blocks)

    @property
    def action(self) -> ChosenAction:
        """The action for the chunks of the first level."""
        base, first = self.sources[0].array, self.levels.arrays[0]
        options: Any = {"exact": self.exact, "max_bytes": 1, "max_keys": 1}
        return choose_action(base.metadata, first.metadata, layouts=(base.read_layout, base.write_layout), **options)

    def identity(self) -> tuple[Any, ...]:
        """Return the method, the region that is read, and what names levels in a group that exists.

        Attributes of that are changed at the end: a repetition after that is the same job.
        """
        region = [(cut.start, cut.stop) for cut in self.sources[0].array.region or ()]
        method = self.method if isinstance(self.method, str) else function_fingerprint(self.method)
        return method, region, replace(self.levels.image, name=None) if self.where.exists else None

    def arguments(self) -> Mapping[str, Any]:
        """Return the method, and the factors."""
        return {"method": _shown(self.method), "factors": [level.factors for level in self.levels.shapes[1:]]}

    def described(self, tasks: PyramidTasks, worker: Worker) -> Described:
        """Return levels, and estimates."""
        where, arrays, action, base = self.where, self.levels.arrays, self.action, self.sources[0].array
        stages, n_read = _estimated(tasks, action)
        n_first = 0 if where.exists else arrays[0].write_layout.grid.n_chunks
        actions = {action.name: n_first, "reduce": sum(array.write_layout.grid.n_chunks for array in arrays[1:])}
        first = "exists" if where.exists else f"is written: {action.name}, {action.reason}"
        n = f"{len(stages)} stage{'' if len(stages) == 1 else 's'}"
        return {
            "source": shown_node(base),
            "target": f"{where.store.url}{where.path and f'/{where.path}'} ({where.format.name})",
            "strategy": _shown(self.method),
            "reason": f"{len(arrays)} levels in {n}{_shown_factors(self.levels)}; the first {first}",
            "costs": JobCounts.of(
                stages,
                peak_memory_bytes=worker.n_threads * tasks.task_bytes,
                read_amplification=n_read / max(base.size, 1),
                n_keys=sum(actions.values()),
                actions={each: n for each, n in actions.items() if n},
            ),
            "stages": stages,
            "arrays": [_row(array, shape) for array, shape in zip(arrays, self.levels.shapes, strict=True)],
            "drawn": (arrays[0], arrays[-1]),
        }


@dataclass(frozen=True, kw_only=True)
class PyramidTasks(Tasks):
    """Tasks of a pyramid; `blocks` has for each stage those of its levels (`chunkmill.pyramids.levels.divide`)."""

    work: Pyramid
    blocks: tuple[tuple[LevelBlocks, ...], ...]

    def stages(self, target: Target, *, fresh: bool) -> list[Stage]:
        """Return the stages: each reads the last level of the stage before."""
        work, (base, seen) = self.work, self.work.sources[0]
        levels = [*((base,) if work.where.exists else ()), *target.arrays]
        stages: list[Stage] = []
        first = 0
        for blocks in self.blocks:
            last = first + len(blocks) - 1
            source, documents = (levels[first], None) if stages else (base, seen)
            copy = None if stages or work.where.exists else (levels[0], work.action)
            targets = tuple(levels[first + 1 : last + 1])
            level = LevelStage(source, documents, copy, blocks, targets, work.method, fresh)
            begins = first + (copy is None)
            name = f"level {last}" if begins == last else f"levels {begins} to {last}"
            specs = range(level.written.n_chunks)
            stages.append(Stage(name, write_block, (level,), specs, level_shows, block_share, inputs=level_inputs))
            first = last
        return stages

    def publish(self, target: Target) -> Sequence[str]:
        """Publish the levels and the group, or the attributes that name them, and list labels in the group above."""
        work, groups = self.work, target.groups
        windowed = {path: with_windows(group, work.levels.image, target.arrays[-1]) for path, group in groups.items()}
        changes = level_names(work.sources[0].array, work.where, work.levels.image) if work.where.exists else []
        changes += [label_listed(work.where)] if work.is_label else []
        return replace(target, groups=windowed).publish(changes=changes)


def _row(array: StoredArray, level: LevelShape) -> dict[str, Any]:
    shown = {"level": array.path.rpartition("/")[2], "shape": array.shape, "factors": level.factors}
    return shown | {"chunks": array.chunks, "shards": array.shards}


def _shown_factors(described: DescribedLevels) -> str:
    """Return the factors from each level to the next, equal ones counted."""
    runs = [(by, len(list(same))) for by, same in groupby(level.factors for level in described.shapes[1:])]
    return "".join(f"{', then' if i else ' by'} {by} x {n}" for i, (by, n) in enumerate(runs))


def _shown(method: Method | Reduction) -> str:
    return method if isinstance(method, str) else shown_function(method)


def _blocks(
    base: StoredArray, described: DescribedLevels, worker: Worker
) -> tuple[tuple[tuple[LevelBlocks, ...], ...], int]:
    """Divide the levels into stages; return them, and the memory of a task.

    Blocks are of whole store keys of the source too, where memory allows, so that each is read once.
    """
    itemsize = base.dtype.itemsize
    inputs = partial(base_bytes, base)
    budget = worker.max_mem // worker.n_threads - THREAD_OVERHEAD
    keys = [array.write_layout.grid.chunk_shape for array in described.arrays]
    aligned = keys[0]
    if base.region is None:
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
    return tuple(map(tuple, stages)), peak + THREAD_OVERHEAD


def _estimated(tasks: PyramidTasks, action: ChosenAction) -> tuple[tuple[PlannedStage, ...], int]:
    """Return the stages with estimated bytes and requests, and the elements that are read."""
    work, levels = tasks.work, tasks.work.levels.arrays
    (moved,) = estimate_transfers([(work.sources[0].array, levels[0], action)])
    ratio = moved.bytes_written / max(levels[0].nbytes, 1)
    if work.where.exists:  # it is read, and not written
        moved = moved._replace(bytes_written=0, n_requests=moved.n_requests // 2)
    planned: list[PlannedStage] = []
    first = n_elements = 0
    for blocks, stage in zip(tasks.blocks, tasks.stages(work.target, fresh=True), strict=True):
        source, targets = levels[first], levels[first + 1 : first + len(blocks)]
        read, n_requests = round(ratio * source.nbytes), source.write_layout.grid.n_chunks
        written = round(ratio * sum(array.nbytes for array in targets))
        if not planned:
            read, written, n_requests = moved.bytes_read, moved.bytes_written + written, moved.n_requests
        n_requests += sum(array.write_layout.grid.n_chunks for array in targets)
        planned.append(PlannedStage(stage.name, count_tasks(stage), read, written, n_requests))
        n_elements += source.size
        first += len(blocks) - 1
    return tuple(planned), n_elements
