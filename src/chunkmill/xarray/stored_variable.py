"""Encode a variable as an existing array stores it, and compare variables with stored ones.

Units, dtype, packing and fill value are those of the array; values that the array cannot hold are an error before
anything is written (P1). Not here: new arrays (`chunkmill.xarray.new_variable`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from dask.array import core as da
from dask.base import compute
from numpy.typing import NDArray
from xarray import Dataset, Variable, coders, conventions
from xarray.backends.common import ensure_dtype_not_object

from chunkmill.array.chunk_io import read_region
from chunkmill.array.staleness import read_published
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.blocks import with_checked_blocks
from chunkmill.errors import DatasetError
from chunkmill.model.dtypes import integer_range
from chunkmill.model.grid import Region
from chunkmill.model.user_values import as_dtype, scalar_of
from chunkmill.xarray.backend import dimension_names, open_variable
from chunkmill.xarray.decode import applied
from chunkmill.xarray.new_variable import ENCODING_FAULTS

_UNITS = re.compile(r"encoding\['units'\] to '([^']*)'")
_N_SHOWN = 3
_FLOAT_TIMES = np.timedelta64(10, "us")  # a hundred times the rounding of hourly times since 1850 as float64 days
_PACKING = {"scale_factor", "add_offset"}
_RAW = {"_FillValue", "_Unsigned", "missing_value", *_PACKING}
_STORAGE = {"chunks", "preferred_chunks", "shards", "compressors", "filters", "serializer", "fill_value"}


@dataclass(frozen=True, slots=True)
class StoredVariable:
    """A variable as it is stored: encodes values to elements and decodes them; picklable.

    Attributes
    ----------
    dtype
        Of the elements.
    attributes
        Attributes that decoding uses: units, packing, markers of missing elements.
    encoding
        The same as keys of the encoding, after decoding.
    decoding
        Options of decoding, such as ``decode_times=False`` for values that are plain numbers of days.
    """

    name: str
    url: str
    dims: tuple[Hashable, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[Hashable, Any]
    encoding: Mapping[Any, Any]
    decoding: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        name: str,
        array: StoredArray,
        like: Variable | None = None,
        among: Iterable[StoredArray] = (),
        others: Iterable[Variable] = (),
    ) -> StoredVariable:
        """Describe the variable that `array` holds, for values like those of `like`: decoded, or not.

        Parameters
        ----------
        among, others
            The arrays of its group, and the variables of that of `like`: bounds without units have those of their
            coordinate.

        Raises
        ------
        DatasetError
            `like` holds numbers that mean others in the store, by their units, packing or markers.
        """
        variable = open_variable(name, array)
        nothing = np.full((1,) * array.ndim, scalar_of(None, array.dtype), array.dtype)  # decoding would read the first
        variable = Variable(variable.dims, nothing, variable.attrs, variable.encoding, fastpath=True)
        variable.attrs = _with_units(name, variable.attrs, (each.attributes for each in among))
        decoding = {}
        if like is not None:
            said = _with_units(name, like.attrs, (each.attrs for each in others))
            decoding = _decoding(name, variable, like.dtype.kind, said, array.url)
        try:
            encoding = conventions.decode_cf_variable(name, variable, **decoding).encoding
        except ENCODING_FAULTS as error:
            reason = f"its attributes cannot be decoded{applied(variable.attrs)}: {error}"
            hint = "give others in its attributes or encoding="
            raise DatasetError(variable=name, url=array.url, reason=reason, hint=hint) from error
        kept = {key: value for key, value in encoding.items() if key not in _STORAGE}
        if _plain("_FillValue", kept.get("_FillValue")) is None and "missing_value" in kept:
            kept.pop("_FillValue", None)  # NaN, which xarray adds, and would take for a marker that conflicts
        return cls(name, array.url, variable.dims, array.dtype, dict(variable.attrs), kept, decoding)

    def encoded(self, variable: Variable) -> Any:
        """Return the elements for a variable, as `encode`: of numpy at once, of dask by one task for each block."""
        if variable.chunks is None:
            return self.encode(variable.to_numpy())
        return with_checked_blocks(variable.data, self.encode, self.dtype)

    def encode(
        self, values: NDArray[Any], block: tuple[int, ...] | None = None, _: Region | None = None
    ) -> NDArray[Any]:
        """Return the elements for `values`, or for those of a block, checked to decode to them.

        Raises
        ------
        DatasetError
            Some cannot be stored exactly: times between whole units, numbers that the dtype cannot hold, text that is
            too long, missing values without a marker. Floats are rounded to the stored precision, as by packing or a
            smaller dtype.
        """
        try:
            if self.dtype.kind in "TUSO":
                return self._text(values)
            if values.dtype.kind == "O" and "units" not in self.encoding:
                values = ensure_dtype_not_object(Variable(self.dims, values), name=self.name).to_numpy()
            with np.errstate(all="ignore"):
                return self._numbers(values)
        except ENCODING_FAULTS as error:
            known = error if isinstance(error, DatasetError) else self._inexact(error)
            if block is not None:
                known.extend_reason(f", in block {block} of the dask array")
            raise known from (None if known is error else error)

    def decode(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Return the decoded values of `elements`."""
        dims = self.dims if elements.ndim == len(self.dims) else tuple(f"dim_{i}" for i in range(elements.ndim))
        raw = Variable(dims, elements, dict(self.attributes))
        try:
            return conventions.decode_cf_variable(self.name, raw, **self.decoding).to_numpy()
        except ENCODING_FAULTS as error:
            reason = f"its elements cannot be decoded{applied(self.attributes)}: {error}"
            raise DatasetError(variable=self.name, url=self.url, reason=reason) from error

    def _numbers(self, values: NDArray[Any]) -> NDArray[Any]:
        encoding = dict(self.encoding)
        if values.dtype.kind == "f" and self.dtype.kind in "iu" and "_Unsigned" not in encoding:
            encoding.pop("dtype", None)  # xarray would warn about the cast, which is checked here
        # of dask.array: then xarray's coders keep units that values do not fit
        lazy: Any = da.from_array(values, chunks=-1, name=False)  # type: ignore[no-untyped-call]
        variable = Variable(self.dims, lazy, {}, encoding)
        encoded: Any = conventions.encode_cf_variable(variable, name=self.name).data.compute(scheduler="synchronous")
        if self.dtype.kind in "iu" and encoded.dtype.kind == "f" and _PACKING & self.encoding.keys():
            encoded = np.rint(encoded)
        elements = np.asarray(encoded).astype(self.dtype, copy=False)
        back = self.decode(elements)
        if (wrong := self._differs(values, back, elements)).any():
            raise self._not_held(values[wrong], back[wrong], elements[wrong])
        return elements

    def _text(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return text or bytes as elements; an error where the stored width would truncate them."""
        plain = values.astype(object)
        if (missing := pd.isna(plain)).any():
            marker = self.encoding.get("_FillValue")
            if not isinstance(marker, (str, bytes)):
                way = f"fill them, ds[{self.name!r}].fillna(''), or say by which text"
                hint = f"{way}: encoding={{{self.name!r}: {{'_FillValue': '-'}}}}"
                reason = "values are missing among texts, for which no format has a place"
                raise DatasetError(variable=self.name, url=self.url, reason=reason, hint=hint)
            plain[missing] = marker
        wanted: type = bytes if self.dtype.kind in "SO" else str
        if self.dtype.kind == "S" or (self.dtype.kind == "O" and "_Encoding" in self.encoding):
            code = self.encoding.get("_Encoding", "ascii")
            encode = np.vectorize(lambda each: each.encode(code) if isinstance(each, str) else each, otypes=[object])
            plain = encode(plain)
        if (other := next((each for each in plain.flat if not isinstance(each, wanted)), None)) is not None:
            reason = f"the store holds {wanted.__name__}, got {other!r:.60} of {type(other).__name__}"
            raise DatasetError(variable=self.name, url=self.url, reason=reason)
        return as_dtype(plain, self.dtype)

    def _differs(self, values: NDArray[Any], back: NDArray[Any], elements: NDArray[Any]) -> NDArray[np.bool_]:
        """Return where decoded elements differ from the values by more than the rounding of their encoding."""
        kinds = values.dtype.kind + back.dtype.kind
        if set(kinds) & set("mMOTUS"):
            values, back = (each.astype(object) if each.dtype.kind in "TUS" else each for each in (values, back))
            wrong = _unequal(values, back) & ~(pd.isna(values) & pd.isna(back))
            if kinds in {"mm", "MM"} and self.dtype.kind == "f":
                wrong &= ~(np.abs(values - back) <= _FLOAT_TIMES)
            return np.asarray(wrong)
        missing = np.zeros(values.shape, bool)
        for marker in (self.encoding.get("_FillValue"), self.encoding.get("missing_value")):
            if marker is not None and np.ndim(marker) == 0:
                missing |= (elements == marker) & ((values == marker) | (values != values))  # noqa: PLR0124 - NaN
        same = (values == back) | ((values != values) & (back != back))  # noqa: PLR0124 - NaN
        if values.dtype.kind in "fc" and back.dtype.kind in "fc":
            same |= np.isfinite(values) & np.isfinite(back) & (np.abs(values - back) <= self._tolerance(values, back))
        return np.asarray(~(same | missing))

    def _tolerance(self, values: NDArray[Any], back: NDArray[Any]) -> Any:
        rounding = np.finfo(back.dtype).eps * np.abs(values)
        if not _PACKING & self.encoding.keys():
            return rounding if self.dtype.kind in "fc" else 0
        step = abs(float(self.encoding.get("scale_factor", 1)))
        offset = abs(float(self.encoding.get("add_offset", 0)))
        if self.dtype.kind not in "fc":
            return step * 0.501 + 4 * rounding + 4 * np.finfo(back.dtype).eps * offset
        return 4 * np.finfo(self.dtype).eps * (np.abs(values) + offset)

    def _not_held(self, values: NDArray[Any], back: NDArray[Any], elements: NDArray[Any]) -> DatasetError:
        value, read = values[0], back[0]
        reason = (
            f"{len(values)} values cannot be stored as {self.stored_as}: {_shown(value)} would read as {_shown(read)}"
        )
        limits = integer_range(self.dtype)
        marker = self.encoding.get("_FillValue", self.encoding.get("missing_value"))
        ends = () if limits is None else self._decoded_ends(limits, marker)
        if ends:
            reason += f", the range is {_shown(ends[0])} to {_shown(ends[1])}"
        if limits is not None and (pd.isna(value) or (marker is not None and np.any(elements[0] == marker))):
            free = limits[0] if limits[0] < 0 and marker != limits[0] else limits[1]
            wanted: dict[str, Any] = {"_FillValue": free}
        elif np.asarray(value).dtype.kind in "iufc":
            packs = bool(_PACKING & self.encoding.keys())
            is_beyond = packs and limits is not None and np.isfinite(value)
            wider = "int32" if is_beyond and self.dtype.itemsize < 4 else ""  # noqa: PLR2004
            wanted = {"dtype": wider or str(np.result_type(value.dtype, self.dtype))}
            wanted |= dict.fromkeys(sorted(_PACKING & self.encoding.keys())) if packs and not wider else {}
        else:
            wanted = {"dtype": "int64"}
        hint = f"convert the values first, or write a new array with encoding={{{self.name!r}: {wanted}}}"
        return DatasetError(variable=self.name, url=self.url, reason=reason, hint=hint)

    def _decoded_ends(self, limits: tuple[int, int], marker: Any) -> tuple[Any, ...]:
        least, most = (n + step * bool(n == marker) for n, step in zip(limits, (1, -1), strict=True))
        try:
            ends = tuple(self.decode(np.array([least, most], self.dtype)))
        except DatasetError:  # no dates so far away
            return ()
        return ends if ends[0] < ends[1] else ()

    def _inexact(self, error: Exception) -> DatasetError:
        """Return the error of values that are not of the kind stored, or between whole units: xarray suggests some."""
        reason = f"not storable as {self.stored_as}: {getattr(error, 'feature', error)}"
        hint = (
            getattr(error, "hint", "") or f"convert the values first, or leave them out with drop_vars({self.name!r})"
        )
        if (found := _UNITS.search(str(error))) is not None:
            reason = f"the values are not whole {self.stored_as}; {found[1]!r} would hold them"
            hint = f"write the variable to a new array with encoding={{{self.name!r}: {{'units': {found[1]!r}}}}}"
        return DatasetError(variable=self.name, url=self.url, reason=reason, hint=hint)

    @property
    def stored_as(self) -> str:
        """Encoding as text: ``'days since 2000-01-01' in int64``."""
        words = [f"{key}={self.encoding[key]}" for key in ("scale_factor", "add_offset") if key in self.encoding]
        units = self.encoding.get("units")
        return f"{units!r} in {self.dtype}" if units else " ".join([str(self.dtype), *words])

    def compare(self, data: Any, array: StoredArray, region: Region) -> None:
        """Raise `DatasetError`, with the first differences, unless `region` of `array` holds `data`."""
        if isinstance(data, da.Array):
            find = partial(self._differences, array=array, start=[cut.start for cut in region])
            blocks: Any = with_checked_blocks(data, find, object)
            found: Any = compute(*blocks.to_delayed().flat)  # type: ignore[no-untyped-call]
        else:
            found = (self._differences(np.asarray(data), (), region, array, [0] * array.ndim),)
        if different := [each for each in found if each is not None]:
            lines = [line for _, own in different for line in own][:_N_SHOWN]
            reason = f"{sum(n for n, _ in different)} of {data.size} values differ from those in the store: "
            hint = f"align the dataset to the store, or leave the variable out with drop_vars({self.name!r})"
            raise DatasetError(variable=self.name, url=self.url, reason=reason + "; ".join(lines), hint=hint)

    def _differences(
        self, values: NDArray[Any], _: tuple[int, ...], within: Region, array: StoredArray, start: Sequence[int]
    ) -> tuple[int, list[str]] | None:
        """Return how many values of a block differ from those stored, with text on the first; ``None`` if none does."""
        region = tuple(slice(cut.start + n, cut.stop + n) for cut, n in zip(within, start, strict=True))
        elements = read_published(array, region)
        try:
            wanted = self.encode(values)
            wrong = np.asarray(wanted != elements)
            if self.dtype.kind not in "TUSO":
                wrong &= ~(pd.isna(wanted) & pd.isna(elements))
        except DatasetError:  # values that cannot be stored differ from those that are
            wrong = self._differs(values, self.decode(elements), elements)
        if not wrong.any():
            return None
        stored, first = self.decode(elements), [cut.start for cut in region]
        return int(wrong.sum()), [
            f"at {np.add(at, first).tolist()}: {_shown(stored[at])} is stored, got {_shown(values[at])}"
            for at in map(tuple, np.argwhere(wrong)[:_N_SHOWN])
        ]


def _unequal(values: NDArray[Any], back: NDArray[Any]) -> NDArray[np.bool_]:
    try:
        return np.asarray(values != back)
    except TypeError:  # cftime does not compare dates of different calendars
        return np.ones(values.shape, bool)


def _shown(value: Any) -> str:
    calendar = getattr(value, "calendar", "")
    return f"{value!s} ({calendar})" if calendar else str(value)


def _with_units(name: str, said: Mapping[Any, Any], others: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Return attributes with the units of the coordinate whose bounds it is, where there are none."""
    owner = next((its for its in others if name in {its.get("bounds"), its.get("climatology")}), {})
    return {**{key: owner[key] for key in ("units", "calendar") if key in owner and "units" not in said}, **said}


def _decoding(name: str, stored: Variable, kind: str, said: Mapping[Any, Any], url: str) -> dict[str, Any]:
    """Return the options that decode `stored` as values of a dtype's kind are, which say how in their attributes."""
    units = stored.attrs.get("units")
    is_time = isinstance(units, str) and "since" in units
    is_duration = str(stored.attrs.get("dtype")).startswith("timedelta64")
    decoding: dict[str, Any] = {}
    meaning = {"units"} & said.keys() & stored.attrs.keys()
    if kind == "m":
        decoding["decode_timedelta"] = True
    elif kind == "O" and is_time:  # dates of cftime, in any calendar
        decoding["decode_times"] = coders.CFDatetimeCoder(use_cftime=True)
    elif kind in "iuf" and (is_time or is_duration):
        decoding |= {"decode_times": False, "decode_timedelta": False}
        meaning |= {"units", "calendar"}
    if _RAW & said.keys():  # opened without decoding
        decoding["mask_and_scale"] = False
        meaning |= _RAW
    pairs = ((key, *(_plain(key, each.get(key)) for each in (stored.attrs, said))) for key in sorted(meaning))
    if other := [f"{key}={own!r} in the store, {its!r} here" for key, own, its in pairs if own != its]:
        reason = f"its numbers mean others in the store: {', '.join(other)}"
        hint = "convert them, or pass times and decoded values, as xr.decode_cf(ds) makes them"
        raise DatasetError(variable=name, url=url, reason=reason, hint=hint)
    return decoding


def _plain(key: str, value: Any) -> Any:
    """Return an attribute as Python's value, of one element as a scalar; none equals NaN."""
    if key == "calendar" and str(value) in {"None", "gregorian"}:
        return "standard"
    plain = value.item() if np.size(value) == 1 and isinstance(value, (np.ndarray, np.generic)) else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def match_dims(name: str, variable: Variable, stored: StoredVariable) -> Variable:
    """Return `variable` with its axes in the order of the store; `DatasetError` where the dimensions differ."""
    if set(variable.dims) != set(stored.dims) or len(variable.dims) != len(stored.dims):
        reason = f"has dimensions {variable.dims}, but {stored.dims} in the store"
        raise DatasetError(variable=name, url=stored.url, reason=reason)
    return variable if variable.dims == stored.dims else variable.transpose(*stored.dims)


def find_region(
    dataset: Dataset, region: Mapping[Hashable, Any] | str, arrays: Mapping[str, StoredArray], url: str
) -> dict[Hashable, slice]:
    """Return `region` as slices: ``"auto"`` is where the coordinates are in the store.

    Raises
    ------
    DatasetError
        A dimension is unknown, a slice does not match its length, or the coordinates are not contiguous in the store.
    """
    if region == "auto":
        region = dict.fromkeys(dataset.dims, "auto")
    if not isinstance(region, Mapping):
        raise TypeError(f"region={region!r}: expected 'auto', or slices or 'auto' by dimension")
    sizes = stored_sizes(arrays)
    found = {}
    for dim, own in region.items():
        if dim not in dataset.dims or dim not in sizes:
            where = "dataset" if dim not in dataset.dims else "store"
            raise DatasetError(
                variable="", url=url, reason=f"region names {dim!r}, which is not a dimension of the {where}"
            )
        cut = _locate(dataset, dim, arrays, sizes[dim], url) if own == "auto" else own
        found[dim] = _bounds(cut, dim, sizes[dim], dataset.sizes[dim], url)
    return found


def stored_sizes(arrays: Mapping[str, StoredArray]) -> dict[Hashable, int]:
    """Return the length of each dimension of the arrays."""
    return {
        dim: size
        for name, array in arrays.items()
        for dim, size in zip(dimension_names(name, array), array.shape, strict=True)
    }


def _bounds(cut: Any, dim: Hashable, size: int, n: int, url: str) -> slice:
    if not isinstance(cut, slice) or cut.step not in {None, 1}:
        raise DatasetError(variable="", url=url, reason=f"region[{dim!r}]={cut!r}", hint="expected a slice of step 1")
    start, stop, _ = cut.indices(size)
    if max(0, stop - start) != n:
        reason = f"region[{dim!r}]={cut!r} is {max(0, stop - start)} of {size} in the store, got {n}"
        raise DatasetError(variable="", url=url, reason=reason)
    return slice(start, start + n)


def _locate(dataset: Dataset, dim: Hashable, arrays: Mapping[str, StoredArray], size: int, url: str) -> slice:
    """Return the slice of the store that holds the coordinate `dim` of the dataset."""
    n = dataset.sizes[dim]
    array = arrays.get(str(dim))
    if dim not in dataset.variables or array is None:
        if n != size:
            reason = f"without a coordinate {dim!r}, {n} of {size} elements cannot be located"
            raise DatasetError(variable=str(dim), url=url, reason=reason, hint=f"pass region={{{dim!r}: slice(…)}}")
        return slice(0, n)
    stored = StoredVariable.of(str(dim), array, dataset.variables[dim])
    index = pd.Index(stored.decode(read_region(array, (slice(0, size),))))
    if not index.is_unique:
        reason = f"its values in the store are not unique: {index[index.duplicated()][0]!s} is there more than once"
        raise DatasetError(variable=str(dim), url=url, reason=reason, hint=f"pass region={{{dim!r}: slice(…)}}")
    try:
        at = index.get_indexer(pd.Index(dataset[dim].to_numpy()))
    except TypeError as error:  # of dates of another calendar
        reason = f"its values are not of the kind of those in the store: {error}"
        raise DatasetError(variable=str(dim), url=url, reason=reason, hint="convert them first") from error
    if (at < 0).any():
        missing = dataset[dim].to_numpy()[at < 0]
        reason = f"{len(missing)} values are not in the store: {missing[0]!s}"
        raise DatasetError(variable=str(dim), url=url, reason=reason, hint="append_dim= appends new ones")
    if n and (np.diff(at) != 1).any():
        reason = "the values are not next to each other, in this order, in the store"
        raise DatasetError(variable=str(dim), url=url, reason=reason, hint="write contiguous regions one by one")
    return slice(int(at[0]), int(at[0]) + n) if n else slice(0, 0)
