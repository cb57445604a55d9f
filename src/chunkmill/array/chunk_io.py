"""THE DATA PATH: an array over a store, read and written chunk by chunk.

``read_region`` → ``read_chunk`` → store → codecs, and back: each fits on a screen. What differs between formats,
stores and sharded or plain arrays was settled when the array was opened (`chunkmill.array.layout`).
Not here: documents and paths (`chunkmill.nodes.opening`), dask (`chunkmill.dask_arrays`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.layout import ChunkLayout
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.array.threads import LockFactory, cut_evenly, in_threads, local_lock
from chunkmill.codecs.base import Buffer, ChunkSpec
from chunkmill.codecs.elements import copy_rows, is_fill
from chunkmill.errors import ChunkError, RegionError
from chunkmill.log import LOG
from chunkmill.model.grid import ChunkCoords, Overlap, Region, Shape
from chunkmill.stores.base import REQUESTS_AT_ONCE, ByteSpan


def read_region(
    array: StoredArray, region: Region, *, n_threads: int = 1, on_absent: Callable[[], None] | None = None
) -> NDArray[Any]:
    """Read `region`, whatever chunks it cuts, to a writable array in C order.

    Whole store keys are read and decoded at once, parts of shards by range. A task of a scheduler leaves `n_threads` 1.
    `on_absent` is called once, after chunks were asked for that do not exist.
    """
    layout = array.write_layout
    only = layout.grid.only_overlap(region)
    whole = only.whole if only else layout.grid.aligned(region)
    # a whole shard does not tell which of its chunks are absent
    if only and not whole and array.store.is_remote:  # what is read in vain costs less than a request for the index
        n_in_vain = prod(layout.spec(only.coords).shape) - prod(region_shape(region))
        whole = n_in_vain * array.dtype.itemsize <= _IN_VAIN
    if layout is not array.read_layout and (not whole or array.read_missing == "error"):
        layout = array.read_layout
        only = layout.grid.only_overlap(region)
    if only is not None:
        return _writable(read_chunk(array, layout, only.coords, only.in_chunk, on_absent=on_absent))
    block = _allocate(array, region)
    overlaps = layout.grid.overlaps(region)
    any_absent = False
    while batch := list(islice(overlaps, _BATCH)):
        spans = layout.locator.locate(array.store, [overlap.coords for overlap in batch])
        if n_threads > 1 and layout is not array.write_layout:  # neighbours by one thread, no byte by two
            order = sorted(range(len(batch)), key=lambda i: _place(spans[i]))
            batch, spans = [batch[i] for i in order], [spans[i] for i in order]

        def fill(part: slice, batch: list[Overlap] = batch, spans: Sequence[ByteSpan | None] = spans) -> bool:
            values = _fetch(array, layout, [overlap.coords for overlap in batch[part]], spans[part])
            absent = False
            for overlap, data in zip(batch[part], values, strict=True):
                absent |= data is None
                _decode_part(array, layout, overlap, data, block[overlap.in_region])
            return absent

        # requests that cost latency go together, so that each thread has many on their way
        n_parts = n_threads if array.store.is_remote else _PARTS_A_THREAD * n_threads
        n = n_threads if block.nbytes > _WORTH_A_THREAD else 1
        any_absent |= any(list(in_threads(fill, cut_evenly(len(batch), n_parts), n)))
    if any_absent and on_absent is not None:
        on_absent()
    return block


def _place(span: ByteSpan | None) -> tuple[str, int]:
    return ("", 0) if span is None else (span.key, span.byte_range.start if span.byte_range else 0)


_IN_VAIN = 1 << 16  # bytes
_BATCH = 1 << 16  # chunks located at once: what is known of each of 10**9 chunks would not fit in memory
_PARTS_A_THREAD = 8  # of a batch, so that threads end together
_WORTH_A_THREAD = 1 << 19  # bytes


def read_chunks(
    array: StoredArray,
    layout: ChunkLayout,
    coords: Sequence[ChunkCoords],
    *,
    on_absent: Callable[[], None] | None = None,
) -> Iterator[NDArray[Any]]:
    """Yield chunks of `layout` in order, fetched at once where the store can; they may be read-only.

    `on_absent` is called in the end where one does not exist.
    """
    values = _fetch(array, layout, coords, layout.locator.locate(array.store, coords))
    any_absent = False
    for one, data in zip(coords, values, strict=True):
        any_absent |= data is None
        yield decode_chunk(array, layout, one, data)
    if any_absent and on_absent is not None:
        on_absent()


def _fetch(
    array: StoredArray, layout: ChunkLayout, coords: Sequence[ChunkCoords], spans: Sequence[ByteSpan | None]
) -> Iterator[bytes | None]:
    values = array.store.get_many(spans)
    for one in coords:
        with chunk_step(array, layout, one, "get"):
            data = next(values)
        if data is None:
            check_missing(array, layout, one)
        yield data


def read_chunk(
    array: StoredArray,
    layout: ChunkLayout,
    coords: ChunkCoords,
    part: Region,
    *,
    on_absent: Callable[[], None] | None = None,
) -> NDArray[Any]:
    """Read `part` of one chunk of `layout`; the array may be read-only."""
    with chunk_step(array, layout, coords, "get"):
        (span,) = layout.locator.locate(array.store, [coords])
        get = array.store.get_writable if layout.is_plain else array.store.get
        data = None if span is None else get(span.key, span.byte_range)
    if data is None:
        check_missing(array, layout, coords)
        if on_absent is not None:
            on_absent()
    dots: Any = (*part, ...)  # keep a 0-d array an array
    return decode_chunk(array, layout, coords, data)[dots]  # type: ignore[no-any-return]


def check_missing(array: StoredArray, layout: ChunkLayout, coords: ChunkCoords) -> None:
    """Raise `ChunkError` for an absent chunk of an array that was opened with ``read_missing="error"`` (P1)."""
    if array.read_missing == "error":
        reason = "absent, and the array was opened with read_missing='error'"
        raise ChunkError(url=array.url, key=layout.locator.key(coords), coords=coords, step="get", reason=reason)


def decode_chunk(
    array: StoredArray, layout: ChunkLayout, coords: ChunkCoords, data: Buffer | None, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return a chunk in its declared shape, or `out` filled with it; absent data is the fill value."""
    spec = layout.spec(coords)
    with chunk_step(array, layout, coords, "decode"):
        if data is not None:
            return layout.codecs.decode(data, spec, out)
        return fill_values(spec, spec.shape)  # which may be larger than numpy can count


