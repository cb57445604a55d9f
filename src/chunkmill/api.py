"""The public functions: arguments in, one call down.

Not here: anything that a format, a store or the data path should know.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import dask.array as da
import numpy as np
from dask.delayed import Delayed

from chunkmill import hierarchy, references
from chunkmill.array import Array, ReadMissing, check_read_missing
from chunkmill.describe import describe_array, format_above
from chunkmill.errors import NodeExists, NodeNotFound, RegionError
from chunkmill.formats.registry import get_format
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.graph.locks import lock_factory
from chunkmill.graph.preflight import check_writers
from chunkmill.graph.resume import discard_journal, resumable_write
from chunkmill.graph.sources import check_not_read
from chunkmill.graph.write import WriteReport, check_source, report, run, write_graph
from chunkmill.hierarchy import Group, Node
from chunkmill.model.grid import Region
from chunkmill.model.metadata import GroupMetadata
from chunkmill.plans.region import as_region, full_region, region_shape
from chunkmill.stores.base import Store

__all__ = [
    "consolidate",
    "create_array",
    "create_group",
    "from_store",
    "open",
    "open_array",
    "open_group",
    "store",
    "to_store",
]

Url = str | os.PathLike[str] | Store
Mode = Literal["r", "r+", "a", "w", "w-"]


def open(  # noqa: A001 - the contract's name, as in zarr
    url: Url,
    path: str = "",
    *,
    format: str | None = None,  # noqa: A002
    mode: Literal["r", "r+"] = "r",
    storage_options: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    dimension_separator: Literal[".", "/"] | None = None,
    read_missing: ReadMissing = "fill",
) -> Node:
    """Open the array or group at `path` of the store at `url`.

    Parameters
    ----------
    url
        Anything fsspec opens, a plain path, or a store. A plain path that ends in ``.zip`` is a zip store; a JSON file
        or a folder of parquet files may be a reference set.
    path
        The node below the root, without a leading slash.
    format
        ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"``, ``"zarr3-experimental"``, ``"n5"``; guessed when ``None``.
    mode
        ``"r"`` refuses writes to the array; ``"r+"`` allows them.
    storage_options
        For the filesystem, as in fsspec.
    consolidated
        ``None``: use consolidated metadata where there is some; ``True``: demand it; ``False``: ignore it.
    dimension_separator
        Of chunk keys in Zarr v2, for old nested stores whose metadata do not say it.
    read_missing
        What reading an absent chunk does: ``"fill"`` gives its fill value; ``"error"`` raises `ChunkError`, for those
        who know that every chunk was written (with ``write_empty_chunks=True``).

    Raises
    ------
    NodeNotFound
        There is no node of a known format.
    MetadataError
        There is one, and what its documents say is wrong or unsupported.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-open", "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> cm.open("memory://doc-open").arrays()["a"].shape
    (4,)
    """
    if mode not in {"r", "r+"}:
        raise ValueError(f"mode={mode!r}: open nodes with 'r' or 'r+'; create_array and to_store make new ones")
    wanted = format if dimension_separator is None else ZarrV2(dimension_separator)
    given: dict[str, Any] = {"format": wanted, "consolidated": consolidated, "read_only": mode == "r"}
    node = _open(url, path, storage_options, given)
    return node if check_read_missing(read_missing) == "fill" else node.with_read_missing(read_missing)


def _open(url: Url, path: str, storage_options: Mapping[str, Any] | None, given: dict[str, Any]) -> Node:
    """Open a node of a store or of a reference set, whichever `url` leads to."""
    if isinstance(url, (str, os.PathLike)) and references.may_be_reference_file(url):
        return hierarchy.open_node(references.open_reference_store(url, storage_options), path, **given)
    try:
        return hierarchy.open_node(references.open_plain_store(url, storage_options), path, **given)
    except NodeNotFound:  # a folder of parquet files is looked for last: it costs requests that few need
        if not isinstance(url, (str, os.PathLike)) or not references.is_reference_set(url, storage_options):
            raise
    return hierarchy.open_node(references.open_reference_store(url, storage_options), path, **given)


def open_array(url: Url, path: str = "", **kwargs: Any) -> Array:
    """Open an array; as `open`, and a `NodeNotFound` that says so when a group is found instead.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-open-array", "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> cm.open_array("memory://doc-open-array", "a").shape
    (4,)
    """
    node = open(url, path, **kwargs)
    if not isinstance(node, Array):
        hint = f"its arrays are {', '.join(map(repr, list(node.arrays())[:10])) or 'none'}; give one as path"
        raise NodeNotFound(url=node.url, path=node.path, found="group", wanted="array", hint=hint)
    return node


def open_group(url: Url, path: str = "", **kwargs: Any) -> Group:
    """Open a group; as `open`, and a `NodeNotFound` that says so when an array is found instead.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-open-group", "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> list(cm.open_group("memory://doc-open-group"))
    ['a']
    """
    node = open(url, path, **kwargs)
    if not isinstance(node, Group):
        raise NodeNotFound(url=node.url, path=node.path, found="array", wanted="group", hint="use open_array")
    return node


def create_array(
    url: Url,
    path: str = "",
    *,
    shape: int | Sequence[int],
    dtype: Any,
    chunks: int | Sequence[int] | Literal["auto"] = "auto",
    shards: int | Sequence[int] | None = None,
    format: str | None = None,  # noqa: A002
    codecs: Any = "default",
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Array:
    """Create an array; nothing but its metadata is written.

    Parameters
    ----------
    shape, dtype
        Of the array; 0-d arrays and axes of length 0 are fine. ``str`` or numpy's ``StringDType`` for strings of
        variable length. A big-endian dtype is stored big-endian.
    chunks
        Chunk shape (of the inner chunks when sharded); a shorter tuple does not do. ``"auto"``: some 1 to 16 MiB.
    shards
        Shard shape, a multiple of `chunks`; Zarr v3 only.
    format
        ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"`` or ``"n5"``. ``None``: that of the group that the array is created
        in; ``"zarr3"`` in a new store.
    codecs
        ``"default"``, a name (``"zstd"``, ``"blosc"``, ``"gzip"``, ``"raw"``), a list of
        ``{"name": …, "configuration": {…}}`` (the whole chain or only the compressors), or numcodecs objects.
    fill_value
        Value of absent chunks; zero (``""``, ``b""``) when ``None``.
    overwrite
        Replace what is at `path`.

    Raises
    ------
    NodeExists
        There is a node already.
    UnsupportedFeature
        The format cannot hold such an array.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-create", shape=(8, 6), dtype="f4", chunks=(2, 3), shards=(4, 6))
    >>> a.chunks, a.shards
    ((2, 3), (4, 6))
    """
    target = references.open_target_store(url, storage_options)
    format = format or format_above(target, path)  # noqa: A001
    metadata = describe_array(
        get_format(format),
        path,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        fill_value=fill_value,
        dimension_names=dimension_names,
        attributes=attributes,
    )
    array, documents = hierarchy.create_array(target, path, metadata, format=format, overwrite=overwrite)
    hierarchy.appear(target, documents, format)
    return array


def create_group(
    url: Url,
    path: str = "",
    *,
    format: str | None = None,  # noqa: A002
    attributes: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Group:
    """Create a group, and the groups above it that are not there yet; of their format, where none is given.

    Examples
    --------
    >>> import chunkmill as cm
    >>> cm.create_group("memory://doc-create-group", "a/b", attributes={"title": "x"}).attributes
    {'title': 'x'}
    """
    target = references.open_target_store(url, storage_options)
    format = format or format_above(target, path)  # noqa: A001
    metadata = GroupMetadata(dict(attributes or {}))
    group, documents = hierarchy.create_group(target, path, metadata, format=format, overwrite=overwrite)
    hierarchy.appear(target, documents, format)
    return group


def consolidate(url: Url, path: str = "", *, storage_options: Mapping[str, Any] | None = None) -> Group:
    """Write consolidated metadata for the group at `path` (Zarr v2 and v3), and return the group opened with it.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-consolidate", "a", shape=(4,), dtype="i4", chunks=(2,), format="zarr2")
    >>> list(cm.consolidate("memory://doc-consolidate"))
    ['a']
    """
    group = open_group(url, path, storage_options=storage_options, consolidated=False)
    hierarchy.consolidate(group.store, group)
    hierarchy.settle(group.store)
    return open_group(group.store, path, consolidated=True)


def from_store(
    url: Url,
    path: str = "",
    *,
    chunks: Any = None,
    region: Any = None,
    format: str | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    read_missing: ReadMissing = "fill",
) -> da.Array:
    """Return an array in a store, or a region of it, as a dask array; like ``da.from_zarr``, for every format.

    `chunks` and `region` are those of `Array.to_dask`: by default one task reads one store key of all there are.
    `read_missing` is that of `open`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-from", shape=(6, 4), dtype="f4", chunks=(3, 2), fill_value=1)
    >>> float(cm.from_store("memory://doc-from").sum().compute())
    24.0
    """
    array = open_array(url, path, format=format, storage_options=storage_options, read_missing=read_missing)
    return array.to_dask(chunks, region=region)


def to_store(
    x: Any,
    url: Url,
    path: str = "",
    *,
    format: str | None = None,  # noqa: A002
    chunks: Any = None,
    shards: Any = None,
    codecs: Any = "default",
    region: Any = None,
    mode: Mode = "w-",
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    lock: Any = "auto",
    compute: bool = True,
    resume: bool = False,
    write_empty_chunks: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteReport | Delayed:
    """Write a dask array (or a numpy array) to a store; like ``da.to_zarr``, for every format.

    Every store key is written by exactly one task: blocks that cut through store keys are regrouped first. The array
    appears in the store when all its chunks are written.

    Parameters
    ----------
    format
        Of a new array; that of the group above it when ``None``, ``"zarr3"`` in a new store.
    chunks
        Chunk shape; the largest block of `x` along each axis when ``None`` (of a shard, when sharded).
    region
        Slices of an existing array to write `x` to; store keys that it covers partly are read, changed and written
        back under `lock` and a version check.
    mode
        ``"w-"``: create, fail if there is a node; ``"w"``: replace; ``"r+"``: write into the existing array;
        ``"a"``: that, or create.
    lock
        ``"auto"``: a lock of this process, or of the cluster when run on one; ``None``: none, the version check alone
        guards; else a context manager.
    compute
        ``False``: return a `dask.delayed.Delayed` of the report; the metadata are written by its last task.
    resume
        Keep a record of every block beside the array until all are written, and go on with a write of the same `x`
        (the same name in dask: see ``x.name``) that was cut off. Whole arrays only.

    Returns
    -------
    WriteReport
        Store keys written, of them empty and partial, and bytes.

    Raises
    ------
    NodeExists
        There is a node, and `mode` does not allow to replace it.
    AlignmentError
        `x` has another shape than the array or region, or chunks of unknown size.
    StoreError
        Partial writes would be unguarded: the store cannot compare versions and there is no common lock.
    JobError
        What was cut off at the target is another write; ``mode="w"`` would delete what `x` reads, or a task would
        read what another one overwrites; or a worker lacks a codec, or cannot write.

    Examples
    --------
    >>> import chunkmill as cm, dask.array as da
    >>> report = cm.to_store(da.arange(10, chunks=5), "memory://doc-to")
    >>> report.n_keys
    2
    >>> cm.open_array("memory://doc-to")[3:5]
    array([3, 4])
    """
    target = references.open_target_store(url, storage_options)
    x = _as_dask(x)
    factory = lock_factory(lock)
    existing = _existing(target, path, mode="r+" if region is not None else mode)
    if existing is not None:
        array = existing
        where = _write_region(array, region)
        check_source(x, region_shape(where))
    else:
        check_source(x, x.shape)
        format = format or format_above(target, path)  # noqa: A001
        metadata = describe_array(
            get_format(format),
            path,
            shape=x.shape,
            dtype=x.dtype,
            chunks=_block_shape(x, shards) if chunks is None else chunks,
            shards=shards,
            codecs=codecs,
            fill_value=fill_value,
            dimension_names=dimension_names,
            attributes=attributes,
        )
        array = hierarchy.array_at(target, path, metadata, format)
        where = full_region(array.shape)

    def prepare() -> dict[str, bytes]:
        if existing is not None:
            return {}
        return hierarchy.create_array(target, path, array.metadata, format=array.format, overwrite=mode == "w")[1]

    if resume and (region is not None or not compute):
        raise ValueError("resume=True writes whole arrays and now: leave out region= and compute=False")
    check_not_read([x] if mode == "w" else [], target, array.path)
    check_writers([array] if compute else [])
    if resume:
        publish = partial(hierarchy.appear, target, format=array.format)
        return resumable_write(x, array, prepare=prepare, publish=publish, lock=factory, write_empty=write_empty_chunks)
    if existing is None:
        discard_journal(array)
    documents = prepare()
    counts, n_regrouped = write_graph(x, array, where, lock=factory, write_empty=write_empty_chunks)
    finish = partial(_finish, n_regrouped=n_regrouped, array=array, documents=documents)
    return run([counts], finish, compute=compute, arrays=[array])


def store(
    sources: Any,
    targets: Array | Sequence[Array],
    *,
    regions: Any = None,
    lock: Any = "auto",
    compute: bool = True,
    write_empty_chunks: bool = False,
) -> list[WriteReport] | Delayed:
    """Write dask arrays onto arrays that exist; like ``da.store``.

    Parameters
    ----------
    sources, targets
        One of each, or sequences of equal length.
    regions
        A tuple of slices for each target (one for all, or a list); the whole target where ``None``.

    Examples
    --------
    >>> import chunkmill as cm, dask.array as da
    >>> a = cm.create_array("memory://doc-store", shape=(10,), dtype="i4", chunks=(4,))
    >>> [r.n_partial for r in cm.store(da.ones(6, dtype="i4"), a, regions=(slice(2, 8),))]
    [1]
    """
    sources = [sources] if isinstance(sources, (da.Array, np.ndarray)) else list(sources)
    targets = [targets] if isinstance(targets, Array) else list(targets)
    places = list(regions) if isinstance(regions, list) else [regions] * len(targets)
    if not len(sources) == len(targets) == len(places):
        raise ValueError(f"{len(sources)} sources, {len(targets)} targets and {len(places)} regions do not match")
    factory = lock_factory(lock)
    planned = []
    for x, array, region in zip(map(_as_dask, sources), targets, places, strict=True):
        array.check_writable()
        where = _write_region(array, region)
        planned.append(write_graph(x, array, where, lock=factory, write_empty=write_empty_chunks))
    check_writers(targets if compute else [])
    finish = partial(_reports, n_regrouped=[n for _, n in planned], arrays=targets)
    return run([counts for counts, _ in planned], finish, compute=compute, arrays=targets)


def _finish(counts: Any, *, n_regrouped: int, array: Array, documents: dict[str, bytes]) -> WriteReport:
    """Make the array appear: the last step of a write."""
    hierarchy.appear(array.store, documents, array.format)
    return report(array, counts, n_regrouped)


def _reports(*counts: Any, n_regrouped: Sequence[int], arrays: Sequence[Array]) -> list[WriteReport]:
    return [report(array, c, n) for array, c, n in zip(arrays, counts, n_regrouped, strict=True)]


def _as_dask(x: Any) -> da.Array:
    if isinstance(x, da.Array):
        return x
    if isinstance(x, Array):
        return x.to_dask()
    is_labelled = hasattr(x, "dims") and hasattr(x, "data")  # xarray's DataArray and Variable
    converted: da.Array = da.asarray(x.data if is_labelled else x)
    return converted


def _existing(target: Store, path: str, mode: str) -> Array | None:
    """Return the array to write into; ``None`` when a new one is to be made."""
    if mode in {"w", "w-"}:
        return None
    if mode not in {"a", "r+"}:
        raise ValueError(f"mode={mode!r} does not write; the modes are 'w-', 'w', 'a' and 'r+'")
    try:
        node = hierarchy.open_node(target, path, read_only=False, consolidated=False)
    except NodeNotFound:
        if mode == "a":
            return None
        raise
    if isinstance(node, Group):
        raise NodeExists(url=node.url, path=node.path, found="group", hint="give mode='w' to replace it")
    return node


def _write_region(array: Array, region: Any) -> Region:
    if isinstance(region, str) and region == "auto":
        reason = "only write_dataset knows coordinates to find it by"
        raise RegionError(index="'auto'", shape=array.shape, reason=reason)
    return as_region(region, array.shape)


def _block_shape(x: da.Array, shards: Any) -> tuple[int, ...] | Literal["auto"]:
    """Return the chunk shape that makes each block of `x` one chunk; "auto" below shards that are given."""
    if shards is not None:
        return "auto"
    return tuple(max((*axis, 1)) for axis in x.chunks)
