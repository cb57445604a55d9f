"""Open and create nodes: the public functions.

Not here: the public functions that write dask arrays (`chunkmill.dask_arrays.to_store`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from chunkmill.array.stored_array import ReadMissing, check_read_missing
from chunkmill.errors import NodeNotFound
from chunkmill.formats.base import FormatName
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.open_store import Url, may_be_reference_file, open_plain_store
from chunkmill.stores.capabilities import flush

__all__ = ["Url", "consolidate", "open", "open_array", "open_group"]


def open(  # noqa: A001 - the contract's name, as in zarr
    url: Url,
    path: str = "",
    *,
    format: FormatName | None = None,  # noqa: A002
    mode: Literal["r", "r+"] = "r",
    storage_options: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    dimension_separator: Literal[".", "/"] | None = None,
    read_missing: ReadMissing = "fill",
    base: str | os.PathLike[str] | None = None,
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
    base
        Folder that relative targets of a reference set are relative to: a path or a url. By default the folder of the
        set, then the working directory.

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
    arguments: dict[str, Any] = {"format": wanted, "consolidated": consolidated, "read_only": mode == "r"}
    if base is not None:
        storage_options = {**(storage_options or {}), "base": base}
    node = _open(url, path, storage_options, arguments)
    return node if check_read_missing(read_missing) == "fill" else node.with_read_missing(read_missing)


def _open(url: Url, path: str, storage_options: Mapping[str, Any] | None, arguments: dict[str, Any]) -> Node:
    """Open a node of the store, or of the reference set, at `url`."""
    name = url if isinstance(url, (str, os.PathLike)) else None
    if name is not None and may_be_reference_file(name):
        from chunkmill.nodes.reference_sets import open_reference_file  # noqa: PLC0415 - few urls name one

        if (file := open_reference_file(name, storage_options)) is not None:
            return hierarchy.open_node(file, path, **arguments)
    try:
        return hierarchy.open_node(open_plain_store(url, storage_options), path, **arguments)
    except NodeNotFound:  # a folder of parquet files is looked for last: it costs requests that few need
        from chunkmill.nodes.reference_sets import is_reference_set, open_reference_store  # noqa: PLC0415

        if name is None or not is_reference_set(name, storage_options):
            raise
    return hierarchy.open_node(open_reference_store(name, storage_options), path, **arguments)


def open_array(
    url: Url,
    path: str = "",
    *,
    format: FormatName | None = None,  # noqa: A002
    mode: Literal["r", "r+"] = "r",
    storage_options: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    dimension_separator: Literal[".", "/"] | None = None,
    read_missing: ReadMissing = "fill",
    base: str | os.PathLike[str] | None = None,
    fill_value: Any = None,
) -> Array:
    """Open an array.

    Parameters
    ----------
    url, path, format, mode, storage_options, consolidated, dimension_separator, read_missing, base
        As in `open`.
    fill_value
        Value of absent chunks, instead of the stored one; for reading (see `Array.with_fill_value`).

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
        base=base,
    )
    if not isinstance(node, Array):
        hint = f"its arrays are {', '.join(map(repr, list(node.arrays())[:10])) or 'none'}; give one as path"
        raise NodeNotFound(url=node.url, path=node.path, found="group", wanted="array", hint=hint)
    if fill_value is not None and mode != "r":
        raise ValueError(f"fill_value={fill_value!r} with mode={mode!r}: another fill value is for reading alone")
    return node if fill_value is None else node.with_fill_value(fill_value)


def open_group(
    url: Url,
    path: str = "",
    *,
    format: FormatName | None = None,  # noqa: A002
    mode: Literal["r", "r+"] = "r",
    storage_options: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    dimension_separator: Literal[".", "/"] | None = None,
    read_missing: ReadMissing = "fill",
    base: str | os.PathLike[str] | None = None,
) -> Group:
    """Open a group.

    Parameters
    ----------
    url, path, format, mode, storage_options, consolidated, dimension_separator, read_missing, base
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
        base=base,
    )
    if not isinstance(node, Group):
        raise NodeNotFound(url=node.url, path=node.path, found="array", wanted="group", hint="use open_array")
    return node


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
