"""Join the reference sets of several files along dimensions, in the order of their coordinates.

Short arrays of one axis, coordinates above all, are read when a file is parsed and stored in the joined set: their
chunks seldom follow one another (netCDF gives an unlimited axis chunks of its own). All other arrays are joined by
reference. Not here: the order of files (`chunkmill.scans.places`), how references are joined
(`chunkmill.formats.references.combine`), parsing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import ScanError
from chunkmill.formats.references.chunk_numbers import DOCUMENT_NAMES
from chunkmill.formats.references.combine import join_references
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import INLINE, ReferenceSet
from chunkmill.nodes.api import open as open_node
from chunkmill.nodes.api import open_group
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.scans.cached_file import CachedFile
from chunkmill.scans.entries import stored_whole
from chunkmill.scans.hdf5 import MAX_INLINE_BYTES
from chunkmill.scans.places import Place, places_of
from chunkmill.stores.reference import ReferenceStore
from chunkmill.stores.reference_targets import Targets

__all__ = ["Joined", "LoadedArray", "ParsedFile", "joined", "parsed_file", "with_data"]

_MAX_LISTED = 50
_OF_TIME = ("units", "calendar")


@dataclass(frozen=True)
class LoadedArray:
    """Dimension and stored values of an array of one axis, and its attributes."""

    dim: str
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
        Path -> array whose only axis is a dimension along which files are joined.
    n_present
        Path -> number of chunks that there are, where `references` has none of them.
    digests
        Path -> digest of the values of a coordinate along another dimension, which all files must share.
    """

    url: str
    references: ReferenceSet
    loaded: Mapping[str, LoadedArray] = field(default_factory=dict)
    n_present: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


def parsed_file(
    url: str, references: ReferenceSet, targets: Targets, dims: Sequence[str], file: CachedFile
) -> ParsedFile:
    """Return a file whose short arrays along one of `dims` are loaded, from `file` where their bytes are in it."""
    node = open_node(ReferenceStore(references, targets)) if dims else None
    short = {
        path: names[0]
        for path, array in (_arrays(node) if isinstance(node, Group) else {}).items()
        if len(names := array.dimension_names or ()) == 1
        and array.nbytes <= MAX_INLINE_BYTES
        and array.dtype.kind in "biufMT"
        and (names[0] in dims or path.rpartition("/")[2] == names[0])
    }
    loaded: dict[str, LoadedArray] = {}
    digests: dict[str, str] = {}
    if short:
        group = open_group(ReferenceStore(_fetched(references, short, file), targets))
        for path, dim in short.items():
            array = group[path]
            assert isinstance(array, Array)  # noqa: S101 - as above
            if dim in dims:
                loaded[path] = LoadedArray(str(dim), array[...], dict(array.attributes), array.fill_value)
            else:
                digests[path] = sha256(repr((array.dtype, array.shape, array[...].tolist())).encode()).hexdigest()[:16]
    prefixes = tuple(f"{path}/" for path in loaded)
    kept = (key for key, _ in references.items() if not key.startswith(prefixes))
    return ParsedFile(url, references.subset(kept) if loaded else references, loaded, digests=digests)


