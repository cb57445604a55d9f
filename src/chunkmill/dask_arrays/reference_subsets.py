"""Send each task that reads a block only the references it needs, never the whole set.

A set in JSON is held in memory, hundreds of megabytes when it is large. Tasks in the process that holds the set use it
as it is; a task that is pickled takes along a subset. Sets in parquet are pickled as their url.
Not here: tasks of jobs (`chunkmill.runtime.reference_shipping`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, cast

from dask._task_spec import DataNode
from dask.base import normalize_token

from chunkmill.array.chunk_io import read_region
from chunkmill.array.other_stores import begun_reads, held_references
from chunkmill.array.pending_writes import BegunReads, with_begun_reads
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.blocks import BlockRegions
from chunkmill.model.grid import DaskChunks, Region
from chunkmill.stores.capabilities import HoldsReferences

__all__ = ["SubsetRegions", "begin_subset", "read_subset"]


class SubsetRegions(BlockRegions):
    """Mapping of a block's index to the region that the block covers and the references that reading it takes.

    Examples
    --------
    >>> import pickle
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-subsets", "a", shape=(9,), dtype="u1", chunks=(1,))
    >>> a[...] = 1
    >>> report = cm.to_references("memory://doc-subsets", "memory://doc-subsets-set/refs.json")
    >>> array = cm.open_array("memory://doc-subsets-set/refs.json", "a")
    >>> task = SubsetRegions(array.stored, ((3, 3, 3),))[1,].value
    >>> store, regions = pickle.loads(pickle.loads(pickle.dumps(task)))
    >>> regions, len(task.array.store.references), len(store.references)
    ([(slice(3, 6, None),)], 13, 3)
    """

    def __init__(
        self,
        array: StoredArray,
        chunks: DaskChunks,
        start: Sequence[int] | None = None,
        cuts: Sequence[Sequence[slice]] | None = None,
    ) -> None:
        super().__init__(chunks, start, cuts)
        self.array = array

    def __getitem__(self, index: tuple[int, ...]) -> DataNode:
        """Return the argument of the task that reads a block."""
        return DataNode(None, _Blocks(self.array, [self.region(index)]))

    def together(self, blocks: Sequence[tuple[int, ...]]) -> DataNode:
        """Return the argument of the task that begins the requests of several blocks."""
        return DataNode(None, _Blocks(self.array, [self.region(index) for index in blocks]))

    def __dask_tokenize__(self) -> Any:
        return "chunkmill.SubsetRegions", self.grid, self.start, normalize_token(self.array)


class _Blocks:
    """Blocks of an array, in the process that holds the reference set."""

    __slots__ = ("array", "regions")

    def __init__(self, array: StoredArray, regions: Sequence[Region]) -> None:
        self.array = array
        self.regions = regions

    def __reduce__(self) -> tuple[Any, ...]:
        store = cast("HoldsReferences", held_references(self.array))
        keys = [key for region in self.regions for key in self.array.keys(region)]
        # as bytes: a worker without chunkmill closes of what it cannot unpickle (see `SharedFunction`)
        return bytes, (pickle.dumps((store.subset(keys), self.regions), pickle.HIGHEST_PROTOCOL),)


def _opened(array: StoredArray, blocks: _Blocks | bytes) -> tuple[StoredArray, Sequence[Region]]:
    """Return the array with the references of some blocks, and their regions."""
    if isinstance(blocks, _Blocks):
        return blocks.array, blocks.regions
    store, regions = pickle.loads(blocks)  # noqa: S301 - pickle is how dask brings tasks
    return array.with_store(store), regions


def read_subset(
    array: StoredArray,
    block: _Blocks | bytes,
    reads: BegunReads | None = None,
    *,
    values: Callable[[StoredArray, Region], Any] = read_region,
) -> Any:
    """Read a block of `array`, whose own store holds no references: the task of each key of the layer."""
    array, (region,) = _opened(array, block)
    return values(array.with_store(with_begun_reads(array.store, reads)), region)


def begin_subset(array: StoredArray, blocks: _Blocks | bytes) -> BegunReads:
    """Begin the requests of blocks of `array`, whose own store holds no references."""
    return begun_reads(*_opened(array, blocks))
