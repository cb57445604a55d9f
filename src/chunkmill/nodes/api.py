"""Open nodes: the public functions, and the urls, pairs and nodes that other public functions take.

Not here: how a node is found in a store (`chunkmill.nodes.opening`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

from chunkmill.array.stored_array import ReadMissing, check_read_missing
from chunkmill.errors import NodeExists, NodeNotFound
from chunkmill.formats.base import FormatName, WritableFormatName
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.nodes import opening
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node, open_node
from chunkmill.nodes.keys import join_path
from chunkmill.nodes.open_store import Url, may_be_reference_file, open_plain_store, open_target_store
from chunkmill.nodes.opening import as_stored
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush, uncached
from chunkmill.stores.open import is_store

__all__ = [
    "NodeLocation",
    "StoreLocation",
    "Url",
    "consolidate",
    "open",
    "open_array",
    "open_array_at",
    "open_existing",
    "open_group",
    "open_source",
    "open_target",
    "open_target_below",
]


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
            return open_node(file, path, **arguments)
    try:
        return open_node(open_plain_store(url, storage_options), path, **arguments)
    except NodeNotFound:  # a folder of parquet files is looked for last: it costs requests that few need
        from chunkmill.nodes.reference_sets import is_reference_set, open_reference_store  # noqa: PLC0415

        if name is None or not is_reference_set(name, storage_options):
            raise
    return open_node(open_reference_store(name, storage_options), path, **arguments)


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
    mode: Literal["r", "r+", "a"] = "r",
    storage_options: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    dimension_separator: Literal[".", "/"] | None = None,
    read_missing: ReadMissing = "fill",
    base: str | os.PathLike[str] | None = None,
) -> Group:
    """Open a group.

    Parameters
    ----------
    url, path, format, storage_options, consolidated, dimension_separator, read_missing, base
        As in `open`.
    mode
        ``"r"``, ``"r+"``: as in `open`. ``"a"``: for writing, and created where there is no node.

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
    if mode == "a":
        from chunkmill.nodes.create import create_group  # noqa: PLC0415

        try:
            return open_group(url, path, format=format, mode="r+", storage_options=storage_options, base=base)
        except NodeNotFound as error:
            if error.found is not None:
                raise
        new = cast("WritableFormatName | None", format)
        return create_group(url, path, format=new, storage_options=storage_options)
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
    opening.consolidate(group.store, group)
    flush(group.store)
    return open_group(group.store, path, consolidated=True)


# --------------------------------------------------------------------------------------------------------------------
# Sources and targets of jobs: a url, ``(url, path)``, an Array or a Group


StoreLocation: TypeAlias = str | os.PathLike[str] | Store
NodeLocation: TypeAlias = StoreLocation | tuple[StoreLocation, str] | Array | Group
N = TypeVar("N", Array, Group)


def open_source(source: NodeLocation, storage_options: Mapping[str, Any] | None = None) -> Node:
    """Return the node at a url or ``(url, path)``, or the node itself; by its documents, not consolidated metadata."""
    if isinstance(source, (Array, Group)):
        return as_stored(source)
    url, path = _url_and_path(source, "source")
    return as_stored(open(url, path, storage_options=storage_options))


def open_target(target: NodeLocation, storage_options: Mapping[str, Any] | None = None) -> tuple[Store, str]:
    """Return store and path of a url, ``(url, path)``, an Array or a Group."""
    if isinstance(target, (Array, Group)):
        return target.store, target.path
    url, path = _url_and_path(target, "target")
    _check_url(url)
    return open_target_store(url, storage_options), path


def open_target_below(
    target: NodeLocation, path: str, storage_options: Mapping[str, Any] | None = None
) -> tuple[Store, str]:
    """Return store and path of the node at `path` below a target (see `open_target`)."""
    if path and isinstance(target, Array):
        raise TypeError(f"path={path!r}: the array {target.path!r} has no nodes below it")
    store, above = open_target(target, storage_options)
    return (uncached(store), join_path(above, path)) if path else (uncached(store), above)


def open_array_at(place: Any, path: str = "", *, read_missing: ReadMissing = "fill", **options: Any) -> Array:
    """Return the array at a url or ``(url, path)``, below a Group, or the array itself.

    Raises
    ------
    NodeNotFound
        There is no array.
    TypeError
        `place` is something else.
    """
    if isinstance(place, Array):
        if path:
            raise TypeError(f"path={path!r}: the array {place.path!r} has no nodes below it")
        return place if read_missing == "fill" else place.with_read_missing(read_missing)
    if isinstance(place, Group):
        if not path:
            hint = f"its arrays are {', '.join(map(repr, list(place.arrays())[:10])) or 'none'}; give one as path"
            raise NodeNotFound(url=place.url, path=place.path, found="group", wanted="array", hint=hint)
        return place.with_read_missing(read_missing).array(path)
    url, above = _url_and_path(place, "url")
    _check_url(url)
    return open_array(url, join_path(above, path), read_missing=read_missing, **options)


def _check_url(url: Any) -> None:
    if not isinstance(url, (str, os.PathLike)) and not is_store(url):
        kind = f"{type(url).__module__.partition('.')[0]}.{type(url).__name__}"
        msg = f"got {kind}, where a url, (url, path), a store, an Array or a Group is expected"
        raise TypeError(msg)


def open_existing(store: Store, path: str, mode: str, kind: type[N]) -> N | None:
    """Return the array or group to write into; ``None`` where `mode` creates a new one.

    Raises
    ------
    NodeExists
        There is a group where an array is to be written into, or the reverse.
    NodeNotFound
        There is no node, and `mode` is ``"r+"``.
    """
    if mode in {"w", "w-"}:
        return None
    if mode not in {"a", "r+"}:
        raise ValueError(f"mode={mode!r} does not write; the modes are 'w-', 'w', 'a' and 'r+'")
    try:
        node = open_node(store, path, read_only=False, consolidated=False)
    except NodeNotFound:
        if mode == "a":
            return None
        raise
    if not isinstance(node, kind):
        found = "array" if isinstance(node, Array) else "group"
        raise NodeExists(url=node.url, path=node.path, found=found, hint="give mode='w' to replace it")
    return node


def _url_and_path(place: Any, name: str) -> tuple[Any, str]:
    if not isinstance(place, tuple):
        return place, ""
    if len(place) != 2 or not isinstance(place[1], str):  # noqa: PLR2004
        msg = f"{name}={place!r}: expected a url, (url, path), an Array or a Group"
        raise TypeError(msg)
    return place
