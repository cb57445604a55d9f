"""Decode variables to a dataset by xarray's CF decoding, from the attributes and the encoding that it expects.

Variables with nothing to decode bypass it: xarray rebuilds each variable seven times, which is most of the time that
opening a thousand of them takes.

xarray keeps the marker of missing elements in two places: in Zarr v2 it is the array's fill value; in Zarr v3 it is
the attribute ``_FillValue``, floats in base64, and the fill value is only the value of absent chunks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numcodecs
import numpy as np
from xarray import Coordinates, Dataset, Variable, conventions

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.expressions import NamedValues, read_expression
from chunkmill.dask_arrays.from_array import array_inside
from chunkmill.dask_arrays.kinds import active_kind, kind_of
from chunkmill.errors import ChunkmillError, DatasetError
from chunkmill.formats.cf_fill_value import decode_fill_value
from chunkmill.formats.n5 import zarr_chain
from chunkmill.formats.registry import get_format
from chunkmill.formats.zarr_v2 import emit_chain
from chunkmill.model.grid import ChunkGrid, RegularAxis
from chunkmill.model.metadata import HIDDEN_ATTRIBUTE, JSON, NamedConfig, codec_kind

_RELATED = frozenset({"coordinates", *conventions.CF_RELATED_DATA})
_DECODED = _RELATED | {
    "_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "_Encoding", "dtype", "calendar",
}  # fmt: skip
_TIMES = frozenset({"days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"})


def decode(variables: Mapping[str, Variable], attributes: Mapping[str, Any], decoders: Mapping[str, Any]) -> Dataset:
    """Return the dataset of variables and attributes of a group, decoded with the options `decoders`.

    Equivalent to xarray's ``StoreBackendEntrypoint().open_dataset(…, **decoders)`` of a store that loads them. NCZarr's
    internal attributes are left out, and the one that records an unfinished append.
    """
    attributes = {k: v for k, v in attributes.items() if k != HIDDEN_ATTRIBUTE and not k.lower().startswith("_nc")}
    plain = _undecoded(variables, decoders)
    rest = {name: variable for name, variable in variables.items() if name not in plain}
    try:
        decoded, attributes, coordinates = conventions.decode_cf_variables(rest, attributes, **decoders)
    except ChunkmillError:
        raise
    except Exception as error:
        for name, variable in rest.items():
            try:
                conventions.decode_cf_variables({name: variable.copy(deep=False)}, {}, **decoders)
            except Exception as own:
                raise _NamedDecoding.of(name, variable).error(own) from own
        url = next((_NamedDecoding.of(name, variable).url for name, variable in rest.items()), "")
        reason = f"xarray cannot decode its variables together: {error}"
        raise DatasetError(variable="", url=url, reason=reason, hint="decode_cf=False opens it undecoded") from error
    for name in rest.keys() & decoded.keys():
        _name_in_errors(name, rest[name], decoded[name])
    data: dict[Any, Any] = {}
    coords: dict[Any, Any] = {}
    for name in variables:
        variable = plain[name] if name in plain else decoded[name]
        if active_kind() == "dask-array" and variable.dims != (name,):
            lazy, encoding = variable._data, variable.encoding  # noqa: SLF001 - `data` would read what is lazy
            variable = ExpressionVariable(variable.dims, lazy, variable.attrs, encoding, fastpath=True)
        (coords if name in coordinates or variable.dims == (name,) else data)[name] = variable
    return Dataset(data, coords=Coordinates(coords, indexes={}), attrs=attributes)


def _name_in_errors(name: Any, raw: Variable, decoded: Variable) -> None:
    """Let the functions that decode values lazily name the variable in their errors."""
    data: Any = decoded._data  # noqa: SLF001 - `data` would read what is lazy
    named = None
    while data is not None:
        if callable(function := getattr(data, "func", None)):
            named = named or _NamedDecoding.of(name, raw)
            data.func = replace(named, function=function)
        data = getattr(data, "array", None)


def applied(attributes: Mapping[Any, Any]) -> str:
    """Return the CF attributes among `attributes` as text for an error."""
    found = [f"{key}={value!r:.60}" for key, value in attributes.items() if key in _DECODED or key == "units"]
    return f" by {', '.join(found)}" if found else ""


@dataclass(frozen=True)
class _NamedDecoding:
    """A function of xarray that decodes values, whose errors are a `DatasetError` of the variable."""

    name: str
    url: str
    attributes: str
    function: Callable[[Any], Any] | None = None

    @classmethod
    def of(cls, name: Any, raw: Variable) -> _NamedDecoding:
        data: Any = raw._data  # noqa: SLF001 - `data` would read what is lazy
        while hasattr(data, "array"):
            data = data.array
        return cls(str(name), getattr(data, "url", ""), applied(raw.attrs))

    def __call__(self, values: Any) -> Any:
        try:
            return self.function(values)  # type: ignore[misc]
        except Exception as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> DatasetError:
        reason = f"xarray cannot decode it{self.attributes}: {error}"
        hint = f"decode_cf=False opens it undecoded, drop_variables=[{self.name!r}] leaves it out"
        return DatasetError(variable=self.name, url=self.url, reason=reason, hint=hint)


class ExpressionVariable(Variable):
    """A lazy variable, whose chunks are read by `read_expression` where xarray makes arrays that are expressions.

    Those ask the array for each block and wait; plugins, by which arrays of `dask.array` read many, they do not call.
    """

    __slots__ = ()

    def chunk(self, *args: Any, **kwargs: Any) -> Variable:  # type: ignore[override]
        """Return the variable in chunks, as xarray does."""
        chunked: Variable = super().chunk(*args, **kwargs)
        data: Any = chunked._data  # noqa: SLF001 - `data` would read what is lazy
        node: Any = getattr(data, "expr", None)
        if kind_of(data) != "dask-array" or type(node).__name__ != "FromArray" or node.operand("lock"):
            return chunked
        found = array_inside(node.operand("array"))
        if found is None:
            return chunked
        name = f"read-{data.name}"
        values = NamedValues(found.values, name)
        lazy = read_expression(found.array, data.chunks, found.region, name=name, values=values, dtype=data.dtype)
        return Variable(chunked.dims, lazy, chunked.attrs, chunked.encoding, fastpath=True)


def _undecoded(variables: Mapping[Any, Variable], decoders: Mapping[str, Any]) -> dict[Any, Variable]:
    """Return the variables, as xarray decodes them, to which no CF attribute of any variable applies.

    Those of structured and other opaque values are among them: xarray would fail on their fill value. A warning names
    the attributes that they have.
    """
    masks = decoders.get("mask_and_scale", True)
    # then any variable may depend on any other
    depends = decoders.get("decode_coords", True) == "all" or any(v.dtype == "S1" for v in variables.values())
    referenced = {
        word
        for variable in variables.values()
        if not _RELATED.isdisjoint(variable.attrs)
        for attribute in _RELATED & variable.attrs.keys()
        for word in str(variable.attrs[attribute]).replace(":", " ").split()
    }
    plain = {}
    for name, variable in variables.items():
        is_opaque = variable.dtype.kind == "V"
        if not is_opaque and (depends or name in referenced or not _is_plain(variable, masks=masks is True)):
            continue
        if is_opaque and masks is not False and (ignored := sorted(_DECODED & variable.attrs.keys())):
            text = f"variable {name!r} of {variable.dtype} is not decoded: CF has no {', '.join(ignored)} for it"
            warnings.warn(text, UserWarning, stacklevel=2)
        if "_FillValue" in variable.attrs:
            variable.encoding["_FillValue"] = variable.attrs.pop("_FillValue")
        variable.encoding.setdefault("dtype", variable.dtype)
        plain[name] = variable
    return plain


def _is_plain(variable: Variable, *, masks: bool) -> bool:
    """Return whether decoding leaves a variable unchanged; a ``_FillValue`` of NaN is allowed."""
    attributes = variable.attrs
    if present := _DECODED & attributes.keys():
        value = attributes.get("_FillValue")
        is_nan = variable.dtype.kind == "f" and isinstance(value, (float, np.floating)) and np.isnan(value)
        if not (masks and is_nan and len(present) == 1):
            return False
    units = attributes.get("units", "")
    is_time = isinstance(units, str) and ("since" in units or units in _TIMES)
    return variable.dtype.kind in "biufc" and not is_time


def array_encoding(array: StoredArray, dims: Sequence[str], *, masked: bool) -> dict[str, Any]:
    """Return the encoding of a variable: how `array` is stored, by the keys of xarray's zarr engine.

    ``preferred_chunks`` are those of the store keys, so that ``chunks={}`` reads each key once; with
    ``engine="zarr"`` they are the inner chunks of shards, so that every shard's index is read once for each chunk.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-encoding", shape=(8,), dtype="f4", chunks=2, shards=4, codecs="gzip")
    >>> encoding = array_encoding(a.stored, ["x"], masked=False)
    >>> encoding["chunks"], encoding["preferred_chunks"], [c["name"] for c in encoding["compressors"]]
    ((2,), {'x': 4}, ['gzip'])
    """
    keys = _lengths(array.metadata.chunk_grid)
    shards = None if array.shards is None else keys
    encoding = {"chunks": _lengths(array.chunk_grid), **_codec_encoding(array), "shards": shards}
    encoding["preferred_chunks"] = dict(zip(dims, keys, strict=True))
    if array.dtype.kind == "T":
        encoding["dtype"] = array.dtype  # otherwise xarray converts strings to objects
    if not masked and not get_format(array.format).has_numcodecs:
        encoding["fill_value"] = array.fill_value
    return encoding


def decoded_attributes(array: StoredArray, *, masked: bool) -> dict[str, Any]:
    """Return the attributes as xarray decodes them: ``_FillValue``, where there is one, as a scalar."""
    attributes = dict(array.attributes)
    if get_format(array.format).has_numcodecs:
        attributes = {name: value for name, value in attributes.items() if not name.lower().startswith("_nc")}
    names = array.dimension_names
    if get_format(array.format).names_in_axes and names is not None and attributes.get("axes") == list(names[::-1]):
        del attributes["axes"]
    if masked:
        nothing = array.fill_value is None or (array.dtype.kind in "mM" and np.isnat(array.fill_value))
        if not nothing:  # xarray can write no attribute that is NaT, and NaT is missing without one
            attributes["_FillValue"] = array.fill_value
    elif not get_format(array.format).has_numcodecs and "_FillValue" in attributes:
        attributes["_FillValue"] = decode_fill_value(attributes["_FillValue"], array.dtype, key=array.path)
        if attributes["_FillValue"] is None:
            del attributes["_FillValue"]
    return attributes


def _lengths(grid: ChunkGrid) -> tuple[Any, ...]:
    """Return the chunk length of each axis, or all chunk lengths of an axis where they differ."""
    if grid.is_regular:
        return grid.chunk_shape
    return tuple(
        axis.chunk if isinstance(axis, RegularAxis) else lengths
        for axis, lengths in zip(grid.axes, grid.dask_chunks, strict=True)
    )


def _codec_encoding(array: StoredArray) -> dict[str, Any]:
    chain = zarr_chain(array.codecs)
    if get_format(array.format).has_numcodecs:
        _, before, compressor, _ = emit_chain(chain, array.dtype, array.ndim, key=array.path)
        return {
            "compressors": () if compressor is None else (_numcodec(compressor),),
            "filters": tuple(map(_numcodec, before)),
        }
    filters, serializer, compressors = _stages(chain)
    while serializer.name == "sharding_indexed":
        inner = [NamedConfig(c["name"], c.get("configuration") or {}) for c in serializer.configuration["codecs"]]
        more, serializer, compressors = _stages(inner)
        filters = [*filters, *more]
    return {
        "compressors": tuple(map(_named, compressors)),
        "filters": tuple(map(_named, filters)),
        "serializer": _named(serializer),
    }


def _stages(chain: Sequence[NamedConfig]) -> tuple[list[NamedConfig], NamedConfig, list[NamedConfig]]:
    at = next(i for i, codec in enumerate(chain) if codec_kind(codec.name) == "array-bytes")
    return list(chain[:at]), chain[at], list(chain[at + 1 :])


def _named(codec: NamedConfig) -> dict[str, JSON]:
    return {"name": codec.name, "configuration": dict(codec.configuration)}


def _numcodec(configuration: dict[str, JSON]) -> Any:
    """Return a codec of numcodecs, or its configuration where the package that has it is not installed.

    >>> _numcodec({"id": "nobody.has", "level": 3})
    {'id': 'nobody.has', 'level': 3}
    """
    try:
        return numcodecs.get_codec(configuration)
    except (ValueError, TypeError):
        return configuration
