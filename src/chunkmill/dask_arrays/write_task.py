"""Task that writes one block of a dask array to the store keys that the block covers.

Not here: the graph of these tasks (`chunkmill.dask_arrays.write`), how one store key is written
(`chunkmill.array.chunk_io`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from distributed import secede
from numpy.typing import NDArray

from chunkmill.array.chunk_io import puts_at_once, write_chunk, write_overlap
from chunkmill.array.selection import region_shape
from chunkmill.array.staleness import written_to
from chunkmill.array.stored_array import CHECK_INTERVAL, StoredArray, chunk_step
from chunkmill.array.threads import LockFactory, PendingWrites, cut_evenly, in_threads
from chunkmill.dask_arrays.regroup import AssembledBlock
from chunkmill.errors import NodeExists
from chunkmill.journal.lease import check_no_job
from chunkmill.model.grid import ChunkGrid, Overlap, Region
from chunkmill.model.user_values import block_as_dtype, checked_block
from chunkmill.runtime.cancellation import unless_cancelled
from chunkmill.runtime.preflight import check_process
from chunkmill.runtime.scheduler import worker_task
from chunkmill.stores.base import Changes, joined_changes
from chunkmill.stores.wrapper import Guard

Block = NDArray[Any] | AssembledBlock
"""Values of a task: in one array, or in several."""


class WriteCounts(NamedTuple):
    """Counts of what was written: those of `WriteReport`, and nanoseconds that locks were waited for.

    Tasks return them as a block of a dask array, along its last axis: only arrays are fused with what they are made of.

    Examples
    --------
    >>> total = WriteCounts.total([WriteCounts(1, 0, 0, 40), WriteCounts(1, 1, 1, 0)])
    >>> total
    WriteCounts(n_keys=2, n_partial=1, n_empty=1, bytes_written=40, n_retried=0, waited=0)
    >>> WriteCounts.of(total.as_block(2)) == total, total.as_block(2).shape
    (True, (1, 1, 6))
    """

    n_keys: int = 0
    n_partial: int = 0
    n_empty: int = 0
    bytes_written: int = 0
    n_retried: int = 0
    waited: int = 0

    @classmethod
    def total(cls, counts: Iterable[Iterable[int]]) -> Self:
        """Return the sum, count by count."""
        return cls(*map(sum, zip(cls(), *counts, strict=True)))

    @classmethod
    def of(cls, blocks: NDArray[np.int64]) -> Self:
        """Return the sum of what tasks returned, one block or several of them."""
        return cls(*blocks.reshape(-1, len(cls._fields)).sum(axis=0).tolist())

    def as_block(self, ndim: int) -> NDArray[np.int64]:
        """Return the counts as a block of length 1 along `ndim` axes, and of the counts along one more."""
        return np.array(self, np.int64).reshape((1,) * ndim + (-1,))


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Function of a block, and of the region of its dask array that it covers: writes the block, returns its counts.

    Attributes
    ----------
    start
        First element, in `array`, of the region that the dask array is written to.
    blocks
        How blocks divide the dask array.
    lock
        Of the store keys that the region covers partly.
    stored
        The array as it must be in the store when the block is written; ``None``: not published yet.
    absent
        Keys of documents that must not be there when a block is written: of a new array that nothing leases.
    name
        Of the write, by which it is given up.
    client_process, needs
        Id of the process that built the graph, which was checked by then; and what any other process must be able to
        do, pickled by `chunkmill.runtime.preflight`.
    """

    array: StoredArray
    start: tuple[int, ...]
    blocks: ChunkGrid
    lock: LockFactory
    write_empty: bool
    stored: StoredArray | None
    name: str
    client_process: int
    needs: bytes
    absent: Sequence[str] = ()

    def __call__(self, block: Block, within: Region) -> Counts:
        """Write the block and return its `WriteCounts`, as a block, which may come before its values are stored."""
        if os.getpid() != self.client_process:
            check_process(self.needs)  # a worker may have joined after the others were checked
        region = tuple(slice(cut.start + s, cut.stop + s) for cut, s in zip(within, self.start, strict=True))
        if not isinstance(block, AssembledBlock):
            index = tuple(axis.index(cut.start) for axis, cut in zip(self.blocks.axes, within, strict=True))
            block = block_as_dtype(checked_block(block, index, region_shape(within)), self.array.dtype, index)
        check = _FreePath(self.array, self.absent) if self.absent else None
        with (
            unless_cancelled(self.name, check) as guard,
            written_to(self.array, self.stored) as array,
            array.store.changes_taken() as taken,
        ):
            if array.store.is_remote and array.write_layout.grid.aligned(region):
                written = self._begin(block, region, guard)
                if isinstance(written, UnfinishedWrite):
                    return written
                counts = written
            else:
                options: Any = {"lock": self.lock, "write_empty": self.write_empty, "guard": guard}
                counts = write_keys(array, block, region, **options).as_block(block.ndim)
            changes = taken()
        return counts if changes is None else ChangedCounts(counts, changes)

    def _begin(self, block: Block, region: Region, guard: Guard) -> NDArray[np.int64] | UnfinishedWrite:
        """Encode the block's chunks here, and store them in threads, since requests cost latency.

        In the process of the client, `finished` waits for them. A worker may die before, so its task waits, but leaves
        its thread to another one.
        """
        array, writes, counts = self.array, PendingWrites(), []
        for overlap in array.write_layout.grid.overlaps(region):
            guard()
            values = _values(block, overlap)
            begin = partial(self._begin_key, writes, overlap, values.nbytes, guard)
            n_bytes = write_chunk(array, overlap.coords, values, write_empty=self.write_empty, begin=begin)
            counts.append(WriteCounts(1, 0, n_bytes == 0, n_bytes))
        own = WriteCounts.total(counts).as_block(block.ndim)
        if worker_task() is not None:
            secede()
        elif os.getpid() == self.client_process:
            return UnfinishedWrite(own, writes)
        writes.wait()
        return own

    def _begin_key(
        self, writes: PendingWrites, overlap: Overlap, n_bytes: int, guard: Guard, call: Callable[[], object]
    ) -> None:
        def store() -> None:
            with unless_cancelled(self.name), chunk_step(self.array, self.array.write_layout, overlap.coords, "set"):
                guard()
                call()

        writes.begin(store, n_bytes)


