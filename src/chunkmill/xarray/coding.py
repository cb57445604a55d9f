"""Between an array as it is stored and a variable that xarray decodes: encoding, attributes, missing values.

xarray keeps the marker of missing elements in two places: in Zarr v2 it is the array's fill value; since Zarr v3 it is
the attribute ``_FillValue``, floats of it in base64, and the fill value is only what absent chunks read as. Not here:
CF decoding, which is xarray's own.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

import numcodecs
import numpy as np

from chunkmill.array.chunk_io import Array
from chunkmill.errors import MetadataError
from chunkmill.formats.chains import kind
from chunkmill.formats.n5_compression import zarr_chain
from chunkmill.formats.zarr_v2_codecs import emit_chain
from chunkmill.model.grid import ChunkGrid, RegularAxis
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["array_encoding", "decode_fill_value", "decoded_attributes", "encode_fill_value", "masks_fill_value"]

# What xarray did when it wrote these: their fill value is netCDF's _FillValue. Their codecs are numcodecs' objects.
_MASKING = frozenset({"zarr2", "zarr3-experimental"})
_NUMCODECS = frozenset({"zarr2"})
_NAMES_IN_AXES = frozenset({"n5"})  # the attribute that dimension names were read from
_NON_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def masks_fill_value(format: str) -> bool:  # noqa: A002 - the word of the public face
    """Whether the fill value of the format's arrays marks missing elements, where users do not say.

    Examples
    --------
    >>> masks_fill_value("zarr2"), masks_fill_value("zarr3")
    (True, False)
    """
    return format in _MASKING


def array_encoding(array: Array, dims: Sequence[str], *, masked: bool) -> dict[str, Any]:
    """Return the encoding of a variable: how `array` is stored, in the words of xarray's zarr engine.

    ``preferred_chunks`` are those of the store keys, so that ``chunks={}`` reads each of them once; with
    ``engine="zarr"`` they are the inner chunks of shards, which reads every shard's index once a chunk.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-encoding", shape=(8,), dtype="f4", chunks=2, shards=4, codecs="gzip")
    >>> encoding = array_encoding(a, ["x"], masked=False)
    >>> encoding["chunks"], encoding["preferred_chunks"], [c["name"] for c in encoding["compressors"]]
    ((2,), {'x': 4}, ['gzip'])
    """
    storage, lengths = _storage(array)
    encoding = {**storage, "preferred_chunks": dict(zip(dims, lengths, strict=True))}
    if not masked and array.format not in _NUMCODECS:
        encoding["fill_value"] = array.fill_value
    return encoding


def decoded_attributes(array: Array, *, masked: bool) -> dict[str, Any]:
    """Return the attributes as xarray decodes them: with ``_FillValue`` as a scalar, where there is one."""
    attributes = dict(array.attributes)
    if array.format in _NUMCODECS:
        attributes = {name: value for name, value in attributes.items() if not name.lower().startswith("_nc")}
    names = array.dimension_names
    if array.format in _NAMES_IN_AXES and names is not None and attributes.get("axes") == list(names[::-1]):
        del attributes["axes"]
    if masked:
        if array.fill_value is not None:
            attributes["_FillValue"] = array.fill_value
    elif array.format not in _NUMCODECS and "_FillValue" in attributes:
        attributes["_FillValue"] = decode_fill_value(attributes["_FillValue"], array.dtype, key=array.path)
    return attributes


def encode_fill_value(value: Any, dtype: np.dtype[Any]) -> JSON:
    """Return the attribute ``_FillValue`` as xarray writes it for elements of `dtype`: floats in base64.

    Examples
    --------
    >>> encode_fill_value(float("nan"), np.dtype("f4")), encode_fill_value(-1, np.dtype("i2"))
    ('AAAAAAAA+H8=', -1)
    """
    if dtype.kind == "c":
        number = complex(value)
        return [_base64(number.real), _base64(number.imag)]
    if dtype.kind == "f":
        return _base64(float(value))
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iumM":
        return int(np.asarray(value).astype("i8" if dtype.kind in "mM" else dtype)[()])
    if isinstance(value, bytes):
        return base64.standard_b64encode(value).decode()
    return str(value)


def decode_fill_value(value: JSON, dtype: np.dtype[Any], *, key: str = "") -> Any:
    """Return the scalar that the attribute ``_FillValue`` says for elements of `dtype`.

    Besides what xarray writes, plain numbers are understood, alone or in a list, as other writers have them.

    Raises
    ------
    MetadataError
        It is nothing that elements of `dtype` can be compared with.

    Examples
    --------
    >>> decode_fill_value("AAAAAAAA+H8=", np.dtype("f4")), decode_fill_value([-1], np.dtype("i2"))
    (nan, -1)
    """
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    try:
        return _scalar(value, dtype)
    except (ValueError, TypeError, struct.error):
        expected = f"a scalar of {dtype}, floats in base64"
        raise MetadataError(key=key, field="attributes._FillValue", got=value, expected=expected) from None


def _scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return _float(value)
    if dtype.kind == "c":
        real, imaginary = value if isinstance(value, list) else (value, 0)
        return complex(_float(real), _float(imaginary))
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iumM":
        return int(value)
    if dtype.kind in "SO":
        return base64.b64decode(value, validate=True)
    return str(value)


def _float(value: Any) -> float:
    if isinstance(value, str) and value not in _NON_FINITE:
        (number,) = struct.unpack("<d", base64.b64decode(value, validate=True))
        return float(number)
    return float(_NON_FINITE.get(value, value))


def _base64(number: float) -> str:
    return base64.standard_b64encode(struct.pack("<d", number)).decode()


def _lengths(grid: ChunkGrid) -> tuple[Any, ...]:
    """Return the chunk length of each axis; all of them, of an axis where they differ."""
    if grid.is_regular:
        return grid.chunk_shape
    return tuple(
        axis.chunk if isinstance(axis, RegularAxis) else lengths
        for axis, lengths in zip(grid.axes, grid.dask_chunks, strict=True)
    )


def _storage(array: Array) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return what the encoding says of storage, and the lengths of store keys along each axis.

    Worked out once for arrays described alike, as most of a dataset are: they share the objects that describe them.
    """
    metadata = array.metadata
    seen = _SEEN.get("last")
    if seen is None or seen[0] is not metadata.codecs or seen[1] is not metadata.chunk_grid or seen[2] != array.format:
        seen = metadata.codecs, metadata.chunk_grid, array.format, *_new_storage(array)
        _SEEN["last"] = seen
    return seen[3], seen[4]


