"""Detect that an array was replaced in its store after it was opened: its metadata would misread the new chunks (P14).

A dask graph holds the metadata of its arrays and may be computed long after it was built. So readers that meet absent
chunks, or some that they cannot decode, compare the stored document with the metadata that they hold, and writers do
before and after. Not compared are attributes and dimension names.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_region
from chunkmill.array.present_keys import warn_of_nested_chunks
from chunkmill.array.stored_array import CHECK_INTERVAL, StoredArray
from chunkmill.array.threads import in_threads
from chunkmill.errors import ChunkError, ChunkmillError, MetadataError, StoreError
from chunkmill.formats.base import Format
from chunkmill.formats.registry import format_as_opened
from chunkmill.model.grid import ChunkGrid, Region
from chunkmill.model.metadata import ArrayMetadata, parents_of
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store, n_publications
from chunkmill.stores.wrapper import AsksAboutChunks

A = TypeVar("A", bound=StoredArray)


def check_unchanged(array: StoredArray, *, may_grow: bool) -> None:
    """Raise `StoreError` where the stored document of `array` no longer describes the chunks as `array` does.

    In a remote store an answer of a second ago will do, unless this process has published documents since.

    Parameters
    ----------
    may_grow
        Whether the stored array may have become longer: that harms readers of the shorter one no more than others'
        writes, while a writer would take the last chunks for shorter than they are.
    """
    seen, now, n = array.last_seen, time.monotonic(), n_publications()
    is_recent = array.store.is_remote and seen.n_publications == n and now < seen.valid_until
    if not is_recent or (seen.has_grown and not may_grow):
        _compare(array, may_grow=may_grow)
        seen.n_publications, seen.valid_until = n, time.monotonic() + CHECK_INTERVAL


@contextmanager
def written_to(array: A, stored: StoredArray | None) -> Iterator[A]:
    """Return `array` to write to inside, while `stored` is what is in the store; `StoreError` where that has changed.

    The document is looked at before and after, and before a part of a chunk is written, in remote stores only when
    another writer has changed that chunk. `stored` is `array` itself, or as it is until an append ends; ``None`` for an
    array that is not published yet.
    """
    if stored is None:
        yield array
        return
    check_unchanged(stored, may_grow=False)
    array.check_codecs()  # layouts are built once for the array, not for each copy of it
    try:
        yield array.with_store(AsksAboutChunks(array.store, partial(_compare, stored, may_grow=False)))
    except (ChunkError, StoreError):
        _compare(stored, may_grow=False)  # which says so if that is why
        raise
    check_unchanged(stored, may_grow=False)


def check_after_writing(arrays: Iterable[StoredArray]) -> None:
    """Raise `StoreError` where an array in a remote store was deleted or replaced while it was written to.

    One request for each when all is stored: `written_to` leaves a second in which tasks had not looked.
    """
    loose = [array for array in arrays if array.store.is_remote]
    each = [slice(i, i + 1) for i in range(len(loose))]
    in_threads(lambda at: _compare(loose[at.start], may_grow=False), each, REQUESTS_AT_ONCE)


def read_published(array: StoredArray, region: Region, *, n_threads: int = 1) -> NDArray[Any]:
    """Read `region`; `StoreError` where chunks are absent, or cannot be decoded, because the array was deleted.

    Documents are deleted before chunks: where the document is still there, the chunks were absent.
    """
    try:
        return read_region(array, region, n_threads=n_threads, on_absent=partial(check_still_there, array))
    except ChunkError:
        _compare(array, may_grow=True)
        raise


def check_still_there(array: StoredArray) -> None:
    """Raise `StoreError` where the array was deleted or replaced: asked after chunks were found absent."""
    if not array.last_seen.was_looked_for_nested:
        array.last_seen.was_looked_for_nested = True
        warn_of_nested_chunks(array)
    check_unchanged(array, may_grow=True)


def _compare(array: StoredArray, *, may_grow: bool) -> None:
    try:
        documents_format, key, documents = _documents(array)
    except OSError:
        return  # a store that fails: reading or writing the chunk will say so, with its key
    if documents == array.last_seen.documents:
        return
    if key not in documents or not _is_valid(array, documents_format, documents):
        known = not array.last_seen.was_found
        documents = by_consolidated_metadata(array.store, documents_format, array.path, key) if known else {}
        if not documents:
            raise _stale(array, key, "it has been deleted")
    else:
        array.last_seen.was_found = True
    stored = documents_format.parse_array(array.path, documents)
    if stored is None:
        raise _stale(array, key, "another node has taken its path")
    own = array.stored_metadata
    array.last_seen.has_grown = stored.shape != own.shape
    if array.has_own_fill_value:
        stored = replace(stored, fill_value=array.fill_value)
    changes = _differences(own, stored, may_grow=may_grow)
    if changes and (again := _as_stored(own, documents_format, array.path)) is not None:
        changes = _differences(again, stored, may_grow=may_grow)
    if changes:
        raise _stale(array, key, f"it has been replaced: {', '.join(changes)}")
    if not array.last_seen.has_grown:
        array.last_seen.documents = documents


def _documents(array: StoredArray) -> tuple[Format, str, dict[str, bytes]]:
    """Return the format, the key of the array's document, and the documents that exist."""
    store = array.store.uncached
    documents_format = format_as_opened(array.format, array.stored_metadata)
    if not documents_format.node_keys_known:
        root = {key: value for key in documents_format.root_keys() if (value := store.get(key)) is not None}
        documents_format = documents_format.configured(root) or documents_format
    key = documents_format.array_keys(array.path)[0]  # the others hold attributes
    value = store.get(key)
    return documents_format, key, {} if value is None else {key: value}


