"""Encode a new variable, and build the metadata of the array that will hold it.

CF encoding is done by xarray's coders; chunks, codecs and fill value are read from the variable's encoding, by the keys
of xarray's zarr engine. Not here: variables that are stored already (`chunkmill.xarray.stored_variable`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from xarray import Variable, coders, conventions
from xarray.backends.common import ensure_dtype_not_object
from xarray.coding import strings, variables

from chunkmill.dask_arrays.kinds import lowered, lowered_together
from chunkmill.errors import (
    AlignmentError,
    ChunkmillError,
    DatasetError,
    MetadataError,
    RegionError,
    UnknownCodec,
    UnsupportedFeature,
)
from chunkmill.formats.base import Format
from chunkmill.formats.cf_fill_value import encode_fill_value
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import JSON, ArrayMetadata
from chunkmill.model.user_values import as_dtype
from chunkmill.nodes.new_array import describe_array, with_chunk_keys
from chunkmill.xarray.decode import applied

__all__ = [
    "ENCODING_FAULTS",
    "NewVariable",
    "describe_variable",
    "encode_cf",
    "json_attributes",
    "missing_text",
    "with_lowered",
]

K = TypeVar("K")

_CODERS = (
    coders.CFDatetimeCoder(),
    coders.CFTimedeltaCoder(),
    variables.CFScaleOffsetCoder(),
    variables.CFMaskCoder(),
    variables.NativeEnumCoder(),
    variables.NonStringCoder(),
    variables.DefaultFillvalueCoder(),
)
_STRINGS = strings.EncodedStringCoder()  # type: ignore[no-untyped-call]
_STORAGE = frozenset(
    {"chunks", "shards", "codecs", "compressors", "filters", "serializer", "fill_value", "write_empty_chunks"}
)
_GRIDS = frozenset({"chunks", "shards", "preferred_chunks"})
_CODECS = frozenset({"codecs", "compressors", "filters", "serializer"})
_IGNORED = frozenset({"source", "original_shape", "preferred_chunks", "coordinates"})  # as xarray does
ENCODING_FAULTS = (
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    NotImplementedError,
)  # of xarray
_REFUSALS = (UnsupportedFeature, UnknownCodec, AlignmentError, RegionError, MetadataError)


@dataclass(frozen=True, slots=True)
class NewVariable:
    """A variable to be stored: its encoded data (of numpy or dask) and the metadata of its array."""

    data: Any
    metadata: ArrayMetadata
    write_empty: bool | None


def describe_variable(
    documents_format: Format,
    name: str,
    variable: Variable,
    *,
    asked: Mapping[str, Any] | None = None,
    url: str = "",
    chunk_key_encoding: Any = None,
) -> NewVariable:
    """Encode a variable and build the metadata of its array.

    Parameters
    ----------
    asked
        The encoding that was passed to this write: keys which do not apply are errors. The variable's own describes
        how it was stored where it was read from: it holds for what is not asked for, and keys which do not apply are
        ignored.
    chunk_key_encoding
        As in `chunkmill.create_array`.

    Raises
    ------
    DatasetError
        The encoding or the attributes hold values that cannot be stored.
    UnsupportedFeature
        The format cannot hold the variable.
    """
    asked = _by_axis(name, variable, asked or {}, url)
    own, variable = variable.encoding, variable.copy(deep=False)
    variable.encoding = _kept(own, asked) | dict(asked)
    _check_markers(name, variable, url)
    try:
        with np.errstate(all="ignore"):  # what becomes other numbers is refused
            encoded = _encoded(documents_format, name, variable, url)
    except ENCODING_FAULTS as error:
        if isinstance(error, ChunkmillError):
            raise
        raise DatasetError(
            variable=name,
            url=url,
            reason=f"xarray cannot encode it{applied(variable.encoding | variable.attrs)}: {error}",
        ) from error
    encoding = {key: value for key, value in encoded.encoding.items() if key not in _IGNORED}
    if encoding.get("_FillValue", 0) is None:  # no marker, not even NaN; xarray's coders leave the key in the encoding
        del encoding["_FillValue"]
    known = _STORAGE - {"fill_value"} if documents_format.masks_fill_value else _STORAGE
    if unknown := sorted({str(key) for key in encoding if key in asked} - known):
        hint = f"known are {', '.join(sorted(known))}, and keys of CF encoding such as '_FillValue'"
        raise DatasetError(
            variable=name, url=url, reason=f"unknown encoding {', '.join(map(repr, unknown))}", hint=hint
        )
    storage = {key: value for key, value in encoding.items() if key in _STORAGE}
    if "chunks" in asked and not _fits(asked["chunks"], encoded.ndim):
        reason = f"encoding chunks={asked['chunks']!r}: expected a length for each of {encoded.dims}"
        raise DatasetError(
            variable=name, url=url, reason=reason, hint="in the order of the dimensions, -1 for a whole axis"
        )
    attributes = dict(encoded.attrs)
    fill_value = _pop_fill_value(documents_format.name, attributes, storage, encoded.dtype)
    attributes = json_attributes(attributes, name, url)

    def describe(wanted: Mapping[str, Any], fill_value: Any) -> ArrayMetadata:
        described = _describe(documents_format, encoded, wanted, fill_value, attributes, name=name)
        return with_chunk_keys(described, documents_format, name, chunk_key_encoding)

    try:
        metadata = describe(storage, fill_value)
    except _REFUSALS:
        if not own or not encoding:
            raise
        wanted = {key: value for key, value in storage.items() if key in asked}
        if not documents_format.masks_fill_value and "fill_value" not in asked:
            fill_value = _default_fill(documents_format.name, encoded.dtype)
        metadata = describe(wanted, fill_value)
    return NewVariable(lowered(encoded.data), metadata, storage.get("write_empty_chunks"))


def _kept(own: Mapping[Any, Any], asked: Mapping[str, Any]) -> dict[Any, Any]:
    """Return what holds of a variable's own encoding: keys that belong together are asked for together.

    Examples
    --------
    >>> _kept({"dtype": "i2", "scale_factor": 0.1, "chunks": (8,), "shards": (16,)}, {"chunks": (4,)})
    {'dtype': 'i2', 'scale_factor': 0.1}
    """
    replaced = {key for keys in (_GRIDS, _CODECS) if keys & asked.keys() for key in keys}
    if asked.keys() - _STORAGE - _IGNORED:  # of CF: the elements are others, which filters may not take
        return {key: value for key, value in own.items() if key in (_GRIDS | {"compressors"}) - replaced}
    return {key: value for key, value in own.items() if key not in replaced}


def _by_axis(name: str, variable: Variable, asked: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return the encoding with ``chunks`` and ``shards`` that are given by dimension as a length for each axis.

    Axes that are not named keep the length of the variable's own encoding, or of dask's largest block; without either,
    one that suits the chunk's size is chosen (of shards: the chunk's).
    """
    found = dict(asked)
    for key in ("chunks", "shards"):
        lengths = asked.get(key)
        if not isinstance(lengths, Mapping):
            continue
        if unknown := [dim for dim in lengths if dim not in variable.dims]:
            reason = f"encoding {key}={dict(lengths)!r} names {unknown}, and the dimensions are {variable.dims}"
            raise DatasetError(variable=name, url=url, reason=reason)
        own, base = variable.encoding.get(key), found.get("chunks", variable.encoding.get("chunks"))
        if key == "chunks" and variable.chunks is not None and not isinstance(own, tuple):
            own = [max((*axis, 1)) for axis in variable.chunks]
        if not isinstance(own, (tuple, list)) or len(own) != variable.ndim:
            own = base if key == "shards" and isinstance(base, (tuple, list)) else ("auto",) * variable.ndim
        found[key] = tuple(lengths.get(dim, length) for dim, length in zip(variable.dims, own, strict=True))
    return found


