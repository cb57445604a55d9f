"""The public functions that open and create: arguments in, one call down.

Not here: those that write (`chunkmill.nodes.writing`); anything that a format, a store or the data path should know.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dask.array as da

from chunkmill.array.stored_array import ReadMissing, check_read_missing
from chunkmill.errors import NodeNotFound
from chunkmill.formats.registry import get_format
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes import hierarchy
from chunkmill.nodes import open_store as references
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.new_array import describe_array, format_above
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush

__all__ = [
    "Url",
    "consolidate",
    "create_array",
    "create_group",
    "from_store",
    "open",
    "open_array",
    "open_group",
]

Url = str | os.PathLike[str] | Store


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

    Returns
    -------
    Array or Group
        Nothing of its chunks is read yet; absent ones are not looked for.

    Raises
    ------
    NodeNotFound
        There is no node of a known format.
    MetadataError
        There is one, and what its documents say is wrong or unsupported.
    UnknownCodec
        There is an array, and one of its codecs is not installed.
    StoreError
        The store failed: that is no absence.

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
    """Open an array.

    Parameters
    ----------
    url, path, **kwargs
        As in `open`.

    Returns
    -------
    Array
        As `open` returns it.

    Raises
    ------
    NodeNotFound
        There is no node, or a group, which the error says.
    MetadataError, UnknownCodec, StoreError
        As in `open`.

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
    """Open a group.

    Parameters
    ----------
    url, path, **kwargs
        As in `open`.

    Returns
    -------
    Group
        As `open` returns it.

    Raises
    ------
    NodeNotFound
        There is no node, or an array, which the error says.
    MetadataError, UnknownCodec, StoreError
        As in `open`.

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
    url, path
        As in `open`; a store that is not there is made by the first write to it.
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
        Value of absent chunks, a scalar of `dtype`; zero (``""``, ``b""``) when ``None``.
    dimension_names
        A name or ``None`` for each axis, slowest first.
    attributes
        The user's, as JSON holds them.
    storage_options
        For the filesystem, as in fsspec.
    overwrite
        Replace what is at `path`.

    Returns
    -------
    Array
        Open for writing; every chunk of it is absent and reads as the fill value.

    Raises
    ------
    NodeExists
        There is a node already.
    UnsupportedFeature
        The format cannot hold such an array.
    StoreError
        The store cannot be written.

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
    hierarchy.publish_and_refresh(target, documents, format, path)
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
    """Create a group, and the groups above it that are not there yet.

    Parameters
    ----------
    url, path, attributes, storage_options, overwrite
        As in `create_array`.
    format
        As in `create_array`: that of the groups above, where none is given.

    Returns
    -------
    Group
        Open for writing, and without children.

    Raises
    ------
    NodeExists
        There is a node already, or an array above it.
    UnsupportedFeature
        The format cannot hold such a group.
    StoreError
        The store cannot be written.

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
    hierarchy.publish_and_refresh(target, documents, format, path)
    return group


def consolidate(url: Url, path: str = "", *, storage_options: Mapping[str, Any] | None = None) -> Group:
    """Write consolidated metadata for the group at `path` (Zarr v2 and v3).

    Parameters
    ----------
    url, path, storage_options
        As in `open`.

    Returns
    -------
    Group
        The group, opened with them.

    Raises
    ------
    NodeNotFound
        There is no group.
    UnsupportedFeature
        The format has no consolidated metadata.
    StoreError
        The store cannot be listed, or not be written.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-consolidate", "a", shape=(4,), dtype="i4", chunks=(2,), format="zarr2")
    >>> list(cm.consolidate("memory://doc-consolidate"))
    ['a']
    """
    group = open_group(url, path, storage_options=storage_options, consolidated=False)
    hierarchy.consolidate(group.store, group)
    flush(group.store)
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

    Parameters
    ----------
    url, path, format, storage_options, read_missing
        As in `open`.
    chunks, region
        As in `Array.to_dask`: by default one task reads one store key of all there are.

    Returns
    -------
    dask.array.Array
        Lazy, of the array's (or the region's) shape and dtype; absent chunks are their fill value.

    Raises
    ------
    NodeNotFound, MetadataError, UnknownCodec, StoreError
        As in `open_array`. A chunk that cannot be read raises `ChunkError` when it is computed.
    RegionError
        `chunks` or `region` do not fit the array.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-from", shape=(6, 4), dtype="f4", chunks=(3, 2), fill_value=1)
    >>> float(cm.from_store("memory://doc-from").sum().compute())
    24.0
    """
    array = open_array(url, path, format=format, storage_options=storage_options, read_missing=read_missing)
    return array.to_dask(chunks, region=region)
