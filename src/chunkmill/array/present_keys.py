"""List which store keys of a large, mostly empty array exist, and find the blocks of another grid that they touch.

What is done for an array then costs by what is stored, not by its grid. Not here: listings of every key
(`chunkmill.checks.inventory`, `chunkmill.references.locate`).
"""

from __future__ import annotations

import warnings
from array import array as column
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.layout import ShardedChunks
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.codecs.sharding import MISSING
from chunkmill.errors import ChunkmillError
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region, RegularAxis, RunsAxis
from chunkmill.stores.base import REQUESTS_AT_ONCE
from chunkmill.stores.wrapper import ListedStore

Numbers: TypeAlias = NDArray[np.int64]
"""Numbers of store keys or blocks in their grid, counted in C order, ascending."""

_FEW_KEYS = 1 << 10  # smaller grids are asked key by key: a listing is not cheaper
_N_PROBED = 32  # keys whose presence tells whether an array is sparse
MOST_KEYS = 1 << 22  # that are worth listing: 32 MB, some seconds; beyond, tasks ask for their own
_MOST_INDEXES = 1 << 14  # of shards, read by the client: some seconds
_MOST_PAIRS = 1 << 24


def list_present_if_sparse(array: StoredArray) -> Numbers | None:
    """Return the numbers of the store keys that exist; ``None`` where asking for each key costs less than listing.

    A few keys, spread over the grid, are asked for first: no array is listed of which more than half of them exist.
    """
    if not _FEW_KEYS < array.write_layout.grid.n_chunks < 1 << 63 or not array.store.can_list:
        return None
    n_found = sum(size is not None for size in sampled_sizes(array, _N_PROBED))
    return None if n_found > _N_PROBED // 2 else list_present(array)


def sampled_sizes(array: StoredArray, most: int) -> list[int | None]:
    """Return the sizes of at most so many store keys, spread over the array; ``None`` of absent ones."""
    grid, n_keys = array.write_layout.grid, array.write_layout.grid.n_chunks
    spread = range(n_keys) if n_keys <= most else (int(i * _GOLDEN % 1 * n_keys) for i in range(most))
    keys = [array.write_layout.locator.key(grid.coords_of(number)) for number in spread]
    n_threads = REQUESTS_AT_ONCE if array.store.is_remote else 1
    return in_threads(lambda part: array.store.size(keys[part.start]), cut_evenly(len(keys), len(keys)), n_threads)


def list_present(array: StoredArray) -> Numbers | None:
    """Return the numbers of the store keys that exist, by one listing; ``None`` where they are too many to hold.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-present", shape=(10**9,), dtype="u1", chunks=(1,))
    >>> a[7], a[10**8] = 1, 1
    >>> list_present(a.stored)
    array([        7, 100000000])
    """
    grid, shape = array.write_layout.grid, array.write_layout.grid.grid_shape
    numbers = column("q")
    for key in array.store.list_prefix(array.prefix):
        coords = array.coords_of_key(key)
        if coords is None or any(not 0 <= i < n for i, n in zip(coords, shape, strict=True)):
            continue  # a document, or a chunk that remained when the array was made smaller
        numbers.append(grid.number_of(coords))
        if len(numbers) > MOST_KEYS:
            return None
    return np.unique(np.array(numbers, np.int64))


def warn_of_nested_chunks(array: StoredArray) -> None:
    """Warn where chunks are stored under keys such as ``0/0``, and the metadata say ``0.0``: they are read as absent.

    Writers of Zarr v2 that knew no ``dimension_separator`` have stored arrays so (P1).
    """
    keys, store = array.metadata.chunk_keys, array.store.uncached
    if keys.prefix or keys.separator != "." or array.ndim <= 1 or not store.can_list:
        return
    if not store.is_empty(f"{array.prefix}0/"):
        warnings.warn(
            f"array {array.path!r} in {array.url} has chunks under keys such as '0/0', which are not read, since its "
            'document says 0.0: add "dimension_separator": "/" to it',
            UserWarning,
            stacklevel=2,
        )


