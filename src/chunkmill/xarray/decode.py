"""Decode variables to a dataset by xarray's CF decoding.

Variables with nothing to decode bypass it: xarray rebuilds each variable seven times, which is most of the time that
opening a thousand of them takes. Not here: how variables are opened (`chunkmill.xarray.backend`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import Coordinates, Dataset, Variable, conventions
from xarray.backends.common import AbstractDataStore

__all__ = ["decode"]

_RELATED = frozenset({"coordinates", *conventions.CF_RELATED_DATA})
_DECODED = _RELATED | {
    "_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "_Encoding", "dtype", "calendar",
}  # fmt: skip
_TIMES = frozenset({"days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"})


def decode(source: AbstractDataStore, decoders: Mapping[str, Any]) -> Dataset:
    """Return the dataset of the variables and attributes that `source` loads, decoded with the options `decoders`.

    Equivalent to xarray's ``StoreBackendEntrypoint().open_dataset(source, **decoders)``.
    """
    variables, attributes = source.load()  # type: ignore[no-untyped-call]
    plain = _undecoded(variables, decoders) | _undecodable(variables, decoders)
    rest = {name: variable for name, variable in variables.items() if name not in plain}
    decoded, attributes, coordinates = conventions.decode_cf_variables(rest, attributes, **decoders)
    data: dict[Any, Any] = {}
    coords: dict[Any, Any] = {}
    for name in variables:
        variable = plain[name] if name in plain else decoded[name]
        (coords if name in coordinates or variable.dims == (name,) else data)[name] = variable
    dataset = Dataset(data, coords=Coordinates(coords, indexes={}), attrs=attributes)
    dataset.set_close(source.close)
    return dataset


def _undecoded(variables: Mapping[Any, Variable], decoders: Mapping[str, Any]) -> dict[Any, Variable]:
    """Return the variables, as xarray decodes them, to which no CF attribute of any variable applies."""
    if decoders.get("decode_coords", True) == "all" or any(v.dtype == "S1" for v in variables.values()):
        return {}  # then any variable may depend on any other
    masks = decoders.get("mask_and_scale", True) is True
    referenced = {
        word
        for variable in variables.values()
        if not _RELATED.isdisjoint(variable.attrs)
        for attribute in _RELATED & variable.attrs.keys()
        for word in str(variable.attrs[attribute]).replace(":", " ").split()
    }
    plain = {}
    for name, variable in variables.items():
        if name not in referenced and _is_plain(variable, masks=masks):
            encoding = variable.encoding
            if "_FillValue" in variable.attrs:
                encoding["_FillValue"] = variable.attrs.pop("_FillValue")
            encoding.setdefault("dtype", variable.dtype)
            plain[name] = variable
    return plain


def _undecodable(variables: Mapping[Any, Variable], decoders: Mapping[str, Any]) -> dict[Any, Variable]:
    """Return the variables of structured and other opaque values, whose fill value xarray would fail on; warn of it."""
    wanted = decoders.get("mask_and_scale", True) is not False
    opaque = {name: variable for name, variable in variables.items() if variable.dtype.kind == "V"}
    for name, variable in opaque.items():
        ignored = sorted(_DECODED & variable.attrs.keys())
        if ignored and wanted:
            text = (
                f"variable {name!r} of {variable.dtype} is not decoded: CF has no {', '.join(ignored)} for such values"
            )
            warnings.warn(text, UserWarning, stacklevel=2)
        if "_FillValue" in variable.attrs:
            variable.encoding["_FillValue"] = variable.attrs.pop("_FillValue")
        variable.encoding.setdefault("dtype", variable.dtype)
    return opaque


def _is_plain(variable: Variable, *, masks: bool) -> bool:
    """Return whether decoding leaves a variable unchanged; a ``_FillValue`` of NaN is allowed."""
    attributes = variable.attrs
    if not _DECODED.isdisjoint(attributes):
        only_mask = masks and _DECODED & attributes.keys() == {"_FillValue"}
        if not only_mask or not _is_nan(attributes["_FillValue"], variable):
            return False
    units = attributes.get("units", "")
    is_time = isinstance(units, str) and ("since" in units or units in _TIMES)
    return variable.dtype.kind in "biufc" and not is_time


def _is_nan(value: Any, variable: Variable) -> bool:
    return variable.dtype.kind == "f" and isinstance(value, (float, np.floating)) and bool(value != value)  # noqa: PLR0124 - NaN