def encode_cf(variable: Variable, name: str) -> Variable:
    """Encode times, packed numbers and missing values by CF, lazily where the data are dask's.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> days = xr.Variable("t", np.array(["2000-01-02"], "M8[ns]"), encoding={"units": "days since 2000-01-01"})
    >>> encoded = encode_cf(days, "t")
    >>> encoded.values, encoded.attrs["units"]
    (array([1]), 'days since 2000-01-01')
    """
    conventions.ensure_not_multiindex(variable, name=name)
    for coder in _CODERS:
        variable = coder.encode(variable, name=name)
    for attribute in conventions.CF_RELATED_DATA:
        if attribute in variable.encoding:
            variable.attrs[attribute] = variable.encoding.pop(attribute)
    return with_lowered({name: variable})[name]


def with_lowered(variables: Mapping[K, Variable]) -> dict[K, Variable]:
    """Return the variables with values of `dask.array.core` where they are of another kind of Dask arrays.

    They are optimized together, so that what several of them read is read once. Xarray's coders call its chunk manager,
    which makes arrays of the kind that is registered.
    """
    data = [variable._data for variable in variables.values()]  # noqa: SLF001 - `data` would read what is lazy
    found = zip(variables.items(), data, lowered_together(data), strict=True)
    return {
        name: variable if after is before else variable.copy(deep=False, data=after)
        for (name, variable), before, after in found
    }


