"""Open and create nodes: the public functions, and the urls, pairs and nodes that other public functions take.

Not here: how a node is found in a store (`chunkmill.nodes.opening`).
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, cast

from chunkmill.array.stored_array import ReadMissing, StoredArray, check_read_missing
from chunkmill.codecs.registry import STAGES, chain_of_stages
from chunkmill.errors import MetadataError, NodeNotFound
from chunkmill.formats.base import FormatName, WritableFormatName, check_attributes
from chunkmill.formats.consolidated import parsed_once
from chunkmill.formats.registry import get_format
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes import new_array, opening
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.opening import as_stored, check_adapter, check_complete, open_stored, open_target_store
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.base import Store
from chunkmill.stores.open import Url, is_store, may_be_reference_file, open_scanned, open_store, takes_options
from chunkmill.stores.places import is_zarr_python_node, place_of
from chunkmill.synonyms import ELSEWHERE, NOT_NEEDED, OF_CODECS, THEIRS

P = ParamSpec("P")
R = TypeVar("R")


def with_options_of(planner: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Decorate a function that takes the options of `planner`: its signature shows them."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        own = inspect.signature(function)
        named = [each for each in own.parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
        shown = own.replace(parameters=[*inspect.signature(planner).parameters.values(), *named])
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return decorate


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
        Anything fsspec opens, a plain path, or a url pipeline (``"s3://b/x.zip|zip:inner|zarr3:a/b"``). A plain path
        that ends in ``.zip`` is a zip store; a JSON file or a folder of parquet files may be a reference set. Also an
        object: a store of ours, of zarr-python (VirtualiZarr's among them), of obstore or with the methods of obspec, a
        mapper of fsspec, a dictionary of bytes, a reference set as a dictionary or as fsspec's ``LazyReferenceMapper``,
        or an array or a group of zarr-python, which `path` starts from.
    path
        Path of the node below the root of the store, without a leading slash; a url pipeline may name it instead.
    format
        ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"``, ``"zarr3-experimental"``, ``"n5"``; guessed when ``None``, unless
        a url pipeline or a node of zarr-python says it.
    mode
        ``"r"``: writing raises `StoreError`; ``"r+"``: values and attributes can be written.
    storage_options
        Options of the filesystem, as in fsspec.
    consolidated
        Whether consolidated metadata are used. ``None``: where a store has them: of remote stores alone, of others for
        documents that are not stored. ``True``: require them, and use them alone. ``False``: ignore them.
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
        The store could not be read (a missing key raises `NodeNotFound` instead), or a url pipeline has an adapter that
        is not known.
    ValueError
        A url pipeline names another path or format than `path` or `format`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-open", "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> cm.open("memory://doc-open").arrays()["a"].shape
    (4,)
    """
    if mode not in {"r", "r+"}:
        raise ValueError(f"mode={mode!r}: open nodes with 'r' or 'r+'; create_array and to_store make new ones")
    check_read_missing(read_missing)
    url, path, format, adapter = place_of(url, path, format)  # noqa: A001
    arguments: dict[str, Any] = {
        "format": format if dimension_separator is None else ZarrV2(dimension_separator),
        "consolidated": consolidated,
        "read_only": mode == "r",
    }
    if base is not None:
        storage_options = {**(storage_options or {}), "base": base}
    name = url if isinstance(url, (str, os.PathLike)) else None
    store: Store | None = None
    if name is not None and may_be_reference_file(name):
        from chunkmill.nodes.reference_sets import open_reference_file  # noqa: PLC0415 - few urls name one

        store = open_reference_file(name, storage_options)
    elif name is not None:
        store = open_scanned(os.fspath(name), storage_options)
    try:
        node = open_stored(open_store(url, storage_options) if store is None else store, path, **arguments)
    except NodeNotFound:  # a folder of parquet files is looked for last: it costs requests that few need
        from chunkmill.nodes.reference_sets import is_reference_set, open_reference_store  # noqa: PLC0415

        if name is None or store is not None or not is_reference_set(name, storage_options):
            raise
        node = open_stored(open_reference_store(name, storage_options), path, **arguments)
    check_adapter(adapter, node)
    check_complete(node)
    if read_missing != "fill":
        node = node.with_read_missing(read_missing)
    return Array(node) if isinstance(node, StoredArray) else Group(node)


