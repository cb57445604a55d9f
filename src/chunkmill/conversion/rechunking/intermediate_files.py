"""Intermediate files: filled from whole source chunks, and read section by section.

Values are copied into arrays of equal tiles, each contiguous in memory, with one copy for all whole tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import fill_values
from chunkmill.array.present_keys import touch
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, metered_source
from chunkmill.codecs.elements import copy_rows
from chunkmill.conversion.rechunking.source_chunks import (
    ArrayRechunk,
    RegionValues,
    SourceReads,
    fetched,
    n_ahead,
    shifted,
    source_values,
    unshifted,
    within,
)
from chunkmill.errors import StoreError
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import MOST_AXES, ChunkCoords, ChunkGrid, Overlap, Region
from chunkmill.runtime.stage import TaskResult
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.wrapper import Meter, MeteredStore, guarded

MAX_TILED_AXES = MOST_AXES // 2
"""Tiles have two axes for each of the array."""


def put_in_tiles(tiles: NDArray[Any], at: Region, values: NDArray[Any]) -> None:
    """Copy `values` into the tiles, to the region `at` counted from the start of the first tile.

    Parameters
    ----------
    tiles
        Of shape ``(*number along each axis, *shape of a tile)``.

    Examples
    --------
    >>> import numpy as np
    >>> tiles = np.zeros((2, 2, 1, 3), int)
    >>> put_in_tiles(tiles, (slice(0, 2), slice(2, 6)), np.arange(8).reshape(2, 4))
    >>> tiles[0, 1], tiles[1, 0]
    (array([[1, 2, 3]]), array([[0, 0, 4]]))
    """
    ndim = len(at)
    axes = [_split(cut, size) for cut, size in zip(at, tiles.shape[ndim:], strict=True)]
    for parts in product(*axes):
        which, inside, taken, shape = zip(*parts, strict=True) if parts else ((), (), (), ())
        place = tiles[(*which, *inside, ...)].transpose([axis for i in range(ndim) for axis in (i, ndim + i)])
        copy_rows(place, values[(*taken, ...)].reshape([n for pair in shape for n in pair]))


def _split(cut: slice, size: int) -> list[tuple[slice, slice, slice, tuple[int, int]]]:
    """Divide a slice of an axis into its overlaps with the first tile, with whole ones, and with the last.

    Of each: the tiles, the slice inside them, the slice of the values, and its shape in tiles and elements.
    """
    found = []
    start = cut.start
    while start < cut.stop:
        tile, skipped = divmod(start, size)
        whole = (cut.stop - start) // size if skipped == 0 else 0
        length = whole * size or min(size - skipped, cut.stop - start)
        inside = slice(0, size) if whole else slice(skipped, skipped + length)
        taken = slice(start - cut.start, start - cut.start + length)
        shape = (whole, size) if whole else (1, length)
        found.append((slice(tile, tile + max(whole, 1)), inside, taken, shape))
        start += length
    return found


def write_intermediate_file(rechunks: Sequence[ArrayRechunk], spec: tuple[Any, ...]) -> TaskResult:
    """Write one intermediate file: `spec` is the array's number, the file's, and which source keys there are."""
    rechunk, number = ArrayRechunk.of_task(rechunks, spec)
    meter = Meter()
    source = metered_source(rechunk.source, meter)
    file = rechunk.plan.files.coords_of(number)
    key, region = _key(rechunk, file), rechunk.plan.files.region(file)
    reads = SourceReads()
    file_meter = Meter()
    store = MeteredStore(guarded(rechunk.intermediate), file_meter)
    value = _filled(rechunk, source, region, reads)
    if value is None:
        store.delete(key)  # of an earlier attempt, which met values
        store.set(f"{key}{_ABSENT}", b"")
    else:
        store.set(key, value)
    counts = meter.counts()
    counts["n_requests"] += file_meter.n_requests
    counts["bytes_written"] += file_meter.bytes_written
    counts |= reads.counts() | {"bytes_temporary": file_meter.bytes_written}
    return TaskResult(counts, file_meter.writes, reads=meter.digest())


_ABSENT = ".absent"  # of a file that would hold nothing


def _key(rechunk: ArrayRechunk, file: ChunkCoords) -> str:
    return f"{rechunk.prefix}{rechunk.plan.files.number_of(file)}"


def _filled(rechunk: ArrayRechunk, source: StoredArray, file: Region, reads: SourceReads) -> memoryview | None:
    """Return a file with its sections at the offsets of `section_span`; ``None`` when all of it is absent."""
    plan = rechunk.plan
    spans = {section.coords: (section, *plan.section_span(file, section.coords)) for section in plan.sections(file)}
    *_, (_, offset, n_bytes) = spans.values()
    out = np.empty(offset + n_bytes, np.uint8)
    sections = [section for section, *_ in spans.values()]
    tiles = _tiles(out, source.dtype, sections)
    if tiles is not None:
        bits = _scatter(
            rechunk, source, file, reads, lambda at, values: put_in_tiles(tiles, unshifted(at, file), values)
        )
    else:
        views = {}
        for coords, (section, offset, n_bytes) in spans.items():
            values = out[offset : offset + n_bytes - plan.trailer_bytes].view(source.dtype)
            view = values.reshape(region_shape(section.in_region))
            views[coords] = [cut.start for cut in section.in_chunk], view
        bits = _scatter(rechunk, source, file, reads, partial(_copy_into, plan.writes, views))
    if not bits.any():
        return None
    for _, offset, n_bytes in spans.values():
        out[offset + n_bytes - plan.trailer_bytes : offset + n_bytes] = bits
    return out.data


def _tiles(out: NDArray[np.uint8], dtype: np.dtype[Any], sections: Sequence[Overlap]) -> NDArray[Any] | None:
    """Return the sections of a file as one array, without their trailers; ``None`` unless all have one shape."""
    shape, *others = {region_shape(section.in_region) for section in sections}
    if others or len(shape) > MAX_TILED_AXES:
        return None
    number = tuple(b - a + 1 for a, b in zip(sections[0].coords, sections[-1].coords, strict=True))
    elements = out.reshape(len(sections), -1)[:, : prod(shape) * dtype.itemsize].view(dtype)
    return elements.reshape(*number, *shape)


def _scatter(
    rechunk: ArrayRechunk,
    source: StoredArray,
    file: Region,
    reads: SourceReads,
    copy: Callable[[Region, NDArray[Any]], None],
) -> NDArray[np.uint8]:
    """Copy every source chunk of a file into the sections that it overlaps.

    Return a bit for each chunk, set if the chunk is present, padded to the size of a trailer.
    """
    plan = rechunk.plan
    present = bytearray()
    for at, chunk in source_values(rechunk, source, file, reads):
        present.append(chunk is not None)
        copy(at, fill_values(source, region_shape(at)) if chunk is None else chunk)
        del chunk  # before the next one is fetched
    bits = np.zeros(plan.trailer_bytes, np.uint8)
    packed = np.packbits(np.frombuffer(present, bool))
    bits[: packed.size] = packed
    return bits


def _copy_into(
    blocks: ChunkGrid, views: dict[ChunkCoords, tuple[list[int], NDArray[Any]]], at: Region, values: NDArray[Any]
) -> None:
    """Copy values of the region `at` into views of the blocks, each with its start in its block."""
    for overlap in blocks.overlaps(at):
        start, view = views[overlap.coords]
        to = tuple(slice(cut.start - s, cut.stop - s) for cut, s in zip(overlap.in_chunk, start, strict=True))
        view[within(to)] = values[within(overlap.in_region)]


# --------------------------------------------------------------------------------------------------------------------
# Reading


def intermediate_values(rechunk: ArrayRechunk, meter: Meter, block: ChunkCoords) -> Iterator[RegionValues]:
    """Yield the values of one block from its sections of all files.

    Whole sections; where some source chunks of a file are absent, chunk by chunk. `StoreError` where a file that was
    written is gone: its task is run again (P7).
    """
    plan, store = rechunk.plan, MeteredStore(rechunk.intermediate, meter, is_source=True)
    region = plan.writes.region(block)
    overlaps = plan.files.overlaps(region)
    largest = plan.itemsize * prod(map(min, plan.writes.chunk_shape, plan.files.chunk_shape)) + plan.trailer_bytes
    written = _written_files(rechunk)
    while batch := list(islice(overlaps, n_ahead(rechunk, largest))):
        if written is not None:
            yield from ((shifted(o.in_region, region), None) for o in batch if o.coords not in written)
            batch = [overlap for overlap in batch if overlap.coords in written]
        results = fetched(store, [_section(rechunk, overlap.coords, block) for overlap in batch])
        for overlap in batch:
            at, data = shifted(overlap.in_region, region), next(results)
            if data is not None:
                yield from _section_values(rechunk, plan.files.region(overlap.coords), at, data)
            elif store.get(f"{(key := _key(rechunk, overlap.coords))}{_ABSENT}") is not None:
                yield at, None
            else:
                reason = "this intermediate file was written and is gone; run the job again, which writes it again"
                raise StoreError(url=store.url, key=key, reason=reason)
            del data


def _section_values(rechunk: ArrayRechunk, file: Region, at: Region, data: bytes) -> Iterator[RegionValues]:
    """Yield a section of the file of a region: whole where all source chunks of that are present; else by chunks."""
    values, bits = np.split(np.frombuffer(data, np.uint8), [len(data) - rechunk.plan.trailer_bytes])
    values, chunks = values.view(rechunk.source.dtype).reshape(region_shape(at)), rechunk.plan.source.chunks
    first = [axis.index(cut.start) for axis, cut in zip(chunks.axes, file, strict=True)]
    last = [axis.index(cut.stop - 1) for axis, cut in zip(chunks.axes, file, strict=True)]
    shape = tuple(b - a + 1 for a, b in zip(first, last, strict=True))
    present = np.unpackbits(bits, count=prod(shape)).astype(bool).reshape(shape)
    if present.all():
        yield at, values
        return
    for overlap in chunks.overlaps(at):
        there = present[tuple(i - n for i, n in zip(overlap.coords, first, strict=True))]
        yield shifted(overlap.in_region, at), values[within(overlap.in_region)] if there else None


def _section(rechunk: ArrayRechunk, file: ChunkCoords, block: ChunkCoords) -> ByteSpan:
    """Return the span of a block's section in a file."""
    return ByteSpan(_key(rechunk, file), ByteRange(*rechunk.plan.section_span(rechunk.plan.files.region(file), block)))


def write_inputs(rechunks: Sequence[ArrayRechunk], spec: tuple[Any, ...]) -> Iterator[StoreKeys]:
    """Yield what the task of a block reads: files, or where there are none, the source."""
    rechunk, number = ArrayRechunk.of_task(rechunks, spec)
    plan = rechunk.plan
    block = plan.writes.coords_of(number)
    if plan.reads is None or rechunk.by_key:
        yield StoreKeys.of(rechunk.source, plan.writes.region(block), rechunk.present)
        return
    written = _written_files(rechunk)
    files = (overlap.coords for overlap in plan.files.overlaps(plan.writes.region(block)))
    keys = [_key(rechunk, file) for file in files if written is None or file in written]
    yield StoreKeys(rechunk.intermediate, rechunk.prefix, [f"{key}{end}" for key in keys for end in ("", _ABSENT)])


def _written_files(rechunk: ArrayRechunk) -> set[ChunkCoords] | None:
    """Return the files that the listed source keys of a task went into; ``None`` where all were written."""
    if rechunk.present is None:
        return None
    touched = touch(rechunk.present, rechunk.source.write_layout.grid, rechunk.plan.files)
    return None if touched is None else {rechunk.plan.files.coords_of(number) for number in touched.numbers.tolist()}
