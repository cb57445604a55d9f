"""A stored array as tasks carry it: store, path, metadata and layouts.

Not here: reading and writing (`chunkmill.array.chunk_io`), the public face (`chunkmill.nodes.array`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Literal, Self, cast

import numpy as np

from chunkmill.array.cropped import CroppedLayout, crop_layouts, kept_grid
from chunkmill.array.layout import ChunkLayout, build_layouts
from chunkmill.array.selection import full_region
from chunkmill.errors import ChunkError, ChunkmillError, CodecError, StoreError
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.model.metadata import JSON, ArrayMetadata, Attributes, NamedConfig, inner_grid
from chunkmill.stores.base import Store, n_publications
from chunkmill.stores.wrapper import ListedStore, Meter, MeteredStore, guarded, listed_keys

CHECK_INTERVAL = 1.0
"""Seconds after which tasks read the metadata of an array again, to see whether it was replaced."""

ReadMissing = Literal["fill", "error"]
"""Result of reading an absent chunk: its fill value, or `ChunkError`."""


@dataclass(slots=True)
class LastSeen:
    """When the stored document of an array was last known to be as its metadata (`chunkmill.array.staleness`).

    Attributes
    ----------
    n_publications
        Publications of this process until then; -1 in a process that has not read the document itself.
    valid_until
        Time, by ``time.monotonic``, until which the document need not be read again.
    was_found
        Whether the document has been read in addition to consolidated metadata that hold it.
    was_looked_for_nested
        Whether chunks under other keys have been looked for.
    has_grown
        Whether the array was longer in the store.
    documents
        The stored documents that were found to describe the array as its metadata do.
    """

    n_publications: int
    valid_until: float
    was_found: bool = False
    was_looked_for_nested: bool = False
    has_grown: bool = False
    documents: Mapping[str, bytes] | None = None


class ArrayFacts:
    """Facts that the metadata of an array say, in NumPy's words: of `StoredArray`, and of the public class."""

    store: Store
    metadata: ArrayMetadata

    @property
    def url(self) -> str:
        """Canonical url of the store."""
        return self.store.url

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis, slowest first."""
        return self.metadata.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.metadata.chunk_grid.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type in native byte order; numpy's ``StringDType`` for strings of variable length."""
        return self.metadata.dtype

    @property
    def fill_value(self) -> Any:
        """Value of absent chunks; ``None`` where the format leaves them undefined (they read as zeros)."""
        return self.metadata.fill_value

    @property
    def codecs(self) -> tuple[NamedConfig, ...]:
        """The codec chain in encode order, in Zarr v3's names."""
        return self.metadata.codecs

    @property
    def attributes(self) -> Mapping[str, JSON]:
        """User attributes, read-only: `chunkmill.Array.update_attributes` changes them."""
        return Attributes(self.metadata.attributes)

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Name of each axis, or ``None`` when the format holds none."""
        return self.metadata.dimension_names

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements decoded; strings of variable length count by their 16-byte handle."""
        return self.size * self.dtype.itemsize


