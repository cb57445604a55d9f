"""Build the metadata of a new array from user arguments; choose the default format.

Not here: documents (`chunkmill.formats`), whether there is room for it (`chunkmill.nodes.opening`).
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isqrt, prod
from typing import Any

import numpy as np

from chunkmill.array.layout import build_layouts
from chunkmill.array.stored_array import ArrayFacts
from chunkmill.codecs.registry import parse_codecs, sharded
from chunkmill.errors import AlignmentError, RegionError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.registry import FORMATS
from chunkmill.hints import Hint
from chunkmill.model.dtypes import to_native
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis, run_lengths
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, inner_layout, parents_of
from chunkmill.model.user_values import scalar_of
from chunkmill.nodes.documents import may_have
from chunkmill.nodes.opening import find_stored
from chunkmill.stores.base import Store

_DEFAULT_FORMAT = "zarr3"

# Large enough that neither a request nor a task costs more than the bytes, small enough that a few fit in a cache.
_AUTO_CHUNK_BYTES = 4 << 20
_AUTO_SHARD_BYTES = 64 << 20


def describe_array(
    documents_format: Format,
    path: str,
    *,
    shape: int | Sequence[int] | None = None,
    dtype: Any = None,
    chunks: Any = "auto",
    shards: Any = None,
    codecs: Any = "default",
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    like: Any = None,
    may_be_null: bool = False,
) -> ArrayMetadata:
    """Return the metadata of a new array at `path`, adapted to the format (see `chunkmill.create_array`).

    With `may_be_null`, for arrays without absent chunks, there is no fill value where none is given and xarray would
    take elements that are equal to it for missing.

    Raises
    ------
    TypeError
        There is neither a shape (or a dtype) nor an array to take it from.
    UnsupportedFeature, UnknownCodec
        The format cannot hold it, or a codec cannot encode it.
    AlignmentError
        Shards are no multiple of the chunks.
    RegionError
        Shape, chunks and dimension names do not go together.
    """
    if like is not None:
        said = {"shape": shape, "dtype": dtype, "chunks": chunks, "shards": shards, "codecs": codecs}
        said |= {"fill_value": fill_value, "dimension_names": dimension_names, "attributes": attributes}
        said |= {"chunk_key_encoding": chunk_key_encoding, "may_be_null": getattr(like, "fill_value", 0) is None}
        return describe_array(documents_format, path, **_completed(said, like, documents_format))
    if shape is None or dtype is None:
        name = "shape" if shape is None else "dtype"
        raise TypeError(f"{name}= is missing: give it, or an array to take it from (like=)")
    lengths = checked_lengths(shape, "shape")
    dimension_names = checked_names(dimension_names)
    if dimension_names is not None and len(dimension_names) != len(lengths):
        reason = f"{len(dimension_names)} dimension names for {len(lengths)} axes"
        raise RegionError(index=f"dimension_names={list(dimension_names)}", shape=lengths, reason=reason)
    chunks = lengths_by_name(chunks, dimension_names, ("auto",) * len(lengths), "chunks")
    stored = checked_dtype(dtype)
    codecs = documents_format.default_codecs if _is_left_out("codecs", codecs) else codecs
    chain = parse_codecs(codecs, stored, ndim=len(lengths))
    native = _decoded_dtype(stored, [codec.name for codec in chain])
    shards = lengths_by_name(shards, dimension_names, (None,) * len(lengths), "shards")
    grid, outer = make_grids(lengths, chunks, shards, native)
    if outer is not None:
        check_shards(grid, outer)
        chain = (sharded(chain, grid.chunk_shape),)
        grid = outer
    is_null = may_be_null and fill_value is None and dimension_names is not None and documents_format.masks_fill_value
    metadata = ArrayMetadata(
        dtype=native,
        chunk_grid=grid,
        chunk_keys=ChunkKeyEncoding("c/", "/", "c"),
        codecs=chain,
        fill_value=None if is_null else scalar_of(fill_value, native),
        dimension_names=dimension_names,
        attributes=dict(attributes or {}),
    )
    adapted = documents_format.adapt(metadata, path.strip("/"))
    adapted = with_chunk_keys(adapted, documents_format, path.strip("/"), chunk_key_encoding)
    build_layouts(adapted, "")  # a chain that cannot be built fails now, not at the first chunk
    return adapted


def check_options(array: Any, documents_format: Format, **stated: Any) -> None:
    """Raise `ValueError` for an option of a new array that is not what an array has which is written into.

    Parameters
    ----------
    stated
        Arguments of `describe_array`, those that were given, and ``format``.
    """

    def documents(**options: Any) -> Mapping[str, bytes]:
        own = {"chunks": array.chunks, "shards": array.shards} | options
        metadata = describe_array(documents_format, array.path, like=array, **own)
        return documents_format.emit_array(array.path, metadata)

    for name, value in stated.items():
        is_own = value == array.format if name == "format" else documents(**{name: value}) == documents()
        if not is_own:
            way = "leave it out, or replace the array"
            raise ValueError(f"{name}={value!r}: the array {array.path!r} is there and keeps its own; {way}")


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
            if known in described:  # whether the format can hold them, `put_arrays` sees before anything is created
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


def _completed(said: Mapping[str, Any], like: Any, documents_format: Format) -> dict[str, Any]:
    """Return arguments of `describe_array`, those that are left at their defaults as of the array `like`."""
    if not hasattr(like, "shape") or not hasattr(like, "dtype"):
        raise TypeError(f"like= is {type(like).__name__}, which has no shape and dtype: give an array")
    known: dict[str, Any] = {"shape": tuple(like.shape), "dtype": like.dtype}
    if (stored := getattr(like, "stored", None)) is not None:
        metadata, layout = stored.metadata, inner_layout(stored.metadata)
        known |= {
            "fill_value": metadata.fill_value,
            "dimension_names": metadata.dimension_names,
            "attributes": dict(metadata.attributes),
        }
        if stored.format == documents_format.name:
            known["codecs"] = [{"name": each.name, "configuration": dict(each.configuration)} for each in layout.codecs]
        if all(_is_left_out(name, said[name]) for name in ("shape", "chunks", "shards")):
            known["chunks"] = tuple(
                axis.chunk if isinstance(axis, RegularAxis) else axis for axis in layout.chunks.axes
            )
            known["shards"] = None if layout.sharding is None else layout.keys.chunk_shape
    return {name: known.get(name, value) if _is_left_out(name, value) else value for name, value in said.items()}


def _is_left_out(name: str, value: Any) -> bool:
    """Return whether an argument has its default: ``codecs=None`` asks for no compression."""
    if name in _DEFAULTS:
        return isinstance(value, str) and value == _DEFAULTS[name]
    return value is None


_DEFAULTS = {"chunks": "auto", "codecs": "default"}


def lengths_by_name(option: Any, names: Sequence[str | None] | None, others: Sequence[Any], name: str) -> Any:
    """Return a length for each axis where they are named by dimension; anything else as it is.

    Parameters
    ----------
    option
        ``{"time": 10, "lat": -1}``, or anything else.
    others
        Lengths of the axes that are not named.
    name
        Of the option: ``"chunks"`` or ``"shards"``.

    Examples
    --------
    >>> lengths_by_name({"x": -1}, ("t", "x"), ("auto", "auto"), "chunks")
    ('auto', -1)
    """
    if not isinstance(option, Mapping):
        return option
    known = [each for each in names or () if each is not None]
    if unknown := [each for each in option if each not in known]:
        raise unknown_dimensions(name, unknown, known, "the array", "give dimension_names= too, or a shape")
    return tuple(option.get(each, other) for each, other in zip(names or (None,) * len(others), others, strict=True))


def axis_names(array: ArrayFacts) -> tuple[str | None, ...]:
    """Return the stored name of each axis of `array`; ``None`` for an axis without a name."""
    return array.dimension_names or (None,) * array.ndim


def unknown_dimensions(
    option: str, unknown: Collection[object], known: Collection[str], of: str, way_out: str
) -> ValueError:
    """Return the error for dimensions that arrays do not have.

    Parameters
    ----------
    option
        Name of the argument that names them.
    known
        Dimensions that the arrays have; the first twenty are shown.
    of
        Whose they are: ``"the array"`` or ``"the arrays"``.
    way_out
        Said where no axis has a name.

    Examples
    --------
    >>> unknown_dimensions("chunks", ["tme"], ["time", "x"], "the array", "give a shape")
    ValueError("chunks= names dimensions ['tme'], where those of the array are ['time', 'x']")
    """
    found = f"are {list(known)[:20]}" if known else f"have no names: {way_out}"
    return ValueError(f"{option}= names dimensions {list(unknown)}, where those of {of} {found}")


def with_chunk_keys(metadata: ArrayMetadata, documents_format: Format, path: str, encoding: Any) -> ArrayMetadata:
    """Return metadata of the format with other chunk keys.

    Parameters
    ----------
    encoding
        The separator, ``"/"`` or ``"."``; Zarr v3's ``{"name": "v2", "separator": "."}``, also with the separator in
        ``configuration``; ``None``: the format's own.

    Raises
    ------
    UnsupportedFeature
        The format has no such chunk keys.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-keys", shape=(4, 4), dtype="i4", format="zarr2", chunk_key_encoding="/")
    >>> a.metadata.chunk_keys.encode((1, 0))
    '1/0'
    """
    if encoding is None:
        return metadata
    name, separator = _named_encoding(encoding)
    keys = metadata.chunk_keys
    if name == "v2":
        keys = ChunkKeyEncoding("", separator or ".", "0")
    elif name == "default":
        keys = ChunkKeyEncoding(f"c{separator or '/'}", separator or "/", "c")
    else:
        prefix = f"c{separator}" if keys.prefix in {"c/", "c."} else keys.prefix
        keys = replace(keys, separator=separator, prefix=prefix)
    changed = replace(metadata, chunk_keys=keys)
    stored = None
    with suppress(UnsupportedFeature):
        stored = documents_format.parse_array(path, documents_format.emit_array(path, changed))
    if stored is None or stored.chunk_keys != keys:
        feature = f"chunk keys such as {keys.encode((0,) * max(len(metadata.shape), 2))!r}"
        hint = Hint("leave out {}", ("chunk_key_encoding", ...))
        raise UnsupportedFeature(format=documents_format.name, feature=feature, key=path, hint=hint)
    return changed


def _named_encoding(encoding: Any) -> tuple[str, Any]:
    """Return name (``""``: the format's own) and separator of an encoding; ``None`` for the separator of that name."""
    if isinstance(encoding, str) and encoding in {".", "/"}:
        return "", encoding
    if isinstance(encoding, Mapping) and encoding.get("name") in {"v2", "default"}:
        known = {**encoding, **(encoding.get("configuration") or {})}
        if set(known) <= {"name", "configuration", "separator"} and known.get("separator") in {None, ".", "/"}:
            return known["name"], known.get("separator")
    expected = "'/', '.', or {'name': 'default' or 'v2', 'separator': '/' or '.'}"
    raise ValueError(f"chunk_key_encoding={encoding!r}: expected {expected}")


def format_above(store: Store, path: str, like: Any = None) -> str:
    """Return the name of the format of the nearest group above `path`; in a new store that of `like`, or the default.

    What is created without a word about its format follows this: the documents that another format puts at the root
    would hide all that is there from every reader of the store, silently.

    Examples
    --------
    >>> import chunkmill as cm
    >>> from chunkmill.stores.memory import MemoryStore
    >>> group = cm.create_group(MemoryStore(), format="zarr2")
    >>> format_above(group.store, "a/b"), format_above(MemoryStore(), "a/b")
    ('zarr2', 'zarr3')
    """
    for parent in parents_of(path.strip("/")):
        if any(may_have(documents_format, parent) for documents_format in FORMATS):
            found = find_stored(store, parent)
            if found is not None:
                return found.format
    return getattr(like, "format", _DEFAULT_FORMAT) if hasattr(like, "stored") else _DEFAULT_FORMAT


def make_grids(
    shape: tuple[int, ...], chunks: Any, shards: Any, dtype: np.dtype[Any]
) -> tuple[ChunkGrid, ChunkGrid | None]:
    """Return the grid of the chunks of an array of `shape`, and that of its shards; ``None`` for none.

    Chunks and shards of a size in bytes have more than half of it, where the array is large enough and shards of given
    lengths can be divided so.

    Parameters
    ----------
    chunks
        One length for all axes; a length for each axis (``-1``: the whole axis); a list of lengths for an axis (a
        rectilinear grid), or an axis as it is; ``"auto"``, also for single axes; a size at most, ``"16MiB"``.
    shards
        ``None``, or as `chunks`, where ``None`` for an axis is one chunk.

    Examples
    --------
    >>> make_grids((7, 5), ((3, 4), -1), None, np.dtype("i4"))[0].dask_chunks
    ((3, 4), (5,))
    >>> [grid.chunk_shape for grid in make_grids((999, 999), "1kB", "20kB", np.dtype("u1"))]
    [(16, 32), (128, 128)]
    """
    per_axis = [None] * len(shape) if shards is None else shards
    outer, most_of_shard = _asked(shape, per_axis, "shards", _AUTO_SHARD_BYTES)
    inner, most = _asked(shape, chunks, "chunks", min(_AUTO_CHUNK_BYTES, most_of_shard // 4))
    known = {n: axis for n, axis in enumerate(outer) if axis not in {"auto", None}}
    around = [known.get(n, RegularAxis(size, max(size, 1))).widest for n, size in enumerate(shape)]
    counts = [around[n] if axis == "auto" else 1 for n, axis in enumerate(inner)]
    units = [1 if axis == "auto" else axis.widest for axis in inner]
    itemsize = max(dtype.itemsize, 1)
    lengths = _fitted(counts, units, most // itemsize, known)
    grid = ChunkGrid(
        tuple(RegularAxis(shape[n], lengths[n]) if axis == "auto" else axis for n, axis in enumerate(inner))
    )
    if shards is None:
        return grid, None
    if isinstance(shards, str) and shards != "auto" and prod(lengths) * itemsize > most_of_shard:
        fix = Hint("give larger {}, or smaller {}", ("shards", ...), ("chunks", ...))
        raise AlignmentError(expected=f"chunks of {shards} at most", got=f"chunks {grid.chunk_shape}", fix=fix)
    counts = [max(axis.n_chunks, 1) if outer[n] == "auto" else 1 for n, axis in enumerate(grid.axes)]
    units = [known.get(n, axis).widest for n, axis in enumerate(grid.axes)]
    lengths = _fitted(counts, units, most_of_shard // itemsize)
    return grid, ChunkGrid(tuple(known.get(n, RegularAxis(size, lengths[n])) for n, size in enumerate(shape)))


def _asked(shape: tuple[int, ...], option: Any, name: str, most: int) -> tuple[list[Any], int]:
    """Return an axis for each, ``"auto"``, or ``None`` as given, and the most bytes of a block: `most` by default."""
    if isinstance(option, str):
        most = most if option == "auto" else size_in_bytes(option, name)
        option = ("auto",) * len(shape)
    if not isinstance(option, (int, np.integer, Iterable)):
        raise TypeError(f"{name}={option!r:.60}: expected a length, a length for each axis, 'auto', or a size in bytes")
    per_axis = [option] * len(shape) if isinstance(option, (int, np.integer)) else list(option)
    if len(per_axis) != len(shape):
        reason = f"{len(per_axis)} {name[:-1]} lengths for {len(shape)} axes"
        raise RegionError(index=Hint("{}", (name, option)), shape=shape, reason=reason)
    free = {"auto", None} if name == "shards" else {"auto"}
    is_free = [isinstance(each, (str, type(None))) and each in free for each in per_axis]
    axes = [each if is_free[n] else _axis(shape[n], each, shape, name) for n, each in enumerate(per_axis)]
    return axes, most


def _axis(size: int, chunk: Any, shape: tuple[int, ...], name: str) -> RegularAxis | RunsAxis:
    if isinstance(chunk, (RegularAxis, RunsAxis)):
        return chunk
    if isinstance(chunk, (int, np.integer)) and not isinstance(chunk, bool):
        if chunk == -1:
            return RegularAxis(size, max(size, 1))
        if chunk >= 1 or (chunk == 0 and size == 0):
            return RegularAxis(size, max(int(chunk), 1))
    elif _is_edges(chunk) and (sum(chunk) == size or not size):
        return _axis_of_edges(size, [int(n) for n in chunk])
    reason = f"{name[:-1]} length {chunk!r} for an axis of {size} elements: expected a positive integer, -1 or edges"
    raise RegionError(index=Hint("{}", (name, chunk)), shape=shape, reason=reason)


def _is_edges(chunk: Any) -> bool:
    return isinstance(chunk, (tuple, list)) and all(isinstance(n, (int, np.integer)) and n > 0 for n in chunk)


def _axis_of_edges(size: int, edges: list[int]) -> RegularAxis | RunsAxis:
    """Return the axis that is cut into chunks of these lengths.

    >>> _axis_of_edges(0, []), _axis_of_edges(7, [3, 3, 1])
    (RegularAxis(size=0, chunk=1), RegularAxis(size=7, chunk=3))
    """
    if not edges:
        return RegularAxis(size, 1)
    if all(n == edges[0] for n in edges[:-1]) and edges[-1] <= edges[0]:
        return RegularAxis(size, edges[0])
    return RunsAxis(size, tuple(run_lengths(edges)))


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b\s*", re.IGNORECASE)


def size_in_bytes(size: str, name: str = "size") -> int:
    """Return a size such as ``"16MiB"`` in bytes.

    Examples
    --------
    >>> size_in_bytes("16MiB"), size_in_bytes("1.5 kB")
    (16777216, 1500)
    """
    parsed = _SIZE.fullmatch(size)
    if parsed is None or not float(parsed[1]):
        reason = "expected lengths, 'auto', or a size such as '16MiB'"
        raise RegionError(index=Hint("{}", (name, size)), shape=(), reason=reason)
    return int(float(parsed[1]) * (1024 if parsed[3] else 1000) ** " kmgt".index(parsed[2].lower() or " "))


def _fitted(counts: list[int], units: Sequence[int], most: int, divided: Collection[int] = ()) -> list[int]:
    """Return lengths of at most `most` elements: the longest is halved, evenly if `divided`, until they are."""
    found = list(counts)
    while (n := prod(found) * prod(units)) > most and max(found) > 1:
        smaller = {
            axis: count // _smallest_factor(count) if axis in divided else -(-count // 2)
            for axis, count in enumerate(found)
            if count > 1
        }
        near = [axis for axis, count in smaller.items() if 2 * (n // found[axis]) * count > most]
        longest = max(near or smaller, key=lambda axis: found[axis] * units[axis])
        found[longest] = smaller[longest]
    return [count * unit for count, unit in zip(found, units, strict=True)]


def _smallest_factor(n: int) -> int:
    return next((factor for factor in range(2, min(isqrt(n), 10_000) + 1) if n % factor == 0), n)


def check_shards(chunks: ChunkGrid, shards: ChunkGrid, whose: str = "") -> None:
    """Raise `AlignmentError` where shards are not made of whole chunks; `whose` follows what they are."""
    fits = chunks.is_regular and all(
        all(length % n == 0 for length, _ in axis.runs) if isinstance(axis, RunsAxis) else axis.chunk % n == 0
        for axis, n in zip(shards.axes, chunks.chunk_shape, strict=True)
    )
    if not fits:
        fix = Hint("give {} that are multiples of {}, or {}", ("shards", ...), ("chunks", ...), ("shards", None))
        got = f"shards {shards.chunk_shape}{whose}"
        raise AlignmentError(expected=f"multiples of chunks {chunks.chunk_shape}", got=got, fix=fix)


def checked_lengths(shape: int | Iterable[int], name: str) -> tuple[int, ...]:
    """Return a length for each axis; `RegionError` for what is none."""
    asked = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if isinstance(shape, (str, bytes)) or any(
        isinstance(n, bool) or not hasattr(n, "__index__") or n < 0 for n in asked
    ):
        raise RegionError(index=f"{name}={shape!r}", shape=(), reason="expected integers that are not negative")
    return tuple(int(n) for n in asked)


def checked_names(names: Iterable[str | None] | None) -> tuple[str | None, ...] | None:
    """Return the names of axes; `TypeError` for anything but a list of names."""
    if names is None:
        return None
    found = (names,) if isinstance(names, (str, bytes)) or not isinstance(names, Iterable) else tuple(names)
    if isinstance(names, str) or not all(each is None or isinstance(each, str) for each in found):
        raise TypeError(f"dimension_names={names!r:.60}: expected a list with a name, or None, for each axis")
    return found


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype to store; ``str`` becomes strings of variable length."""
    try:
        asked: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"dtype={dtype!r:.60}: {error}") from None
    if asked.kind == "U" and asked.itemsize == 0:
        return np.dtypes.StringDType()
    if isinstance(asked, np.dtypes.StringDType):
        return np.dtypes.StringDType()  # whatever it takes for a missing value, a store has none
    if asked.itemsize == 0:
        hint = "give a length, such as 'S8', or StringDType for strings"
        raise UnsupportedFeature(format="chunkmill", feature=f"dtype {asked} without a size", hint=hint)
    return np.dtype("S1") if asked.char == "c" else asked  # of netCDF's characters: numpy would take text apart


def _decoded_dtype(stored: np.dtype[Any], codecs: Sequence[str]) -> np.dtype[Any]:
    """Return the dtype that chunks decode to: native, and strings where the serializer holds strings."""
    if stored.kind == "O" and "vlen-utf8" in codecs:
        return np.dtypes.StringDType()
    return to_native(stored)