def fill_values(array: StoredArray | ChunkSpec, shape: Shape) -> NDArray[Any]:
    """Return the values of absent chunks: one element, seen `shape` times, so that they cost no memory."""
    fill, dtype = array.fill_value, array.dtype
    return np.broadcast_to(np.zeros((), dtype) if fill is None else np.full((), fill, dtype), shape)


def _decode_part(
    array: StoredArray, layout: ChunkLayout, overlap: Overlap, data: bytes | None, out: NDArray[Any]
) -> None:
    """Decode a chunk and copy its overlap with a region into `out`."""
    if out.shape == layout.spec(overlap.coords).shape:
        chunk = decode_chunk(array, layout, overlap.coords, data, out)
    else:
        chunk = decode_chunk(array, layout, overlap.coords, data)[overlap.in_chunk]
    if chunk is not out:
        copy_rows(out, chunk)


def write_chunk(
    array: StoredArray,
    coords: ChunkCoords,
    chunk: NDArray[Any],
    *,
    write_empty: bool = False,
    begin: Callable[[Callable[[], None]], object] = lambda store: store(),
) -> int:
    """Write the extent of one store key's chunk whole, and return the bytes stored.

    A chunk that equals the fill value bit for bit is deleted instead (0 bytes), unless `write_empty`. `begin` calls
    what it is given, which stores the value or deletes the key, now or later.
    """
    layout = array.write_layout
    key = layout.locator.key(coords)
    data = encode_chunk(array, layout, coords, chunk, write_empty=write_empty)
    with chunk_step(array, layout, coords, "set"):
        if data is None:
            begin(lambda: array.store.delete(key))
            return 0
        begin(lambda: array.store.set(key, data))
    return memoryview(data).nbytes


def encode_chunk(
    array: StoredArray, layout: ChunkLayout, coords: ChunkCoords, chunk: NDArray[Any], *, write_empty: bool
) -> Any:
    """Return the encoded chunk, or ``None`` when it is empty."""
    spec = layout.spec(coords)
    # an undefined fill value leaves nothing out: what other readers give for an absent chunk is chance then
    if not write_empty and spec.fill_value is not None and is_fill(chunk, spec.fill_value):
        return None
    with chunk_step(array, layout, coords, "encode"):
        if chunk.shape != spec.shape:
            if array.metadata.edge_chunks == "truncated":
                spec = type(spec)(chunk.shape, spec.dtype, spec.fill_value)
            else:
                padded = np.full(spec.shape, 0 if spec.fill_value is None else spec.fill_value, spec.dtype)
                padded[layout.grid.extent(coords)] = chunk
                chunk = padded
        return layout.codecs.encode(chunk, spec)


