"""Join reference sets along one dimension or several, without reading data.

That is right only where the sets agree in everything but the length of that dimension, and of the chunks along it
(which a rectilinear grid of Zarr v3 holds): the other lengths, codecs, dtype, and the CF attributes that turn stored
values into physical ones. Whatever does not agree is listed before anything is made; the way out is to decode and
rewrite those (`chunkmill.convert`).

Not here: new dimensions, coordinates out of file names, reading coordinates to order the sets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from chunkmill.errors import MetadataError
from chunkmill.formats.base import parse_json
from chunkmill.formats.references.chunk_numbers import ArrayKeys, ChunkRows, split_by_array
from chunkmill.model.metadata import JSON
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import INLINE, ReferenceSet

_CF_ATTRIBUTES = (
    "scale_factor",
    "add_offset",
    "units",  # "days since …": the same numbers would mean other times
    "calendar",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "dtype",
    "_ARRAY_DIMENSIONS",
)
"""Attributes without which, or with other values, stored values mean something else."""
_MAX_LISTED = 50


def concat_references(sets: Sequence[ReferenceSet], dim: str, *, names: Sequence[str] | None = None) -> ReferenceSet:
    """Return one set in which arrays with dimension `dim` follow one another along it.

    Parameters
    ----------
    sets
        In the order in which they follow.
    dim
        Name of the dimension, as in ``_ARRAY_DIMENSIONS`` (Zarr v2) or ``dimension_names`` (v3). Arrays without it,
        and attributes, are those of the first set.
    names
        What the sets are called in the error; by default their numbers.

    Raises
    ------
    MetadataError
        Naming each array that does not fit, of which set and why.

    Examples
    --------
    >>> from chunkmill.formats.references.json import parse_reference_json
    >>> document = (
    ...     b'{"t/.zarray": {"shape": [4], "chunks": [2]}, "t/0": ["%s", 0, 16], "t/1": ["%s", 16, 16],'
    ...     b' "t/.zattrs": {"_ARRAY_DIMENSIONS": ["time"]}}'
    ... )
    >>> days = [parse_reference_json(document.replace(b"%s", name)) for name in (b"monday.nc", b"tuesday.nc")]
    >>> concat_references(days, "time").locate("t/2")
    Reference(url='tuesday.nc', offset=0, length=16, data=None)
    """
    if not sets:
        raise MetadataError(key="<references>", field="sets", got="none", expected="one or more reference sets")
    return join_references(sets, (dim,), [(i,) for i in range(len(sets))], names=names)


def listed_lines(texts: Sequence[str]) -> str:
    """Return texts as lines of a message: the first of them, and how many more there are."""
    more = f"\n  and {len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
    return "".join(f"\n  {text}" for text in texts[:_MAX_LISTED]) + more


def join_references(
    sets: Sequence[ReferenceSet],
    dims: Sequence[str],
    positions: Sequence[tuple[int, ...]],
    *,
    names: Sequence[str] | None = None,
    elsewhere: Collection[str] = (),
) -> ReferenceSet:
    """Return one set of sets that fill a box, as `concat_references` does along one dimension.

    Parameters
    ----------
    dims
        Names of the dimensions.
    positions
        Of each set, its place along each of `dims`: every place of a box once. Of an array that has only some of
        `dims`, the sets at place 0 of the others are taken.
    elsewhere
        Dimensions that arrays have which are not in the sets.
    """
    names = [f"set {i}" for i in range(len(sets))] if names is None else names
    parts = [_Part.of(references, name) for references, name in zip(sets, names, strict=True)]
    offenders = _offenders(parts, dims, positions, elsewhere)
    if offenders:
        along = " and ".join(map(repr, dims))
        raise MetadataError(
            key="<references>",
            field=f"concatenation along {along}",
            got=f"{len(offenders)} that do not fit",
            expected=f"sets that differ in the length of {along} alone; decode and rewrite (convert) these, or leave "
            f"them out:{listed_lines(offenders)}",
        )
    return _joined(parts, dims, positions)


@dataclass(frozen=True, slots=True)
class _Part:
    """One set, split."""

    name: str
    references: ReferenceSet
    documents: Mapping[str, bytes]
    arrays: Mapping[str, ArrayKeys]
    rows: Mapping[str, ChunkRows]

    @classmethod
    def of(cls, references: ReferenceSet, name: str) -> _Part:
        """Return a set, split."""
        return cls(name, references, *split_by_array(references))

    def array(self, path: str) -> tuple[str, dict[str, JSON], dict[str, JSON]]:
        """Return key and content of the document of an array, and its attributes."""
        prefix = self.arrays[path].prefix
        if (value := self.documents.get(key := f"{prefix}.zarray")) is not None:
            attributes = self.documents.get(f"{prefix}.zattrs", b"{}")
            return key, parse_json(key, value), parse_json(f"{prefix}.zattrs", attributes)
        document = parse_json(key := f"{prefix}zarr.json", self.documents[key])
        attributes_v3 = document.pop("attributes", {})
        return key, document, attributes_v3 if isinstance(attributes_v3, dict) else {}

    def dims(self, path: str) -> list[JSON]:
        """Return the names of an array's dimensions; nothing when it has none."""
        _, document, attributes = self.array(path)
        dims = document.get("dimension_names") or attributes.get("_ARRAY_DIMENSIONS") or []
        return dims if isinstance(dims, list) else []

    def length(self, path: str, axis: int) -> tuple[int, int]:
        """Return the length of an axis, and of a chunk along it."""
        _, document, _ = self.array(path)
        chunks = document["chunks"] if "chunks" in document else document["chunk_grid"]["configuration"]["chunk_shape"]
        return document["shape"][axis], max(chunks[axis], 1)


