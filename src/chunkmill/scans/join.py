"""Join the reference sets of several files along dimensions, in the order of their coordinates.

Short arrays of one axis, coordinates above all, are read when a file is parsed and stored in the joined set: their
chunks seldom follow one another (netCDF gives an unlimited axis chunks of its own). All other arrays are joined by
reference. Not here: how references are joined
(`chunkmill.formats.references.combine`), parsing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import pairwise, product
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from chunkmill.display.report import format_bytes
from chunkmill.errors import ScanError
from chunkmill.formats.cf_fill_value import decode_fill_value, encode_fill_value
from chunkmill.formats.references.chunk_numbers import DOCUMENT_NAMES
from chunkmill.formats.references.combine import join_references, listed_lines
from chunkmill.formats.registry import get_format
from chunkmill.hints import Hint
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import INLINE, ReferenceSet
from chunkmill.nodes.api import open as open_node
from chunkmill.nodes.api import open_group
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.scans.hdf5 import MAX_INLINE_BYTES, stored_whole, with_way_out
from chunkmill.scans.parse import ScannedFile
from chunkmill.scans.times import Times, calendar_of, in_one_unit, is_time
from chunkmill.stores.reference import ReferenceStore, Targets

_MAX_BOUNDS_BYTES = 4 * MAX_INLINE_BYTES  # up to four of an element


@dataclass(frozen=True)
class LoadedArray:
    """Dimensions and stored values of an array, which follow one another along the first axis, and its attributes."""

    dims: tuple[str, ...]
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
        Path -> array whose only axis is a dimension along which files are joined, or bounds of such times.
    digests
        Path -> digest of the values of a coordinate along another dimension, which all files must share.
    """

    url: str
    references: ReferenceSet
    loaded: Mapping[str, LoadedArray] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def bounds(self) -> dict[str, str]:
        """Return path of bounds -> path of their times, which they share units with (CF, 7.1)."""
        return {
            bounds: path
            for path, array in self.loaded.items()
            if is_time(array.attributes.get("units"))
            for bounds in _named_bounds(path, array.attributes)
            if bounds in self.loaded
        }

    def meaning(self, path: str) -> dict[str, Any]:
        """Return the attributes that say what loaded values mean, of bounds with those of their times."""
        own = self.loaded[path].attributes
        of_times = self.loaded[times].attributes if (times := self.bounds().get(path)) is not None else {}
        inherited = {name: of_times[name] for name in ("units", "calendar") if name in of_times}
        found = {name: value for name, value in {**inherited, **own}.items() if name in _MEANING}
        if is_time(found.get("units")):
            found["calendar"] = calendar_of(found.get("calendar"))
        return found


def _named_bounds(path: str, attributes: Mapping[str, Any]) -> list[str]:
    above = path[: path.rfind("/") + 1]
    return [above + str(attributes[name]) for name in ("bounds", "climatology") if name in attributes]


def parsed_file(file: ScannedFile, references: ReferenceSet, targets: Targets, dims: Sequence[str]) -> ParsedFile:
    """Return a file whose short arrays along one of `dims` are loaded, from `file` where their bytes are in it."""
    node = open_node(ReferenceStore(references, targets)) if dims else None
    arrays = _arrays(node) if isinstance(node, Group) else {}
    short = {
        path: array
        for path, array in arrays.items()
        if len(names := array.dimension_names or ()) == 1
        and array.nbytes <= MAX_INLINE_BYTES
        and array.dtype.kind in "biufMT"
        and (names[0] in dims or path.rpartition("/")[2] == names[0])
    }
    for path, array in [*short.items()]:
        names = array.dimension_names or ()
        for bounds in _named_bounds(path, array.attributes) if is_time(array.attributes.get("units")) else ():
            found = arrays.get(bounds)
            if found is not None and found.nbytes <= _MAX_BOUNDS_BYTES and found.dtype.kind in "iuf":
                own = found.dimension_names or ()
                if own[:1] == names and names[0] in dims and None not in own and not set(own[1:]) & set(dims):
                    short[bounds] = found
    loaded: dict[str, LoadedArray] = {}
    digests: dict[str, str] = {}
    if short:
        group = open_group(ReferenceStore(_fetched(references, short, file), targets))
        for path, array in short.items():
            values = cast("Array", group[path])[...]
            axes = tuple(map(str, array.dimension_names or ()))
            if axes[0] in dims:
                attributes = dict(array.attributes)
                if get_format(array.format).masks_fill_value and array.fill_value is not None:
                    attributes["_FillValue"] = encode_fill_value(array.fill_value, array.dtype)
                loaded[path] = LoadedArray(axes, values, attributes, array.fill_value)
            else:
                digests[path] = sha256(repr((array.dtype, array.shape, values.tolist())).encode()).hexdigest()[:16]
    prefixes = tuple(f"{path}/" for path in loaded)
    kept = (key for key, _ in references.items() if not key.startswith(prefixes))
    return ParsedFile(file.url, references.subset(kept) if loaded else references, loaded, digests=digests)


