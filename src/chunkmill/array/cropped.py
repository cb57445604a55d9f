"""Layouts of a region of an array, read as an array of its own: its chunks are those of the array, cut at the region.

Not here: the array (`chunkmill.array.stored_array`), the argument of jobs (`chunkmill.conversion.region_option`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.layout import ChunkLayout, ChunkLocator, ShardedChunks
from chunkmill.codecs.base import Buffer, ChunkSpec
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region, RegularAxis, RunsAxis, run_lengths
from chunkmill.stores.base import ByteSpan, Store


def crop_layouts(layouts: tuple[ChunkLayout, ChunkLayout], region: Region) -> tuple[ChunkLayout, ChunkLayout]:
    """Return the layouts of chunks and of store keys of a region; the same one twice where they are."""
    chunks, keys = layouts
    cropped = _cropped(keys, region)
    return (cropped if chunks is keys else _cropped(chunks, region)), cropped


def kept_grid(grid: ChunkGrid, region: Region) -> ChunkGrid:
    """Return the grid of a copy of a region that keeps the chunks: equal ones begin at the region."""
    axes = zip(grid.axes, region, strict=True)
    return ChunkGrid(
        tuple(
            RegularAxis(cut.stop - cut.start, axis.chunk)
            if isinstance(axis, RegularAxis)
            else _CroppedAxis.of(axis, cut).axis
            for axis, cut in axes
        )
    )


@dataclass(frozen=True, slots=True)
class CroppedLayout(ChunkLayout):
    """Layout of a region, over that of the whole array.

    Attributes
    ----------
    whole
        The layout of the whole array.
    cuts
        How each axis is cut.
    """

    whole: ChunkLayout
    cuts: tuple[_CroppedAxis, ...]

    def spec(self, coords: ChunkCoords) -> ChunkSpec:
        """Return shape, dtype and fill value of one chunk: cut, where the region begins inside it."""
        whole = self.whole.spec(_in_whole(coords, self.cuts))
        within = tuple(
            slice(0 if i else cut.skipped, size) for i, cut, size in zip(coords, self.cuts, whole.shape, strict=True)
        )
        if not any(part.start for part in within):
            return whole
        shape = tuple(part.stop - part.start for part in within)
        return _CutSpec(shape, whole.dtype, whole.fill_value, whole, within)

    def is_cut(self, coords: ChunkCoords) -> bool:
        """Return whether the stored chunk has elements of the array outside the region."""
        return any(
            (i == 0 and cut.skipped > 0) or (cut.ends_inside and i == cut.axis.n_chunks - 1)
            for i, cut in zip(coords, self.cuts, strict=True)
        )

    @property
    def n_cut(self) -> int:
        """Number of chunks whose stored values have elements outside the region."""
        whole = (max(0, cut.axis.n_chunks - (cut.skipped > 0) - cut.ends_inside) for cut in self.cuts)
        return self.grid.n_chunks - prod(whole)


@dataclass(frozen=True, slots=True)
class _CroppedAxis:
    """An axis of the chunk grid of a region.

    Attributes
    ----------
    axis
        The region's chunks along it; the last one may overhang.
    first
        Number, in the whole array, of the chunk in which the region begins.
    skipped
        Elements of that chunk before the region.
    ends_inside
        Whether the region's last chunk has elements of the array after the region.
    """

    axis: RegularAxis | RunsAxis
    first: int = 0
    skipped: int = 0
    ends_inside: bool = False

    @classmethod
    def of(cls, axis: RegularAxis | RunsAxis, cut: slice) -> _CroppedAxis:
        if (cut.start, cut.stop) == (0, axis.size):
            return cls(axis)
        if cut.start >= cut.stop:
            return cls(RegularAxis(0, axis.widest))
        first, last = axis.index(cut.start), axis.index(cut.stop - 1)
        skipped, size = cut.start - axis.start(first), cut.stop - cut.start
        ends_inside = cut.stop < min(axis.start(last) + axis.length(last), axis.size)
        if isinstance(axis, RegularAxis):
            runs = [(axis.chunk - skipped, 1), (axis.chunk, last - first)]
        else:
            lengths = [axis.length(i) for i in range(first, last + 1)]
            runs = run_lengths([lengths[0] - skipped, *lengths[1:]])
        is_regular = isinstance(axis, RegularAxis) and not skipped
        kept = RegularAxis(size, axis.widest) if is_regular else RunsAxis(size, tuple(run for run in runs if run[1]))
        return cls(kept, first, skipped, ends_inside)


@dataclass(frozen=True, slots=True)
class _CutSpec(ChunkSpec):
    """A chunk without the elements before the region: those of `whole` at `within`."""

    whole: ChunkSpec
    within: Region


class _CuttingPipeline(CodecPipeline):
    """Codecs that decode the whole chunk, and return what a `_CutSpec` leaves of it."""

    __slots__ = ()

    def decode(self, data: Buffer, spec: ChunkSpec, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Decode a chunk; see `CodecPipeline.decode`."""
        if isinstance(spec, _CutSpec):
            return CodecPipeline.decode(self, data, spec.whole)[spec.within]
        return CodecPipeline.decode(self, data, spec, out)