@dataclass(eq=False, repr=False)
class StoredArray(ArrayFacts):
    """A chunked array in a store: metadata, layouts and the store itself; picklable, safe to use from many threads.

    It never changes: the public array, which holds one, takes another when it is resized or its attributes are set.

    Attributes
    ----------
    path
        Path of the array below the root of `store`, without leading slash.
    format
        Name of the format (``"zarr3"``).
    prefix
        Start of every chunk's store key.
    read_only
        Whether writing raises `StoreError`.
    read_missing
        Result of reading an absent chunk.
    has_own_fill_value
        Whether the fill value is the reader's, not the stored one.
    region
        The region that it is of the stored array; ``None``: all of it.
    whole
        Metadata of the stored array, where it is a region of it.
    """

    store: Store
    path: str
    metadata: ArrayMetadata
    format: str
    prefix: str
    read_only: bool = field(default=False, kw_only=True)
    read_missing: ReadMissing = field(default="fill", kw_only=True)
    has_own_fill_value: bool = field(default=False, kw_only=True)
    region: Region | None = field(default=None, kw_only=True)
    whole: ArrayMetadata | None = field(default=None, kw_only=True)
    last_seen: LastSeen = field(init=False)  # where the array was made, it has just been read or is about to be stored

    def __post_init__(self) -> None:
        check_read_missing(self.read_missing)
        self.last_seen = LastSeen(n_publications(), time.monotonic() + CHECK_INTERVAL)

    @cached_property
    def _layouts(self) -> tuple[ChunkLayout, ChunkLayout]:
        # when first asked for: of a group of a thousand arrays, few are read
        try:
            layouts = build_layouts(self.stored_metadata, self.prefix)
            return layouts if self.region is None else crop_layouts(layouts, self.region)
        except ChunkmillError as error:
            error.add_note(f"in the codecs of array {self.path!r} of {self.url}")
            raise

    @property
    def read_layout(self) -> ChunkLayout:
        """Layout by which single chunks are read."""
        return self._layouts[0]

    @property
    def write_layout(self) -> ChunkLayout:
        """Layout of store keys, read and written whole; the same object as `read_layout` unless sharded."""
        return self._layouts[1]

    @cached_property
    def chunk_grid(self) -> ChunkGrid:
        """The grid of chunks: of the inner ones, when sharded."""
        grid = inner_grid(self.metadata)
        if grid is not self.metadata.chunk_grid:
            self.check_codecs()  # a shard's shape is checked against its chunks' when the codecs are built
        return grid

    @property
    def stored_metadata(self) -> ArrayMetadata:
        """Metadata as the stored document must say them: `metadata`, unless this is a region of an array."""
        return self.whole or self.metadata

    @property
    def chunks(self) -> tuple[Any, ...]:
        """Chunk shape (of the inner chunks, when sharded); lengths per axis when the grid is rectilinear."""
        grid = self.chunk_grid
        return grid.chunk_shape if grid.is_regular else grid.dask_chunks

    @property
    def shards(self) -> tuple[Any, ...] | None:
        """Shard shape, or ``None`` when every chunk has a store key of its own."""
        grid = self.metadata.chunk_grid
        if self.chunk_grid is grid:
            return None
        return grid.chunk_shape if grid.is_regular else grid.dask_chunks

    def check_codecs(self) -> None:
        """Raise `UnknownCodec` or `CodecError` now rather than at the first chunk."""
        _ = self._layouts

    def check_writable(self) -> None:
        """Raise `StoreError` when the array was opened with ``mode="r"``."""
        if self.read_only:
            reason = "opened for reading only; open it with mode='r+' to write"
            raise StoreError(url=self.url, key=self.path, reason=reason)

    def with_store(self, store: Store) -> Self:
        """Return the array over another store; its layouts are shared."""
        return self._with(store=store)

    def with_read_missing(self, read_missing: ReadMissing) -> Self:
        """Return the array as if opened so: ``"error"`` raises `ChunkError` where a chunk is absent."""
        return self._with(read_missing=check_read_missing(read_missing))

    def crop(self, region: Region) -> Self:
        """Return a region of the array, for reading, its chunks cut at the region; the array where that is all of it.

        The metadata describe a copy of the region that keeps the lengths of the chunks: equal ones begin at the region.

        Examples
        --------
        >>> import chunkmill as cm
        >>> a = cm.create_array("memory://doc-crop", shape=(9,), dtype="i4", chunks=(4,))
        >>> a[...] = range(9)
        >>> part = a.stored.crop((slice(3, 9),))
        >>> cm.Array(part)[...], part.read_layout.grid.dask_chunks, part.chunk_grid.dask_chunks
        (array([3, 4, 5, 6, 7, 8], dtype=int32), ((1, 4, 1),), ((4, 2),))
        """
        if region == full_region(self.shape):
            return self
        kept = replace(self.metadata, chunk_grid=kept_grid(self.metadata.chunk_grid, region))
        return replace(self, metadata=kept, read_only=True, region=region, whole=self.metadata)

    def _with(self, **changed: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changed)
        return other

    def keys(self, region: Region) -> list[str]:
        """Return the store keys that hold elements of `region`, in C order."""
        grid, key = self.write_layout.grid, self.write_layout.locator.key
        along = zip(grid.first_touched(region), grid.within(region).grid_shape, strict=True)
        return list(map(key, product(*(range(first, first + n) for first, n in along))))

    def stored_keys(self) -> Iterator[str]:
        """Yield the store keys of all stored chunks (shards) by listing, also those outside the current shape."""
        return filter(self.is_chunk, self.store.list_prefix(self.prefix))

    def is_chunk(self, key: str) -> bool:
        """Return whether a store key is one of a chunk (shard), inside the current shape or outside."""
        return key.startswith(self.prefix) and self.coords_of_key(key) is not None

    def coords_of_key(self, key: str) -> tuple[int, ...] | None:
        """Return the coords, perhaps outside the shape, of a store key below `prefix`; ``None`` for other keys.

        Of a region they are counted from its first one: negative before it.
        """
        coords = self.metadata.chunk_keys.decode(key[len(self.prefix) :], self.ndim)
        if coords is None or self.region is None:
            return coords
        cuts = cast("CroppedLayout", self.write_layout).cuts
        return tuple(i - cut.first for i, cut in zip(coords, cuts, strict=True))

    def first_key(self, region: Region) -> str:
        """Return the store key that holds the first element of `region`."""
        return self.keys(region)[0]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        own = self.path, self.format, self.stored_metadata.identity, self.read_missing, self.store.snapshot, self.region
        return "chunkmill.Array", self.url, *own

    def __getstate__(self) -> dict[str, Any]:
        # what was pickled before this process published documents is not what is pickled after: workers, which keep
        # what they unpickled, read the metadata again then
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "last_seen"}
        return own | {"published": n_publications()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, last_seen=LastSeen(-1, 0.0))


