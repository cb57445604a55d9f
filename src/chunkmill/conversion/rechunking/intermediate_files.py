"""Temporary files: filled from whole source chunks, and read piece by piece.

A file belongs to one task of stage 1 and is one write; a piece is what one task of stage 2 needs of it, and one ranged
read::

    raw     | piece 0 | bits | piece 1 | bits | …                where each lies is arithmetic
    coded   | end of the index, of piece 0, of piece 1, … | piece 0 | bits | piece 1 | bits | …

The bits are the same behind every piece: one for each source chunk of the file, set when that chunk is there. Of a file
all of whose chunks are absent there is only the mark of that: what is neither there nor marked was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.metered import metered
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.base import ChunkSpec
from chunkmill.conversion.rechunking.plan import RechunkPlan
from chunkmill.conversion.rechunking.source_chunks import (
    ArrayRechunk,
    Part,
    chunk_parts,
    fetched,
    fill_values,
    n_ahead,
    shifted,
    unshifted,
    within,
)
from chunkmill.conversion.rechunking.tiled_copy import put_in_tiles
from chunkmill.errors import StoreError
from chunkmill.hints import Hint
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Overlap, Region
from chunkmill.runtime.job import TaskResult
from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.metered import Meter

__all__ = ["piece_parts", "spill_file"]


def spill_file(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> TaskResult:
    """Write one temporary file: `spec` is the array's number, and the file's."""
    rechunk, meter = rechunks[spec[0]], Meter()
    source = metered(rechunk.source, meter)
    file = rechunk.plan.files.coords_of(spec[1])
    key = _key(rechunk, file)
    value = _fill_raw(rechunk, source, file) if rechunk.coder is None else _fill_coded(rechunk, source, file)
    if value is None:
        key, value = f"{key}{_ABSENT}", memoryview(b"")
    rechunk.temporary.set(key, value)  # not through the meter: nobody asks for a checksum of what is soon gone
    counts = meter.counts()
    counts["n_requests"] += 1
    counts["bytes_written"] += value.nbytes
    return TaskResult(counts | {"bytes_temporary": value.nbytes})


_ABSENT = ".absent"


def _key(rechunk: ArrayRechunk, file: ChunkCoords) -> str:
    return f"{rechunk.prefix}{rechunk.plan.files.number_of(file)}"


def _fill_raw(rechunk: ArrayRechunk, source: StoredArray, file: ChunkCoords) -> memoryview | None:
    """Return a file whose pieces lie where `piece_span` says; ``None`` when all of it is absent."""
    plan = rechunk.plan
    spans = {piece.coords: (piece, *plan.piece_span(file, piece.coords)) for piece in plan.pieces(file)}
    *_, (_, _, offset, n_bytes) = spans.values()
    out = np.empty(offset + n_bytes, np.uint8)
    pieces = [piece for piece, *_ in spans.values()]
    tiles = _tiles(out, source.dtype, pieces)
    region = plan.files.region(file)
    if tiles is not None:
        bits = _scatter(rechunk, source, file, lambda at, values: put_in_tiles(tiles, unshifted(at, region), values))
    else:
        views = {
            coords: out[offset : offset + n_bytes - plan.trailer_bytes]
            .view(source.dtype)
            .reshape(region_shape(piece.in_region))
            for coords, (piece, _, offset, n_bytes) in spans.items()
        }
        bits = _scatter(rechunk, source, file, partial(_copy_into, plan.writes, _starts(pieces), views))
    if not bits.any():
        return None
    for _, _, offset, n_bytes in spans.values():
        out[offset + n_bytes - plan.trailer_bytes : offset + n_bytes] = bits
    return out.data


def _tiles(out: NDArray[np.uint8], dtype: np.dtype[Any], pieces: Sequence[Overlap]) -> NDArray[Any] | None:
    """Return a file's memory as its pieces, without what follows each; ``None`` unless all have one shape."""
    shapes = {region_shape(piece.in_region) for piece in pieces}
    if len(shapes) > 1:
        return None
    (shape,) = shapes
    number = tuple(b - a + 1 for a, b in zip(pieces[0].coords, pieces[-1].coords, strict=True))
    elements = out.reshape(len(pieces), -1)[:, : prod(shape) * dtype.itemsize].view(dtype)
    return elements.reshape(*number, *shape)


def _starts(pieces: Sequence[Overlap]) -> dict[ChunkCoords, list[int]]:
    return {piece.coords: [cut.start for cut in piece.in_chunk] for piece in pieces}


def _fill_coded(rechunk: ArrayRechunk, source: StoredArray, file: ChunkCoords) -> memoryview | None:
    """Return a file that begins with where each of its pieces ends."""
    pieces = list(rechunk.plan.pieces(file))
    views = {piece.coords: np.empty(region_shape(piece.in_region), source.dtype) for piece in pieces}
    bits = _scatter(rechunk, source, file, partial(_copy_into, rechunk.plan.writes, _starts(pieces), views))
    if not bits.any():
        return None
    ends = np.zeros(len(pieces) + 1, "<u8")
    out = bytearray(ends.nbytes)
    ends[0] = len(out)
    for i, piece in enumerate(pieces):
        values = views.pop(piece.coords)
        spec = ChunkSpec(values.shape, values.dtype, source.fill_value)
        out += memoryview(rechunk.coder.encode(values, spec))  # type: ignore[union-attr,arg-type]
        out += bits.tobytes()
        ends[i + 1] = len(out)
    out[: ends.nbytes] = ends.tobytes()
    return memoryview(out)


