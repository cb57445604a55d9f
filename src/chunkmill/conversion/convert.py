"""`plan_convert` and `convert`: check the arguments, and plan a job.

Not here: planning (`chunkmill.conversion.convert_job`), the target's metadata (`chunkmill.conversion.target_metadata`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import dask

from chunkmill.conversion.convert_job import ConversionTarget, plan_job
from chunkmill.conversion.ome import OmeImages, check_ome
from chunkmill.conversion.options import (
    by_array,
    chosen_arrays,
    chosen_paths,
    names_by_array,
    with_fill_value,
    with_names,
)
from chunkmill.conversion.plan import Plan, Report
from chunkmill.conversion.rechunking.job import Settings
from chunkmill.conversion.target_metadata import alike_described_once, describe_group_target, describe_target
from chunkmill.formats.base import Format, WritableFormatName
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes.arguments import open_source, open_target
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.nodes.new_array import with_chunk_keys
from chunkmill.nodes.open_store import open_plain_store
from chunkmill.nodes.region_option import RegionOption, cropping, shown_regions
from chunkmill.runtime.worker_memory import current_worker
from chunkmill.stores.base import Store

__all__ = ["convert", "intermediate_store", "plan_convert"]


def plan_convert(
    source: Any,
    target: Any,
    *,
    format: WritableFormatName,  # noqa: A002 - the contract's name
    chunks: Any = "keep",
    shards: Any = "keep",
    codecs: Any = "keep",
    max_mem: int | str | None = None,
    temp: Any = None,
    overwrite: bool = False,
    allow: Collection[str] = (),
    include: str | Collection[str] | None = None,
    exclude: str | Collection[str] = (),
    region: RegionOption = None,
    dimension_names: Sequence[str | None] | Mapping[str, Sequence[str | None]] | None = None,
    fill_value: Any = None,
    chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
    ome: Literal["0.4", "0.5"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan the conversion of an array, or of a group with everything below it, to another format.

    Nothing is written before the plan runs. Encoded bytes move unopened wherever they mean the same in the target.
    Where xarray takes a Zarr v2 array's fill value for missing data, which it does in no other format, arrays with
    dimension names get the attribute ``_FillValue``, so that a dataset decodes to the same. A group's metadata are
    consolidated where the target's format has such metadata, also where the source's are not.

    Parameters
    ----------
    source
        A url, ``(url, path)``, an Array or a Group.
    target
        A url or ``(url, path)``. There must be no node, unless `overwrite`.
    format
        ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"`` or ``"n5"``.
    chunks, shards
        ``"keep"``; ``None`` (shards: none); a chunk shape (in a group, arrays of another rank keep theirs); lengths by
        dimension, ``{"time": -1, "lat": 32}``, for every array that has it (``-1``: all of the axis; ``"auto"``); by
        path below the source, ``{"a/b": (64, 64), "c": "keep", "d": {"time": 10}}``; a callable of the Array. Shards
        are kept where the format has them; elsewhere their chunks get keys of their own.
    codecs
        ``"keep"``: the chain as near as the format can express it; or as in `create_array`.
    max_mem
        Largest memory of the tasks of one worker in bytes, all its threads together, or as text (``"2 GiB"``). When
        ``None``, arrays whose chunks change get ``chunkmill.max-mem`` of dask's config, or a share of the worker's
        memory limit; others need a few chunks at a time.
    temp
        Where chunks change, the place of intermediate files until the job is done: a url or a store that all workers
        reach; beside the target when ``None``.
    overwrite
        Replace what is at the target: it stays until the new one is stored whole, of which object stores then copy each
        value to its place.
    allow
        Losses that are allowed where the format cannot hold something: ``"fill_value"`` (absent chunks are written out
        then), ``"codecs"``, ``"dimension_names"``, ``"attributes"``. Values are never lost.
    include, exclude
        Patterns of paths below the source, such as ``"t2m"``, ``"level*/mask"``: of a group, only nodes that match
        `include`, or are below such, and not `exclude`. ``*`` matches any characters, slashes too.
    region
        Only this region: of one array, slices of step 1, such as ``(slice(10, 20), ...)``; by dimension,
        ``{"time": slice(0, 12), "lat": (10, 40)}``, of every array that has it, coordinates included. Chunks are copied
        where the region begins at one; those that it cuts are decoded. Attributes stay as they are, those that give
        positions too.
    dimension_names
        Names of the axes: of the array; of the arrays of that rank; or by path below the source. As stored otherwise.
    fill_value
        Fill value of the target: for all arrays, or by path below the source. Elements keep their values: where absent
        chunks would read as others, they are written out.
    chunk_key_encoding
        As in `create_array`; kept, where the format has it, when ``None``.
    ome
        ``"0.4"`` (Zarr v2) or ``"0.5"`` (Zarr v3): describe the multiscale images in the source by that version of
        OME-Zarr, whether N5-viewer's, BigDataViewer's, COSEM's or OME-Zarr's attributes describe them there; levels
        keep their names. ``None``: attributes stay as they are.
    storage_options, target_storage_options
        For the filesystems, as in fsspec; the target's default to the source's.

    Returns
    -------
    Plan
        Prints the actions and their estimated cost; ``plan.run()`` runs it.

    Raises
    ------
    UnsupportedFeature
        The format cannot hold something: says which node, and what would be lost.
    RegionError, ValueError
        `region` is outside an array, has a step, or names a dimension that no array has.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-plan-v2", "a", shape=(8,), dtype="i4", chunks=(2,), format="zarr2")
    >>> plan = plan_convert("memory://doc-plan-v2", "memory://doc-plan-v3", format="zarr3")
    >>> plan.strategy, plan.actions
    ('copy', {'copy': 4})
    """
    if region is not None and ome is not None:
        msg = f"ome={ome!r} describes whole images, and region={region!r} asks for less; convert in two steps"
        raise ValueError(msg)
    node = open_source(source, storage_options)
    named, filled = names_by_array(dimension_names, node), with_fill_value(fill_value, node)

    def names(array: Array) -> tuple[str | None, ...]:
        return named(array) or (None,) * array.ndim

    def edit(array: Array, metadata: ArrayMetadata) -> ArrayMetadata:
        return filled(array, with_names(metadata, named(array)))

    chunks, shards = by_array(chunks, node, "chunks", names), by_array(shards, node, "shards", names)
    options = storage_options if target_storage_options is None else target_storage_options
    store, path = open_target(target, options)
    images = None if ome is None else OmeImages.of(node, ome)

    def describe_array(array: Array, documents_format: Format, at: str) -> ArrayMetadata:
        described = describe_target(
            array, documents_format, at, chunks=chunks, shards=shards, codecs=codecs, allow=allow, edit=edit
        )
        keyed = with_chunk_keys(described, documents_format, at, chunk_key_encoding)
        return keyed if images is None else images.array(array, keyed)

    def describe_group(group: Group, documents_format: Format, at: str) -> GroupMetadata:
        check_ome(documents_format, ome)
        metadata = group.metadata if images is None else images.group(group)
        return describe_group_target(metadata, documents_format, at, allow=allow)

    exact = not (isinstance(codecs, str) and codecs == "keep")
    chosen = chosen_paths(node, include, exclude)
    where = ConversionTarget(
        store,
        path,
        format,
        alike_described_once(describe_array, chunks, shards, dimension_names, fill_value, images and images.array),
        describe_group,
        exact=exact,
        overwrite=overwrite,
        chosen=chosen,
        crop=None if region is None else cropping(region, node, chosen_arrays(node, chosen), names),
        region=shown_regions(region),
    )
    worker = current_worker(max_mem)
    limit = None if max_mem is None else worker.max_mem
    return plan_job("convert", node, where, Settings(worker, limit, intermediate_store(temp, options)))