def json_attributes(attributes: Mapping[Any, Any], name: str, url: str) -> dict[str, JSON]:
    """Return attributes as JSON values: arrays as lists, numpy scalars as Python's; `DatasetError` names the others.

    Examples
    --------
    >>> json_attributes({"valid_range": np.array([0, 5], "i2")}, "t", "memory://")
    {'valid_range': [0, 5]}
    """
    converted, wrong = {}, []
    for key, value in attributes.items():
        plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        if key == "missing_value" and isinstance(plain, float) and math.isnan(plain):
            continue  # NaN is missing without a marker
        if not isinstance(key, str) or not _is_json(plain):
            wrong.append(f"{key!r}: {value!r:.60}")
        converted[key] = plain
    if wrong:
        hint = "JSON holds finite numbers, text, true, false, null, and lists and dicts of them"
        raise DatasetError(
            variable=name, url=url, reason=f"attributes that JSON cannot hold: {'; '.join(wrong)}", hint=hint
        )
    return converted


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int, bool))


def _encoded(documents_format: Format, name: str, variable: Variable, url: str) -> Variable:
    """Return the variable encoded, with a dtype that arrays can have."""
    encoding = dict(variable.encoding)
    wanted = encoding.get("dtype")
    of_any_length = wanted is str or wanted is object or isinstance(wanted, np.dtypes.StringDType)
    if not isinstance(variable.dtype, np.dtype):
        hint = "convert it: astype() to numbers or to str, or reset_index()"
        raise DatasetError(
            variable=name, url=url, reason=f"dtype {variable.dtype} of pandas, which arrays cannot have", hint=hint
        )
    if of_any_length and variable.dtype.kind in "OTU":
        del encoding["dtype"]
    elif wanted is not None:
        encoding["dtype"] = _text_dtype(variable, wanted)
        if encoding["dtype"] is None:
            del encoding["dtype"]
    variable = variable.copy(deep=False)
    variable.encoding = encoding
    encoded = encode_cf(variable, name)
    if not documents_format.has_bool:  # stored as int8 with an attribute, as in netCDF
        encoded = variables.BooleanCoder().encode(encoded, name=name)
    encoded = _strings(_without_objects(encoded, name, url), name, url)
    if of_any_length and encoded.dtype.kind == "U":
        encoded = encoded.copy(deep=False, data=encoded.data.astype(np.dtypes.StringDType()))
    return encoded


def _text_dtype(variable: Variable, wanted: Any) -> Any:
    """Return `wanted`, or a wider dtype where `wanted` would truncate text or bytes; ``None`` for any length.

    `wanted` may stem from a file whose variable was concatenated with longer text since. ``S1`` is CF's character type.
    """
    dtype = variable.dtype
    try:
        stored = np.dtype(wanted)
    except TypeError:  # xarray raises it again, with its own message
        return wanted
    if stored.kind not in "SU" or stored == "S1" or dtype.kind not in "SUOT":
        return wanted
    if dtype.kind in "SU":
        n_characters = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    elif variable.chunks is None:
        n_characters = max((len(v) for v in variable.to_numpy().flat if isinstance(v, (str, bytes))), default=1)
    else:
        return None
    wide = np.dtype(f"{stored.kind}{max(n_characters, 1)}")
    return wide if wide.itemsize > stored.itemsize else wanted


