"""Encode a new variable, and build the metadata of the array that will hold it exactly (P1).

CF encoding is done by xarray's coders; chunks, codecs and fill value are read from the variable's encoding, by the keys
of xarray's zarr engine. Not here: variables that are stored already (`chunkmill.xarray.stored_variable`).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from xarray import Variable, conventions
from xarray.backends.common import ensure_dtype_not_object
from xarray.coding import strings

from chunkmill.codecs.registry import STAGES, chain_of_stages
from chunkmill.dask_arrays.store import chunks_for_blocks
from chunkmill.errors import ChunkmillError, DatasetError, RegionError, UnsupportedFeature
from chunkmill.formats.base import Format, is_json
from chunkmill.formats.cf_fill_value import encode_fill_value
from chunkmill.model.metadata import JSON, ArrayMetadata
from chunkmill.model.user_values import as_dtype
from chunkmill.nodes.new_array import describe_array, with_chunk_keys
from chunkmill.xarray.decode import applied

_STRINGS = strings.EncodedStringCoder()  # type: ignore[no-untyped-call]
_GRIDS = frozenset({"chunks", "shards", "preferred_chunks"})
_CODECS = frozenset({"codecs", *STAGES})
_STORAGE = _CODECS | {"chunks", "shards", "fill_value", "chunk_key_encoding", "write_empty_chunks"}
_IGNORED = frozenset({"source", "original_shape", "preferred_chunks", "coordinates"})  # as xarray does
# of xarray
ENCODING_FAULTS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class NewVariable:
    """Metadata of the array of a new variable; `is_encoded`: whether it holds other elements than the variable."""

    metadata: ArrayMetadata
    write_empty: bool | None
    is_encoded: bool


def describe_variable(
    documents_format: Format,
    name: str,
    variable: Variable,
    *,
    asked: Mapping[str, Any] | None = None,
    url: str = "",
) -> NewVariable:
    """Build the metadata of the array of a variable: its values are encoded as those metadata say.

    Parameters
    ----------
    asked
        The encoding that was passed to this write: keys which do not apply are errors. The variable's own describes
        how it was stored where it was read from: it holds for what is not asked for, and keys which do not apply are
        ignored.

    Raises
    ------
    DatasetError
        The encoding or the attributes hold values that cannot be stored.
    UnsupportedFeature
        The format cannot hold the variable.
    """
    asked, own, variable = dict(asked or {}), variable.encoding, variable.copy(deep=False)
    for key in ("chunks", "shards"):
        if isinstance(asked.get(key), Mapping):
            asked[key] = _lengths(variable, key) | dict(asked[key])
    variable.encoding = _kept(own, asked) | asked
    encoded = _encoded(documents_format, name, variable, url)
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
    if "chunks" not in asked and not _fits(storage.get("chunks"), encoded.ndim):
        del storage["chunks"]
    try:
        metadata = _describe(documents_format, name, encoded, storage, url=url)
    except ChunkmillError:
        if not own or not encoding:
            raise
        asked_for = {key: value for key, value in storage.items() if key in asked}
        metadata = _describe(documents_format, name, encoded, asked_for, url=url)
    is_encoded = encoded.dtype.kind == "O" or encoded._data is not variable._data  # noqa: SLF001 - `data` would read it
    return NewVariable(metadata, storage.get("write_empty_chunks"), is_encoded)


def _encoded(documents_format: Format, name: str, variable: Variable, url: str) -> Variable:
    """Return a variable as `_described` does; `DatasetError` where it, or its markers, cannot be encoded."""
    for holder, key in product((variable.encoding, variable.attrs), ("_FillValue", "missing_value")):
        if isinstance(holder.get(key), (np.ndarray, list)) and np.size(holder[key]) == 1:  # as netCDF has them
            holder[key] = np.ravel(holder[key])[0]
    marker, own = variable.encoding.get("_FillValue"), variable.encoding.get("missing_value")
    if own is None:
        variable.encoding.pop("missing_value", None)
    elif isinstance(marker, (float, np.floating)) and math.isnan(marker):  # which xarray adds, and calls a conflict
        del variable.encoding["_FillValue"]
    with suppress(TypeError):  # no dtype of numpy: said below
        if (wanted := np.dtype(variable.encoding.get("dtype", variable.dtype))).kind in "iufb":
            _check_markers(name, variable, wanted, url)
    try:
        with np.errstate(all="ignore"):  # what becomes other numbers is refused
            encoded = _described(documents_format, name, variable, url)
        _check_markers(name, variable, encoded.dtype, url)
    except ENCODING_FAULTS as error:
        if isinstance(error, ChunkmillError):
            raise
        hint = f"convert the values first, or leave them out with drop_vars({name!r})"
        if "conflicting" in str(error):
            hint = f"store one of the two, as by encoding={{{name!r}: {{'_FillValue': {marker}}}}}"
        reason = f"xarray cannot encode it{applied(variable.encoding | variable.attrs)}: {error}"
        raise DatasetError(variable=name, url=url, reason=reason, hint=hint) from error
    return encoded


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


def _lengths(variable: Variable, key: str) -> dict[Any, Any]:
    """Return the lengths of chunks or shards by dimension of the variable's own encoding."""
    own: Any = variable.encoding.get(key)
    is_known = isinstance(own, (tuple, list)) and len(own) == variable.ndim
    return dict(zip(variable.dims, own, strict=True)) if is_known else {}


