"""Slices of source chunks that are stored as they are in memory: each a range of bytes, read and decoded by itself.

A raw chunk is like a shard of its rows, whose places are arithmetic. Where it has 4 x 8 x 8 elements in C order::

    sliced along axis 0     slices of k x 8 x 8, the whole chunk at most
    sliced along axis 1     slices of 1 x k x 8, from each of the 4 planes by itself

Not of chunks with a checksum, which is that of the whole, nor of N5's, whose header tells their shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from numpy.typing import NDArray

from chunkmill.array.layout import ChunkLayout
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.bytes import BytesCodec
from chunkmill.codecs.transpose import Transpose
from chunkmill.conversion.rechunking.costs import LEAST_SLICE
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Overlap, Region, RegularAxis
from chunkmill.stores.base import ByteRange, ByteSpan, Store

__all__ = ["Slice", "Slices", "sliced_axes"]


def sliced_axes(array: StoredArray) -> tuple[int, ...]:
    """Return the axes along which slices of the chunks of `array` are ranges of bytes; none where none are.

    Of axes along which whole slices are shorter than `LEAST_SLICE`, none; nor where there are more store keys than a
    run compares within seconds (`chunkmill.conversion.sliced_sources`), however few are stored.
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
        order = _order(self.layout)
        if order is None:
            raise ValueError(f"chunks of {array.path!r} are not raw")
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