def _check_markers(name: str, variable: Variable, url: str) -> None:
    """Raise `DatasetError` where the dtype that is stored does not hold the marker of missing elements."""
    encoding = variable.encoding
    wanted = encoding.get("dtype", variable.dtype)
    try:
        dtype = np.dtype(wanted)
    except TypeError:  # xarray says why
        return
    if dtype.kind not in "iuf" or "_Unsigned" in encoding or "_Unsigned" in variable.attrs:
        return
    for key in ("_FillValue", "missing_value"):
        value = encoding.get(key, variable.attrs.get(key))
        try:
            _ = None if value is None else as_dtype(value, dtype)
        except UnsupportedFeature as error:
            limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
            reason = f"{key}={value!r}: {error.feature}, whose range is {limits.min} to {limits.max}"
            hint = "give a number of this range, or another dtype, in encoding="
            raise DatasetError(variable=name, url=url, reason=reason, hint=hint) from None


def missing_text(name: str, url: str) -> DatasetError:
    """Return the error of missing values among texts: no format has any."""
    hint = f"fill them, ds[{name!r}].fillna(''), or say by which text: encoding={{{name!r}: {{'_FillValue': '-'}}}}"
    reason = "values are missing among texts, for which no format has a place"
    return DatasetError(variable=name, url=url, reason=reason, hint=hint)


def _without_objects(variable: Variable, name: str, url: str) -> Variable:
    """Return Python's objects as elements of arrays; of dask by the first ones, others are converted by its tasks."""
    if variable.dtype.kind != "O":
        return variable
    lazy = variable.chunks is not None
    marker = variable.attrs.get("_FillValue")
    known = variable[tuple(slice(0, min(axis[0], _SAMPLED)) for axis in variable.chunks or ())] if lazy else variable
    sample = known.to_numpy()
    kinds = {type(value) for value in sample[~pd.isna(sample)].flat}
    if kinds and all(issubclass(kind, (str, bytes)) for kind in kinds):
        if pd.isna(sample).any() and not isinstance(marker, (str, bytes)):
            raise missing_text(name, url)
    elif lazy and not kinds:
        kinds = {str}
    if not lazy:
        return ensure_dtype_not_object(variable, name=name)
    dtype = ensure_dtype_not_object(Variable(variable.dims, sample), name=name).dtype if kinds != {str} else _OF_TEXT
    convert: Any = partial(_block_without_objects, dtype=dtype, marker=marker, name=name, url=url)
    data = variable.data.map_blocks(convert, dtype=dtype, meta=np.empty((0,) * variable.ndim, dtype))
    return variable.copy(deep=False, data=data)


_SAMPLED = 16  # elements along each axis of the first block
_OF_TEXT = strings.create_vlen_dtype(str)  # type: ignore[no-untyped-call]


def _block_without_objects(block: Any, *, dtype: np.dtype[Any], marker: Any, name: str, url: str) -> Any:
    if dtype.kind != "O":
        dims = tuple(f"dim_{i}" for i in range(block.ndim))
        block = ensure_dtype_not_object(Variable(dims, block), name=name).to_numpy()
        return as_dtype(block, dtype)
    if (missing := pd.isna(block)).any():
        if not isinstance(marker, (str, bytes)):
            raise missing_text(name, url)
        block = np.where(missing, marker, block)
    return block


def _strings(variable: Variable, name: str, url: str) -> Variable:
    """Return strings as ``StringDType`` or of fixed width, and bytes of fixed width unless that truncates them."""
    kind = _vlen_kind(variable)
    if kind is bytes and variable.chunks is None:
        if not any(value.endswith(b"\0") for value in variable.to_numpy().ravel()):
            return strings.ensure_fixed_length_bytes(variable)
        return variable  # numpy strips trailing zeros as padding
    if variable.dtype.kind == "T" or kind is str:
        if variable.encoding.get("dtype") == "S1":
            return _STRINGS.encode(variable, name=name)
        data = variable.data
        lazy = hasattr(data, "map_blocks")
        convert: Any = partial(_as_text, name=name, url=url)
        data = data.map_blocks(convert, dtype=np.dtypes.StringDType()) if lazy else convert(variable.to_numpy())
        return variable.copy(deep=False, data=data)
    if kind is bytes:
        return variable
    return _STRINGS.encode(variable, name=name)