def json_attributes(attributes: Mapping[Any, Any], name: str, url: str) -> dict[str, JSON]:
    """Return attributes as JSON values: arrays as lists, numpy scalars as Python's; `DatasetError` names the others.

    Examples
    --------
    >>> json_attributes({"valid_range": np.array([0, 5], "i2")}, "t", "memory://")
    {'valid_range': [0, 5]}
    """
    converted = {}
    for key, value in attributes.items():
        plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        if key == "missing_value" and isinstance(plain, float) and math.isnan(plain):
            continue  # NaN is missing without a marker
        converted[key] = plain
    if wrong := [f"{key!r}: {reprlib.repr(value)}" for key, value in converted.items() if not is_json({key: value})]:
        hint = "JSON holds finite numbers, text, true, false, null, and lists and dicts of them, at most 100 deep"
        reason = f"attributes that JSON cannot hold: {'; '.join(wrong)}"
        raise DatasetError(variable=name, url=url, reason=reason, hint=hint)
    return converted


def _described(documents_format: Format, name: str, variable: Variable, url: str) -> Variable:
    """Return a variable with the attributes, encoding and dtype of its array, but not with all its elements."""
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
    plain = Variable(variable.dims, variable._data, variable.attrs, encoding, fastpath=True)  # noqa: SLF001
    encoded = conventions.encode_cf_variable(plain, name=name)
    if documents_format.has_bool and encoded.attrs.get("dtype") == "bool" and "dtype" not in plain.attrs:
        del encoded.attrs["dtype"]  # of int8, as netCDF stores them
        encoded = Variable(encoded.dims, plain._data, encoded.attrs, encoded.encoding, fastpath=True)  # noqa: SLF001
    return _with_known_dtype(encoded, name, of_any_length=of_any_length)


def _with_known_dtype(variable: Variable, name: str, *, of_any_length: bool) -> Variable:
    """Return a variable with a dtype of arrays for text and for Python's objects; of dask by the first of them."""
    known, lazy, is_char = variable, variable.chunks is not None, variable.encoding.get("dtype") == "S1"
    if lazy and (variable.dtype.kind == "O" or is_char):
        known = variable[tuple(slice(0, min(axis[0], _SAMPLED)) for axis in variable.chunks or ())]
        known = Variable(known.dims, known.to_numpy(), known.attrs, known.encoding)
    if known.dtype.kind == "O" and not (lazy and pd.isna(known.to_numpy()).all()):
        known = ensure_dtype_not_object(known, name=name)
    if is_char:
        known = _STRINGS.encode(known, name=name)
    dtype = known.dtype
    of_bytes = strings.check_vlen_dtype(dtype) is bytes  # type: ignore[no-untyped-call]
    if dtype.kind == "T" or (dtype.kind == "O" and not of_bytes) or (of_any_length and dtype.kind == "U"):
        dtype = np.dtype(np.dtypes.StringDType())
    elif lazy and is_char and variable.dtype.kind != "S":
        dtype = np.dtype(object)
    elif of_bytes and not lazy and not any(value.endswith(b"\0") for value in known.to_numpy().flat):
        dtype = np.asarray(known.to_numpy(), np.bytes_).dtype  # numpy strips trailing zeros as padding
    data: Any = variable._data  # noqa: SLF001 - `data` would read it
    if dtype != variable.dtype:
        data = variable.data.astype(dtype) if lazy else np.broadcast_to(np.zeros((), dtype), variable.shape)
    return Variable(variable.dims, data, known.attrs, known.encoding, fastpath=True)