def _fetched(references: ReferenceSet, paths: Collection[str], file: CachedFile) -> ReferenceSet:
    """Return the documents of a set, and the arrays at some paths with the bytes that are in the file."""
    builder, prefixes = ReferenceBuilder(), tuple(f"{path}/" for path in paths)
    for key, each in references.items():
        if key.rpartition("/")[2] not in DOCUMENT_NAMES and not key.startswith(prefixes):
            continue
        is_own = each.url is not None and each.url.removeprefix("file://") == file.url.removeprefix("file://")
        if each.data is None and is_own and each.length is not None:
            builder.add_data(key, file.range(each.offset, each.offset + each.length))
        elif each.data is None:
            builder.add(key, each.url, each.offset, each.length)
        else:
            builder.add_data(key, each.data)
    return builder.build()


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
    files, places
        In the order of the places, and these: number of a file along each dimension.
    gaps
        Where a step from file to file is longer than any inside the files, as text.
    """

    references: ReferenceSet
    files: Sequence[ParsedFile]
    places: Sequence[Place]
    gaps: tuple[str, ...] = ()


def joined(
    files: Sequence[ParsedFile],
    dims: Sequence[str],
    *,
    rewrite_units: bool = False,
    by_name: bool = False,
    listed: Mapping[str, Place] | None = None,
) -> Joined:
    """Return one set of all files, along `dims`.

    Parameters
    ----------
    files
        In any order: their places are those of the values of the coordinates `dims`, if all have them.
    rewrite_units
        Write times in the units of the first file where those of others differ.
    by_name
        Whether files follow one another in the order given instead.
    listed
        Places of the files that the user said, by url.

    Raises
    ------
    ScanError
        Values overlap, units differ, a place has no file, or files have other arrays; names the files.
    MetadataError
        Arrays that are joined by reference do not agree; lists each.
    """
    values = _loaded_alike(files, rewrite_units=rewrite_units)
    of_dims = {dim: values[dim] for dim in dims if dim in values and files[0].loaded[dim].dim == dim}
    chosen = None if listed is None else [listed[each.url] for each in files]
    found = places_of([each.url for each in files], dims, of_dims, by_name=by_name, listed=chosen)
    order = sorted(range(len(files)), key=lambda i: found.of_files[i])
    ordered, places = [files[i] for i in order], [found.of_files[i] for i in order]
    sets = [each.references for each in ordered]
    names = [repr(each.url) for each in ordered]
    base = join_references(sets, dims, places, names=names, elsewhere={each.dim for each in files[0].loaded.values()})
    added: dict[str, bytes] = {}
    for path, parts in values.items():
        first = ordered[0].loaded[path]
        whole = _one_after_the_other(path, ordered, [parts[i] for i in order], places, list(dims).index(first.dim))
        added |= stored_whole(path, whole, dims=(first.dim,), attributes=first.attributes, fill_value=first.fill_value)
    return Joined(with_data(base, added), ordered, places, found.gaps)


def _one_after_the_other(
    path: str, files: Sequence[ParsedFile], parts: Sequence[NDArray[Any]], places: Sequence[Place], number: int
) -> NDArray[Any]:
    """Return the values of an array, of which files with the same place along its dimension have the same."""
    along: dict[int, int] = {}
    for i, place in enumerate(places):
        first = along.setdefault(place[number], i)
        if not np.array_equal(parts[i], parts[first], equal_nan=parts[i].dtype.kind == "f"):
            reason = f"its values of {path!r} are not those of {files[first].url}, which is at the same place along it"
            raise ScanError(url=files[i].url, reason=f"{reason}; leave it out (drop_variables), or convert each")
    return np.concatenate([parts[i] for _, i in sorted(along.items())])


def with_data(references: ReferenceSet, added: Mapping[str, bytes]) -> ReferenceSet:
    """Return the set with further keys, whose bytes are stored in it."""
    named, blob = dict(references.named), bytearray(references.blob)
    for key, data in added.items():
        named[key] = INLINE, len(blob), len(data)
        blob += data
    return ReferenceSet(references.urls, references.tables, named, bytes(blob))  # without what it remembers of its keys


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
            if array.values.dtype != expected.values.dtype:
                offenders.append(
                    f"{path!r} in {each.url}: {array.values.dtype}, not {expected.values.dtype} as in {first.url}"
                )
            offenders += [
                f"{path!r} in {each.url}: {name} is {array.attributes.get(name)!r}, "
                f"not {expected.attributes.get(name)!r} as in {first.url}"
                for name in differ
            ]
            values[path].append(array.values)
        offenders += [
            f"the values of {path!r} in {each.url} are not those in {first.url}"
            for path in sorted({*first.digests, *each.digests})
            if each.digests.get(path) != first.digests.get(path)
        ]
    if offenders:
        more = f"\n  and {len(offenders) - _MAX_LISTED} more" if len(offenders) > _MAX_LISTED else ""
        listed = "".join(f"\n  {each}" for each in offenders[:_MAX_LISTED])
        hint = "units of time can be rewritten (rewrite_units=True); leave others out (drop_variables), or convert each"
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