def _joined_axes(part: _Part, path: str, dims: Sequence[str]) -> dict[int, int]:
    """Return the axes of an array along which sets are joined, each with the number of its dimension in `dims`."""
    own = part.dims(path)
    return {own.index(dim): number for number, dim in enumerate(dims) if dim in own}


def _lengths(
    parts: Sequence[_Part], positions: Sequence[tuple[int, ...]], path: str, axes: Mapping[int, int]
) -> dict[int, dict[int, tuple[int, int]]]:
    """Return, by axis and place along it, the length of the first set there and of its chunks, in order."""
    found: dict[int, dict[int, tuple[int, int]]] = {axis: {} for axis in axes}
    for part, position in zip(parts, positions, strict=True):
        if path in part.arrays:
            for axis, number in axes.items():
                if position[number] not in found[axis]:
                    found[axis][position[number]] = part.length(path, axis)
    return {axis: dict(sorted(lengths.items())) for axis, lengths in found.items()}


def _offenders(
    parts: Sequence[_Part], dims: Sequence[str], positions: Sequence[tuple[int, ...]], elsewhere: Collection[str]
) -> list[str]:
    first = parts[0]
    found = []
    axes = {path: _joined_axes(first, path, dims) for path in first.arrays}
    for number, dim in enumerate(dims):
        if dim not in elsewhere and all(number not in each.values() for each in axes.values()):
            known = sorted({name for path in first.arrays for name in first.dims(path) if isinstance(name, str)})
            listed = ", ".join(map(repr, known)) or "none"
            found.append(f"no array of {first.name} has a dimension {dim!r}: they have {listed}")
    for part in parts[1:]:
        found += [f"{path!r} is missing in {part.name}" for path in sorted(first.arrays.keys() - part.arrays.keys())]
        found += [f"{path!r} is only in {part.name}" for path in sorted(part.arrays.keys() - first.arrays.keys())]
    for path, own in axes.items():
        alike = []
        for part, position in zip(parts, positions, strict=True):
            if path in part.arrays:
                found += [f"{path!r} in {part.name}: {why}" for why in _misfits(first, part, path, own)]
                if len(part.arrays[path].grid_shape) == len(first.arrays[path].grid_shape):
                    alike.append((part, position))
        lengths = _lengths([part for part, _ in alike], [position for _, position in alike], path, own)
        for part, position in alike:
            for axis, number in own.items():
                why = _does_not_fill(part.length(path, axis), lengths[axis], position[number])
                found += [] if why is None else [f"{path!r} in {part.name}: {why}"]
    return found


def _does_not_fill(own: tuple[int, int], lengths: Mapping[int, tuple[int, int]], place: int) -> str | None:
    """Return why an array of these lengths leaves a hole between its neighbours along an axis, if it does."""
    length, chunk = own
    if own != lengths[place]:
        others, chunk_there = lengths[place]
        return f"it is {length} long in chunks of {chunk}, not {others} in chunks of {chunk_there} as others there"
    if length % chunk == 0 or place == max(lengths):
        return None
    return f"its {length} elements are no multiple of the chunk length {chunk}, so that the next set cannot follow"