def _vlen_kind(variable: Variable) -> Any:
    """Return the type of the objects, ``str`` or ``bytes``, where xarray says it in the dtype; else ``None``."""
    return strings.check_vlen_dtype(variable.dtype)  # type: ignore[no-untyped-call]


def _as_text(block: Any, *, name: str, url: str) -> NDArray[Any]:
    values = block.astype(object)
    if pd.isna(values).any():
        raise missing_text(name, url)
    return as_dtype(values, np.dtype(np.dtypes.StringDType()))


def _pop_fill_value(name: str, attributes: dict[str, Any], storage: dict[str, Any], dtype: np.dtype[Any]) -> Any:
    """Remove the array's fill value from attributes or encoding and return it; encode the attribute ``_FillValue``."""
    if get_format(name).masks_fill_value:
        storage.pop("fill_value", None)  # of a format where the fill value does not stand for missing elements
        return attributes.pop("_FillValue", None)
    if attributes.get("_FillValue") is not None:
        attributes["_FillValue"] = encode_fill_value(attributes["_FillValue"], dtype)
    else:
        attributes.pop("_FillValue", None)
    fill_value = storage.pop("fill_value", None)
    return _default_fill(name, dtype) if fill_value is None else fill_value


def _default_fill(name: str, dtype: np.dtype[Any]) -> Any:
    # as xarray does: elements that were never written are missing, where the dtype has a number for that
    return math.nan if dtype.kind == "f" and get_format(name).has_fill_value else None


def _describe(
    documents_format: Format,
    variable: Variable,
    storage: Mapping[str, Any],
    fill_value: Any,
    attributes: Mapping[str, JSON],
    *,
    name: str,
) -> ArrayMetadata:
    of_bytes = _vlen_kind(variable) is bytes
    shards = storage.get("shards")
    metadata = describe_array(
        documents_format,
        name,
        shape=variable.shape,
        dtype=variable.dtype,
        chunks=_chunks(variable, storage.get("chunks"), shards),
        shards=shards,
        codecs=_codecs(documents_format, storage, of_bytes=of_bytes),
        fill_value=fill_value,
        dimension_names=[str(dim) for dim in variable.dims],
        attributes=attributes,
    )
    if fill_value is None and documents_format.masks_fill_value:
        return documents_format.adapt(replace(metadata, fill_value=None), name)  # zero would be read as missing
    return metadata


def _chunks(variable: Variable, chunks: Any, shards: Any) -> Any:
    """Return the chunk shape of the encoding, else of dask's largest block, else ``"auto"``."""
    if chunks is not None and _fits(chunks, variable.ndim):
        return chunks
    if variable.chunks is None or shards is not None:
        return "auto"
    return tuple(max((*axis, 1)) for axis in variable.chunks)


def _fits(chunks: Any, ndim: int) -> bool:
    """Return whether ``chunks`` of an encoding has a length for each axis, or is left to `describe_array`."""
    if isinstance(chunks, Sequence) and not isinstance(chunks, str):
        return len(chunks) == ndim
    return not isinstance(chunks, Mapping)


def _codecs(documents_format: Format, storage: Mapping[str, Any], *, of_bytes: bool) -> Any:
    """Return ``codecs=`` from the encoding: from ``codecs``, or from xarray's three keys."""
    if "codecs" in storage:
        return storage["codecs"]
    stages = {stage: storage.get(stage, "auto") for stage in ("filters", "serializer", "compressors")}
    if of_bytes and _is_auto(stages["serializer"]):
        stages["serializer"] = "vlen-bytes"
    if all(map(_is_auto, stages.values())):
        return "default"
    if _is_auto(stages["compressors"]):
        name = documents_format.default_codecs
        stages["compressors"] = "zstd" if name == "default" else name
    return [codec for stage in stages.values() if not _is_auto(stage) for codec in _listed(stage)]


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _listed(value: Any) -> list[Any]:
    """Return codecs as a list; codecs of zarr-python as their configurations."""
    if value is None:
        return []
    one = isinstance(value, (str, Mapping)) or not isinstance(value, Iterable)
    return [codec.to_dict() if hasattr(codec, "to_dict") else codec for codec in ([value] if one else value)]