def _fetched(references: ReferenceSet, paths: Collection[str], file: ScannedFile) -> ReferenceSet:
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
    files
        In the order of their places.
    gaps
        Where a step from file to file is longer than any inside the files, as text.
    """

    references: ReferenceSet
    files: Sequence[ParsedFile]
    gaps: tuple[str, ...] = ()


def joined(
    files: Sequence[ParsedFile],
    dims: Sequence[str],
    *,
    by_name: bool = False,
    listed: Mapping[str, Place] | None = None,
) -> Joined:
    """Return one set of all files, along `dims`, with times in the units of the first file.

    Parameters
    ----------
    files
        In any order: their places are those of the values of the coordinates `dims`, if all have them.
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
    arrays = _loaded_alike(files)
    of_dims = {
        dim: [each.values for each in arrays[dim]]
        for dim in dims
        if dim in arrays and files[0].loaded[dim].dims == (dim,)
    }
    chosen = None if listed is None else [listed[each.url] for each in files]
    of_files, gaps = places_of([each.url for each in files], dims, of_dims, by_name=by_name, listed=chosen)
    order = sorted(range(len(files)), key=of_files.__getitem__)
    ordered, places = [files[i] for i in order], [of_files[i] for i in order]
    sets = [each.references for each in ordered]
    names = [repr(each.url) for each in ordered]
    base = join_references(
        sets, dims, places, names=names, elsewhere={each.dims[0] for each in files[0].loaded.values()}
    )
    added: dict[str, bytes] = {}
    for path, parts in arrays.items():
        first = parts[order[0]]
        values = [parts[i].values for i in order]
        whole = _one_after_the_other(path, ordered, values, places, list(dims).index(first.dims[0]))
        added |= stored_whole(path, whole, dims=first.dims, attributes=first.attributes, fill_value=first.fill_value)
    return Joined(with_data(base, added), ordered, gaps)


def _one_after_the_other(
    path: str, files: Sequence[ParsedFile], parts: Sequence[NDArray[Any]], places: Sequence[Place], number: int
) -> NDArray[Any]:
    """Return the values of an array, of which files with the same place along its dimension have the same."""
    along: dict[int, int] = {}
    for i, place in enumerate(places):
        first = along.setdefault(place[number], i)
        if not np.array_equal(parts[i], parts[first], equal_nan=True):
            reason = f"its values of {path!r} are not those of {files[first].url}, which is at the same place along it"
            raise ScanError(url=files[i].url, reason=with_way_out(reason, [path]))
    return np.concatenate([parts[i] for _, i in sorted(along.items())])


def with_data(references: ReferenceSet, added: Mapping[str, bytes]) -> ReferenceSet:
    """Return the set with further keys, whose bytes are stored in it."""
    named, blob = dict(references.named), bytearray(references.blob)
    for key, data in added.items():
        named[key] = INLINE, len(blob), len(data)
        blob += data
    return ReferenceSet(references.urls, references.tables, named, bytes(blob))  # without what it remembers of its keys


def _loaded_alike(files: Sequence[ParsedFile]) -> dict[str, list[LoadedArray]]:
    """Return each loaded array, a part for each file; `ScanError` where they mean different things."""
    first = files[0]
    offenders: list[str] = []
    others: set[str] = set()  # times in other units
    for each in files:
        if each.loaded.keys() != first.loaded.keys():
            names = sorted(each.loaded.keys() ^ first.loaded.keys())
            offenders.append(f"{', '.join(map(repr, names))} in only one of {each.url} and {first.url}")
            continue
        for path in each.loaded:
            found, expected = each.meaning(path), first.meaning(path)
            differ = {name for name in {*found, *expected} if found.get(name) != expected.get(name)}
            if differ == {"units"} and not _PACKING & {*found} and all(is_time(m["units"]) for m in (found, expected)):
                others.add(path if "units" in first.loaded[path].attributes else first.bounds().get(path, path))
                continue
            offenders += _unlike(each, first, path, {name: (found.get(name), expected.get(name)) for name in differ})
        offenders += [
            f"the values of {path!r} in {each.url} are not those in {first.url}"
            for path in sorted({*first.digests, *each.digests})
            if each.digests.get(path) != first.digests.get(path)
        ]
    arrays = {path: [each.loaded[path] for each in files] for path in first.loaded} if not offenders else {}
    for path in sorted(others) if not offenders else ():
        bounds = {each for each, times in first.bounds().items() if times == path}
        sharing = [each for each in sorted(bounds) if "units" not in first.loaded[each].attributes]
        try:
            arrays |= _in_one_unit(files, path, sharing)
        except (ValueError, OverflowError) as error:
            offenders.append(f"the times {path!r} cannot be written in one unit: {error}")
    if offenders:
        hint = "leave these files out, or these variables (`scan` takes drop_variables=), or convert each"
        raise ScanError(url=first.url, reason=f"the files do not agree; {hint}:{listed_lines(offenders)}")
    return arrays


