"""Join the reference sets of several files along a dimension, in the order of its coordinate.

Short arrays of one axis, coordinates above all, are read when a file is parsed and stored in the joined set: their
chunks seldom follow one another (netCDF gives an unlimited axis chunks of its own). All other arrays are joined by
reference. Not here: how references are joined (`chunkmill.formats.references.combine`), parsing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import ScanError
from chunkmill.formats.references.combine import concat_references
from chunkmill.model.references import INLINE, ReferenceSet
from chunkmill.nodes.api import open as open_node
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.scans.hdf5 import MAX_INLINE_BYTES, stored_whole
from chunkmill.stores.reference import ReferenceStore

__all__ = ["Joined", "LoadedArray", "ParsedFile", "joined", "parsed_file", "with_data"]

_MAX_LISTED = 50
_OF_TIME = ("units", "calendar")


@dataclass(frozen=True)
class LoadedArray:
    """Stored values of an array of one axis, and its attributes."""

    values: NDArray[Any]
    attributes: Mapping[str, Any]
    fill_value: Any


@dataclass(frozen=True)
class ParsedFile:
    """References of one file.

    Attributes
    ----------
    url
        Of the file.
    references
        Without the arrays that are `loaded`.
    loaded
        Path -> array whose only axis is the dimension along which files are joined.
    n_present
        Path -> number of chunks that there are, where `references` has none of them.
    """

    url: str
    references: ReferenceSet
    loaded: Mapping[str, LoadedArray] = field(default_factory=dict)
    n_present: Mapping[str, int] = field(default_factory=dict)


def parsed_file(url: str, references: ReferenceSet, store: ReferenceStore, dim: str | None) -> ParsedFile:
    """Return a file whose short arrays along `dim` are loaded from `store`."""
    node = open_node(store)
    loaded: dict[str, LoadedArray] = {}
    if dim is not None and isinstance(node, Group):
        for path, array in _arrays(node).items():
            is_numeric = array.dtype.kind in "biufMT"
            if array.dimension_names == (dim,) and array.nbytes <= MAX_INLINE_BYTES and is_numeric:
                loaded[path] = LoadedArray(array[...], dict(array.attributes), array.fill_value)
    prefixes = tuple(f"{path}/" for path in loaded)
    kept = (key for key, _ in references.items() if not key.startswith(prefixes))
    return ParsedFile(url, references.subset(kept) if loaded else references, loaded)


def _arrays(group: Group) -> dict[str, Array]:
    found = {array.path: array for array in group.arrays().values()}
    for below in group.groups().values():
        found |= _arrays(below)
    return found


@dataclass(frozen=True)
class Joined:
    """One set of several files.

    Attributes
    ----------
    references
        The set.
    files
        In the order in which they follow.
    gaps
        Where a step from file to file is longer than any inside the files, as text.
    """

    references: ReferenceSet
    files: Sequence[ParsedFile]
    gaps: tuple[str, ...] = ()


def joined(files: Sequence[ParsedFile], dim: str, *, rewrite_units: bool = False, by_name: bool = False) -> Joined:
    """Return one set of all files, along `dim`.

    Parameters
    ----------
    files
        In any order: they follow one another as the values of the coordinate `dim` do, if all have it.
    rewrite_units
        Write times in the units of the first file where those of others differ.
    by_name
        Whether files follow one another in the order given instead.

    Raises
    ------
    ScanError
        Values overlap, units differ, or files have other arrays; names the files.
    MetadataError
        Arrays that are joined by reference do not agree; lists each.
    """
    values = _loaded_alike(files, rewrite_units=rewrite_units)
    order = list(range(len(files)))
    if not by_name and dim in values:
        order = _order(files, dim, values[dim])
    ordered = [files[i] for i in order]
    sets = [each.references for each in ordered]
    is_left = any(dim in names for names in _dimensions(sets[0]).values())
    base = concat_references(sets, dim, names=[repr(each.url) for each in ordered]) if is_left else sets[0]
    added: dict[str, bytes] = {}
    for path, parts in values.items():
        first, whole = ordered[0].loaded[path], np.concatenate([parts[i] for i in order])
        added |= stored_whole(path, whole, dims=(dim,), attributes=first.attributes, fill_value=first.fill_value)
    return Joined(
        with_data(base, added), ordered, _gaps(ordered, dim, [values[dim][i] for i in order] if dim in values else [])
    )


def _gaps(files: Sequence[ParsedFile], dim: str, parts: Sequence[NDArray[Any]]) -> tuple[str, ...]:
    """Return where a step of the coordinate from one file to the next is longer than all inside the files."""
    if not all(len(part) and part.dtype.kind in "iuf" for part in parts):
        return ()
    longest = max((np.abs(np.diff(part)).max() for part in parts if len(part) > 1), default=None)
    return tuple(
        f"{dim} {before[-1]} to {after[0]}, before {file.url}"
        for (before, after), file in zip(pairwise(parts), files[1:], strict=False)
        if longest is not None and abs(after[0] - before[-1]) > longest
    )


def with_data(references: ReferenceSet, added: Mapping[str, bytes]) -> ReferenceSet:
    """Return the set with further keys, whose bytes are stored in it."""
    named, blob = dict(references.named), bytearray(references.blob)
    for key, data in added.items():
        named[key] = INLINE, len(blob), len(data)
        blob += data
    return ReferenceSet(references.urls, references.tables, named, bytes(blob))  # without what it remembers of its keys


def _dimensions(references: ReferenceSet) -> dict[str, Sequence[Any]]:
    node = open_node(ReferenceStore(references))
    arrays = _arrays(node) if isinstance(node, Group) else {node.path: node}
    return {path: array.dimension_names or () for path, array in arrays.items()}


def _loaded_alike(files: Sequence[ParsedFile], *, rewrite_units: bool) -> dict[str, list[NDArray[Any]]]:
    """Return the values of each loaded array, a part for each file; `ScanError` where they mean different things."""
    first, offenders = files[0], []
    values: dict[str, list[NDArray[Any]]] = {path: [] for path in first.loaded}
    for each in files:
        if each.loaded.keys() != first.loaded.keys():
            names = sorted(each.loaded.keys() ^ first.loaded.keys())
            offenders.append(f"{', '.join(map(repr, names))} in only one of {each.url} and {first.url}")
            continue
        for path, array in each.loaded.items():
            expected = first.loaded[path]
            differ = sorted(
                name
                for name in {*expected.attributes, *array.attributes} & _MEANING
                if expected.attributes.get(name) != array.attributes.get(name)
            )
            if differ and rewrite_units and set(differ) <= set(_OF_TIME):
                values[path].append(_in_units(array, expected))
                continue
            offenders += [
                f"{path!r} in {each.url}: {name} is {array.attributes.get(name)!r}, "
                f"not {expected.attributes.get(name)!r} as in {first.url}"
                for name in differ
            ]
            values[path].append(array.values)
    if offenders:
        more = f"\n  and {len(offenders) - _MAX_LISTED} more" if len(offenders) > _MAX_LISTED else ""
        listed = "".join(f"\n  {each}" for each in offenders[:_MAX_LISTED])
        hint = "units of time can be rewritten (rewrite_units=True); leave the others out, or convert each"
        raise ScanError(url=first.url, reason=f"the files do not agree; {hint}:{listed}{more}")
    return values


_MEANING = {"scale_factor", "add_offset", "units", "calendar", "_FillValue", "missing_value", "_Unsigned"}


def _in_units(array: LoadedArray, first: LoadedArray) -> NDArray[Any]:
    """Return times in the units of the first file."""
    from xarray.coding.times import CFDatetimeCoder  # noqa: PLC0415 - pandas: only where units differ
    from xarray.core.variable import Variable  # noqa: PLC0415

    coder = CFDatetimeCoder(use_cftime=None)
    decoded = coder.decode(Variable(("x",), array.values, dict(array.attributes)))
    decoded.encoding = {name: first.attributes[name] for name in _OF_TIME if name in first.attributes}
    decoded.encoding["dtype"] = np.dtype("f8")  # as integers, times between two of them would get other units
    found: NDArray[Any] = np.asarray(coder.encode(decoded).values)
    is_whole = first.values.dtype.kind in "iu" and np.array_equal(found, np.rint(found))
    return found.astype(first.values.dtype) if is_whole else found


def _order(files: Sequence[ParsedFile], dim: str, parts: Sequence[NDArray[Any]]) -> list[int]:
    """Return the order of the files by the coordinate's values; `ScanError` where those of two overlap."""
    order = sorted(range(len(files)), key=lambda i: (parts[i][:1].tolist(), files[i].url))
    for before, after in pairwise(order):
        if len(parts[before]) and len(parts[after]) and parts[before].max() >= parts[after].min():
            reason = (
                f"its values of {dim!r}, {parts[after].min()} to {parts[after].max()}, overlap those of "
                f"{files[before].url}, {parts[before].min()} to {parts[before].max()}: leave one out, "
                "or join in the order of names (order='names')"
            )
            raise ScanError(url=files[after].url, reason=reason)
    return order