@with_options_of(open)
def open_array(url: Url, path: str = "", **options: Any) -> Array:
    """Open an array.

    Parameters
    ----------
    url, path, format, mode, storage_options, consolidated, dimension_separator, read_missing, base
        As in `open`.

    Returns
    -------
    Array
        The array, as `open` returns it; see `Array.with_fill_value` for another value of absent chunks.

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
    node = open(url, path, **options)
    if isinstance(node, Group):
        raise no_array(node)
    return node


def no_array(group: Group) -> NodeNotFound:
    """Return the error for a group where an array is expected."""
    hint = f"its arrays are {', '.join(map(repr, list(group.arrays())[:10])) or 'none'}; give one as path"
    return NodeNotFound(url=group.url, path=group.path, found="group", wanted="array", hint=hint)


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


@parsed_once()
def create_array(
    url: Url,
    path: str = "",
    *,
    shape: int | Sequence[int] | None = None,
    dtype: Any = None,
    chunks: int | Sequence[int] | Mapping[str, int | Literal["auto"]] | str = "auto",
    shards: int | Sequence[int] | Mapping[str, int | Literal["auto"]] | str | None = None,
    format: WritableFormatName | None = None,  # noqa: A002
    codecs: Any = "default",
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    like: Any = None,
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
        Chunk shape, one length per axis (inner chunks when sharded). ``"auto"``: chunks of 2 to 4 MiB; ``"16MiB"``: of
        that size at most, and more than half of it. Lengths by dimension, ``{"time": 10, "lat": -1}``, where there are
        `dimension_names`: the other axes are ``"auto"``.
    shards
        Shard shape, a multiple of `chunks`, or by dimension: one chunk along the other axes; Zarr v3 only. ``"auto"``:
        as many whole chunks as 64 MiB hold, 8 to 32 by default; ``"1GiB"``: as that size holds.
    format
        ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"`` or ``"n5"``. ``None``: the format of the group in which the array
        is created; ``"zarr3"`` in a new store.
    codecs
        ``"default"``, a name (``"zstd"``, ``"blosc"``, ``"gzip"``, ``"raw"``), a list of
        ``{"name": …, "configuration": {…}}`` (the whole chain or only the compressors), or numcodecs objects.
    fill_value
        Value of absent chunks, a scalar of `dtype`; zero (``""``, ``b""``) when ``None``. In Zarr v2, xarray takes
        elements that are equal to it for missing.
    dimension_names
        A name or ``None`` for each axis, slowest first.
    attributes
        User attributes; JSON-serialisable.
    chunk_key_encoding
        Separator in chunk keys: ``"/"`` or ``"."`` (nested keys of Zarr v2 are OME-Zarr 0.4's layout), or Zarr v3's
        ``{"name": "v2", "separator": "."}``; the format's own when ``None``.
    storage_options
        Options of the filesystem, as in fsspec.
    overwrite
        Replace the node at `path`, and everything below it.
    like
        An `Array` whose description is taken for all that is left out: shape, dtype, fill value, dimension names and
        attributes; chunks and shards too, unless one of them or a shape is given; and codecs, in the same format. Of
        anything else, such as a NumPy or Dask array, shape and dtype.

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
    >>> cm.create_array("memory://doc-create-like", like=a, dtype="i2").shards
    (4, 6)
    """
    from chunkmill.nodes.target import put_array  # noqa: PLC0415 - opening a node needs nothing that creates one

    url, path, format, _ = place_of(url, path, format)  # noqa: A001
    target = open_target_store(url, storage_options)
    name = format or new_array.format_above(target, path, like)
    check_attributes(path, attributes)
    metadata = new_array.describe_array(
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
        like=like,
    )
    return Array(put_array(target, path, metadata, format=name, overwrite=overwrite))


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
    from chunkmill.nodes.target import put_arrays  # noqa: PLC0415

    url, above, format, _ = place_of(url, "", format)  # noqa: A001
    target = open_target_store(url, storage_options)
    for path, about in arrays.items():
        check_attributes(path, about.get("attributes"))
    at = {join_path(above, path.strip("/")): path for path in arrays} if above else {path: path for path in arrays}
    name = format or new_array.format_above(target, next(iter(at), ""))
    described = new_array.describe_arrays(get_format(name), {path: arrays[own] for path, own in at.items()})
    return {at[path]: Array(array) for path, array in put_arrays(target, described, format=name).items()}