def write_region(
    array: StoredArray,
    region: Region,
    block: NDArray[Any],
    *,
    lock: LockFactory | None = None,
    n_threads: int = 1,
) -> None:
    """Write `block` to `region`.

    Store keys covered whole are written without reading; the others are changed by `update_chunk`. A task of a
    scheduler leaves `n_threads` 1.
    """
    overlaps = array.write_layout.grid.overlaps(region)
    while batch := list(islice(overlaps, _BATCH)):

        def write(part: slice, batch: list[Overlap] = batch) -> None:
            for overlap in batch[part]:
                at: Any = (*overlap.in_region, ...)  # the dots keep a 0-d block an array
                write_overlap(array, overlap, block[at], lock=lock, write_empty=False)

        n = max(n_threads if block.nbytes > _WORTH_A_THREAD else 1, puts_at_once(array, batch))
        in_threads(write, cut_evenly(len(batch), _PARTS_A_THREAD * n), n)


def puts_at_once(array: StoredArray, overlaps: Sequence[Overlap]) -> int:
    """Return how many store keys one write may store concurrently: many where requests cost latency."""
    # the locks of parts of chunks want the thread that asked for them
    return REQUESTS_AT_ONCE if array.store.is_remote and all(overlap.whole for overlap in overlaps) else 1


def write_overlap(
    array: StoredArray, overlap: Overlap, part: NDArray[Any], *, lock: LockFactory | None, write_empty: bool
) -> tuple[int, int, int]:
    """Write the overlap of a region with one store key, and return what `update_chunk` does."""
    if overlap.whole:
        return write_chunk(array, overlap.coords, part, write_empty=write_empty), 0, 0
    return update_chunk(array, overlap, part, lock=lock, write_empty=write_empty)


def update_chunk(
    array: StoredArray,
    overlap: Overlap,
    part: NDArray[Any],
    *,
    lock: LockFactory | None = None,
    write_empty: bool = False,
    fields: Any = ...,
) -> tuple[int, int, int]:
    """Read one store key's chunk, change its overlap with a region, and write it back.

    Returned are the bytes stored, how often others had changed the chunk, and nanoseconds that locks were waited for.
    Of a structured dtype, only the field with the name `fields` changes, if it is given.

    The lock keeps writers from working in vain; that nothing is lost is the store's version check: what was changed
    since it was read is read again. Until a version conflict shows other writers, a process-local lock is enough.
    """
    layout, coords = array.write_layout, overlap.coords
    key = layout.locator.key(coords)
    contended = not array.store.compares_versions  # where versions cannot be checked, the lock is all there is
    seen: str | None = "nothing yet"
    n_refused = n_retried = waited = 0
    while n_refused < _MAX_REFUSED:
        waited -= time.monotonic_ns()
        with (lock or local_lock)(f"{array.url}/{key}", contended):
            waited += time.monotonic_ns()
            with chunk_step(array, layout, coords, "get"):
                data, version = array.store.get_versioned(key)
            n_refused = n_refused + 1 if version == seen else 0
            extent: tuple[Any, ...] = (*layout.grid.extent(coords), ...)  # the dots keep a 0-d array an array
            with chunk_step(array, layout, coords, "decode"):  # a chunk that does not fit into memory, too
                chunk = _writable(decode_chunk(array, layout, coords, data)[extent])
            chunk[fields][overlap.in_chunk] = part
            keep = write_empty or (version is not None and not array.store.deletes_conditionally)
            encoded = encode_chunk(array, layout, coords, chunk, write_empty=keep)
            with chunk_step(array, layout, coords, "set"):
                if array.store.set_if(key, encoded, version):
                    return 0 if encoded is None else memoryview(encoded).nbytes, n_retried, waited
        LOG.info("%s/%s was changed by another writer; it is read again", array.url, key)
        seen, contended, n_retried = version, True, n_retried + 1
    reason = f"the store refused {n_refused} times to replace the version that it gave out"
    raise ChunkError(url=array.url, key=key, coords=coords, step="set", reason=reason)


_MAX_REFUSED = 100  # others' writes do not count: where versions change, somebody gets on


def _allocate(array: StoredArray, region: Region) -> NDArray[Any]:
    shape = region_shape(region)
    try:
        return np.empty(shape, array.dtype)
    except (MemoryError, ValueError) as error:
        raise RegionError(index=f"{region!r:.200}", shape=array.shape, reason=str(error)) from None


def _writable(block: NDArray[Any]) -> NDArray[Any]:
    """Return `block`, or a copy when it is read-only, not in C order, or a view that keeps more memory alive."""
    # read-only blocks are refused by cython and numba kernels
    owner = block
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    alone = owner.flags.owndata and owner.nbytes == block.nbytes
    return block if alone and block.flags.writeable and block.flags.c_contiguous else block.copy(order="C")