def check_read_missing(read_missing: str) -> ReadMissing:
    """Return `read_missing`, or raise `ValueError`."""
    if read_missing not in {"fill", "error"}:
        raise ValueError(f"read_missing={read_missing!r}: 'fill' reads absent chunks as fill values, 'error' raises")
    return cast("ReadMissing", read_missing)


class chunk_step:  # noqa: N801 - reads as the statement it is
    """Turn what fails inside into a `ChunkError` that names the store key, the chunk and the step.

    A class, not a generator: this stands on the path of every chunk, and enters in a tenth of the time.
    """

    __slots__ = ("array", "coords", "layout", "name")

    def __init__(self, array: ArrayFacts, layout: ChunkLayout, coords: ChunkCoords, name: str) -> None:
        self.array, self.layout, self.coords, self.name = array, layout, coords, name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, ChunkError) or not isinstance(error, Exception):
            return
        step, reason = self.name, f"{type(error).__name__}: {error}"
        if isinstance(error, CodecError):
            step, reason = error.codec, error.reason
        elif isinstance(error, StoreError):
            reason = str(error)
        key = self.layout.locator.key(self.coords)
        raise ChunkError(url=self.array.url, key=key, coords=self.coords, step=step, reason=reason) from error


def metered(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and asks the task's guard before it writes."""
    store = array.store if listed_keys(array.store) is None else array.store.uncached
    return _listed(array, MeteredStore(guarded(store), meter))


def metered_source(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and records the versions of what is read."""
    return _listed(array, MeteredStore(array.store.uncached, meter, is_source=True))


def _listed(array: StoredArray, store: Store) -> StoredArray:
    _ = array.write_layout  # built now, once, and shared
    listed = listed_keys(array.store)
    return array.with_store(store if listed is None else ListedStore(store, listed))  # not asked for: not counted
