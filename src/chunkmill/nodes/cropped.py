"""A region of a stored array as an array of its own, for reading.

Not here: its layouts (`chunkmill.array.cropped`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from chunkmill.array.cropped import CroppedLayout, crop_layouts, kept_grid
from chunkmill.array.layout import ChunkLayout, build_layouts
from chunkmill.array.selection import full_region
from chunkmill.model.grid import Region
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.array import Array

__all__ = ["CroppedArray", "crop", "region_of", "whole"]


def crop(array: Array, region: Region) -> Array:
    """Return a region of an array, for reading, its chunks cut at the region; the array where that is all of it.

    The metadata describe a copy of the region that keeps the lengths of the chunks.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-crop", shape=(9,), dtype="i4", chunks=(4,))
    >>> a[...] = range(9)
    >>> part = crop(a, (slice(3, 9),))
    >>> part[...], part.read_layout.grid.dask_chunks, part.chunk_grid.dask_chunks
    (array([3, 4, 5, 6, 7, 8], dtype=int32), ((1, 4, 1),), ((4, 2),))
    """
    if region == full_region(array.shape):
        return array
    return CroppedArray(
        array.store,
        array.path,
        replace(array.metadata, chunk_grid=kept_grid(array.metadata.chunk_grid, region)),
        array.format,
        array.prefix,
        read_only=True,
        read_missing=array.read_missing,
        has_own_fill_value=array.has_own_fill_value,
        metadata_of_whole=array.metadata,
        region=region,
    )


def whole(array: Array) -> Array:
    """Return the array of which `array` is a region, or itself."""
    return array.whole if isinstance(array, CroppedArray) else array


def region_of(array: Array) -> Region | None:
    """Return the region that `array` is of the stored one; ``None`` where it is all of it."""
    return array.region if isinstance(array, CroppedArray) else None


@dataclass(frozen=True, eq=False, repr=False)
class CroppedArray(Array):
    """A region of a stored array, made by `crop`.

    Attributes
    ----------
    metadata_of_whole
        The stored metadata.
    region
        The region, in elements of the stored array.
    """

    metadata_of_whole: ArrayMetadata = field(kw_only=True)
    region: Region = field(kw_only=True)

    @cached_property
    def _layouts(self) -> tuple[ChunkLayout, ChunkLayout]:
        return crop_layouts(build_layouts(self.metadata_of_whole, self.prefix), self.region)

    @property
    def stored_metadata(self) -> ArrayMetadata:
        """Metadata of the whole array."""
        return self.metadata_of_whole

    @property
    def whole(self) -> Array:
        """The stored array."""
        return Array(
            self.store,
            self.path,
            self.metadata_of_whole,
            self.format,
            self.prefix,
            read_only=True,
            read_missing=self.read_missing,
            has_own_fill_value=self.has_own_fill_value,
        )

    def coords_of_key(self, key: str) -> tuple[int, ...] | None:
        """Return the coords of a store key, counted from the region's first one: negative before it."""
        coords = super().coords_of_key(key)
        layout = self.write_layout
        if coords is None or not isinstance(layout, CroppedLayout):
            return coords
        return tuple(i - cut.first for i, cut in zip(coords, layout.cuts, strict=True))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return *self.whole.__dask_tokenize__(), self.region

    def __reduce__(self) -> tuple[Any, ...]:
        return crop, (self.whole, self.region)
