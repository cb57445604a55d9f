"""Join a scan's records on workers: tasks turn the references of some files into those of the joined set.

Neither references nor tables of chunks come to the client, which holds the documents and short arrays of each file
alone. Of a set in JSON the entries of some files are a text, which the client puts after that of others. A set in
parquet has its references by chunk numbers: a first stage sorts those of some files into pieces by the parquet file
that they belong to, and a second one writes the files. Each record is read once, along whatever axes files are joined.
Not here: documents and order of the files (`chunkmill.scans.join`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from chunkmill.formats.references.chunk_numbers import ArrayKeys, parse_array_keys
from chunkmill.formats.references.combine import Part, add_chunks, chunk_starts, has_chunks_of, joined_axes
from chunkmill.formats.references.json import emit_entries, emit_reference_json, parse_reference_json
from chunkmill.formats.references.parquet_write import record_files
from chunkmill.model.grid import Shape
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.scans.join import ParsedFile
from chunkmill.scans.places import Place
from chunkmill.scans.records import Records
from chunkmill.stores.base import Store

__all__ = ["FollowingArray", "JoinedElsewhere", "following_arrays"]

_CHUNKS_A_TASK = 200_000


@dataclass(frozen=True)
class FollowingArray:
    """An array of the joined set whose chunks are those of the files.

    Attributes
    ----------
    path
        In the files, and in the set.
    documents
        Of the joined array.
    axes
        Axes along which files follow one another, with the number of the dimension.
    starts
        By such an axis, the number of the first chunk at each place, and their total.
    grid_shape
        Of the joined array.
    """

    path: str
    documents: Mapping[str, bytes]
    axes: Mapping[int, int]
    starts: Mapping[int, Sequence[int]]
    grid_shape: Shape

    @cached_property
    def keys(self) -> ArrayKeys:
        """Numbering and keys of the chunks of the joined array."""
        found = parse_array_keys(self.path, self.documents, self.grid_shape)
        assert found is not None  # noqa: S101 - these are an array's
        return found

    def shift(self, place: Place) -> list[int]:
        """Return the coords of the first chunk of the file at a place."""
        return [
            self.starts[axis][place[self.axes[axis]]] if axis in self.axes else 0
            for axis in range(len(self.grid_shape))
        ]


def following_arrays(files: Sequence[ParsedFile], places: Sequence[Place], dims: Sequence[str]) -> list[FollowingArray]:
    """Return the arrays that have one of `dims`.

    Parameters
    ----------
    files, places
        Files without their references to chunks, and the place of each, as they are joined.
    """
    parts = [Part.of(each.references, each.url) for each in files]
    found = []
    for path, array in parts[0].arrays.items():
        if not (axes := joined_axes(parts[0], path, dims)):
            continue
        starts, grid_shape = {}, list(array.grid_shape)
        for axis, number in axes.items():
            lengths: dict[int, tuple[int, int]] = {}
            for part, place in zip(parts, places, strict=True):
                if place[number] not in lengths:
                    lengths[place[number]] = part.length(path, axis)
            starts[axis] = chunk_starts(length for _, length in sorted(lengths.items()))
            grid_shape[axis] = starts[axis][-1]
        found.append(FollowingArray(path, {}, axes, starts, tuple(grid_shape)))
    return found


@dataclass(frozen=True)
class JoinedElsewhere:
    """References of a joined set, to be written by tasks.

    Attributes
    ----------
    records, names, urls, places
        Records, and of each file the name of its record, url and place.
    n_chunks
        Of each file.
    arrays
        What is written.
    target
        Store of the set.
    record_size
        References in a parquet file; ``None`` for a set in JSON.
    pieces
        Prefix in the store of the records for what the first stage leaves.
    """

    records: Records
    names: Sequence[str]
    urls: Sequence[str]
    places: Sequence[Place]
    n_chunks: Sequence[int]
    arrays: Sequence[FollowingArray]
    target: Store
    record_size: int | None
    pieces: str

    def stages(self) -> list[Stage]:
        """Return the stages that write the references of `arrays`, or leave the texts of entries."""
        totals = [*accumulate(self.n_chunks, initial=0)]
        n_tasks = max(1, min(len(self.names), -(-totals[-1] // _CHUNKS_A_TASK)))
        cuts = {bisect_left(totals, totals[-1] * i // n_tasks) for i in range(n_tasks)}
        parts = [*pairwise(sorted({0, *cuts, len(self.names)}))]
        if self.record_size is None:
            return [Stage("scan-join", _write_entries, (self, 1), parts, shows=_shown)]
        if len(parts) == 1:
            return [Stage("scan-join", _write_files, (self, 1), parts, shows=_shown)]
        common = self, len(parts)
        files = Stage("scan-join", _write_files_of_pieces, common, range(len(parts)))
        return [Stage("scan-split", _write_pieces, common, parts, shows=_shown), files]

    def texts(self) -> list[bytes]:
        """Return the texts of entries, in the order of the files."""
        return list(self.records.pieces(self.pieces))

    def bucket_of(self, array: FollowingArray, numbers: NDArray[np.int64], n_buckets: int) -> NDArray[np.int64]:
        """Return the number of the task that writes each chunk, of about as many parquet files each."""
        size = self.record_size or 1
        n_files = [-(-each.keys.n_chunks // size) for each in self.arrays]
        before = sum(n_files[: self.arrays.index(array)])
        return (before + numbers // size) * n_buckets // sum(n_files)


def _shown(common: tuple[JoinedElsewhere, int], part: tuple[int, int]) -> str:
    return common[0].urls[part[0]]


def _chunks(common: JoinedElsewhere, part: tuple[int, int], builders: Sequence[ReferenceBuilder]) -> None:
    """Add the references of the files of a part, each to the builder of its bucket."""
    for i in range(*part):
        parsed = common.records.read(common.names[i], common.urls[i])
        found = Part.of(parsed.references, common.urls[i])
        for array in common.arrays:
            own, rows = found.arrays[array.path], found.rows.get(array.path)
            if rows is None or not has_chunks_of(common.places[i], array.axes):
                continue
            shift = array.shift(common.places[i])
            if len(builders) == 1:
                add_chunks(builders[0], found, own, array.keys, shift)
                continue
            coords = np.stack(np.unravel_index(rows.numbers, own.grid_shape)) + np.array(shift)[:, None]
            numbers = np.ravel_multi_index(tuple(coords), array.grid_shape)
            buckets = common.bucket_of(array, numbers, len(builders))
            for bucket in np.unique(buckets).tolist():
                add_chunks(builders[bucket], found, own, array.keys, shift, rows=rows.take(buckets == bucket))


def _write_entries(common: tuple[JoinedElsewhere, int], part: tuple[int, int]) -> TaskResult:
    """Leave the entries of some files as a text."""
    joined, builder = common[0], ReferenceBuilder()
    _chunks(joined, part, [builder])
    if text := b",\n".join(emit_entries(builder.build())):
        joined.records.put_piece(f"{joined.pieces}{part[0]:08}", text)
    return TaskResult({"n_written": 1})


def _write_pieces(common: tuple[JoinedElsewhere, int], part: tuple[int, int]) -> TaskResult:
    """Leave the references of some files in pieces, one for each task of the next stage."""
    joined, n_buckets = common
    builders = [ReferenceBuilder() for _ in range(n_buckets)]
    _chunks(joined, part, builders)
    n_written = 0
    for bucket, builder in enumerate(builders):
        if len(built := builder.build()):
            text = b"".join(emit_reference_json(built, version=0))
            joined.records.put_piece(f"{joined.pieces}{bucket}/{part[0]}", text)
            n_written += 1
    return TaskResult({"n_written": n_written})


def _write_files_of_pieces(common: tuple[JoinedElsewhere, int], bucket: int) -> TaskResult:
    """Write the parquet files of one bucket."""
    joined, builder = common[0], ReferenceBuilder()
    for text in joined.records.pieces(f"{joined.pieces}{bucket}/"):
        builder.add_set(parse_reference_json(text))
    return _write(joined, builder)


def _write_files(common: tuple[JoinedElsewhere, int], part: tuple[int, int]) -> TaskResult:
    """Write all parquet files."""
    builder = ReferenceBuilder()
    _chunks(common[0], part, [builder])
    return _write(common[0], builder)


def _write(joined: JoinedElsewhere, builder: ReferenceBuilder) -> TaskResult:
    for array in joined.arrays:
        for key, document in array.documents.items():
            builder.add_data(key, document)
    n_files = 0
    for name, value in record_files(builder.build(), record_size=joined.record_size or 1):
        joined.target.set(name, value)
        n_files += 1
    return TaskResult({"n_written": n_files})