def _scatter(
    rechunk: ArrayRechunk, source: StoredArray, file: ChunkCoords, copy: Callable[[Region, NDArray[Any]], None]
) -> NDArray[np.uint8]:
    """Copy every source chunk of a file into the pieces that it meets; return a bit for each chunk, set if it is there.

    Bits are padded to the size of a trailer.
    """
    plan = rechunk.plan
    region = plan.files.region(file)
    present = bytearray()
    for at, chunk in chunk_parts(rechunk, source, region):
        present.append(chunk is not None)
        copy(at, fill_values(source, region_shape(at)) if chunk is None else chunk)
        del chunk  # before the next one is fetched
    bits = np.zeros(plan.trailer_bytes, np.uint8)
    packed = np.packbits(np.frombuffer(present, bool))
    bits[: packed.size] = packed
    return bits


def _copy_into(
    boxes: ChunkGrid,
    starts: dict[ChunkCoords, list[int]],
    views: dict[ChunkCoords, NDArray[Any]],
    at: Region,
    values: NDArray[Any],
) -> None:
    """Copy values of the region `at` into views of parts of the boxes, which begin at `starts` in each box."""
    for overlap in boxes.overlaps(at):
        start = starts[overlap.coords]
        to = tuple(slice(cut.start - s, cut.stop - s) for cut, s in zip(overlap.in_chunk, start, strict=True))
        views[overlap.coords][within(to)] = values[within(overlap.in_region)]


# --------------------------------------------------------------------------------------------------------------------
# Reading


def piece_parts(rechunk: ArrayRechunk, store: Store, box: ChunkCoords) -> Iterator[Part]:
    """Yield what the files hold for one box: whole pieces, or where source chunks are absent, what there is of them."""
    plan = rechunk.plan
    region = plan.writes.region(box)
    overlaps = plan.files.overlaps(region)
    largest = plan.itemsize * prod(map(min, plan.writes.chunk_shape, plan.files.chunk_shape)) + plan.trailer_bytes
    while batch := list(islice(overlaps, n_ahead(rechunk, largest))):
        spans = _piece_spans(rechunk, store, [overlap.coords for overlap in batch], box)
        results = fetched(store, spans)
        for overlap in batch:
            at = shifted(overlap.in_region, region)
            data = next(results)
            if data is None:
                _check_marked(rechunk, store, overlap.coords)
                yield at, None
                continue
            bits = np.frombuffer(data, np.uint8)[len(data) - plan.trailer_bytes :]
            values = _decoded_piece(rechunk, data, region_shape(at))
            del data
            yield from _present_parts(plan, overlap.coords, at, values, bits)
            del values, bits


def _piece_spans(
    rechunk: ArrayRechunk, store: Store, files: Sequence[ChunkCoords], box: ChunkCoords
) -> list[ByteSpan | None]:
    """Return where the pieces of a box lie in files; of encoded ones the files' indexes are asked."""
    keys = [_key(rechunk, file) for file in files]
    places = [rechunk.plan.piece_span(file, box) for file in files]
    if rechunk.coder is None:
        return [ByteSpan(key, ByteRange(*place[1:])) for key, place in zip(keys, places, strict=True)]
    indexes = [ByteSpan(key, ByteRange(8 * number, 16)) for key, (number, *_) in zip(keys, places, strict=True)]
    return [
        None if ends is None else ByteSpan(key, _between(*np.frombuffer(ends, "<u8").tolist()))
        for key, ends in zip(keys, fetched(store, indexes), strict=True)
    ]


def _between(start: int, stop: int) -> ByteRange:
    return ByteRange(start, stop - start)


def _check_marked(rechunk: ArrayRechunk, store: Store, file: ChunkCoords) -> None:
    """Raise `StoreError` when a temporary file is gone that was there."""
    key = _key(rechunk, file)
    if store.get(f"{key}{_ABSENT}") is None:
        reason = Hint("this temporary file was written and is gone; run the job again with {}", ("resume", False))
        raise StoreError(url=store.url, key=key, reason=reason)


def _decoded_piece(rechunk: ArrayRechunk, data: bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    dtype, n_bytes = rechunk.source.dtype, len(data) - rechunk.plan.trailer_bytes
    if rechunk.coder is None:
        return np.frombuffer(data, np.uint8)[:n_bytes].view(dtype).reshape(shape)
    return rechunk.coder.decode(memoryview(data)[:n_bytes], ChunkSpec(shape, dtype, rechunk.source.fill_value))


def _present_parts(
    plan: RechunkPlan, file: ChunkCoords, at: Region, values: NDArray[Any], bits: NDArray[np.uint8]
) -> Iterator[Part]:
    """Yield a piece whole when all source chunks of its file are there; else chunk by chunk."""
    chunks, region = plan.source.chunks, plan.files.region(file)
    first = [axis.index(cut.start) for axis, cut in zip(chunks.axes, region, strict=True)]
    last = [axis.index(cut.stop - 1) for axis, cut in zip(chunks.axes, region, strict=True)]
    shape = tuple(b - a + 1 for a, b in zip(first, last, strict=True))
    present = np.unpackbits(bits, count=prod(shape)).astype(bool).reshape(shape)
    if present.all():
        yield at, values
        return
    for overlap in chunks.overlaps(at):
        there = present[tuple(i - n for i, n in zip(overlap.coords, first, strict=True))]
        yield shifted(overlap.in_region, at), values[within(overlap.in_region)] if there else None