def convert(
    source: Any,
    target: Any,
    *,
    format: WritableFormatName,  # noqa: A002 - the contract's name
    chunks: Any = "keep",
    shards: Any = "keep",
    codecs: Any = "keep",
    max_mem: int | str | None = None,
    temp: Any = None,
    overwrite: bool = False,
    allow: Collection[str] = (),
    include: str | Collection[str] | None = None,
    exclude: str | Collection[str] = (),
    region: RegionOption = None,
    dimension_names: Sequence[str | None] | Mapping[str, Sequence[str | None]] | None = None,
    fill_value: Any = None,
    chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
    ome: Literal["0.4", "0.5"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    resume: bool = True,
    progress: bool | str | None = None,
) -> Report:
    """Convert an array, or a group with everything below it, to another format: `plan_convert`, and run.

    Parameters
    ----------
    source, target, format, chunks, shards, codecs, max_mem, temp, overwrite, allow
        As in `plan_convert`.
    include, exclude, region, dimension_names, fill_value, chunk_key_encoding, ome
        As in `plan_convert`.
    storage_options, target_storage_options
        As in `plan_convert`.
    resume, progress
        As in `Plan.run`.

    Returns
    -------
    Report
        Store keys by action, bytes, seconds. Absent chunks stay absent.

    Raises
    ------
    UnsupportedFeature, NodeExists, JobError
        As in `plan_convert`; `JobError` also where a worker lacks a codec or cannot write, and where the source
        was deleted or replaced meanwhile: nothing is published then.
    ChunkError
        A chunk cannot be read or written. Finished tasks are kept: the same call resumes from there.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-v2", "a", shape=(4,), dtype="i4", chunks=(2,), format="zarr2")
    >>> a[...] = 7
    >>> report = convert("memory://doc-v2", "memory://doc-n5", format="n5", codecs="gzip")
    >>> report.actions, cm.open_array("memory://doc-n5", "a")[...]
    ({'recode': 2}, array([7, 7, 7, 7], dtype=int32))
    """
    plan = plan_convert(
        source,
        target,
        format=format,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        max_mem=max_mem,
        temp=temp,
        overwrite=overwrite,
        allow=allow,
        include=include,
        exclude=exclude,
        region=region,
        dimension_names=dimension_names,
        fill_value=fill_value,
        chunk_key_encoding=chunk_key_encoding,
        ome=ome,
        storage_options=storage_options,
        target_storage_options=target_storage_options,
    )
    return plan.run(resume=resume, progress=progress)


def intermediate_store(temp: Any, storage_options: Mapping[str, Any] | None) -> Store | None:
    """Return the store for intermediate files, `temp` or dask's ``chunkmill.temp``; ``None``: the target's."""
    if temp is not None:
        return open_plain_store(temp, storage_options)
    configured = dask.config.get("chunkmill.temp", None)
    return None if configured is None else open_plain_store(configured)
