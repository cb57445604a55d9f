"""One array on its way to other chunks, and the values of a region of its source, part by part.

A part is one source chunk: decoded when it is asked for and forgotten before the next one is fetched, since each may be
as large as memory allows. Not here: temporary files (`chunkmill.conversion.rechunking.intermediate_files`), target
units (`chunkmill.conversion.rechunking.target_chunks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import check_missing, decode_chunk
from chunkmill.array.chunk_step import chunk_step
from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.conversion.rechunking.plan import RechunkPlan
from chunkmill.model.grid import Region
from chunkmill.stores.base import ByteSpan, Store

__all__ = [
    "ArrayRechunk",
    "Part",
    "box_reads",
    "box_shows",
    "chunk_parts",
    "fetched",
    "fill_values",
    "n_ahead",
    "shifted",
    "spill_reads",
    "spill_shows",
    "unshifted",
    "within",
]

Part = tuple[Region, NDArray[Any] | None]
"""A region of the array and its values; ``None`` where they are absent."""


@dataclass(frozen=True, slots=True)
class ArrayRechunk:
    """One array on its way to other chunks.

    Attributes
    ----------
    plan
        Who reads and writes what.
    temporary, prefix
        Where temporary files lie: keys are `prefix` and their number.
    coder
        Encodes pieces, where they are not raw.
    ahead_bytes
        What may be fetched before it is used, from stores whose requests cost latency.
    materialize
        Whether absent chunks are written out, because the target's fill value is another one.
    fresh
        Whether nothing lies below the target's keys yet, so that absent ones need not be deleted.
    """

    source: StoredArray
    target: StoredArray
    plan: RechunkPlan
    temporary: Store
    prefix: str
    coder: CodecPipeline | None = None
    ahead_bytes: int = 0
    materialize: bool = False
    fresh: bool = True


def chunk_parts(rechunk: ArrayRechunk, source: StoredArray, region: Region) -> Iterator[Part]:
    """Yield the part of every source chunk that lies in `region`, in C order; inner chunks, when sharded."""
    layout = source.read_layout
    overlaps = layout.grid.overlaps(region)
    largest = prod(layout.grid.chunk_shape) * source.dtype.itemsize
    while batch := list(islice(overlaps, n_ahead(rechunk, largest))):
        results = fetched(source.store, layout.locator.locate(source.store, [o.coords for o in batch]))
        for overlap in batch:
            with chunk_step(source, layout, overlap.coords, "get"):
                data = next(results)
            at = shifted(overlap.in_region, region)
            if data is None:
                check_missing(source, layout, overlap.coords)
                yield at, None
                continue
            chunk = decode_chunk(source, layout, overlap.coords, data)[within(overlap.in_chunk)]
            del data
            yield at, chunk
            del chunk


def spill_reads(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> Iterator[tuple[StoredArray, list[str]]]:
    """Yield which store keys of the source the task that writes a temporary file asks for."""
    rechunk = rechunks[spec[0]]
    region = rechunk.plan.files.region(rechunk.plan.files.coords_of(spec[1]))
    yield rechunk.source, rechunk.source.keys(region)


def box_reads(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> Iterator[tuple[StoredArray, list[str]]]:
    """Yield which store keys of the source the task that writes a box asks for: none, when it reads temporary files."""
    rechunk = rechunks[spec[0]]
    if rechunk.plan.reads is None:
        region = rechunk.plan.writes.region(rechunk.plan.writes.coords_of(spec[1]))
        yield rechunk.source, rechunk.source.keys(region)


def spill_shows(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> str:
    """Return the first store key of the source that goes into a temporary file."""
    rechunk = rechunks[spec[0]]
    return rechunk.source.first_key(rechunk.plan.files.region(rechunk.plan.files.coords_of(spec[1])))


def box_shows(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> str:
    """Return the first store key of the target that lies in a box."""
    rechunk = rechunks[spec[0]]
    return rechunk.target.first_key(rechunk.plan.writes.region(rechunk.plan.writes.coords_of(spec[1])))


_BATCH = 1 << 10
"""Chunks located at once where nothing is fetched ahead: shards' indexes are fetched anew for each batch."""


def n_ahead(rechunk: ArrayRechunk, largest_bytes: int) -> int:
    """Return how many requests may be on their way together."""
    return max(1, min(_BATCH, rechunk.ahead_bytes // max(1, largest_bytes))) if rechunk.ahead_bytes else _BATCH


def fetched(store: Store, spans: Sequence[ByteSpan | None]) -> Iterator[bytes | None]:
    """Yield what lies under `spans`: by `get_many` where that pays; it may hold on to what it has given out."""
    if store.is_remote:
        yield from store.get_many(spans)
        return
    for span in spans:
        yield None if span is None else store.get(span.key, span.byte_range)


def fill_values(array: StoredArray, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the values of absent chunks, as one element that is seen everywhere."""
    fill = array.fill_value
    return np.broadcast_to(np.zeros((), array.dtype) if fill is None else np.full((), fill, array.dtype), shape)


def shifted(region: Region, by: Region) -> Region:
    """Return `region`, counted from the start of `by`, in array coordinates."""
    return tuple(slice(a.start + b.start, a.stop + b.start) for a, b in zip(region, by, strict=True))


def unshifted(region: Region, by: Region) -> Region:
    """Return `region`, in array coordinates, counted from the start of `by`."""
    return tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(region, by, strict=True))


def within(region: Region) -> Any:
    """Return `region` as an index that leaves a 0-d array an array."""
    return (*region, ...)