def list_chunks_if_sparse(array: StoredArray) -> tuple[Numbers, ChunkGrid] | None:
    """Return the numbers of the chunks that exist, and their grid: of shards, where reading their indexes costs more.

    ``None`` where asking for each costs less than listing. The index of each shard that exists is read.
    """
    numbers = list_present_if_sparse(array)
    layout = array.read_layout
    if numbers is None or layout is array.write_layout or len(numbers) > _MOST_INDEXES:
        return None if numbers is None else (numbers, array.write_layout.grid)
    try:
        return chunks_in_shards(array, numbers), layout.grid
    except ChunkmillError:  # reading the shard says which entry is damaged
        return numbers, array.write_layout.grid


def chunks_in_shards(array: StoredArray, shards: Numbers) -> Numbers:
    """Return the numbers of the chunks that the indexes of some shards name, ascending."""
    coords = [array.write_layout.grid.coords_of(number) for number in shards.tolist()]
    found = [np.zeros(0, np.int64)]
    for shard, index in cast("ShardedChunks", array.read_layout.locator).indexes(array.store, coords):
        if index is not None:
            _, chunks, inside = chunks_in_shard(array, shard, index)
            found.append(chunks[inside])
    return np.unique(np.concatenate(found))


def chunks_in_shard(
    array: StoredArray, shard: ChunkCoords, index: NDArray[np.uint64]
) -> tuple[Numbers, Numbers, NDArray[np.bool]]:
    """Return the chunks that a shard's index names.

    Returns
    -------
    rows, chunks, inside
        Places in the flat index, numbers in the grid of chunks, and which of these are inside the array.
    """
    grid, locator = array.read_layout.grid, cast("ShardedChunks", array.read_layout.locator)
    rows = np.flatnonzero(index.reshape(-1, 2)[:, 0] != np.uint64(MISSING))
    places = np.unravel_index(rows, index.shape[:-1]) if index.ndim > 1 else ()
    chunks, inside = np.zeros(len(rows), np.int64), np.ones(len(rows), bool)
    for axis, n_chunks in enumerate(grid.grid_shape):
        along = locator.first_chunk(shard, axis) + places[locator.order.index(axis)]
        inside &= (along >= 0) & (along < n_chunks)  # outside the array, or a region of it, nothing is read
        chunks = chunks * n_chunks + along
    return rows, chunks, inside


_GOLDEN = (5**0.5 - 1) / 2


# --------------------------------------------------------------------------------------------------------------------
# Blocks of another grid over the same array


@dataclass(frozen=True, slots=True)
class TouchedBlocks(Sequence[tuple[int, Numbers]]):
    """Blocks that share elements with some store keys: number of each, and numbers of the keys that touch it.

    Examples
    --------
    >>> keys, blocks = ChunkGrid.regular((100,), (2,)), ChunkGrid.regular((100,), (5,))
    >>> [(number, touching.tolist()) for number, touching in touch(np.array([2, 3, 40]), keys, blocks)]
    [(0, [2]), (1, [2, 3]), (16, [40])]
    """

    numbers: Numbers
    starts: Numbers
    keys: Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return int(self.numbers[index]), self.keys[self.starts[index] : self.starts[index + 1]]
        start, stop, _ = index.indices(len(self))
        starts = self.starts[start : max(start, stop) + 1]
        return TouchedBlocks(self.numbers[start:stop], starts - starts[0], self.keys[starts[0] : starts[-1]])

    def between(self, start: int, stop: int) -> TouchedBlocks:
        """Return those with a number from `start` to below `stop`."""
        first, last = np.searchsorted(self.numbers, (start, stop)).tolist()
        return self[first:last]  # type: ignore[no-any-return]

    def with_blocks(self, numbers: Numbers) -> TouchedBlocks:
        """Return these blocks and those with some more `numbers`, which no key touches unless they are here already."""
        together = np.union1d(self.numbers, numbers)
        counts = np.zeros(len(together), np.int64)
        counts[np.searchsorted(together, self.numbers)] = np.diff(self.starts)
        return TouchedBlocks(together, np.append(0, np.cumsum(counts)), self.keys)


