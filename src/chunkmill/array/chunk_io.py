"""THE DATA PATH: an array over a store, read and written chunk by chunk.

``read_region`` → ``read_chunk`` → store → codecs, and back: each fits on a screen. What differs between formats,
stores and sharded or plain arrays was settled when the array was opened (`chunkmill.array.layout`).
Not here: documents and paths (`chunkmill.nodes.hierarchy`), dask (`chunkmill.dask_arrays`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import cached_property
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.array.chunk_step import chunk_step
from chunkmill.array.layout import Grain, grains, inner_grid
from chunkmill.array.local_locks import local_lock
from chunkmill.array.selection import as_region, full_region, region_shape, select
from chunkmill.array.threads import cut_evenly, in_threads, own_threads
from chunkmill.codecs.is_fill import is_fill
from chunkmill.errors import ChunkError, ChunkmillError, RegionError, StoreError
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Overlap, Region
from chunkmill.model.metadata import JSON, ArrayMetadata, NamedConfig
from chunkmill.model.user_values import spread
from chunkmill.stores.base import ByteSpan, Store

if TYPE_CHECKING:
    import dask.array

__all__ = ["Array", "LockFactory", "check_missing", "decode_chunk", "encode_chunk", "read_chunk", "read_chunks"]
__all__ += ["read_region", "write_chunk", "write_region"]

ReadMissing = Literal["fill", "error"]
"""What reading an absent chunk does: give its fill value, or raise `ChunkError`."""

LockFactory = Callable[[str, bool], AbstractContextManager[Any]]
"""Store key, and whether others are known to write it or nothing else guards it -> the lock of its partial writes."""

default_lock: LockFactory = local_lock
"""The lock where none is given; `chunkmill.runtime.cluster_locks` makes it the cluster's for tasks on workers."""


class Array:
    """A chunked array in a store: lazy, immutable but for its values, picklable, safe to use from many threads.

    Made by `chunkmill.open_array` and `chunkmill.create_array`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-array", shape=(7, 5), dtype="int16", chunks=(3, 2))
    >>> a[1:3, 4] = 8
    >>> a[2]
    array([0, 0, 0, 0, 8], dtype=int16)
    """

    def __init__(
        self,
        store: Store,
        path: str,
        metadata: ArrayMetadata,
        format: str,  # noqa: A002 - the word of the public face
        prefix: str,
        *,
        read_only: bool = False,
        read_missing: ReadMissing = "fill",
    ) -> None:
        self.store = store
        self.path = path
        self.metadata = metadata
        self.format = format
        self.prefix = prefix
        self.read_only = read_only
        self.read_missing = check_read_missing(read_missing)

    @cached_property
    def _grains(self) -> tuple[Grain, Grain]:
        # when first asked for: of a group of a thousand arrays, few are read
        try:
            return grains(self.metadata, self.prefix)
        except ChunkmillError as error:
            error.add_note(f"in the codecs of array {self.path!r} of {self.url}")
            raise

    @property
    def reading(self) -> Grain:
        """What single chunks are read by."""
        return self._grains[0]

    @property
    def writing(self) -> Grain:
        """What store keys are read and written by; the same as `reading` unless sharded."""
        return self._grains[1]

    @cached_property
    def chunk_grid(self) -> ChunkGrid:
        """The grid of chunks: of the inner ones, when sharded."""
        is_sharded = any(codec.name == "sharding_indexed" for codec in self.codecs)
        return inner_grid(self.writing) if is_sharded else self.metadata.chunk_grid

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
        """The user's attributes."""
        return self.metadata.attributes

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

    @property
    def nchunks(self) -> int:
        """Number of chunks (inner chunks, when sharded), present or not."""
        return self.chunk_grid.n_chunks

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """Read by basic indexing, or by integer or boolean arrays; the chunks around the selection are read."""
        selection = select(index, self.shape)
        block = read_region(self, selection.region, n_threads=own_threads())
        return block[selection.picks]

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write by basic indexing with step 1; chunks covered partly are changed under a lock and a version check."""
        self.check_writable()
        selection = select(index, self.shape)
        if not selection.is_region:
            reason = "only integers and slices of step 1 can be written to"
            raise RegionError(index=" ".join(repr(index)[:200].split()), shape=self.shape, reason=reason)
        shape = tuple(n for n, part in zip(region_shape(selection.region), selection.within, strict=True) if part != 0)
        block = spread(values, self.dtype, shape)
        write_region(self, selection.region, block.reshape(region_shape(selection.region)), n_threads=own_threads())

    def check_codecs(self) -> None:
        """Raise now, rather than at the first chunk, when a codec is unknown or does not fit."""
        _ = self._grains

    def check_writable(self) -> None:
        """Raise `StoreError` when the array was opened with ``mode="r"``."""
        if self.read_only:
            reason = "opened for reading only; open it with mode='r+' to write"
            raise StoreError(url=self.url, key=self.path, reason=reason)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read everything."""
        if copy is False:
            raise ValueError("an array in a store cannot become a numpy array without a copy")
        whole = read_region(self, full_region(self.shape), n_threads=own_threads())
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def to_dask(
        self, chunks: Any = None, *, region: Any = None, read_missing: ReadMissing | None = None
    ) -> dask.array.Array:
        """Return the array as a dask array: one symbolic layer, a task for each block.

        Parameters
        ----------
        chunks
            ``None``: a block for each store key (for each shard, when sharded). ``"auto"``, ``-1``, a tuple or a
            dict: as in dask, made multiples of the store keys where dask chooses.
        region
            Slices of step 1: this part alone. Sliced later, dask may still name every block (1 s for a million).
        read_missing
            What an absent chunk is: its fill value (``"fill"``), or an error; as the array was opened when ``None``.

        Examples
        --------
        >>> import chunkmill as cm
        >>> cm.create_array("memory://doc-to-dask", shape=(6, 4), dtype="f4", chunks=(3, 2)).to_dask().chunks
        ((3, 3), (2, 2))
        """
        from chunkmill.dask_arrays.read import read_graph  # noqa: PLC0415 - the one upward import: to_dask is a method

        array = self if read_missing is None else self.with_read_missing(read_missing)
        return read_graph(array, chunks, as_region(region, self.shape))

    def with_read_missing(self, read_missing: ReadMissing) -> Array:
        """Return the array as if opened so: ``"error"`` raises `ChunkError` where a chunk is absent."""
        other = copy(self)
        other.read_missing = check_read_missing(read_missing)
        return other

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "chunkmill.Array", self.url, self.path, self.format, self.metadata.identity, self.read_missing

    def __reduce__(self) -> tuple[Any, ...]:
        own = self.store, self.path, self.metadata, self.format, self.prefix, self.read_only, self.read_missing
        return _rebuild, own

    def __repr__(self) -> str:
        from chunkmill.display.array import array_text  # noqa: PLC0415 - as below

        return array_text(self)

    def _repr_html_(self) -> str:
        from chunkmill.display.array import array_html  # noqa: PLC0415 - drawn only when asked for

        return array_html(self)