@parsed_once()
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
    from chunkmill.nodes.target import put_group  # noqa: PLC0415

    url, path, format, _ = place_of(url, path, format)  # noqa: A001
    target = open_target_store(url, storage_options)
    name = format or new_array.format_above(target, path)
    check_attributes(path, attributes)
    metadata = GroupMetadata(dict(attributes or {}))
    return Group(put_group(target, path, metadata, format=name, overwrite=overwrite))


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
    try:  # with what is known from consolidated metadata alone
        group = open_group(url, path, storage_options=storage_options)
        stored = cast("StoredGroup", as_stored(group.stored))
    except MetadataError:
        group = open_group(url, path, storage_options=storage_options, consolidated=False)
        stored = group.stored
    store = group.store.uncached
    with store.transaction(f"consolidate {path!r}"):
        opening.consolidate(store, stored)
    store.flush()
    return open_group(store, group.path, consolidated=True)


# --------------------------------------------------------------------------------------------------------------------
# Sources and targets of jobs: a url, ``(url, path)``, an Array or a Group


StoreLocation: TypeAlias = str | os.PathLike[str] | Store  # and zarr-python's nodes: they are not imported
NodeLocation: TypeAlias = StoreLocation | tuple[StoreLocation, str] | Array | Group


def open_source(source: NodeLocation, storage_options: Mapping[str, Any] | None = None, mode: Any = "r") -> StoredNode:
    """Return the stored node at a url or ``(url, path)``, or of a node; by its documents, not consolidated metadata."""
    if isinstance(source, (Array, Group)):
        return as_stored(source.stored)
    url, path = url_and_path(source, "source")
    options = storage_options if takes_options(url) else None
    return as_stored(open(url, path, mode=mode, storage_options=options).stored)


def check_storage_options(storage_options: Mapping[str, Any] | None, *places: Any) -> None:
    """Raise `ValueError` for options of a filesystem where no place is a url: nodes and store objects have theirs."""
    if storage_options and not any(map(takes_options, places)):
        raise ValueError("storage_options= is for urls: a node, or a store object, has its options already")


def open_target(
    target: NodeLocation,
    storage_options: Mapping[str, Any] | None = None,
    format: Any = None,  # noqa: A002
    path: str = "",
) -> tuple[Store, str, Any]:
    """Return store, path and format of the node at `path` below a url, ``(url, path)``, an Array or a Group.

    The format is that of a url pipeline, where that names one.
    """
    if path and isinstance(target, Array):
        raise TypeError(f"path={path!r}: the array {target.path!r} has no nodes below it")
    if isinstance(target, (Array, Group)):
        return target.store.uncached, join_path(target.path, path), format
    place, below = (target, path) if isinstance(target, tuple) else ((target, path), "")
    url, above, format, _ = place_of(*url_and_path(place, "target"), format)  # noqa: A001
    check_url(url)
    store = open_target_store(url, storage_options if takes_options(url) else None)
    return store.uncached, join_path(above, below), format


