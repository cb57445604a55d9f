"""Join a scan's records on workers: each task writes some files of a parquet set, from the records that they span.

Neither references nor tables of chunks come to the client, which holds the documents and short arrays of each file
alone. That is possible where the dimension is the slowest axis of each array: the chunks of a file then have
consecutive numbers. Not here: other targets and axes, which the client joins (`chunkmill.scans.join`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod

from chunkmill.formats.references.chunk_numbers import ArrayKeys, parse_array_keys
from chunkmill.formats.references.combine import Part, add_chunks
from chunkmill.formats.references.parquet_write import record_files
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.scans.join import ParsedFile
from chunkmill.scans.records import Records
from chunkmill.stores.base import Store

__all__ = ["FollowingArray", "following_arrays", "partition_stage"]

_CHUNKS_A_TASK = 200_000


@dataclass(frozen=True)
class FollowingArray:
    """An array of the joined set whose chunks are those of the files, one file after the other.

    Attributes
    ----------
    path
        In the files, and in the set.
    documents
        Of the joined array.
    starts
        Number of the first chunk of each file along the first axis, and their total.
    """

    path: str
    documents: Mapping[str, bytes]
    starts: Sequence[int]

    @cached_property
    def keys(self) -> ArrayKeys:
        """Numbering and keys of the chunks of the joined array."""
        found = parse_array_keys(self.path, self.documents)
        assert found is not None  # noqa: S101 - these are an array's
        return found


@dataclass(frozen=True)
class _Common:
    records: Records
    names: Sequence[str]
    urls: Sequence[str]
    arrays: Sequence[FollowingArray]
    record_size: int
    target: Store


def partition_stage(
    records: Records,
    names: Sequence[str],
    urls: Sequence[str],
    arrays: Sequence[FollowingArray],
    *,
    record_size: int,
    target: Store,
) -> Stage:
    """Return the stage that writes the files of these arrays.

    Parameters
    ----------
    names, urls
        Records and files, in the order in which they follow.
    """
    common = _Common(records, names, urls, arrays, record_size, target)
    n_chunks = sum(array.keys.n_chunks for array in arrays)
    n_tasks = max(1, min(len(names), -(-n_chunks // _CHUNKS_A_TASK)))
    cuts = [len(names) * i // n_tasks for i in range(n_tasks + 1)]
    return Stage("scan-join", _write_partitions, common, [*pairwise(cuts)], shows=_shown)


def _shown(common: _Common, spec: tuple[int, int]) -> str:
    return common.urls[spec[0]]


def _write_partitions(common: _Common, spec: tuple[int, int]) -> TaskResult:
    """Write the parquet files whose first chunk is one of the files from ``spec[0]`` to ``spec[1]``."""
    builder = ReferenceBuilder()
    wanted: set[str] = set()
    spans: dict[str, range] = {}
    for array in common.arrays:
        owned, spans[array.path] = _owned(array, spec, common.record_size)
        wanted |= {f"{array.keys.prefix}refs.{n}.parq" for n in owned}
        for key, document in array.documents.items():
            builder.add_data(key, document)
    files = {number for span in spans.values() for number in span}
    for number in sorted(files):
        parsed = common.records.read(common.names[number], common.urls[number])
        part = Part.of(parsed.references, common.urls[number])
        for array in common.arrays:
            if number in spans[array.path]:
                shift = [array.starts[number], *[0] * (len(array.keys.grid_shape) - 1)]
                add_chunks(builder, part, part.arrays[array.path], array.keys, shift)
    n_files = 0
    for name, value in record_files(builder.build(), record_size=common.record_size):
        if name in wanted:
            common.target.set(name, value)
            n_files += 1
    return TaskResult({"n_written": n_files})


def _owned(array: FollowingArray, spec: tuple[int, int], record_size: int) -> tuple[range, range]:
    """Return the numbers of the parquet files that a task writes, and of the files whose chunks are in them."""
    inner = prod(array.keys.grid_shape[1:])
    first, stop = (-(-array.starts[at] * inner // record_size) for at in spec)
    if spec[1] == len(array.starts) - 1:
        stop = -(-array.keys.n_chunks // record_size)
    if not inner or first >= stop:
        return range(0), range(0)
    rows = range(first * record_size // inner, -(-stop * record_size // inner))
    begin = bisect_right(array.starts, rows.start) - 1
    return range(first, stop), range(begin, min(bisect_left(array.starts, rows.stop), len(array.starts) - 1))


def following_arrays(files: Sequence[ParsedFile], dim: str) -> list[FollowingArray] | None:
    """Return the arrays whose chunks follow one another; ``None`` where `dim` is not the first axis of each.

    Parameters
    ----------
    files
        In order; without their references to chunks.
    """
    parts = [Part.of(each.references, each.url) for each in files]
    axes = {path: axis for path in parts[0].arrays if (axis := parts[0].axis(path, dim)) is not None}
    if any(axes.values()):
        return None
    return [
        FollowingArray(path, {}, [*accumulate((-(-n // chunk) for n, chunk in lengths), initial=0)])
        for path in axes
        for lengths in [[part.length(path, 0) for part in parts]]
    ]