NO_BLOCKS = TouchedBlocks(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))


def touch(numbers: Numbers, keys: ChunkGrid, blocks: ChunkGrid) -> TouchedBlocks | None:
    """Return the blocks that share elements with store keys; ``None`` where they are too many to hold.

    Parameters
    ----------
    numbers
        Of the store keys, in the grid `keys`.
    """
    if blocks.n_chunks >= 1 << 63:
        return None
    firsts, counts = _spans(numbers, keys, blocks)
    if _n_pairs(counts) > _MOST_PAIRS:
        return None
    rows, found = np.arange(len(numbers)), np.zeros(len(numbers), np.int64)
    for first, count, n in zip(firsts, counts, blocks.grid_shape, strict=True):
        widths = count[rows]
        ends = np.cumsum(widths)
        rows, found = np.repeat(rows, widths), np.repeat(found * n, widths)
        found += first[rows] + np.arange(len(rows)) - np.repeat(ends - widths, widths)
    order = np.argsort(found, kind="stable")
    touched, starts = np.unique(found[order], return_index=True)
    return TouchedBlocks(touched, np.append(starts, len(found)).astype(np.int64), numbers[rows[order]])


def count_touched(numbers: Numbers, keys: ChunkGrid, blocks: ChunkGrid) -> int:
    """Return the number of pairs of a key and a block that share elements.

    Examples
    --------
    >>> count_touched(np.array([2, 3, 40]), ChunkGrid.regular((100,), (2,)), ChunkGrid.regular((100,), (5,)))
    4
    """
    return _n_pairs(_spans(numbers, keys, blocks)[1])


def count_in(grid: ChunkGrid, region: Region) -> int:
    """Return the number of chunks of `grid` that share elements with `region`."""
    axes = zip(grid.axes, region, strict=True)
    return prod(axis.index(cut.stop - 1) + 1 - axis.index(cut.start) for axis, cut in axes)


def _n_pairs(counts: Sequence[Numbers]) -> int:
    return int(np.prod(np.array(counts, np.float64).reshape(len(counts), -1), axis=0).sum())


def _spans(numbers: Numbers, keys: ChunkGrid, blocks: ChunkGrid) -> tuple[list[Numbers], list[Numbers]]:
    """Return for each axis, and each key, the first block that it touches, and how many."""
    coords = np.unravel_index(numbers, keys.grid_shape)
    firsts, counts = [], []
    for along, old, new in zip(coords, keys.axes, blocks.axes, strict=True):
        used, back = np.unique(along, return_inverse=True)
        first, stop = _axis_spans(used, old, new)
        firsts.append(first[back])
        counts.append((stop - first)[back])
    return firsts, counts


def _axis_spans(used: Numbers, old: RegularAxis | RunsAxis, new: RegularAxis | RunsAxis) -> tuple[Numbers, Numbers]:
    if isinstance(old, RegularAxis) and isinstance(new, RegularAxis):
        starts = used * old.chunk
        lasts = np.minimum(starts + old.chunk, old.size) - 1
        return starts // new.chunk, lasts // new.chunk + 1
    bounds = [(old.start(i), min(old.start(i) + old.length(i), old.size)) for i in used.tolist()]
    spans = [(new.index(start), new.index(stop - 1) + 1) for start, stop in bounds]
    first, stop = np.array(spans, np.int64).reshape(-1, 2).T
    return first, stop


def listed_only(array: StoredArray, present: Numbers) -> StoredArray:
    """Return the array over a store that asks for no store key but those with the numbers `present`."""
    layout = array.write_layout
    keys = {layout.locator.key(layout.grid.coords_of(number)) for number in present.tolist()}
    return array.with_store(ListedStore(array.store, keys))
