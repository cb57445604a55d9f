"""Plan and run conversions and rechunks: the public functions, which check their arguments.

Not here: planning (`chunkmill.conversion.convert_job`), the target's metadata (`chunkmill.conversion.target_metadata`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import dask

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.convert_job import Settings, plan_conversion
from chunkmill.conversion.ome import OmeImages, check_ome, cropped_group, cropping_of_images, names_of_axes, with_place
from chunkmill.conversion.options import (
    by_array,
    chosen_arrays,
    chosen_paths,
    is_keep,
    names_by_array,
)
from chunkmill.conversion.region_option import ChunksOption, RegionOption
from chunkmill.conversion.target_metadata import (
    alike_described_once,
    describe_group_target,
    describe_target,
    nodes_below,
)
from chunkmill.dask_arrays.sources import check_apart
from chunkmill.errors import AlignmentError, JobError
from chunkmill.formats.base import Format, WritableFormatName
from chunkmill.formats.registry import READ_ONLY
from chunkmill.hints import Hint
from chunkmill.jobs.call import with_call
from chunkmill.jobs.plan import Plan, Report
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes.api import NodeLocation, as_node, check_storage_options, open_source, open_target, with_options_of
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import format_of_store, join_path
from chunkmill.nodes.group import Group
from chunkmill.nodes.new_array import axis_names, check_options, format_above, with_chunk_keys
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.nodes.target import Target
from chunkmill.runtime.worker_memory import current_worker
from chunkmill.stores.base import Store
from chunkmill.stores.open import Url, open_scanned, open_store


@with_call
def plan_convert(
    source: Any,
    target: NodeLocation,
    *,
    format: WritableFormatName | None = None,  # noqa: A002 - the contract's name
    chunks: ChunksOption = "keep",
    shards: ChunksOption = "keep",
    codecs: Any = "keep",
    max_mem: int | str | None = None,
    temp: Url | None = None,
    overwrite: bool = False,
    allow: Collection[str] = (),
    include: str | Collection[str] | None = None,
    region: RegionOption = None,
    dimension_names: Sequence[str | None] | Mapping[str, Sequence[str | None]] | None = None,
    chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
    ome: Literal["0.4", "0.5", "0.6"] | None = None,
    concat_dim: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan the conversion of an array, or of a group with everything below it, to another format.

    Nothing is written before the plan runs. Encoded bytes move unopened wherever they mean the same in the target.
    Where xarray takes a Zarr v2 array's fill value for missing data, which it does in no other format, arrays with
    dimension names get the attribute ``_FillValue``, so that a dataset decodes to the same. A group's metadata are
    consolidated where the target's format has such metadata, also where the source's are not.

    Parameters
    ----------
    source
        As in `open`, ``(url, path)``, an Array or a Group.
    target
        As in `open`, ``(url, path)``, or a Group, as in `plan_rechunk`. There must be no node, unless `overwrite`.
    format
        Format of the target: ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"`` or ``"n5"``. ``None``: the format that a url
        pipeline names, or that of the group in which the target is; ``"zarr3"`` in a new store.
    chunks, shards
        Shape of chunks, and of shards: ``"keep"``; ``None`` (shards: none); a shape (in a group, arrays of another rank
        keep theirs); a size or ``"auto"``, as in `create_array`; lengths by dimension, ``{"time": -1, "lat": 32}``, for
        every array that has it (``-1``: all of the axis; ``"auto"``), where coordinates of one dimension and their
        bounds get one chunk, unless they are larger than 16 MiB; by path below the source, ``{"a/b": (64, 64), "c":
        "keep", "d": {"time": 10}}``; a callable of the Array. Shards are kept where the format has them; elsewhere
        their chunks get keys of their own.
    codecs
        Codecs of the target. ``"keep"``: the chain as near as the format can express it, and ``"portable"`` where
        chunks are encoded again by codecs that the format does not specify (numcodecs' in Zarr v3); ``"portable"``: the
        same where zarr-python, TensorStore and zarrs all read it, else one that they read; or as in `create_array`.
    max_mem
        Largest memory of the tasks of one worker in bytes, all its threads together, or as text (``"2 GiB"``). When
        ``None``, arrays whose chunks change get ``chunkmill.max-mem`` of dask's config, or a share of the worker's
        memory limit; others need a few chunks at a time.
    temp
        Where chunks change, the place of intermediate files until the job is done: a url or a store that all workers
        reach; next to the target when ``None``.
    overwrite
        Replace what is at the target: it stays until the new one is stored whole, of which object stores then copy each
        value to its place.
    allow
        Losses that are allowed where the format cannot hold something: ``"fill_value"`` (absent chunks are written out
        then), ``"codecs"``, ``"dimension_names"``, ``"attributes"``; ``"coordinate_systems"`` of an image, of which
        OME-Zarr before 0.6 has one. Values are never lost.
    include
        Patterns of paths below the source, such as ``"t2m"``, ``"level*/mask"``: of a group, only nodes that match, or
        are below such. ``*`` matches any characters, slashes too.
    region
        Only this region: of one array, slices of step 1, such as ``(slice(10, 20), ...)``; by dimension,
        ``{"time": slice(0, 12), "lat": (10, 40)}``, of every array that has it, coordinates included. Chunks are copied
        where the region begins at one; those that it cuts are decoded. Of an image it is the region of the finest
        level; the others are cut to what covers it, and places move with them. Other attributes stay as they are.
    dimension_names
        Names of the axes: of the array; of the arrays of that rank; or by path below the source. As stored otherwise.
    chunk_key_encoding
        As in `create_array`; kept, where the format has it, when ``None``.
    ome
        Describe the multiscale images in the source by this version of OME-Zarr: ``"0.4"`` (Zarr v2), ``"0.5"`` or
        ``"0.6"`` (Zarr v3), whether N5-viewer's, BigDataViewer's, COSEM's or OME-Zarr's attributes describe them there;
        levels keep their names. ``None``: attributes stay as they are.
    concat_dim
        Dimension along which the netCDF or HDF5 files of `source` (a pattern, or a list) follow one another, or
        several: the files are scanned first, as by `scan`.
    storage_options
        For the filesystems of source and target, as in fsspec; local files have none. Where they need different ones,
        give the source as a node that `open_group` opened, or the target as a store object.

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
    check_storage_options(storage_options, source, target, temp)
    if concat_dim is not None:
        is_root = isinstance(source, tuple) and source[1:] == ("",)
        source = open_scanned(source[0] if is_root else source, storage_options, concat_dim) or source
    return _plan_new_nodes(
        "convert",
        open_source(source, storage_options),
        as_node(target),
        Settings(current_worker(max_mem), intermediate_store(temp, storage_options)),
        format=format,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        allow=allow,
        include=include,
        region=region,
        dimension_names=dimension_names,
        chunk_key_encoding=chunk_key_encoding,
        ome=ome,
        overwrite=overwrite,
        storage_options=storage_options,
    )


@with_options_of(plan_convert)
def convert(
    source: Any,
    target: NodeLocation,
    **options: Any,
) -> Report:
    """Convert an array, or a group with everything below it, to another format: `plan_convert`, and run.

    Parameters
    ----------
    source, target, format, chunks, shards, codecs, max_mem, temp, overwrite, allow
        As in `plan_convert`.
    include, region, dimension_names, chunk_key_encoding, ome, concat_dim, storage_options
        As in `plan_convert`.

    Returns
    -------
    Report
        Store keys by action, bytes, seconds. Absent chunks stay absent.

    Raises
    ------
    UnsupportedFeature, NodeExists, JobError
        As in `plan_convert`; `JobError` also where a worker lacks a codec or cannot write, and where the source
        was deleted or replaced during the run: nothing is published then.
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
    return plan_convert(source, target, **options).run()