_PACKING = {"scale_factor", "add_offset", "_Unsigned"}
_MEANING = {*_PACKING, "units", "calendar", "_FillValue", "missing_value"}


def _unlike(each: ParsedFile, first: ParsedFile, path: str, differ: Mapping[str, tuple[Any, Any]]) -> list[str]:
    found, expected = each.loaded[path], first.loaded[path]
    offenders = [
        f"{path!r} in {each.url}: {name} is {own!r}, not {other!r} as in {first.url}"
        for name, (own, other) in sorted(differ.items())
    ]
    for what, own, other in (
        ("dtype", found.values.dtype, expected.values.dtype),
        ("lengths of other axes", found.values.shape[1:], expected.values.shape[1:]),
        ("dimensions", found.dims, expected.dims),
    ):
        if own != other:
            offenders.append(f"{path!r} in {each.url}: {what}: {own}, not {other} as in {first.url}")
    return offenders


def _in_one_unit(files: Sequence[ParsedFile], path: str, sharing: Sequence[str]) -> dict[str, list[LoadedArray]]:
    """Return times of all files, and the bounds that share their units; ValueError where these are not loaded."""
    first, members = files[0], (path, *sharing)
    for each in files:
        for bounds in _named_bounds(path, each.loaded[path].attributes):
            if bounds not in each.loaded and any(f"{bounds}/{name}" in each.references for name in DOCUMENT_NAMES):
                limit = format_bytes(_MAX_BOUNDS_BYTES)
                raise ValueError(f"their bounds {bounds!r} in {each.url} are no numbers along them of at most {limit}")
    parts = [_times(each, member, first.loaded[member]) for member in members for each in files]
    units, values = in_one_unit(parts)
    found: dict[str, list[LoadedArray]] = {}
    for number, member in enumerate(members):
        own = values[number * len(files) : (number + 1) * len(files)]
        found[member] = []
        for each, part in zip(files, own, strict=True):
            said = each.loaded[member].attributes
            attributes = {**said, "units": units} if "units" in said else said
            found[member].append(replace(each.loaded[member], values=part, attributes=attributes))
    return found


def _times(each: ParsedFile, path: str, first: LoadedArray) -> Times:
    array, meaning = each.loaded[path], each.meaning(path)
    missing = [decode_fill_value(meaning[name], array.values.dtype) for name in _MISSING if name in meaning]
    known = [value for value in missing if value is not None]
    return Times(array.values, meaning["units"], meaning["calendar"], known, first.values.dtype)


_MISSING = ("_FillValue", "missing_value")


# --------------------------------------------------------------------------------------------------------------------
# Places of the files along the dimensions, by values of their coordinates or by names. They fill a box, and
# files with equal values have the same place


Place: TypeAlias = tuple[int, ...]
"""Number of a file along each dimension."""


@dataclass(frozen=True)
class _Along:
    """Files along one dimension: the place of each, and by place the values of its coordinate."""

    dim: str
    places: Sequence[int]
    values: Sequence[NDArray[Any]] = field(default=())

    def shown(self, place: int) -> str:
        """Return the values at a place, as text."""
        return f"{self.dim} {_span(self.values[place])}" if self.values else f"{self.dim} number {place}"


def _span(values: NDArray[Any]) -> str:
    return f"{values.min()} to {values.max()}" if len(values) else "nothing"


def places_of(
    urls: Sequence[str],
    dims: Sequence[str],
    values: Mapping[str, Sequence[NDArray[Any]]],
    *,
    by_name: bool = False,
    listed: Sequence[Place] | None = None,
) -> tuple[Sequence[Place], tuple[str, ...]]:
    """Return the place of each file, every place of a box once; and gaps, as in `Joined`.

    Parameters
    ----------
    urls
        Of the files, in any order.
    dims
        Names of the dimensions.
    values
        Name of a dimension -> values of its coordinate in each file. At most one of `dims` may have none: files that
        are equal along all others follow one another along it in the order given.
    by_name
        Whether places follow one another in the order in which they occur, instead of that of the values.
    listed
        Places that the user said, by nested lists: then values decide nothing.

    Raises
    ------
    ScanError
        Values overlap, two files have the same place, or some place has no file; names files and values.
    """
    if listed is not None:
        along = [_Along(dim, [each[number] for each in listed]) for number, dim in enumerate(dims)]
    else:
        known = {
            dim: _along(urls, dim, values[dim], by_name=by_name, alone=len(dims) == 1) for dim in dims if dim in values
        }
        others = [dim for dim in dims if dim not in known]
        if len(others) > 1:
            named = ", ".join(map(repr, others))
            reason = f"the files have no coordinates of {named}: give nested lists of files, one level a dimension"
            raise ScanError(url=urls[0], reason=reason)
        for dim in others:
            seen: Counter[Place] = Counter()
            numbers = []
            for at in zip(*(each.places for each in known.values()), strict=True) if known else [()] * len(urls):
                numbers.append(seen[at])
                seen[at] += 1
            known[dim] = _Along(dim, numbers)
        along = [known[dim] for dim in dims]
    places = list(zip(*(each.places for each in along), strict=True))
    _check_box(urls, along, places)
    return places, tuple(gap for each in along for gap in _gaps(urls, each))


