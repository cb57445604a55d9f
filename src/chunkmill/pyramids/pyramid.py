"""`plan_pyramid` and `pyramid`: check the arguments, and plan a job.

Not here: the source (`chunkmill.pyramids.base_image`), levels (`chunkmill.pyramids.level_arrays`), the job
(`chunkmill.pyramids.plan`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Literal

from chunkmill.conversion.convert_job import check_apart
from chunkmill.conversion.ome import check_ome
from chunkmill.conversion.plan import Plan, Report
from chunkmill.errors import NodeBeingReplaced
from chunkmill.formats.base import WritableFormatName
from chunkmill.formats.registry import READ_ONLY
from chunkmill.journal.unfinished_jobs import finish_exchange
from chunkmill.nodes.arguments import open_source, open_target
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import format_of_store
from chunkmill.pyramids.base_image import describe_base
from chunkmill.pyramids.downsample import Method, Reduction, check_method
from chunkmill.pyramids.level_arrays import LevelTarget, describe_levels
from chunkmill.pyramids.plan import plan_levels_job
from chunkmill.runtime.worker import current_worker
from chunkmill.stores.capabilities import uncached

__all__ = ["plan_pyramid", "pyramid"]


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
    ome: Literal["auto", "0.4", "0.5"] | None = "auto",
    max_mem: int | str | None = None,
    overwrite: bool = False,
    allow: Collection[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a multiscale pyramid of an array: a group of levels, of which the first is a copy of the array.

    Each element of the source is read and decoded once, where whole store keys of source and target fit into a task's
    memory together; else chunks at the borders of tasks are read again. Nothing is visible before all levels are
    written.

    Parameters
    ----------
    source
        A url, ``(url, path)`` or an Array; or a group that describes a multiscale image (OME-Zarr, N5-viewer,
        BigDataViewer, COSEM), whose finest level is taken.
    target
        A url or ``(url, path)`` of a new group; ``None``: the group of the source, an array whose name ends with 0,
        which is the first level: the others are written beside it, with its metadata unless you say otherwise.
    factors
        Elements that become one, from each level to the next: an int for all axes but those named time or channel; a
        tuple by axis; a dict by dimension name (1 for the others); a list of those by level; ``"isotropic"``: 2 along
        the axes whose voxels are shorter than the others'.
    levels
        Number of levels, the first included; ``None``: until one chunk holds the last, or as `factors` lists.
    method
        ``"mean"`` (integers rounded half to even), ``"median"``, ``"min"``, ``"max"``, ``"mode"`` (labels) or
        ``"stride"``, as TensorStore's downsample driver defines them; or a function of an array and ``axis=`` that can
        be imported by name.
    format
        ``"zarr2"``, ``"zarr3"``, ``"n5"``, ``"zarr3-draft"``; the source's when ``None``.
    chunks, shards, codecs
        Of all levels, as in `chunkmill.plan_convert`.
    scale, units
        Length of a voxel, and its unit: by axis, or a dict by dimension name; the source's metadata by default.
    ome
        Version of OME-Zarr to describe the levels by; ``"auto"``: 0.4 in Zarr v2, 0.5 in Zarr v3, in N5 what N5-viewer
        and COSEM's readers take; ``None``: nothing.
    max_mem
        Largest memory of the tasks of one worker in bytes, or as text; as in `chunkmill.plan_convert`.
    overwrite
        Replace what is at the target.
    allow
        Losses that are allowed where the format cannot hold something, as in `chunkmill.plan_convert`.
    storage_options, target_storage_options
        For the filesystems, as in fsspec; the target's default to the source's.

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
    base = describe_base(open_source(source, storage_options), scale, units)
    check_method(method, base.array.dtype)
    options = storage_options if target_storage_options is None else target_storage_options
    if target is None:
        where = _beside(base.array, format, ome)
    else:
        store, path = open_target(target, options)
        documents_format = format_of_store(store, format or READ_ONLY.get(base.array.format, base.array.format))
        path = documents_format.normalize_path(path)
        check_apart(base.array, store, path, overwrite=True)
        convention = documents_format.level_metadata if ome == "auto" else ome
        check_ome(documents_format, None if ome == "auto" else ome)
        stem = "s" if convention == "n5-viewer" else ""
        where = LevelTarget(store, path, documents_format, convention, stem)
    described = describe_levels(
        base,
        where,
        factors=factors,
        levels=levels,
        method=method,
        allow=allow,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
    )
    exact = not (isinstance(codecs, str) and codecs == "keep")
    return plan_levels_job(
        base.array, where, described, method, current_worker(max_mem), exact=exact, overwrite=overwrite
    )


def pyramid(
    source: Any,
    target: Any = None,
    *,
    factors: Any = 2,
    levels: int | None = None,
    method: Method | Reduction = "mean",
    format: WritableFormatName | None = None,  # noqa: A002 - as in convert
    chunks: Any = "keep",
    shards: Any = "keep",
    codecs: Any = "keep",
    scale: Any = None,
    units: Any = None,
    ome: Literal["auto", "0.4", "0.5"] | None = "auto",
    max_mem: int | str | None = None,
    overwrite: bool = False,
    allow: Collection[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    resume: bool = True,
    progress: bool | str | None = None,
) -> Report:
    """Make a multiscale pyramid of an array: `plan_pyramid`, and run.

    Parameters
    ----------
    source, target, factors, levels, method, format, chunks, shards, codecs
        As in `plan_pyramid`.
    scale, units, ome, max_mem, overwrite, allow
        As in `plan_pyramid`.
    storage_options, target_storage_options
        As in `plan_pyramid`.
    resume, progress
        As in `Plan.run`.

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
    make_plan = partial(
        plan_pyramid,
        source,
        target,
        factors=factors,
        levels=levels,
        method=method,
        format=format,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        scale=scale,
        units=units,
        ome=ome,
        max_mem=max_mem,
        overwrite=overwrite,
        allow=allow,
        storage_options=storage_options,
        target_storage_options=target_storage_options,
    )
    try:
        plan = make_plan()
    except NodeBeingReplaced as error:  # a level of the image, by a run of this that died
        if not finish_exchange(open_source(source, storage_options).store, error.path):
            raise
        plan = make_plan()
    return plan.run(resume=resume, progress=progress)


def _beside(base: Array, name: str | None, ome: str | None) -> LevelTarget:
    """Return the group of an array, for levels beside it."""
    above, _, last = base.path.rpartition("/")
    if not last.endswith("0") or last[-2:-1].isdigit():
        msg = (
            f"target=None: levels go beside an array whose name ends with its number, 0, as in 's0'; got {base.path!r}"
        )
        raise ValueError(msg)
    if name not in {None, base.format} or base.format in READ_ONLY:
        msg = f"format={name!r}: levels beside an array of {base.format} have its format; give a target"
        raise ValueError(msg)
    documents_format = format_of_store(base.store, base.format)
    check_ome(documents_format, None if ome == "auto" else ome)
    convention = documents_format.level_metadata if ome == "auto" else ome
    return LevelTarget(uncached(base.store), above, documents_format, convention, last[:-1], exists=True)
