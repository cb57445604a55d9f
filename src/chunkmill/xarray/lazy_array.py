"""Stored arrays as xarray indexes them lazily, and as dask reads them in chunks of xarray's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xarray.backends.common import BackendArray
from xarray.core import indexing

from chunkmill.array.advanced_indexing import read_outer, read_points
from chunkmill.array.staleness import check_unchanged
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.from_array import ArrayInside, find_array_inside
from chunkmill.errors import ChunkmillError
from chunkmill.model.grid import Region
from chunkmill.nodes.array import Array
from chunkmill.stores.base import REQUESTS_AT_ONCE

__all__ = ["IndexCoordinates", "LazyArray"]


class LazyArray(BackendArray):
    """An `Array` that xarray indexes lazily: only the chunks around a selection are read, when it is loaded."""

    __slots__ = ("array", "dtype", "index_coordinates", "shape")

    def __init__(self, array: StoredArray, index_coordinates: IndexCoordinates | None = None) -> None:
        self.array = array
        self.index_coordinates = index_coordinates
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        read = self._points if isinstance(key, indexing.VectorizedIndexer) else self._outer
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.VECTORIZED, read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read in a thread, so that ``Dataset.load_async`` reads variables concurrently."""
        return await asyncio.to_thread(self.__getitem__, key)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyArray, (self.array,)

    def _outer(self, key: tuple[Any, ...]) -> NDArray[Any]:
        check_unchanged(self.array, may_grow=True)
        values = None if self.index_coordinates is None else self.index_coordinates.read(self.array)
        return read_outer(self.array, key) if values is None else values[key].copy()

    def _points(self, key: tuple[Any, ...]) -> NDArray[Any]:
        check_unchanged(self.array, may_grow=True)
        return read_points(self.array, key)


class IndexCoordinates:
    """Index coordinates of a store with latency: the first read of one reads all of them concurrently.

    When xarray opens a dataset, it reads them one after the other, and the first and last value of times before.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._waiting = arrays
        self._values: dict[str, NDArray[Any] | None] = {}
        self._lock = threading.Lock()

    def read(self, array: StoredArray) -> NDArray[Any] | None:
        """Return the values; ``None`` where reading failed, so that reading `array` itself raises the error."""
        with self._lock:
            if self._waiting:
                arrays, self._waiting = self._waiting, ()
                with ThreadPoolExecutor(min(len(arrays), REQUESTS_AT_ONCE)) as pool:
                    self._values = dict(zip((a.path for a in arrays), pool.map(_values, arrays), strict=True))
            return self._values.get(array.path)


def _values(array: Array) -> NDArray[Any] | None:
    try:
        return array[...]  # type: ignore[no-any-return]
    except (ChunkmillError, OSError):
        return None


class _LazyView:
    """Wrappers that xarray put around a `LazyArray`, the innermost first: they make the values of blocks."""

    def __init__(self, wrappers: Sequence[Any], region: Region) -> None:
        self.wrappers = []
        for wrapper in wrappers:  # without what they hold, which would be sent with each task
            self.wrappers.append(copy(wrapper))
            self.wrappers[-1].array = None
        self.start = tuple(cut.start for cut in region)

    def __call__(self, array: StoredArray, region: Region) -> NDArray[Any]:
        inner: Any = LazyArray(array)
        for wrapper in map(copy, self.wrappers):
            wrapper.array = inner
            inner = wrapper
        cuts = zip(region, self.start, strict=True)
        return np.asarray(inner[tuple(slice(cut.start - start, cut.stop - start) for cut, start in cuts)])


@find_array_inside
def _lazy_array(source: Any) -> ArrayInside | None:
    """Return the array inside what xarray gives to dask, with the region of it that a selection before has left.

    ``None`` where elements have other places than in the array but for the region's start: transposed, selected by
    steps or positions, characters that are joined.
    """
    if type(source) is not indexing.ImplicitToExplicitIndexingAdapter:
        return None
    wrappers: list[Any] = []
    start = (0,) * source.ndim
    while not isinstance(source, LazyArray):
        below = getattr(source, "array", None)
        if isinstance(source, indexing.LazilyIndexedArray):
            key = source.key.tuple
            if not all(isinstance(cut, slice) and cut.step in {None, 1} for cut in key):
                return None
            starts = [cut.indices(n)[0] for cut, n in zip(key, source.array.shape, strict=True)]
            start = tuple(map(sum, zip(start, starts, strict=True)))
        elif below is None or below.shape != source.shape:
            return None
        wrappers.append(source)
        source = below
    shape = wrappers[0].shape
    region = tuple(slice(first, first + n) for first, n in zip(start, shape, strict=True))
    return ArrayInside(source.array, region, _LazyView(wrappers[::-1], region))
