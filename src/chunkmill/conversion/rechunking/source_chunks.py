"""Read the source chunks that overlap a region, one at a time, or slices of them.

Chunks are sliced that are stored as they are in memory: a slice is a range of bytes, read and decoded by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any

from numpy.typing import NDArray

from chunkmill.array.chunk_io import check_missing, decode_chunk
from chunkmill.array.layout import ChunkLayout
from chunkmill.array.present_keys import Numbers, listed_only
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.codecs.axes import Transpose
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.bytes import BytesCodec
from chunkmill.conversion.rechunking.plan import RechunkPlan
from chunkmill.conversion.rechunking.strategies import LEAST_SLICE
from chunkmill.jobs.sources import SeenSource, check_absent, check_still_there
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Overlap, Region, RegularAxis
from chunkmill.stores.base import ByteRange, ByteSpan, Store


def sliced_axes(array: StoredArray) -> tuple[int, ...]:
    """Return the axes along which slices of the chunks of `array` are ranges of bytes; none where none are.

    Of axes along which whole slices are shorter than `LEAST_SLICE`, none; nor where there are more store keys than a
    run compares within seconds (`chunkmill.conversion.stages`), however few are stored.
    """
    layout = array.read_layout
    order = _order(layout)
    if order is None or array.metadata.edge_chunks == "truncated" or not layout.grid.is_regular or layout.n_cut:
        return ()
    if array.write_layout.grid.n_chunks > _MOST_KEYS:
        return ()
    shape = layout.regular.shape
    sizes = _strides(layout)
    return tuple(axis for axis in order if shape[axis] > 1 and sizes[axis] * shape[axis] >= LEAST_SLICE)


_MOST_KEYS = 1 << 18  # each is looked at twice, some 10 us on a disk


def _order(layout: ChunkLayout) -> tuple[int, ...] | None:
    """Return the array's axes in the order of storage, slowest first; ``None`` where chunks are not raw."""
    codecs = layout.codecs
    if codecs.compressors or not isinstance(codecs.serializer, BytesCodec):
        return None
    match codecs.filters:
        case ():
            return tuple(range(len(layout.regular.shape)))
        case (Transpose(order=order),):
            return order
    return None