def _misfits(first: _Part, part: _Part, path: str, axes: Collection[int]) -> list[str]:
    """Say in what an array differs from that of the first set where it must not."""
    (_, expected, expected_attributes), (_, got, got_attributes) = first.array(path), part.array(path)
    why = [
        f"{name} is {_shown(got.get(name))}, not {_shown(expected.get(name))}"
        for name in sorted({*expected, *got})
        if _across(got, name, axes) != _across(expected, name, axes)
    ]
    why += [
        f"attribute {name!r} is {_shown(got_attributes.get(name))}, not {_shown(expected_attributes.get(name))}"
        for name in _CF_ATTRIBUTES
        if got_attributes.get(name) != expected_attributes.get(name)
    ]
    return why


def _across(document: Mapping[str, JSON], name: str, axes: Collection[int]) -> JSON:
    """Return what of a member must be equal: of shapes, and chunk shapes of Zarr v3, not the lengths along `axes`."""
    value: Any = document.get(name)
    if name == "chunk_grid":
        value = value["configuration"]["chunk_shape"]  # parsed before: a regular grid
    elif name != "shape":
        return value
    return [None if axis in axes else n for axis, n in enumerate(value)]


def _shown(value: JSON) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else text[:100] + "…"  # noqa: PLR2004


def _joined(parts: Sequence[_Part], dims: Sequence[str], positions: Sequence[tuple[int, ...]]) -> ReferenceSet:
    first = parts[0]
    builder = ReferenceBuilder()
    for key, value in first.documents.items():
        builder.add_data(key, _without_consolidated(key, value))
    for path, array in first.arrays.items():
        axes = _joined_axes(first, path, dims)
        lengths = _lengths(parts, positions, path, axes)
        if axes:
            builder.add_data(*_lengthened(first, path, {axis: list(each.values()) for axis, each in lengths.items()}))
        counts = {axis: [-(-length // chunk) for length, chunk in each.values()] for axis, each in lengths.items()}
        starts = {axis: [0, *accumulate(each)] for axis, each in counts.items()}
        for part, position in zip(parts, positions, strict=True):
            # of a set that is not the first along other dimensions, the array is the same
            if all(place == 0 for number, place in enumerate(position) if number not in axes.values()):
                shift = [0] * len(array.grid_shape)
                for axis, number in axes.items():
                    shift[axis] = starts[axis][position[number]]
                _add_chunks(builder, part, part.arrays[path], array, shift)
    return builder.build()


def _without_consolidated(key: str, value: bytes) -> bytes:
    """Return a document without a copy of others, which have changed."""
    if not key.endswith("zarr.json") or b"consolidated_metadata" not in value:
        return value
    document = parse_json(key, value)
    document.pop("consolidated_metadata", None)
    return json.dumps(document).encode()


def _lengthened(part: _Part, path: str, lengths: Mapping[int, Sequence[tuple[int, int]]]) -> tuple[str, bytes]:
    """Return the document of a joined array, from the length of each set and of its chunks, along each axis."""
    key, _, _ = part.array(path)
    document = parse_json(key, part.documents[key])
    ragged = {}
    for axis, along in lengths.items():
        document["shape"][axis] = sum(length for length, _ in along)
        if len({chunk for length, chunk in along if length}) > 1:
            ragged[axis] = [[chunk, -(-length // chunk)] for length, chunk in along if length]
    if ragged:
        chunk_shapes: list[JSON] = list(document["chunk_grid"]["configuration"]["chunk_shape"])
        for axis, runs in ragged.items():
            chunk_shapes[axis] = runs
        document["chunk_grid"] = {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": chunk_shapes},
        }
    return key, json.dumps(document).encode()


def _add_chunks(
    builder: ReferenceBuilder,
    part: _Part,
    own: ArrayKeys,
    array: ArrayKeys,
    shift: Sequence[int],
) -> None:
    """Add the references of an array of one set, its chunk coords shifted."""
    rows = part.rows.get(own.path)
    if rows is None:
        return
    ids = np.array([builder.url_id(url) for url in part.references.urls] or [0])
    coords = own.coords_of(rows.numbers) + np.array(shift, np.int64)
    inline = rows.url_ids == INLINE
    for row in np.flatnonzero(inline).tolist():
        data = part.references.reference(INLINE, int(rows.offsets[row]), int(rows.lengths[row])).data
        builder.add_data(array.prefix + array.encoding.encode(tuple(coords[row].tolist())), data or b"")
    others = rows.take(~inline)
    array.add_to(builder, coords[~inline], ids[others.url_ids], others.offsets, others.lengths)