_SAMPLED = 16  # elements along each axis of the first block


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


def _check_markers(name: str, variable: Variable, dtype: np.dtype[Any], url: str) -> None:
    """Raise `DatasetError` where elements of `dtype` cannot equal the marker of missing ones."""
    if "_Unsigned" in variable.encoding or "_Unsigned" in variable.attrs:
        return
    for key in ("_FillValue", "missing_value"):
        for where, value in (("encoding", variable.encoding.get(key)), ("attrs", variable.attrs.get(key))):
            try:
                if value is not None:
                    as_dtype(value, dtype)
            except UnsupportedFeature as error:
                limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype) if dtype.kind == "f" else None
                reason = f"{key}={value!r}: {error.feature}"
                reason += f", whose range is {limits.min} to {limits.max}" if limits else ""
                hint = f"give another {key}, or none, in its {where}, or another dtype in encoding="
                raise DatasetError(variable=name, url=url, reason=reason, hint=hint) from None


def _describe(
    documents_format: Format, name: str, variable: Variable, storage: Mapping[str, Any], *, url: str
) -> ArrayMetadata:
    attributes, dtype, masks = dict(variable.attrs), variable.dtype, documents_format.masks_fill_value
    marker, fill_value = attributes.pop("_FillValue", None), storage.get("fill_value")
    if masks:
        fill_value = marker
    elif marker is not None:
        attributes["_FillValue"] = encode_fill_value(marker, dtype)
    if not masks and fill_value is None and dtype.kind == "f" and documents_format.has_fill_value:
        fill_value = math.nan  # as xarray does: what was never written is missing
    shards, names = storage.get("shards"), [str(dim) for dim in variable.dims]
    blocks = variable.chunks if shards is None else None
    try:
        metadata = describe_array(
            documents_format,
            name,
            shape=variable.shape,
            dtype=dtype,
            chunks=chunks_for_blocks(blocks, storage.get("chunks"), names),
            shards=shards,
            codecs=_codecs(documents_format, storage, of_bytes=dtype.kind == "O"),
            fill_value=fill_value,
            dimension_names=names,
            attributes=json_attributes(attributes, name, url),
        )
    except (ValueError, TypeError, RegionError) as error:
        if isinstance(error, ChunkmillError) and not isinstance(error, RegionError):
            raise
        raise DatasetError(variable=name, url=url, reason=f"its encoding does not fit: {error}") from error
    if fill_value is None and masks:  # zero would be read as missing
        metadata = documents_format.adapt(replace(metadata, fill_value=None), name)
    return with_chunk_keys(metadata, documents_format, name, storage.get("chunk_key_encoding"))


def _fits(chunks: Any, ndim: int) -> bool:
    """Return whether ``chunks`` of an encoding has a length for each axis, or is left to `describe_array`."""
    if isinstance(chunks, Sequence) and not isinstance(chunks, str):
        return len(chunks) == ndim
    return not isinstance(chunks, Mapping)


def _codecs(documents_format: Format, storage: Mapping[str, Any], *, of_bytes: bool) -> Any:
    """Return ``codecs=`` from the encoding: from ``codecs``, or from xarray's three keys."""
    if "codecs" in storage:
        return storage["codecs"]
    stages = {stage: storage[stage] for stage in STAGES if stage in storage}
    if of_bytes and stages.get("serializer", "auto") == "auto":
        stages["serializer"] = "vlen-bytes"
    name = documents_format.default_codecs
    return chain_of_stages(stages, "zstd" if name == "default" else name)
