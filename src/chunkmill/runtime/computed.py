"""Blocks of Dask arrays as inputs of a job's tasks, computed by the scheduler like the tasks themselves.

A `ComputedStore` shows an array as stored chunks. The tasks of a stage depend on the blocks that they read, so that the
scheduler computes each once, wherever it is, and knows of blocks that a cluster holds already. Every task that
is given a block checks it by `checked_block`. Not here: sources of jobs as nodes (`chunkmill.dask_arrays.as_dask`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from chunkmill.errors import StoreError
from chunkmill.model.grid import ChunkCoords
from chunkmill.model.user_values import block_as_dtype, checked_block
from chunkmill.stores.base import ByteRange
from chunkmill.stores.memory import MemoryStore

if TYPE_CHECKING:
    from dask.array import core as da

BlockKey = tuple[Any, ...]

_left_out = ContextVar("_left_out", default=False)


@contextmanager
def values_left_out() -> Iterator[None]:
    """Pickle stores inside without their Dask arrays, for tasks that are sent the blocks that they read."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


class ComputedStore(MemoryStore):
    """The documents of an array, and its chunks: blocks that this task was given, else computed when they are read."""

    def __init__(self, values: da.Array) -> None:
        super().__init__()
        self.url = f"dask-array://{values.name}"
        self.name, self.numblocks, self.shape = values.name, values.numblocks, tuple(map(int, values.shape))
        self.chunk_shape, self.dtype = tuple(map(int, values.chunksize)), values.dtype
        self.values: da.Array | None = values

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | ({"values": None} if _left_out.get() else {})

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a document, or the bytes of a block."""
        coords = self._coords(key)
        if coords is None:
            return super().get(key, byte_range)
        return self.cut(key, self._encoded(coords), byte_range)

    def get_noting(self, key: str, byte_range: ByteRange | None, record: Any) -> bytes | None:
        """Return a value, or a range of it; what is computed has one version."""
        value = self.get(key, byte_range)
        if value is not None:
            record(key, "0")
        return value

    def version(self, key: str) -> str | None:
        """Return the version of a document; one and the same for all that is computed."""
        return "0" if self._coords(key) is not None else super().version(key)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes; no block is computed for it."""
        if self._coords(key) is None:
            return super().size(key)
        return prod(self.chunk_shape) * int(self.dtype.itemsize)

    def block_key(self, key: str) -> BlockKey | None:
        """Return the key in the array's graph of the block that a store key shows; ``None`` of a document."""
        coords = self._coords(key)
        return None if coords is None else (self.name, *coords)

    def _coords(self, key: str) -> ChunkCoords | None:
        first, *parts = key.split("/")
        if first != "c" or len(parts) != len(self.numblocks) or not all(part.isdecimal() for part in parts):
            return None
        coords = tuple(map(int, parts))
        return coords if all(i < n for i, n in zip(coords, self.numblocks, strict=True)) else None

    def block(self, coords: ChunkCoords) -> Any:
        """Return a block, as Dask computes it."""
        found = _blocks_here.get((self.name, *coords))
        if found is None and self.values is None:
            reason = "the task was not given this block: an error of chunkmill, please report it"
            raise StoreError(url=self.url, key="/".join(map(str, ("c", *coords))), reason=reason)
        if found is None:  # Dask has no block of an array without axes
            found = ((self.values.blocks[coords] if coords else self.values).compute(), 0)  # type: ignore[union-attr]
        return found[0]

    def _encoded(self, coords: ChunkCoords) -> bytes:
        shape = tuple(min(full, n - i * full) for full, n, i in zip(self.chunk_shape, self.shape, coords, strict=True))
        block = block_as_dtype(checked_block(self.block(coords), coords, shape), self.dtype, coords)
        pads = [(0, full - n) for full, n in zip(self.chunk_shape, shape, strict=True)]
        padded = np.pad(block, pads) if any(n for _, n in pads) else block
        return padded.astype(self.dtype.newbyteorder("<"), copy=False).tobytes()


_blocks_here: dict[BlockKey, tuple[Any, int]] = {}  # blocks of the tasks that this process runs, and how many of these
_lock = threading.Lock()


def with_blocks(
    function: Callable[..., Any], shared: Any, keys: Sequence[BlockKey], arguments: Sequence[Any], *blocks: Any
) -> Any:
    """Call a function with `shared` and `arguments`; its stores have the blocks of these keys, in all its threads."""
    with _lock:
        for key, block in zip(keys, blocks, strict=True):
            _blocks_here[key] = block, _blocks_here.get(key, (None, 0))[1] + 1
    try:
        return function(shared, *arguments)
    finally:
        with _lock:
            for key in keys:
                block, n_tasks = _blocks_here.pop(key)
                if n_tasks > 1:
                    _blocks_here[key] = block, n_tasks - 1