def _is_valid(array: StoredArray, documents_format: Format, documents: dict[str, bytes]) -> bool:
    """Return whether a document can be parsed; of no matter where another one than a copy of it was read."""
    try:
        documents_format.parse_array(array.path, documents)
    except MetadataError:
        if array.last_seen.was_found:
            raise
        return False
    return True


def by_consolidated_metadata(store: Store, documents_format: Format, path: str, key: str) -> dict[str, bytes]:
    """Return a document of a node in consolidated metadata, as they are now, where it is not stored by itself.

    Nothing where the node was deleted: nothing else of it is stored, but groups above it are documented.
    """
    store = store.uncached
    for group in parents_of(path):
        above = documents_format.consolidated_key(group)
        value = None if above is None else store.get(above)
        found = None if value is None else documents_format.parse_consolidated(group, value)
        if found is None or key not in found:
            continue
        alone = store.get(documents_format.group_keys(group)[0]) is None
        if alone or (store.can_list and store.list_dir(documents_format.chunk_prefix(path))):
            return {key: found[key]}
    return {}


def _as_stored(metadata: ArrayMetadata, documents_format: Format, path: str) -> ArrayMetadata | None:
    """Return metadata as they are read after they were written: a new array may hold defaults that are left out."""
    try:
        return documents_format.parse_array(path, documents_format.emit_array(path, metadata))
    except ChunkmillError:
        return None


def _differences(own: ArrayMetadata, stored: ArrayMetadata, *, may_grow: bool) -> list[str]:
    """Return the differences that matter to stored chunks, as ``shape (4,), now (8,)``."""
    found = [
        f"{name} {old}, now {new}"
        for name, old, new in (
            ("data type", own.dtype, stored.dtype),
            ("fill value", repr(own.fill_value), repr(stored.fill_value)),
            ("codecs", _names(own), _names(stored)),
            ("chunk keys", own.chunk_keys, stored.chunk_keys),
        )
        if old != new
    ]
    if own.codecs != stored.codecs and _names(own) == _names(stored):
        found.append(f"options of the codecs {_names(own)}")
    if own.shape != stored.shape and not (may_grow and _is_longer(own.chunk_grid, stored.chunk_grid)):
        found.insert(0, f"shape {own.shape}, now {stored.shape}")
    elif not _has_same_chunks(own.chunk_grid, stored.chunk_grid):
        found.insert(0, f"chunks {_lengths(own.chunk_grid)}, now {_lengths(stored.chunk_grid)}")
    return found


def _names(metadata: ArrayMetadata) -> str:
    return " ".join(codec.name for codec in metadata.codecs)


def _lengths(grid: ChunkGrid) -> str:
    return str(grid.chunk_shape) if grid.is_regular else f"of irregular lengths on a grid of {grid.grid_shape}"


def _is_longer(own: ChunkGrid, stored: ChunkGrid) -> bool:
    return own.ndim == stored.ndim and all(a <= b for a, b in zip(own.shape, stored.shape, strict=True))


def _has_same_chunks(own: ChunkGrid, stored: ChunkGrid) -> bool:
    """Return whether the chunks of `own` are chunks of the same declared extent in `stored`, which may be longer."""
    for a, b in zip(own.axes, stored.axes, strict=True):
        if type(a) is type(b) and replace(a, size=0) == replace(b, size=0):
            continue
        n = a.n_chunks
        if n > b.n_chunks or any(a.start(i) != b.start(i) or a.length(i) != b.length(i) for i in range(n)):
            return False
    return True


def _stale(array: StoredArray, key: str, change: str) -> StoreError:
    reason = f"array {array.path!r} is not as it was when it was opened: {change}; open it again, and build again what"
    return StoreError(url=array.url, key=key, reason=f"{reason} was computed from it")