def _rebuild(  # noqa: PLR0917 - called by pickle
    store: Store, path: str, metadata: ArrayMetadata, name: str, prefix: str, read_only: bool, missing: ReadMissing
) -> Array:
    return Array(store, path, metadata, name, prefix, read_only=read_only, read_missing=missing)


def check_read_missing(read_missing: str) -> ReadMissing:
    """Return what reading an absent chunk does, or raise `ValueError`."""
    if read_missing not in {"fill", "error"}:
        msg = f"read_missing={read_missing!r}: absent chunks are read as their fill value ('fill') or raise ('error')"
        raise ValueError(msg)
    return cast("ReadMissing", read_missing)


def read_region(array: Array, region: Region, *, n_threads: int = 1) -> NDArray[Any]:
    """Read `region`, whatever chunks it cuts, to a writable array in C order.

    Whole store keys are read and decoded at once, parts of shards by range. A task of a scheduler leaves `n_threads` 1.
    """
    grain = array.writing
    only = grain.grid.only_overlap(region)
    whole = only.whole if only else grain.grid.aligned(region)
    # a whole shard does not tell which of its chunks are absent
    if grain is not array.reading and (not whole or array.read_missing == "error"):
        grain = array.reading
        only = grain.grid.only_overlap(region)
    if only is not None:
        return _writable(read_chunk(array, grain, only.coords, only.in_chunk))
    block = _allocate(array, region)
    overlaps = grain.grid.overlaps(region)
    while batch := list(islice(overlaps, _BATCH)):
        spans = grain.locator.locate(array.store, [overlap.coords for overlap in batch])

        def fill(part: slice, batch: list[Overlap] = batch, spans: Sequence[ByteSpan | None] = spans) -> None:
            values = _fetch(array, grain, [overlap.coords for overlap in batch[part]], spans[part])
            for overlap, data in zip(batch[part], values, strict=True):
                _decode_part(array, grain, overlap, data, block[overlap.in_region])

        # requests that cost latency go together, so that each thread has many on their way
        n_parts = n_threads if array.store.is_remote else _PARTS_A_THREAD * n_threads
        in_threads(fill, cut_evenly(len(batch), n_parts), n_threads if block.nbytes > _WORTH_A_THREAD else 1)
    return block


