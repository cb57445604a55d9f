"""Open and create nodes: the public functions.

Not here: the public functions that write dask arrays (`chunkmill.nodes.writing`).
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
        Path of the node below the root of the store, without a leading slash.
    format
        ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"``, ``"zarr3-experimental"``, ``"n5"``; guessed when ``None``.
    mode
        ``"r"``: writing raises `StoreError`; ``"r+"``: values and attributes can be written.
    storage_options
        Options of the filesystem, as in fsspec.
    consolidated
        ``None``: use consolidated metadata where a store has them; ``True``: require them; ``False``: ignore them.
    dimension_separator
        Separator in the chunk keys of Zarr v2, for old nested stores whose metadata do not name it.
    read_missing
        Result of reading an absent chunk: ``"fill"``: its fill value; ``"error"``: `ChunkError`, for arrays of which
        every chunk was written (with ``write_empty_chunks=True``).

    Returns
    -------
    Array or Group
        The node; no chunk is read yet, and absent ones are not looked for.

    Raises
    ------
    NodeNotFound
        There is no node of a known format.
    MetadataError
        The node's metadata are invalid, or use an unsupported feature.
    UnknownCodec
        A codec of the array is unknown, or needs a package that is not installed.
    StoreError
        The store could not be read (a missing key raises `NodeNotFound` instead).

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


def open_array(
    url: Url,
    path: str = "",
    *,
    format: str | None = None,  # noqa: A002
    mode: Literal["r", "r+"] = "r",
    storage_options: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    dimension_separator: Literal[".", "/"] | None = None,
    read_missing: ReadMissing = "fill",
) -> Array:
    """Open an array.

    Parameters
    ----------
    url, path, format, mode, storage_options, consolidated, dimension_separator, read_missing
        As in `open`.

    Returns
    -------
    Array
        The array, as `open` returns it.

    Raises
    ------
    NodeNotFound
        There is no node at `path`, or a group (the error says which).
    MetadataError, UnknownCodec, StoreError
        As in `open`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-open-array", "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> cm.open_array("memory://doc-open-array", "a").shape
    (4,)
    """
    node = open(
        url,
        path,
        format=format,
        mode=mode,
        storage_options=storage_options,
        consolidated=consolidated,
        dimension_separator=dimension_separator,
        read_missing=read_missing,
    )
    if not isinstance(node, Array):
        hint = f"its arrays are {', '.join(map(repr, list(node.arrays())[:10])) or 'none'}; give one as path"
        raise NodeNotFound(url=node.url, path=node.path, found="group", wanted="array", hint=hint)
    return node


def open_group(
    url: Url,
    path: str = "",
    *,
    format: str | None = None,  # noqa: A002
    mode: Literal["r", "r+"] = "r",
    storage_options: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    dimension_separator: Literal[".", "/"] | None = None,
    read_missing: ReadMissing = "fill",
) -> Group:
    """Open a group.

    Parameters
    ----------
    url, path, format, mode, storage_options, consolidated, dimension_separator, read_missing
        As in `open`.

    Returns
    -------
    Group
        The group, as `open` returns it.

    Raises
    ------
    NodeNotFound
        There is no node at `path`, or an array (the error says which).
    MetadataError, UnknownCodec, StoreError
        As in `open`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-open-group", "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> list(cm.open_group("memory://doc-open-group"))
    ['a']
    """
    node = open(
        url,
        path,
        format=format,
        mode=mode,
        storage_options=storage_options,
        consolidated=consolidated,
        dimension_separator=dimension_separator,
        read_missing=read_missing,
    )
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
    """Create an array; only its metadata are written.

    Parameters
    ----------
    url, path
        As in `open`; the first write creates a store that does not exist yet.
    shape, dtype
        Shape and data type of the array. Arrays without axes and axes of length 0 are allowed. ``str`` or NumPy's
        ``StringDType``: strings of variable length. A big-endian dtype is stored big-endian.
    chunks
        Chunk shape, one length per axis (inner chunks when sharded). ``"auto"``: chunks of about 4 MiB.
    shards
        Shard shape, a multiple of `chunks`; Zarr v3 only.
    format
        ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"`` or ``"n5"``. ``None``: the format of the group in which the array
        is created; ``"zarr3"`` in a new store.
    codecs
        ``"default"``, a name (``"zstd"``, ``"blosc"``, ``"gzip"``, ``"raw"``), a list of
        ``{"name": …, "configuration": {…}}`` (the whole chain or only the compressors), or numcodecs objects.
    fill_value
        Value of absent chunks, a scalar of `dtype`; zero (``""``, ``b""``) when ``None``.
    dimension_names
        A name or ``None`` for each axis, slowest first.
    attributes
        User attributes; JSON-serialisable.
    storage_options
        Options of the filesystem, as in fsspec.
    overwrite
        Replace the node at `path`, and everything below it.

    Returns
    -------
    Array
        The new array, open for writing; every chunk is absent and reads as the fill value.

    Raises
    ------
    NodeExists
        There is a node at `path` already.
    UnsupportedFeature
        The format cannot represent such an array.
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
    """Create a group, and the groups above it that do not exist yet.

    Parameters
    ----------
    url, path, attributes, storage_options, overwrite
        As in `create_array`.
    format
        As in `create_array`: by default the format of the groups above.

    Returns
    -------
    Group
        The new group, open for writing, without children.

    Raises
    ------
    NodeExists
        There is a node at `path` already, or an array above it.
    UnsupportedFeature
        The format cannot represent such a group.
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
        The group, opened with its consolidated metadata.

    Raises
    ------
    NodeNotFound
        There is no group.
    UnsupportedFeature
        The format has no consolidated metadata.
    StoreError
        The store cannot be listed or written.

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
        As in `Array.to_dask`: by default all of the array, one task for each store key.

    Returns
    -------
    dask.array.Array
        Lazy dask array with the shape and dtype of the array (or region); absent chunks read as the fill value.

    Raises
    ------
    NodeNotFound, MetadataError, UnknownCodec, StoreError
        As in `open_array`. A chunk that cannot be read raises `ChunkError` when it is computed.
    RegionError
        `chunks` or `region` does not fit the array.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-from", shape=(6, 4), dtype="f4", chunks=(3, 2), fill_value=1)
    >>> float(cm.from_store("memory://doc-from").sum().compute())
    24.0
    """
    array = open_array(url, path, format=format, storage_options=storage_options, read_missing=read_missing)
    return array.to_dask(chunks, region=region)