def _strides(layout: ChunkLayout) -> dict[int, int]:
    """Return the bytes between two elements along each axis of a stored chunk."""
    order, shape = _order(layout) or (), layout.regular.shape
    n_bytes = layout.codecs.encoded_size(replace(layout.regular, shape=(1,) * len(shape))) or 0
    strides = {}
    for axis in reversed(order):
        strides[axis] = n_bytes
        n_bytes *= shape[axis]
    return strides


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of a chunk: where it is, and what to make of its bytes.

    Attributes
    ----------
    coords
        The chunk.
    start, n_bytes
        Of the bytes in the stored chunk.
    shape
        Of the slice.
    wanted
        The elements of it that are wanted.
    in_region
        Those elements, counted from the start of the region.
    """

    coords: ChunkCoords
    start: int
    n_bytes: int
    shape: tuple[int, ...]
    wanted: Region
    in_region: Region


class Slices:
    """The chunks of an array as slices along an axis."""

    def __init__(self, array: StoredArray, axis: int) -> None:
        self.layout = array.read_layout
        order = _order(self.layout) or ()  # of raw chunks, as `sliced_axes` has seen
        self.single, self.axis = frozenset(order[: order.index(axis)]), axis
        self._array, self._strides = array, _strides(self.layout)
        self._chunk_bytes = prod(self.layout.regular.shape) * self._strides[order[-1]]
        self._spec = self.layout.regular

    @property
    def grid(self) -> ChunkGrid:
        """The grid of the longest slices."""
        axes = enumerate(self.layout.grid.axes)
        return ChunkGrid(tuple(RegularAxis(axis.size, 1) if i in self.single else axis for i, axis in axes))

    @property
    def largest(self) -> int:
        """Bytes of the longest slice."""
        return self.layout.regular.shape[self.axis] * self._strides[self.axis]

    def stored_bytes(self, decoded_bytes: int) -> int:
        """Return the bytes that are read for values, of which rows that overhang the array are read whole."""
        stored = decoded_bytes
        for i, axis in enumerate(self.layout.grid.axes):
            if i not in self.single and i != self.axis and axis.size:
                stored = stored * axis.n_chunks * self.layout.regular.shape[i] // axis.size
        return stored

    def overlaps(self, region: Region) -> Iterator[Slice]:
        """Yield the slices that hold the elements of `region`, in C order."""
        return map(self._slice, self.grid.overlaps(region))

    def _slice(self, overlap: Overlap) -> Slice:
        coords, start, shape, wanted = [], 0, [], []
        axes = zip(self.layout.grid.axes, self.layout.regular.shape, overlap.coords, overlap.in_chunk, strict=True)
        for axis, (chunks, length, i, cut) in enumerate(axes):
            if axis in self.single:
                coord = chunks.index(i)
                coords.append(coord)
                start += (i - chunks.start(coord)) * self._strides[axis]
                shape.append(1)
                wanted.append(slice(0, 1))
                continue
            coords.append(i)
            if axis == self.axis:
                start += cut.start * self._strides[axis]
                shape.append(cut.stop - cut.start)
                wanted.append(slice(0, cut.stop - cut.start))
            else:
                shape.append(length)
                wanted.append(cut)
        n_bytes = shape[self.axis] * self._strides[self.axis]
        return Slice(tuple(coords), start, n_bytes, tuple(shape), tuple(wanted), overlap.in_region)

    def locate(self, store: Store, slices: Sequence[Slice]) -> list[ByteSpan | None]:
        """Return the bytes of each slice; ``None`` for those known to be absent."""
        spans = self.layout.locator.locate(store, [each.coords for each in slices])
        return [self._span(each, span) for each, span in zip(slices, spans, strict=True)]

    def _span(self, wanted: Slice, span: ByteSpan | None) -> ByteSpan | None:
        if span is None:
            return None
        stop = wanted.start + wanted.n_bytes
        if span.byte_range is None:  # the last one reads to the end, so that a value of another size is noticed
            return ByteSpan(span.key, ByteRange(wanted.start, None if stop == self._chunk_bytes else wanted.n_bytes))
        inside = span.byte_range
        if inside.length != self._chunk_bytes:
            with chunk_step(self._array, self.layout, wanted.coords, "get"):
                raise ValueError(f"{inside.length} bytes by the shard's index, expected {self._chunk_bytes}")
        return ByteSpan(span.key, ByteRange(inside.start + wanted.start, wanted.n_bytes))

    def n_elements(self, wanted: Slice) -> int:
        """Return the number of elements of a slice."""
        return prod(wanted.shape)

    def decode(self, wanted: Slice, data: bytes) -> NDArray[Any]:
        """Return the wanted elements of a slice."""
        spec = self._spec
        if spec.shape != wanted.shape:  # kept: the codecs remember what they know of the last one
            self._spec = spec = ChunkSpec(wanted.shape, spec.dtype, spec.fill_value)
        with chunk_step(self._array, self.layout, wanted.coords, "decode"):
            values = self.layout.codecs.decode(data, spec)
        dots: Any = (*wanted.wanted, ...)
        return values[dots]  # type: ignore[no-any-return]


RegionValues = tuple[Region, NDArray[Any] | None]
"""A region of the array and its values; ``None`` where they are absent."""


@dataclass(frozen=True, slots=True)
class ArrayRechunk:
    """One array that gets other chunks, as the tasks carry it.

    Attributes
    ----------
    plan
        The regions that each task reads and writes.
    intermediate, prefix
        Store of the intermediate files; their keys are `prefix` and their number.
    ahead_bytes
        Bytes that may be fetched ahead of their use, from stores whose requests cost latency.
    materialize
        Whether absent chunks are written out, because the target's fill value is another one.
    fresh
        Whether there is nothing under the target's keys yet, so that absent ones need not be deleted.
    seen
        The source's documents when the job was planned: looked at again where chunks are absent.
    present
        Numbers of the source's store keys that one task reads, where they were listed: the others are absent.
    by_key
        Whether each store key of the target that those touch is read from the source by itself, whatever `plan` says.
    """

    source: StoredArray
    target: StoredArray
    plan: RechunkPlan
    intermediate: Store
    prefix: str
    ahead_bytes: int = 0
    materialize: bool = False
    fresh: bool = True
    seen: SeenSource | None = None
    present: Numbers | None = None
    by_key: bool = False

    @staticmethod
    def of_task(rechunks: Sequence[ArrayRechunk], spec: tuple[Any, ...]) -> tuple[ArrayRechunk, int]:
        """Return the array, and the number, of the task of a spec, which may name the source keys that there are."""
        which, number, *present = spec
        rechunk = rechunks[which]
        if present:
            rechunk = replace(rechunk, source=listed_only(rechunk.source, *present), present=present[0])
        return rechunk, number


@dataclass(slots=True)
class SourceReads:
    """The source chunks that one task has read.

    Attributes
    ----------
    n_elements, n_owned
        Elements of these chunks, and elements of the regions that they were read for.
    n_absent
        Chunks of them that are absent.
    """

    n_elements: int = 0
    n_owned: int = 0
    n_absent: int = 0

    def counts(self) -> dict[str, int]:
        """Return the numbers by the names that reports use; none where no source was read."""
        return {"n_elements_read": self.n_elements, "n_elements_owned": self.n_owned} if self.n_owned else {}


def source_values(
    rechunk: ArrayRechunk, source: StoredArray, region: Region, reads: SourceReads
) -> Iterator[RegionValues]:
    """Yield the overlap of every source chunk with `region`, in C order; of inner chunks, when sharded.

    Chunks that were absent are looked for again (P9).
    """
    axis = rechunk.plan.source.sliced
    chunks: Any = _WholeChunks(source) if axis is None else Slices(source, axis)
    layout, overlaps = chunks.layout, chunks.overlaps(region)
    reads.n_owned += prod(region_shape(region))
    while batch := list(islice(overlaps, _BATCH)):
        spans = chunks.locate(source.store, batch)
        results = fetched(source.store, spans, n_ahead(rechunk, chunks.largest))
        absent: dict[ChunkCoords, None] = {}
        for each in batch:
            with chunk_step(source, layout, each.coords, "get"):
                data = next(results)
            at = shifted(each.in_region, region)
            reads.n_elements += chunks.n_elements(each)
            if data is None:
                check_missing(source, layout, each.coords)
                absent[each.coords] = None
                yield at, None
                continue
            values = chunks.decode(each, data)
            del data
            yield at, values
            del values
        reads.n_absent += len(absent)
        check_absent(rechunk.source, layout, list(absent))
    if reads.n_absent and rechunk.seen is not None:
        check_still_there(rechunk.source, rechunk.seen)


class _WholeChunks:
    """The chunks of an array, each read whole, as `Slices` are."""

    def __init__(self, array: StoredArray) -> None:
        self.layout = array.read_layout
        self.largest = prod(self.layout.grid.chunk_shape) * array.dtype.itemsize
        self._array = array

    def overlaps(self, region: Region) -> Iterator[Overlap]:
        return self.layout.grid.overlaps(region)

    def locate(self, store: Store, overlaps: Sequence[Overlap]) -> Sequence[ByteSpan | None]:
        return self.layout.locator.locate(store, [overlap.coords for overlap in overlaps])

    def n_elements(self, overlap: Overlap) -> int:
        if self.layout.is_cut(overlap.coords):
            return prod(self.layout.regular.shape)
        return prod(region_shape(overlap.in_chunk if overlap.whole else self.layout.grid.extent(overlap.coords)))

    def decode(self, overlap: Overlap, data: bytes) -> NDArray[Any]:
        chunk = decode_chunk(self._array, self.layout, overlap.coords, data)
        return chunk[within(overlap.in_chunk)]  # type: ignore[no-any-return]


def spill_inputs(rechunks: Sequence[ArrayRechunk], spec: tuple[Any, ...]) -> Iterator[StoreKeys]:
    """Yield what is read for one intermediate file: of a source that was listed, the store keys that there are."""
    rechunk, number = ArrayRechunk.of_task(rechunks, spec)
    region = rechunk.plan.files.region(rechunk.plan.files.coords_of(number))
    yield StoreKeys.of(rechunk.source, region, rechunk.present)


def spill_shows(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> str:
    """Return the first store key of the source that goes into an intermediate file."""
    rechunk = rechunks[spec[0]]
    return rechunk.source.first_key(rechunk.plan.files.region(rechunk.plan.files.coords_of(spec[1])))


def write_shows(rechunks: Sequence[ArrayRechunk], spec: tuple[int, int]) -> str:
    """Return the first store key of the target in a block."""
    rechunk = rechunks[spec[0]]
    return rechunk.target.first_key(rechunk.plan.writes.region(rechunk.plan.writes.coords_of(spec[1])))


_BATCH = 1 << 10
"""Chunks located at once where nothing is fetched ahead: shards' indexes are fetched again for each batch."""


def n_ahead(rechunk: ArrayRechunk, largest_bytes: int) -> int:
    """Return the number of requests that may be under way together."""
    return max(1, min(_BATCH, rechunk.ahead_bytes // max(1, largest_bytes))) if rechunk.ahead_bytes else _BATCH


def fetched(store: Store, spans: Sequence[ByteSpan | None], at_once: int = _BATCH) -> Iterator[bytes | None]:
    """Yield the bytes of `spans`: by `get_many` where that pays, which may keep a reference to what it has yielded."""
    if store.is_remote:
        for start in range(0, len(spans), at_once):
            yield from store.get_many(spans[start : start + at_once])
    else:
        yield from (None if span is None else store.get(span.key, span.byte_range) for span in spans)


def shifted(region: Region, by: Region) -> Region:
    """Return `region`, counted from the start of `by`, in array coordinates."""
    return tuple(slice(a.start + b.start, a.stop + b.start) for a, b in zip(region, by, strict=True))


def unshifted(region: Region, by: Region) -> Region:
    """Return `region`, in array coordinates, counted from the start of `by`."""
    return tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(region, by, strict=True))


def within(region: Region) -> Any:
    """Return `region` as an index that leaves a 0-d array an array."""
    return (*region, ...)
