"""Change the shape of an array in its store, and append to it.

The document is changed while it is what was read, as every document is; then what is stored outside the new bounds, or
was stored outside the old ones, is removed, so that new elements hold the fill value. While this runs, other writers of
the array are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from chunkmill.array.chunk_io import decode_chunk, encode_chunk, write_region
from chunkmill.array.staleness import as_it_is_now
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import BackgroundCalls, own_threads
from chunkmill.codecs.is_fill import is_fill
from chunkmill.errors import AlignmentError, NodeNotFound, RegionError, StoreError
from chunkmill.formats.base import Format
from chunkmill.hints import Hint
from chunkmill.journal.lease import check_no_job, leased
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.model.user_values import plain, spread
from chunkmill.nodes import deferred_imports, documents
from chunkmill.nodes.consolidated import refresh_consolidated
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store
from chunkmill.stores.capabilities import deletes_conditionally, flush
from chunkmill.stores.conflicts import swap, update

__all__ = ["append", "resize"]


def resize(array: StoredArray, shape: int | Sequence[int]) -> ArrayMetadata:
    """Change the shape of an array in its store, and return its metadata (see `chunkmill.Array.resize`)."""
    new = _checked(shape, array)
    with _at_work(array, "resize") as there:
        stored = _stored(there)
        kept = tuple(map(min, stored.shape, new))
        if kept != stored.shape or kept == new:
            _shrink(there, kept, array.store)
        return _grow(there, new, array.store) if kept != new else _stored(there)


def append(array: StoredArray, values: Any, axis: int) -> ArrayMetadata:
    """Write values after the last ones along an axis, and return the metadata (see `chunkmill.Array.append`)."""
    if not -array.ndim <= axis < array.ndim:
        reason = f"axis {axis} of an array with {array.ndim} axes"
        raise RegionError(index=f"axis={axis}", shape=array.shape, reason=reason)
    axis %= array.ndim
    is_lazy = isinstance(values, StoredArray) or _is_lazy(values)
    values = deferred_imports.as_dask(values) if is_lazy else plain(values)
    with _at_work(array, "append") as there:
        stored = _stored(there)
        region = _appended(stored.shape, values.shape, axis)
        longer = _resized(stored, [cut.stop for cut in region])
        before, target = replace(array, metadata=stored), replace(array, metadata=longer)
        if is_lazy:
            deferred_imports.write_appended(values, target, region, stored=before)
        else:
            shape = tuple(cut.stop - cut.start for cut in region)
            block = spread(values, array.dtype, shape)
            write_region(
                target.with_store(there.store),
                region,
                block,
                lock=deferred_imports.automatic_lock,
                n_threads=own_threads(),
            )
        return _publish(there, stored, longer.shape, array.store)


# --------------------------------------------------------------------------------------------------------------------
# Arguments


def _checked(shape: int | Sequence[int], array: StoredArray) -> tuple[int, ...]:
    lengths = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if len(lengths) != array.ndim:
        reason = f"{len(lengths)} lengths for {array.ndim} axes"
        raise RegionError(index=Hint("{}", ("shape", shape)), shape=array.shape, reason=reason)
    if any(isinstance(n, bool) or not hasattr(n, "__index__") or n < 0 for n in lengths):
        reason = "expected integers that are not negative"
        raise RegionError(index=Hint("{}", ("shape", shape)), shape=array.shape, reason=reason)
    return tuple(map(int, lengths))


def _is_lazy(values: Any) -> bool:
    """Return whether values are of a library whose arrays are read block by block."""
    return (
        hasattr(values, "__dask_graph__")
        or hasattr(values, "dims")
        or (hasattr(values, "shape") and not isinstance(values, (np.ndarray, np.generic)))
    )


def _appended(shape: tuple[int, ...], more: tuple[int, ...], axis: int) -> Region:
    """Return the region of the longer array that values of shape `more` become."""
    if len(more) != len(shape) or any(a != b for n, (a, b) in enumerate(zip(more, shape, strict=True)) if n != axis):
        expected = (*shape[:axis], "any", *shape[axis + 1 :])
        fix = f"append values that are as long as the array along all axes but {axis}"
        raise AlignmentError(expected=f"shape ({', '.join(map(str, expected))})", got=f"shape {more}", fix=fix)
    region = [slice(0, n) for n in shape]
    region[axis] = slice(shape[axis], shape[axis] + more[axis])
    return tuple(region)


# --------------------------------------------------------------------------------------------------------------------
# Documents


@contextmanager
def _at_work(array: StoredArray, what: str) -> Iterator[StoredArray]:
    """Refuse other writers of the array inside, which must be as it was opened, or longer.

    Its documents and chunks are those of the tree of keys that is there now, where the store can pin them: an
    array that replaces it meanwhile gets neither a value nor a shape of this one.
    """
    with leased(array.store, array.path, f"{what} {array.path!r} in {array.url}") as own:
        check_no_job(array.store, array.path, own_run=own.run, waits=True)
        yield as_it_is_now(array, may_grow=True)


def _stored(array: StoredArray) -> ArrayMetadata:
    """Return the metadata of the array in the store."""
    documents_format = _format(array)
    return _parsed(array, documents_format, documents.fetch(array.store, documents_format.array_keys(array.path)))


def _parsed(array: StoredArray, documents_format: Format, seen: documents.Documents) -> ArrayMetadata:
    stored = documents_format.parse_array(array.path, documents.present(seen))
    if stored is None:
        hint = "it was deleted or replaced after it was opened"
        raise NodeNotFound(url=array.url, path=array.path, hint=hint)
    return stored


def _format(array: StoredArray) -> Format:
    return documents.format_of_store(array.store, array.format)


def _resized(metadata: ArrayMetadata, shape: Sequence[int]) -> ArrayMetadata:
    return replace(metadata, chunk_grid=metadata.chunk_grid.resized(shape))


def _publish(array: StoredArray, expected: ArrayMetadata, shape: tuple[int, ...], whole: Store) -> ArrayMetadata:
    """Write the document with another shape, also while others change attributes; consolidated metadata follow.

    Those are read and written in the `whole` store: an array that replaces this one may be there by then.

    Raises
    ------
    StoreError
        The array is not as `expected` any more.
    """
    documents_format = _format(array)

    def emitted(seen: documents.Documents) -> Mapping[str, bytes | None]:
        stored = _parsed(array, documents_format, seen)
        if stored.identity != expected.identity:
            refresh_consolidated(whole, documents_format, [array.path])
            reason = f"array {array.path!r} was changed by others: its shape is {stored.shape}"
            raise StoreError(url=array.url, key=array.path, reason=f"{reason}; open it again, and do this again")
        new = documents_format.emit_array(array.path, _resized(stored, shape))
        if any(a < b for a, b in zip(shape, stored.shape, strict=True)):
            # first, so that nobody reads by them what is removed next, even if this is interrupted
            refresh_consolidated(whole, documents_format, [array.path], edit=partial(_document, new))
        return new

    seen = documents.change(array.store, documents_format, documents_format.array_keys(array.path), emitted)
    refresh_consolidated(whole, documents_format, [array.path])
    flush(whole)
    return _resized(_parsed(array, documents_format, seen), shape)


def _document(emitted: Mapping[str, bytes], key: str, stored: bytes) -> bytes:
    return emitted.get(key, stored)


# --------------------------------------------------------------------------------------------------------------------
# Chunks


def _shrink(array: StoredArray, shape: tuple[int, ...], whole: Store) -> None:
    """Publish a shape that is shorter, or the same, and remove what is stored outside it."""
    stored = _stored(array)
    after = replace(array, metadata=_publish(array, stored, shape, whole))
    grid = after.write_layout.grid
    with _calls(array) as calls:
        for key, coords in _stored_chunks(after):
            if _is_outside(grid, coords):
                calls.call(array.store.delete, key)
            elif _overhangs(grid, coords):
                calls.call(_reset, after, key, coords, grid)


def _grow(array: StoredArray, shape: tuple[int, ...], whole: Store) -> ArrayMetadata:
    """Publish a longer shape, and remove what interrupted writers left outside the old one.

    What is removed is what was there before the new shape was published: who opens the longer array may write at once.
    """
    stored = _stored(array)
    before = replace(array, metadata=stored)
    grid = before.write_layout.grid
    grown = [axis for axis, (a, b) in enumerate(zip(stored.shape, shape, strict=True)) if a != b]
    left = []
    for key, coords in _stored_chunks(before):
        if _is_outside(grid, coords) or _overhangs(grid, coords, grown):
            value, version = array.store.get_versioned(key)
            if value is not None and (_is_outside(grid, coords) or _must_change(before, coords, value)):
                left.append((key, coords, version))
    changed = _publish(array, stored, shape, whole)
    after = replace(array, metadata=changed)
    with _calls(array) as calls:
        for key, coords, version in left:
            calls.call(_reset, after, key, coords, grid, version)
    return changed


def _calls(array: StoredArray) -> BackgroundCalls:
    return BackgroundCalls(REQUESTS_AT_ONCE if array.store.is_remote else 0)


def _stored_chunks(array: StoredArray) -> Iterator[tuple[str, ChunkCoords]]:
    for key in list(array.stored_keys()):
        coords = array.metadata.chunk_keys.decode(key[len(array.prefix) :], array.ndim)
        if coords is not None:
            yield key, coords


def _is_outside(grid: ChunkGrid, coords: ChunkCoords) -> bool:
    return any(i >= n for i, n in zip(coords, grid.grid_shape, strict=True))


def _overhangs(grid: ChunkGrid, coords: ChunkCoords, axes: Sequence[int] | None = None) -> bool:
    """Return whether a chunk of the grid reaches past the end of one of the axes."""
    among = range(grid.ndim) if axes is None else axes
    return any(grid.axes[n].start(coords[n]) + grid.axes[n].length(coords[n]) > grid.axes[n].size for n in among)


def _must_change(array: StoredArray, coords: ChunkCoords, value: bytes) -> bool:
    """Return whether a chunk at the old end has to be written again: truncated ones are longer in a longer array."""
    return array.metadata.edge_chunks == "truncated" or _holds_more(array, coords, value, array.write_layout.grid)


def _holds_more(array: StoredArray, coords: ChunkCoords, value: bytes, bounds: ChunkGrid) -> bool:
    """Return whether a chunk holds other elements than the fill value outside `bounds`."""
    chunk = decode_chunk(array, array.write_layout, coords, value)
    fill = array.write_layout.spec(coords).fill_value
    extent = bounds.extent(coords)
    return any(
        not is_fill(chunk[(*(slice(None) for _ in range(axis)), slice(cut.stop, None))], fill)
        for axis, cut in enumerate(extent)
    )


_ANY: Any = object()


def _reset(array: StoredArray, key: str, coords: ChunkCoords, bounds: ChunkGrid, version: Any = _ANY) -> None:
    """Set the elements of a chunk outside `bounds` to the fill value; delete it where it is all outside.

    With a `version` only while the chunk is that: who wrote it since knew the new shape.
    """

    def cropped(value: bytes | None) -> bytes | None:
        return None if value is None or _is_outside(bounds, coords) else _cropped(array, coords, value, bounds)

    if version is _ANY:
        update(array.store, key, cropped)
        return
    value, found = array.store.get_versioned(key)
    if found == version and (data := cropped(value)) != value:
        swap(array.store, key, data, found)


def _cropped(array: StoredArray, coords: ChunkCoords, value: bytes, bounds: ChunkGrid) -> bytes | None:
    """Return a chunk with the fill value outside `bounds`; `value` itself where it has that already."""
    layout = array.write_layout
    if array.metadata.edge_chunks != "truncated" and not _holds_more(array, coords, value, bounds):
        return value
    chunk = np.array(decode_chunk(array, layout, coords, None))
    extent: tuple[Any, ...] = (*bounds.extent(coords), ...)
    chunk[extent] = decode_chunk(array, layout, coords, value)[extent]
    keep = not deletes_conditionally(array.store)
    data: bytes | None = encode_chunk(array, layout, coords, chunk[layout.grid.extent(coords)], write_empty=keep)
    return data