def intermediate_store(temp: Any, storage_options: Mapping[str, Any] | None) -> Store | None:
    """Return the store for intermediate files, `temp` or dask's ``chunkmill.temp``; ``None``: the target's."""
    if temp is not None:
        return open_store(temp, storage_options)
    configured = dask.config.get("chunkmill.temp", None)
    return None if configured is None else open_store(configured)


@with_call
def plan_rechunk(
    source: Any,
    target: NodeLocation,
    *,
    chunks: ChunksOption,
    shards: ChunksOption = "keep",
    format: WritableFormatName | None = None,  # noqa: A002 - the contract's name
    codecs: Any = "keep",
    max_mem: int | str | None = None,
    temp: Url | None = None,
    strategy: Literal["direct", "spill"] | None = None,
    overwrite: bool = False,
    include: str | Collection[str] | None = None,
    region: RegionOption = None,
    chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan to give an array, or every array of a group, other chunks; nothing is written before the plan runs.

    Each element is read and written once. Where the chunks of source and target run across each other, it also goes
    through intermediate files, few and large, so that memory stays bounded without communication between workers.

    Parameters
    ----------
    source
        As in `open`, ``(url, path)``, an Array or a Group.
    target
        As in `open`, or ``(url, path)``. There must be no node, unless `overwrite`. Into a Group, which is there, an
        array is written under its own name, and the nodes of a group under theirs; with `overwrite`, it is replaced. An
        Array (opened with ``mode="r+"``) is written to as it is, in its own chunks. An array or a group of zarr-python
        is taken as such.
    chunks
        Chunk shape (of the inner chunks where there are shards), ``-1`` for all of an axis; or a size, such as
        ``"16MiB"``, or ``"auto"``, as in `create_array`. Lengths by dimension, ``{"time": -1, "lat": 32}``: of every
        array that has it, but coordinates and their bounds, as in `plan_convert`; other axes keep theirs. For a group:
        a shape for its arrays of that rank (the others keep their chunks), a mapping by path below the group to shapes,
        ``"keep"`` or mappings by dimension, or a callable of the Array that returns one of these.
    shards
        Shape of shards, likewise; ``"keep"``: the source's, which must be multiples of the chunks; ``None``: no shards.
    format
        Format of the target; the source's when ``None`` (``"zarr3"`` where that is for reading only).
    codecs
        Codecs of the target; ``"keep"``: the source's chain, the inner one where shards come or go, if the format
        specifies it; or as in `chunkmill.create_array`.
    max_mem
        Largest memory of the tasks of one worker in bytes, all its threads together, on top of the interpreter and its
        libraries; or as text (``"256 MiB"``). When ``None``, ``chunkmill.max-mem`` in dask's config, or else a third of
        the worker's memory limit.
    temp
        Place of intermediate files until the job is done: a url or a store that all workers reach. When ``None``, in
        the target's store, where no reader takes them for a node (next to a zip file).
    strategy
        Strategy, ``"direct"`` or ``"spill"``, instead of the one that is estimated to be faster. Values of variable
        length have no place in intermediate files: ``"spill"`` is an error.
    overwrite
        Replace what is at the target: it stays until the new one is stored whole, of which object stores then copy each
        value to its place.
    include, region, chunk_key_encoding
        As in `chunkmill.plan_convert`, which also changes names of axes.
    storage_options
        For the filesystems of source, target and `temp`, as in `plan_convert`.

    Returns
    -------
    Plan
        Prints the strategy and its estimated cost; ``plan.run()`` runs it.

    Raises
    ------
    JobError
        `max_mem` is too little; says how much is needed.
    AlignmentError
        Shards are not multiples of the chunks, or `chunks` are not those of the Array to write to.
    UnsupportedFeature
        The format cannot hold such an array.
    RegionError, ValueError
        `region` is outside an array, has a step, or names a dimension that no array has.

    Examples
    --------
    >>> import chunkmill as cm, dask.array as da
    >>> _ = cm.to_store(da.ones((60, 40, 40), chunks=(1, 40, 40)), "memory://doc-plan-rechunk", "images")
    >>> plan = plan_rechunk(
    ...     ("memory://doc-plan-rechunk", "images"), ("memory://doc-plan-rechunk", "series"), chunks=(-1, 8, 8)
    ... )
    >>> plan.strategy, plan.n_keys, plan.read_amplification
    ('direct', 25, 1.0)
    """
    check_storage_options(storage_options, source, target, temp)
    node = open_source(source, storage_options)
    if strategy == "direct" and temp is not None:
        raise ValueError(f"temp={temp!r}: strategy='direct' has no intermediate files")
    if strategy not in {None, "direct", "spill"}:
        raise ValueError(f"strategy={strategy!r}: expected None, 'direct' or 'spill'")
    settings = Settings(current_worker(max_mem), intermediate_store(temp, storage_options), strategy)
    target = as_node(target)
    if isinstance(target, Array):
        if chunk_key_encoding is not None:
            raise TypeError(
                f"chunk_key_encoding={chunk_key_encoding!r}: the array {target.path!r} has its keys already"
            )
        if overwrite:
            raise TypeError(f"overwrite=True: {target.path!r} is written into as an Array; give (url, path) instead")
        stated = {name: value for name, value in (("shards", shards), ("codecs", codecs)) if not is_keep(value)}
        stated |= {} if format is None else {"format": format}
        check_options(target, format_of_store(target.store, target.format), **stated)
        chosen_paths(node, include)
        return _plan_into(node, target.stored, chunks, region, settings)
    return _plan_new_nodes(
        "rechunk",
        node,
        target,
        settings,
        format=format,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        include=include,
        region=region,
        chunk_key_encoding=chunk_key_encoding,
        overwrite=overwrite,
        storage_options=storage_options,
    )


@with_options_of(plan_rechunk)
def rechunk(
    source: Any,
    target: NodeLocation,
    **options: Any,
) -> Report:
    """Give an array, or every array of a group, other chunks: `plan_rechunk`, and run.

    Parameters
    ----------
    source, target, chunks, shards, format, codecs, max_mem, temp, strategy, overwrite
        As in `plan_rechunk`.
    include, region, chunk_key_encoding, storage_options
        As in `plan_rechunk`.

    Returns
    -------
    Report
        Store keys by action, bytes, seconds, and the largest memory of a process.

    Raises
    ------
    UnsupportedFeature, NodeExists, AlignmentError, JobError
        As in `plan_rechunk`; `JobError` also where a worker lacks a codec or cannot write, and where the source
        was deleted or replaced during the run: nothing is published then.
    ChunkError
        A chunk cannot be read or written. Finished tasks are kept: the same call resumes from there.

    Examples
    --------
    >>> import chunkmill as cm, dask.array as da
    >>> _ = cm.to_store(da.arange(12, chunks=4), "memory://doc-rechunk", "a")
    >>> report = rechunk(("memory://doc-rechunk", "a"), ("memory://doc-rechunk", "b"), chunks=(6,))
    >>> report.n_keys, cm.open_array("memory://doc-rechunk", "b").chunks
    (2, (6,))
    """
    return plan_rechunk(source, target, **options).run()


def _plan_new_nodes(
    operation: Literal["convert", "rechunk"],
    node: StoredNode,
    target: Any,
    settings: Settings,
    *,
    format: Any,  # noqa: A002
    chunks: Any,
    shards: Any,
    codecs: Any,
    include: str | Collection[str] | None,
    region: RegionOption,
    chunk_key_encoding: Any,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
    allow: Collection[str] = (),
    dimension_names: Any = None,
    ome: Literal["0.4", "0.5", "0.6"] | None = None,
) -> Plan:
    """Describe the copies of a node and of all below it, and plan to write them.

    Into a `Group`, which is there, an array goes under its name, and the nodes of a group under theirs.
    """
    into = target if isinstance(target, Group) and not overwrite else None
    store, path, wanted = open_target(target, storage_options, format)
    if into is not None and isinstance(node, StoredArray):
        path = join_path(path, _name_of(node))
    if wanted is None:
        wanted = into.format if into else node.format if operation == "rechunk" else format_above(store, path)
        wanted = READ_ONLY.get(wanted, wanted)
    documents_format = format_of_store(store, wanted)
    path = documents_format.normalize_path(path)
    check_apart(node, store, path, overwrite=overwrite)
    named = names_by_array(dimension_names, node)
    names = names_of_axes(node, lambda array: named(array) or (None,) * array.ndim, chunks, shards, region)
    chunks, shards = by_array(chunks, node, "chunks", names), by_array(shards, node, "shards", names)
    images = None if ome is None else OmeImages.of(node, ome)
    chosen = chosen_paths(node, include)
    taken = None if chosen is None else {array.path for array in chosen_arrays(node, chosen)}
    crop = None if region is None else cropping_of_images(region, node, chosen_arrays(node, chosen), names)

    def describe_array(array: StoredArray, _: Format, at: str) -> ArrayMetadata:
        described = describe_target(
            array, documents_format, at, chunks=chunks, shards=shards, codecs=codecs, allow=allow, names=named
        )
        keys = chunk_key_encoding
        keyed = described if keys is None else with_chunk_keys(described, documents_format, at, keys)
        placed = with_place(array, keyed, alone=isinstance(node, StoredArray), to_n5=documents_format.names_in_axes)
        return placed if images is None else images.array(array, placed)

    def describe_group(group: StoredGroup, at: str) -> GroupMetadata:
        check_ome(documents_format, ome)
        metadata = group.metadata if crop is None else cropped_group(group, crop, taken)
        if images is not None:
            metadata = images.group(group, crop, taken, allow)
        return describe_group_target(metadata, documents_format, at, allow=allow)

    describe = alike_described_once(describe_array, chunks, shards, dimension_names, crop, images and images.array)
    groups: dict[str, GroupMetadata] = {}
    sources, arrays = [], []
    for each, at in nodes_below(node, chosen, documents_format, path):
        if isinstance(each, StoredGroup):
            groups[at] = describe_group(each, at)
        else:
            sources.append(each if crop is None else crop(each))
            arrays.append(array_at(store, at, describe(sources[-1], documents_format, at), documents_format))
    first, group = path, None
    if into is not None and isinstance(node, StoredGroup):
        groups.pop(group := path)
        added = [at for at in (*groups, *(array.path for array in arrays)) if at.rpartition("/")[0] == group]
        if not added:
            raise JobError(job=f"{operation} to {into.url}", reason="the source is a group without nodes")
        first = min(added)
    new = Target(store, first, documents_format, arrays, groups, overwrite, group)
    exact = not (isinstance(codecs, str) and codecs in {"keep", "portable"})
    return plan_conversion(operation, node, sources, new, settings, exact=exact, region=region)


def _name_of(array: StoredArray) -> str:
    if not (name := array.path.rpartition("/")[2]):
        raise TypeError("the source has no name in its store: give (url, path) as the target instead of a Group")
    return name


def _plan_into(node: StoredNode, target: StoredArray, chunks: Any, region: RegionOption, settings: Settings) -> Plan:
    """Plan to write an array into one that exists, whose metadata stay as they are."""
    target.check_writable()
    if not isinstance(node, StoredArray):
        raise TypeError(f"the target is the array {target.path!r}, the source a group: give the array to read")
    check_apart(node, target.store, target.path, overwrite=False)
    names = names_of_axes(node, axis_names, region)
    crop = cropping_of_images(region, node, [node], names)
    source = node if crop is None else crop(node)
    if source.shape != target.shape or source.dtype != target.dtype:
        got, expected = f"{source.shape} {source.dtype}", f"{target.shape} {target.dtype}"
        raise AlignmentError(expected=expected, got=got, fix="give a target of the source's shape and dtype")
    wanted = tuple(chunks) if isinstance(chunks, (tuple, list)) else chunks
    if wanted not in (None, "keep", target.chunks):
        fix = Hint("the target has its chunks already: give {}, or another target", ("chunks", None))
        raise AlignmentError(expected=f"chunks {target.chunks}", got=f"chunks {wanted}", fix=fix)
    documents_format = format_of_store(target.store, target.format)
    new = Target(target.store, target.path, documents_format, [target], overwrite=None)
    return plan_conversion("rechunk", node, [source], new, settings, region=region)