class _FreePath:
    """Question whether the path of a new array is still free (P4): once a task, and once a second."""

    def __init__(self, array: StoredArray, keys: Sequence[str]) -> None:
        self._array, self._keys, self._until = array, keys, 0.0

    def __call__(self, *, now: bool = False) -> None:
        asked = time.monotonic()
        if not now and asked < self._until:
            return
        array = self._array
        if any(array.store.size(key) is not None for key in self._keys):
            hint = "it was made after this write was planned, and no further value is written there; plan it again"
            raise NodeExists(url=array.store.url, path=array.path, found="node", hint=hint)
        check_no_job(array.store, array.path)  # whose chunks have the same keys
        self._until = asked + CHECK_INTERVAL


class UnfinishedWrite:
    """Counts of a block whose values are being stored; pickled, they are stored and it is the counts."""

    def __init__(self, counts: NDArray[np.int64], writes: PendingWrites) -> None:
        self._counts = counts
        self._writes = writes

    def finished(self) -> NDArray[np.int64]:
        """Return the counts when all values are stored; raise the error of one that is not."""
        self._writes.wait()
        return self._counts

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (self.finished(),)


@dataclass(frozen=True, slots=True)
class ChangedCounts:
    """Counts of a block that was written in a fork of a transaction, with its changes."""

    counts: NDArray[np.int64]
    changes: Changes


Counts = NDArray[np.int64] | UnfinishedWrite | ChangedCounts
"""What a `WriteTask` returns."""


def finished(counts: Counts) -> NDArray[np.int64]:
    """Return the counts that a `WriteTask` returned, when its values are stored."""
    if isinstance(counts, ChangedCounts):
        return counts.counts
    return counts.finished() if isinstance(counts, UnfinishedWrite) else counts


def with_changes(counts: NDArray[np.int64], parts: Iterable[Counts]) -> NDArray[np.int64] | ChangedCounts:
    """Return counts that were made of those of `parts`, with the changes of all of them, if they have any."""
    changes = joined_changes(each.changes for each in parts if isinstance(each, ChangedCounts))
    return counts if changes is None else ChangedCounts(counts, changes)


def applied(counts: NDArray[np.int64] | ChangedCounts) -> NDArray[np.int64]:
    """Return the counts, and add their changes to the transaction, which is of this process."""
    if isinstance(counts, ChangedCounts):
        counts.changes.apply()
    return finished(counts)


def write_keys(
    array: StoredArray,
    block: Block,
    region: Region,
    *,
    lock: LockFactory,
    write_empty: bool = False,
    guard: Guard | None = None,
) -> WriteCounts:
    """Write the store keys of a region, several at once where requests cost latency; `guard` is asked before each."""

    def write_one(overlap: Overlap) -> WriteCounts:
        if guard is not None:
            guard()
        written = write_overlap(array, overlap, _values(block, overlap), lock=lock, write_empty=write_empty)
        return WriteCounts(1, not overlap.whole, written[0] == 0, *written)

    if (only := array.write_layout.grid.only_overlap(region)) is not None:
        return write_one(only)
    overlaps = list(array.write_layout.grid.overlaps(region))

    def write(keys: slice) -> WriteCounts:
        return WriteCounts.total(map(write_one, overlaps[keys]))

    n_threads = puts_at_once(array, overlaps)
    return WriteCounts.total(in_threads(write, cut_evenly(len(overlaps), 8 * n_threads), n_threads))


def _values(block: Block, overlap: Overlap) -> Any:
    index: tuple[Any, ...] = (*overlap.in_region, ...)  # the dots keep a 0-d block an array
    return block[index]
