"""Create arrays and groups: the public functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from chunkmill.formats.base import WritableFormatName
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes import replacing
from chunkmill.nodes.api import Url
from chunkmill.nodes.array import Array
from chunkmill.nodes.bulk import add_arrays, describe_arrays
from chunkmill.nodes.group import Group
from chunkmill.nodes.new_array import describe_array, format_above
from chunkmill.nodes.open_store import open_target_store

__all__ = ["create_array", "create_arrays", "create_group"]


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
        writer made it meanwhile.
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