_BATCH = 1 << 16  # chunks located at once: what is known of each of 10**9 chunks would not fit in memory
_PARTS_A_THREAD = 8  # of a batch, so that threads end together
_WORTH_A_THREAD = 1 << 19  # bytes


def read_chunks(array: Array, grain: Grain, coords: Sequence[ChunkCoords]) -> Iterator[NDArray[Any]]:
    """Yield chunks of `grain` in order, fetched at once where the store can; they may be read-only."""
    values = _fetch(array, grain, coords, grain.locator.locate(array.store, coords))
    for one, data in zip(coords, values, strict=True):
        yield decode_chunk(array, grain, one, data)


def _fetch(
    array: Array, grain: Grain, coords: Sequence[ChunkCoords], spans: Sequence[ByteSpan | None]
) -> Iterator[bytes | None]:
    values = array.store.get_many(spans)
    for one in coords:
        with chunk_step(array, grain, one, "get"):
            data = next(values)
        if data is None:
            check_missing(array, grain, one)
        yield data


def read_chunk(array: Array, grain: Grain, coords: ChunkCoords, part: Region) -> NDArray[Any]:
    """Read `part` of one chunk of `grain`; the array may be read-only."""
    with chunk_step(array, grain, coords, "get"):
        (span,) = grain.locator.locate(array.store, [coords])
        data = None if span is None else array.store.get(span.key, span.byte_range)
    if data is None:
        check_missing(array, grain, coords)
    dots: Any = (*part, ...)  # keep a 0-d array an array
    return decode_chunk(array, grain, coords, data)[dots]  # type: ignore[no-any-return]


def check_missing(array: Array, grain: Grain, coords: ChunkCoords) -> None:
    """Raise `ChunkError` for an absent chunk of an array that was opened with ``read_missing="error"``."""
    if array.read_missing == "error":
        reason = "absent, and the array was opened with read_missing='error'"
        raise ChunkError(url=array.url, key=grain.locator.key(coords), coords=coords, step="get", reason=reason)