def _along(urls: Sequence[str], dim: str, parts: Sequence[NDArray[Any]], *, by_name: bool, alone: bool) -> _Along:
    """Return the places of files along a dimension by the values of its coordinate; `ScanError` where two overlap."""
    parts = [part.astype(object) if part.dtype.kind == "T" else part for part in parts]
    first: dict[Any, int] = {}
    # files with the same values have the same place, but for those of no values, and where names alone count
    groups = [i if not len(part) or (by_name and alone) else _key(part) for i, part in enumerate(parts)]
    group = [first.setdefault(each, i) for i, each in enumerate(groups)]
    order = list(first.values())
    if not by_name:
        full, empty = [i for i in order if len(parts[i])], [i for i in order if not len(parts[i])]
        runs = [parts[i] for i in full if len(parts[i]) > 1]
        falls = bool(runs) and all(run[-1] < run[0] for run in runs)  # latitudes from north to south
        full.sort(key=lambda i: (parts[i].min(), urls[i]), reverse=falls)
        for before, after in pairwise(full):
            low, high = (after, before) if falls else (before, after)
            if parts[low].max() >= parts[high].min():
                raise _overlap(urls, before, after, [(dim, parts[before], parts[after])])
        order = [*empty, *full]
    number = {i: place for place, i in enumerate(order)}
    return _Along(dim, [number[i] for i in group], [parts[i] for i in order])


def _key(values: NDArray[Any]) -> Any:
    return tuple(values.tolist()) if values.dtype.kind == "O" else (len(values), values.tobytes())


def _overlap(
    urls: Sequence[str],
    before: int,
    after: int,
    values: Sequence[tuple[str, NDArray[Any], NDArray[Any]]],
    *,
    by_name: bool = True,
) -> ScanError:
    """Return the error, with the way out by names where that is one."""
    own = "; ".join(f"values of {dim!r}, {_span(part)}" for dim, _, part in values)
    others = "; ".join(_span(part) for _, part, _ in values)
    reason = f"its {own}, overlap those of {urls[before]}, {others}: leave one out"
    if not by_name:
        return ScanError(url=urls[after], reason=reason)
    text = reason.replace("{", "{{").replace("}", "}}")
    hint = Hint(f"{text}, or `scan` them in the order of names ({{}})", ("order", "names"))
    return ScanError(url=urls[after], reason=hint)


def _check_box(urls: Sequence[str], along: Sequence[_Along], places: Sequence[Place]) -> None:
    """Raise `ScanError` unless each place of the box is that of one file."""

    def shown(place: Place) -> str:
        return ", ".join(each.shown(number) for each, number in zip(along, place, strict=True))

    seen: dict[Place, int] = {}
    for i, place in enumerate(places):
        if place in seen:
            held = [(each.dim, each.values[n]) for each, n in zip(along, place, strict=True) if each.values]
            same = [(dim, values, values) for dim, values in held]
            raise _overlap(urls, seen[place], i, same, by_name=len(along) == 1)
        seen[place] = i
    sizes = [max(each.places) + 1 for each in along]
    if len(places) == prod(sizes):
        return
    missing = [place for place in product(*map(range, sizes)) if place not in seen] if prod(sizes) < 1 << 20 else []
    reason = (
        f"{len(places)} files do not fill the {' x '.join(map(str, sizes))} places along "
        f"{', '.join(repr(each.dim) for each in along)}; there is no file at:{listed_lines([*map(shown, missing)])}"
    )
    raise ScanError(url=urls[0], reason=reason)


def _gaps(urls: Sequence[str], along: _Along) -> list[str]:
    parts = along.values
    if not parts or not all(len(part) and part.dtype.kind in "iuf" for part in parts):
        return []
    longest = max((np.abs(np.diff(part)).max() for part in parts if len(part) > 1), default=None)
    return [
        f"{along.dim} {before[-1]} to {after[0]}, before {urls[list(along.places).index(place)]}"
        for place, (before, after) in enumerate(pairwise(parts), start=1)
        if longest is not None and abs(after[0] - before[-1]) > longest
    ]