def as_node(place: Any) -> Any:
    """Return the node of ours, to write to, that an array or a group of zarr-python is; other places as they are."""
    return open(place, mode="r+") if is_zarr_python_node(place) and hasattr(place, "metadata") else place


def check_url(url: Any) -> None:
    """Raise `TypeError` for what names no store."""
    if not isinstance(url, (str, os.PathLike)) and not is_store(url) and not is_zarr_python_node(url):
        kind = f"{type(url).__module__.partition('.')[0]}.{type(url).__name__}"
        raise TypeError(f"got {kind}, where a url, (url, path), a store, an Array or a Group is expected")


def url_and_path(place: Any, name: str) -> tuple[Any, str]:
    """Return url and path of a place given as the argument `name`; `TypeError` for what is none."""
    if not isinstance(place, tuple):
        return place, ""
    if len(place) != 2 or not isinstance(place[1], str):  # noqa: PLR2004
        raise TypeError(f"{name}={place!r}: expected a url, (url, path), an Array or a Group")
    return place


# --------------------------------------------------------------------------------------------------------------------
# Arguments of public functions: names of other libraries, modes given as paths, values of other types


_MODES = frozenset({"w", "w-", "a-", "r+"})


def explained(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes keywords of other libraries, and explains wrong ones, types and a mode as the path.

    Examples
    --------
    >>> def to_store(x, url, path: str = "", *, mode="w-", codecs="default"):
    ...     return path, mode, codecs
    >>> explained(to_store)(1, "x.zarr", component="a", overwrite=True, compressors="zstd")
    ('a', 'w', ['zstd'])
    >>> explained(to_store)(1, "x.zarr", mod="w")
    Traceback (most recent call last):
    TypeError: to_store() has no argument 'mod': did you mean mode='w'?
    >>> explained(to_store)(1, "x.zarr", 3)
    Traceback (most recent call last):
    TypeError: to_store(): path=3 is int, where str is expected
    >>> explained(to_store)(1, "x.zarr", "w")
    Traceback (most recent call last):
    ValueError: to_store(): 'w' is given as the path of a node: did you mean mode='w'? path='w' names a node
    """
    parameters = inspect.signature(function).parameters
    names = tuple(parameters)
    kinds = {name: found for name, each in parameters.items() if (found := _kinds(str(each.annotation)))}
    of_items = {name: found for name in kinds if (found := _kinds(_items(str(parameters[name].annotation))))}
    at = names.index("path") if "path" in names else len(names)
    # what writes makes a node of the path: no later error would tell
    writes = function.__name__.startswith(("to_", "write_", "create_"))

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not parameters.keys() >= options.keys():
            options = _in_our_words(function.__name__, names, names[: len(args)], options)
        for name, value in (*zip(names, args, strict=False), *options.items()):
            is_checked = name in kinds and value is not parameters[name].default
            if is_checked and (wrong := _mismatch(value, kinds[name], of_items.get(name, ()))) is not None:
                expected = parameters[name].annotation
                raise TypeError(f"{function.__name__}(): {name}={wrong}, where {expected} is expected")
        if writes and len(args) > at and isinstance(args[at], str) and args[at] in _MODES and "mode" not in options:
            way = f"mode={args[at]!r}" if "mode" in names else "overwrite=True"
            where = f"{function.__name__}(): {args[at]!r} is given as the path of a node"
            raise ValueError(f"{where}: did you mean {way}? path={args[at]!r} names a node")
        return function(*args, **options)

    call.__module__ = "chunkmill"  # where it is pickled from
    return call


_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (Integral,),
    "float": (Real,),
    "bool": (bool,),
    "None": (type(None),),
    "Mapping": (Mapping,),
    **dict.fromkeys(("Collection", "Iterable", "Sequence"), (Iterable,)),
    "os.PathLike": (os.PathLike,),
    "Literal": (str, Integral),
    **dict.fromkeys(("Mode", "ReadMissing"), (str,)),
}
"""Types of values by annotations; an argument that has another one, such as `Any`, is not checked."""


_LISTED = (list, tuple, set, frozenset)


def _is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bytes)


def _mismatch(value: Any, kinds: tuple[type, ...], of_items: tuple[type, ...]) -> str | None:
    """Return a value that is of no expected type, or has an item of none, as text; else ``None``."""
    if not _is_of(value, kinds):
        return f"{_shown(value)} is {type(value).__name__}"
    is_wrong = of_items and isinstance(value, _LISTED) and not all(_is_of(each, of_items) for each in value)
    return _shown(value) if is_wrong else None


def _items(annotation: str) -> str:
    """Return the annotation of the items of a collection, empty where there is none; lengths are checked elsewhere.

    Examples
    --------
    >>> _items("str | Collection[str | None] | None"), _items("Mapping[str, int]")
    ('str | None', '')
    """
    found = re.search(r"\b(?:Collection|Iterable)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", annotation)
    return found[1] if found else ""


def _kinds(annotation: str) -> tuple[type, ...]:
    """Return the types that an annotation allows, none where it does not say.

    Examples
    --------
    >>> _kinds("Mapping[str, int | None] | None"), _kinds("Url")
    ((<class 'collections.abc.Mapping'>, <class 'NoneType'>), ())
    """
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", annotation)) != annotation:
        annotation = shorter
    found = [_KINDS.get(part.strip(), ()) for part in annotation.split("|")]
    return tuple(kind for part in found for kind in part) if all(found) else ()


def _in_our_words(
    function: str, names: tuple[str, ...], positional: tuple[str, ...], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options under our names; those of other libraries are taken where they say one thing, else explained."""
    found: dict[str, Any] = {}
    for word in sorted(options, key=lambda word: word not in names):
        if (function, word) == ("from_store", "inline_array"):  # its graph is one symbolic layer anyway
            continue
        ours, value = _ours(function, word, options[word], names)
        if ours in (*positional, *found) or (ours not in names and "codecs" in found):
            raise TypeError(f"{function}(): {word}= says what another argument says: leave one of them out")
        found[ours] = value
    stages = {stage: found.pop(stage) for stage in STAGES if stage in found and stage not in names}
    return found | ({"codecs": chain_of_stages(stages)} if stages else {})


def _ours(function: str, word: str, value: Any, names: tuple[str, ...]) -> tuple[str, Any]:
    """Return our name of a keyword, or the part of ``codecs`` that it says, and the value that it has here."""
    if word in names:
        return word, value
    if (stage := OF_CODECS.get(word, word)) in STAGES and "codecs" in names:
        return stage, value
    for ours, translated in THEIRS.get(word, ()):
        own = value if translated is None else translated(value)
        if ours in names and own is not ...:
            return ours, own
    raise TypeError(_unknown(function, word, value, names))


def _unknown(function: str, keyword: str, value: Any, names: tuple[str, ...]) -> str:
    begin = f"{function}() has no argument {keyword!r}"
    if keyword in NOT_NEEDED:
        return f"{begin}: it is not needed, {NOT_NEEDED[keyword]}"
    if keyword in ELSEWHERE and function in {"convert", "rechunk", "pyramid", "transform"}:
        return f"{begin}: {ELSEWHERE[keyword].format(function, keyword)}"
    if theirs := [ours for ours, _ in THEIRS.get(keyword, ()) if ours in names]:
        return f"{begin}: did you mean {theirs[0]}=?"
    if close := get_close_matches(keyword, names, n=1):
        return f"{begin}: did you mean {close[0]}={_shown(value)}?"
    return f"{begin}; it has {', '.join(names)}"


def _shown(value: Any) -> str:
    """Return a short value as Python writes it; of long ones nothing."""
    text = repr(value) if isinstance(value, (str, int, float, bool, tuple, list, dict, type(None))) else ""
    return text if len(text) <= 60 else ""  # noqa: PLR2004 - of a line
