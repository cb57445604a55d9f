"""Create arrays and groups: the public functions."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from chunkmill.errors import NodeExists
from chunkmill.formats.base import Format, WritableFormatName
from chunkmill.formats.registry import get_format
from chunkmill.journal.lease import Lease, check_no_job, leased_briefly
from chunkmill.journal.unfinished import jobs_at
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, parents_of
from chunkmill.nodes import placement, replacing
from chunkmill.nodes.array import Array
from chunkmill.nodes.consolidated import refresh_consolidated
from chunkmill.nodes.documents import (
    check_free,
    check_root,
    create_groups_above,
    fetch,
    format_of_store,
    node_keys,
    present,
    publish,
    unpublish,
)
from chunkmill.nodes.group import Group
from chunkmill.nodes.keys import join_path
from chunkmill.nodes.new_array import describe_array, format_above
from chunkmill.nodes.open_store import Url, open_target_store
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.stored_group import StoredGroup, parse_node
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush

__all__ = [
    "add_arrays",
    "create_array",
    "create_arrays",
    "create_group",
    "describe_arrays",
]


def create_array(
    url: Url,
    path: str = "",
    *,
    shape: int | Sequence[int],
    dtype: Any,
    chunks: int | Sequence[int] | Mapping[str, int | Literal["auto"]] | Literal["auto"] = "auto",
    shards: int | Sequence[int] | Mapping[str, int] | None = None,
    format: WritableFormatName | None = None,  # noqa: A002
    codecs: Any = "default",
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
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
        Chunk shape, one length per axis (inner chunks when sharded). ``"auto"``: chunks of about 4 MiB; ``"16MiB"``: of
        that size at most. Lengths by dimension, ``{"time": 10, "lat": -1}``, where there are `dimension_names`: the
        other axes are ``"auto"``.
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
    chunk_key_encoding
        Separator in chunk keys, ``"/"`` or ``"."`` (nested keys of Zarr v2 are OME-Zarr 0.4's layout), or Zarr v3's
        ``{"name": "v2", "separator": "."}``; the format's own when ``None``.
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
    target = open_target_store(url, storage_options)
    name = format or format_above(target, path)
    metadata = describe_array(
        get_format(name),
        path,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        fill_value=fill_value,
        dimension_names=dimension_names,
        attributes=attributes,
        chunk_key_encoding=chunk_key_encoding,
    )
    return replacing.put_array(target, path, metadata, format=name, overwrite=overwrite)


def create_arrays(
    url: Url,
    arrays: Mapping[str, Mapping[str, Any]],
    *,
    format: str | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
    """Create many arrays at once, and the groups above them: many requests at a time, in linear time.

    Consolidated metadata, which `create_array` rewrites for each array, are changed once.

    Parameters
    ----------
    url, format, storage_options
        As in `create_array`; one format for all.
    arrays
        Path -> arguments of `create_array`: ``shape``, ``dtype``, and whatever else describes the array.

    Returns
    -------
    dict of str to Array
        The new arrays, by path.

    Raises
    ------
    NodeExists
        There is a node at one of the paths already, or an array above one. Nothing is created then, unless another
        writer made it first.
    UnsupportedFeature
        The format cannot represent one of the arrays. Nothing is created then.
    JobError
        Another writer is at work at one of the paths.

    Examples
    --------
    >>> import chunkmill as cm
    >>> wanted = {f"stations/{name}": {"shape": (24,), "dtype": "f4"} for name in ("a", "b")}
    >>> list(cm.create_arrays("memory://doc-create-arrays", wanted))
    ['stations/a', 'stations/b']
    """
    target = open_target_store(url, storage_options)
    format = format or format_above(target, next(iter(arrays), ""))  # noqa: A001
    return add_arrays(target, describe_arrays(get_format(format), arrays), format=format)


def create_group(
    url: Url,
    path: str = "",
    *,
    format: WritableFormatName | None = None,  # noqa: A002
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
    target = open_target_store(url, storage_options)
    name = format or format_above(target, path)
    metadata = GroupMetadata(dict(attributes or {}))
    return Group.of(replacing.put_group(target, path, metadata, format=name, overwrite=overwrite))


# --------------------------------------------------------------------------------------------------------------------
# Many at once


def describe_arrays(documents_format: Format, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, ArrayMetadata]:
    """Return the metadata of new arrays by path; those that differ in their attributes alone are described once.

    Parameters
    ----------
    arrays
        Path -> arguments of `describe_array`.
    """
    described: dict[bytes, ArrayMetadata] = {}
    metadata: dict[str, ArrayMetadata] = {}
    for path, about in arrays.items():
        known = _pickled({name: value for name, value in about.items() if name != "attributes"})
        try:
            if known in described:  # whether the format can hold them, `add_arrays` sees before anything is created
                metadata[path] = replace(described[known], attributes=dict(about.get("attributes") or {}))
            else:
                metadata[path] = describe_array(documents_format, path, **about)
        except TypeError as error:
            msg = f"arrays[{path!r}]: {str(error).replace('describe_array()', 'create_array()')}"
            raise TypeError(msg) from None
        if known is not None:
            described[known] = metadata[path]
    return metadata


def _pickled(about: Mapping[str, Any]) -> bytes | None:
    """Return bytes that are equal for equal arguments only, -0.0 and 0.0 apart; ``None`` where there are none."""
    try:
        return pickle.dumps(about)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None


def add_arrays(store: Store, arrays: Mapping[str, ArrayMetadata], *, format: str) -> dict[str, Array]:  # noqa: A002
    """Create arrays without chunks, and the groups above them; return them by path.

    Raises
    ------
    NodeExists
        There is a node at one of the paths, or an array above one; nothing is created, unless it came during the call.
    UnsupportedFeature
        The format cannot hold one of them. Nothing is created then.
    JobError
        A job, or another writer, is at work there.
    """
    documents_format = format_of_store(store, format)
    made = [array_at(store, path, metadata, documents_format) for path, metadata in arrays.items()]
    documents = {each.path: documents_format.emit_array(each.path, each.metadata) for each in made}
    if not documents:
        return {}
    # one reservation for all: a client that begins there, or at a group above, waits for its end
    try:
        with leased_briefly(store, made[0].path, f"create {len(made):,} arrays in {store.url}") as own:
            if own.follows_interrupted:
                raise _InterruptedBefore  # noqa: TRY301 - out of the reservation, which puts the record back
            suspected = _add_free(store, documents_format, made, documents, own)
    except _InterruptedBefore:  # what that writer left is cleared where its place is reserved
        suspected = made[:1]
        refresh_consolidated(store, documents_format, documents, own=False)  # it may have died before it did so
        add_arrays(store, {each.path: each.metadata for each in made[1:]}, format=format)
    for each in suspected:
        placement.add_array(store, each.path, each.metadata, format=format)
    flush(store)
    return dict(zip(arrays, made, strict=True))


class _InterruptedBefore(Exception):
    """A writer had reserved the place of the first array, and died: raised so that its record stays."""


def _add_free(
    store: Store,
    documents_format: Format,
    made: Sequence[Array],
    documents: Mapping[str, Mapping[str, bytes]],
    own: Lease,
) -> list[Array]:
    """Create the arrays where nothing is; return the others, of interrupted writers or of those at work there."""
    check_no_job(store, *documents, below=True, own_run=own.run, waits=True)
    check_root(store, documents_format)
    groups = _groups_to_make(store, documents_format, documents)
    # nodes, and what an interrupted write left, are looked for by the names in the folders above; the latter is
    # cleared one by one
    folders = _folders(store, documents_format, {path.rpartition("/")[0] for path in documents if path})
    suspected = [each for each in made if each.path in folders or not each.path]
    _check_absent(store, documents_format, [each.path for each in suspected], len(made))
    free = {path: documents[path] for path in documents.keys() - {each.path for each in suspected}}
    for path in sorted(groups, key=lambda path: (path.count("/"), path)):
        create_groups_above(store, documents_format, join_path(path, "below"), groups[path])
    publish(store, documents_format, "", {}, below=free)
    refresh_consolidated(store, documents_format, free, own=False)
    own.check()
    # others that reserved a place, or a group above, before the documents were there write chunks: `add_array` waits
    # its turn, or is refused
    waiting = {made[0].path, *parents_of(made[0].path)}
    places = {job.path for job in jobs_at(store, *free, below=True) if not job.ends_soon} - waiting
    for path in [path for path in free if places and not places.isdisjoint((path, *parents_of(path)))]:
        unpublish(store, documents_format, path, free[path])
        refresh_consolidated(store, documents_format, [path])
        suspected += [each for each in made if each.path == path]
    return suspected


def _groups_to_make(
    store: Store, documents_format: Format, documents: Mapping[str, Mapping[str, bytes]]
) -> dict[str, dict[str, bytes]]:
    """Return the documents of groups that are missing above the arrays, by path; an array above one is refused."""
    parents = {parent for path in documents for parent in parents_of(path)}
    if nested := sorted(parents & documents.keys()):
        raise NodeExists(url=store.url, path=nested[0], found="array", hint="an array cannot have nodes below it")
    found = fetch(store, (key for path in sorted(parents) for key in node_keys(documents_format, path)))
    groups = {}
    for path in parents:
        above = parse_node(StoredGroup, store, path, documents_format, found, read_only=True)
        if isinstance(above, Array):
            raise NodeExists(url=store.url, path=path, found="array", hint="an array cannot have nodes below it")
        if above is None:
            groups[path] = documents_format.emit_group(path, GroupMetadata())
            check_free(documents_format, groups[path], found)
    root = documents_format.emit_root()
    missing = {key: value for key, value in root.items() if store.get(key) is None}
    return {**groups, "": {**missing, **groups.get("", {})}} if missing else groups


def _check_absent(store: Store, documents_format: Format, paths: Sequence[str], n_wanted: int) -> None:
    # attributes alone are of a node that was half written: it is written again with those that are cleared
    entries = ((path, (documents_format.array_keys(path), documents_format.group_keys(path))) for path in paths)
    keys = {key: path for path, known in entries for key, *_ in known}
    if there := present(fetch(store, keys)):
        path = min(keys[key] for key in there)
        hint = f"{len({keys[key] for key in there}):,} of {n_wanted:,} arrays exist; nothing was created"
        raise NodeExists(url=store.url, path=path, found="node", hint=hint)


def _folders(store: Store, documents_format: Format, groups: set[str]) -> set[str]:
    """Return the paths below groups where something is stored."""
    return {
        join_path(group, name)
        for group in groups
        for prefix in documents_format.list_prefixes(group)
        for listed in store.list_dir(prefix)
        if (name := documents_format.child_name(group, prefix, listed)) is not None
    }