def decode_chunk(
    array: Array, grain: Grain, coords: ChunkCoords, data: bytes | None, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return a chunk in its declared shape, or `out` filled with it; absent data is the fill value."""
    spec = grain.spec(coords)
    if data is None:  # one element, seen spec.shape times: an absent chunk costs no memory
        one = np.zeros((), spec.dtype) if spec.fill_value is None else np.full((), spec.fill_value, spec.dtype)
        with chunk_step(array, grain, coords, "decode"):  # a chunk larger than numpy can count
            return np.broadcast_to(one, spec.shape)
    with chunk_step(array, grain, coords, "decode"):
        return grain.codecs.decode(data, spec, out)


def _decode_part(array: Array, grain: Grain, overlap: Overlap, data: bytes | None, out: NDArray[Any]) -> None:
    """Decode a chunk and put the part of it that overlaps a region to its place."""
    if out.shape == grain.spec(overlap.coords).shape:
        chunk = decode_chunk(array, grain, overlap.coords, data, out)
    else:
        chunk = decode_chunk(array, grain, overlap.coords, data)[overlap.in_chunk]
    if chunk is not out:
        out[...] = chunk


def write_chunk(array: Array, coords: ChunkCoords, chunk: NDArray[Any], *, write_empty: bool = False) -> int:
    """Write the extent of one store key's chunk whole, and return the bytes stored.

    A chunk that equals the fill value bit for bit is deleted instead (0 bytes), unless `write_empty`.
    """
    grain = array.writing
    key = grain.locator.key(coords)
    data = encode_chunk(array, grain, coords, chunk, write_empty=write_empty)
    with chunk_step(array, grain, coords, "set"):
        if data is None:
            array.store.delete(key)
            return 0
        array.store.set(key, data)
    return memoryview(data).nbytes


def encode_chunk(array: Array, grain: Grain, coords: ChunkCoords, chunk: NDArray[Any], *, write_empty: bool) -> Any:
    """Return the encoded chunk, or ``None`` when it is empty."""
    spec = grain.spec(coords)
    # an undefined fill value leaves nothing out: what other readers give for an absent chunk is chance then
    if not write_empty and spec.fill_value is not None and is_fill(chunk, spec.fill_value):
        return None
    with chunk_step(array, grain, coords, "encode"):
        if chunk.shape != spec.shape:
            if array.metadata.edge_chunks == "truncated":
                spec = type(spec)(chunk.shape, spec.dtype, spec.fill_value)
            else:
                padded = np.full(spec.shape, 0 if spec.fill_value is None else spec.fill_value, spec.dtype)
                padded[grain.grid.extent(coords)] = chunk
                chunk = padded
        return grain.codecs.encode(chunk, spec)


def write_region(
    array: Array,
    region: Region,
    block: NDArray[Any],
    *,
    lock: LockFactory | None = None,
    write_empty: bool = False,
    n_threads: int = 1,
) -> int:
    """Write `block` to `region` and return the bytes stored.

    Store keys covered whole are written without reading; the others are changed by `update_chunk`. A task of a
    scheduler leaves `n_threads` 1.
    """
    n_bytes = 0
    overlaps = array.writing.grid.overlaps(region)
    while batch := list(islice(overlaps, _BATCH)):

        def write(part: slice, batch: list[Overlap] = batch) -> int:
            # the dots keep a 0-d block an array
            parts = ((overlap, cast("Any", (*overlap.in_region, ...))) for overlap in batch[part])
            return sum(write_part(array, o, block[at], lock=lock, write_empty=write_empty) for o, at in parts)

        n = max(n_threads if block.nbytes > _WORTH_A_THREAD else 1, puts_at_once(array, batch))
        n_bytes += sum(in_threads(write, cut_evenly(len(batch), _PARTS_A_THREAD * n), n))
    return n_bytes


def puts_at_once(array: Array, overlaps: Sequence[Overlap]) -> int:
    """Return how many store keys one write may store at once, beside what its threads do: many where each waits."""
    # the locks of parts of chunks want the thread that asked for them
    return 16 if array.store.is_remote and all(overlap.whole for overlap in overlaps) else 1


def write_part(
    array: Array, overlap: Overlap, part: NDArray[Any], *, lock: LockFactory | None, write_empty: bool
) -> int:
    """Write what a region has of one store key, and return the bytes stored."""
    if overlap.whole:
        return write_chunk(array, overlap.coords, part, write_empty=write_empty)
    return update_chunk(array, overlap, part, lock=lock, write_empty=write_empty)


def update_chunk(
    array: Array, overlap: Overlap, part: NDArray[Any], *, lock: LockFactory | None = None, write_empty: bool = False
) -> int:
    """Read one store key's chunk, change a part of it, write it back, and return the bytes stored.

    The lock keeps writers from working in vain; that nothing is lost is the store's version check: what was changed
    since it was read is read again. Without an answer that others are at work, the lock need not reach them yet.
    """
    grain, coords = array.writing, overlap.coords
    key = grain.locator.key(coords)
    contended = not array.store.is_conditional  # where versions cannot be checked, the lock is all there is
    seen: str | None = "nothing yet"
    n_refused = 0
    while n_refused < _MAX_REFUSED:
        with (lock or default_lock)(f"{array.url}/{key}", contended):
            with chunk_step(array, grain, coords, "get"):
                data, version = array.store.get_versioned(key)
            n_refused = n_refused + 1 if version == seen else 0
            extent: tuple[Any, ...] = (*grain.grid.extent(coords), ...)  # the dots keep a 0-d array an array
            with chunk_step(array, grain, coords, "decode"):  # a chunk that does not fit into memory, too
                chunk = _writable(decode_chunk(array, grain, coords, data)[extent])
            chunk[overlap.in_chunk] = part
            encoded = encode_chunk(array, grain, coords, chunk, write_empty=write_empty)
            with chunk_step(array, grain, coords, "set"):
                if array.store.set_if(key, encoded, version):
                    return 0 if encoded is None else memoryview(encoded).nbytes
        seen, contended = version, True
    reason = f"the store refused {n_refused} times to replace the version that it gave out"
    raise ChunkError(url=array.url, key=key, coords=coords, step="set", reason=reason)


_MAX_REFUSED = 100  # others' writes do not count: where versions change, somebody gets on


def _allocate(array: Array, region: Region) -> NDArray[Any]:
    shape = region_shape(region)
    try:
        return np.empty(shape, array.dtype)
    except (MemoryError, ValueError) as error:
        raise RegionError(index=repr(region)[:200], shape=array.shape, reason=str(error)) from None


def _writable(block: NDArray[Any]) -> NDArray[Any]:
    """Return `block`, or a copy when it is read-only, not in C order, or keeps more than itself alive."""
    # read-only blocks are refused by cython and numba kernels
    owner = block
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    alone = owner.flags.owndata and owner.nbytes == block.nbytes
    return block if alone and block.flags.writeable and block.flags.c_contiguous else block.copy(order="C")