_SEEN: dict[str, Any] = {}


def _new_storage(array: Array) -> tuple[dict[str, Any], tuple[Any, ...]]:
    keys = _lengths(array.metadata.chunk_grid)
    encoding = {
        "chunks": _lengths(array.chunk_grid),
        **_codec_encoding(array),
        "shards": None if array.shards is None else keys,
    }
    if array.dtype.kind == "T":
        encoding["dtype"] = array.dtype  # else xarray would turn strings into objects
    return encoding, keys


def _codec_encoding(array: Array) -> dict[str, Any]:
    chain = zarr_chain(array.codecs)
    if array.format in _NUMCODECS:
        _, before, compressor, _ = emit_chain(chain, array.dtype, array.ndim, key=array.path)
        return {
            "compressors": () if compressor is None else (_numcodec(compressor),),
            "filters": tuple(map(_numcodec, before)),
        }
    filters, serializer, compressors = _parts(chain)
    while serializer.name == "sharding_indexed":
        inner = [NamedConfig(c["name"], c.get("configuration") or {}) for c in serializer.configuration["codecs"]]
        more, serializer, compressors = _parts(inner)
        filters = [*filters, *more]
    return {
        "compressors": tuple(map(_named, compressors)),
        "filters": tuple(map(_named, filters)),
        "serializer": _named(serializer),
    }


def _parts(chain: Sequence[NamedConfig]) -> tuple[list[NamedConfig], NamedConfig, list[NamedConfig]]:
    at = next(i for i, codec in enumerate(chain) if kind(codec.name) == "array-bytes")
    return list(chain[:at]), chain[at], list(chain[at + 1 :])


def _named(codec: NamedConfig) -> dict[str, JSON]:
    return {"name": codec.name, "configuration": dict(codec.configuration)}


def _numcodec(configuration: dict[str, JSON]) -> Any:
    try:
        return numcodecs.get_codec(configuration)
    except (ValueError, TypeError):  # of a package that is not installed
        return configuration