@dataclass(frozen=True, slots=True)
class _CroppedLocator:
    """Locator of the chunks of a region, counted from its first one."""

    whole: ChunkLocator
    cuts: tuple[_CroppedAxis, ...]

    def key(self, coords: ChunkCoords) -> str:
        return self.whole.key(_in_whole(coords, self.cuts))

    def locate(self, store: Store, coords: Sequence[ChunkCoords]) -> Sequence[ByteSpan | None]:
        return self.whole.locate(store, [_in_whole(each, self.cuts) for each in coords])


@dataclass(frozen=True, slots=True)
class _CroppedShards(_CroppedLocator):
    """The same, of chunks in shards."""

    whole: ShardedChunks
    shards: tuple[_CroppedAxis, ...]
    order: tuple[int, ...]

    def indexes(
        self, store: Store, shards: Sequence[ChunkCoords]
    ) -> Iterator[tuple[ChunkCoords, NDArray[np.uint64] | None]]:
        """Fetch the index of each shard; see `ShardedChunks.indexes`."""
        found = self.whole.indexes(store, [_in_whole(shard, self.shards) for shard in shards])
        yield from ((shard, index) for shard, (_, index) in zip(shards, found, strict=True))

    def first_chunk(self, shard: ChunkCoords, axis: int) -> int:
        """Return the first chunk of a shard along an axis; negative where it is before the region."""
        return self.whole.first_chunk(_in_whole(shard, self.shards), axis) - self.cuts[axis].first


def _cropped(layout: ChunkLayout, region: Region) -> CroppedLayout:
    cuts = tuple(_CroppedAxis.of(axis, cut) for axis, cut in zip(layout.grid.axes, region, strict=True))
    codecs = _CuttingPipeline(layout.codecs.filters, layout.codecs.serializer, layout.codecs.compressors)
    locator: ChunkLocator = _CroppedLocator(layout.locator, cuts)
    if isinstance(layout.locator, ShardedChunks):
        outer = zip(layout.locator.shard_grid.axes, region, strict=True)
        shards = tuple(_CroppedAxis.of(axis, cut) for axis, cut in outer)
        locator = _CroppedShards(layout.locator, cuts, shards, layout.locator.order)
    grid = ChunkGrid(tuple(cut.axis for cut in cuts))
    return CroppedLayout(grid, locator, codecs, layout.regular, layout, cuts)


def _in_whole(coords: ChunkCoords, cuts: Sequence[_CroppedAxis]) -> ChunkCoords:
    return tuple(i + cut.first for i, cut in zip(coords, cuts, strict=True))
