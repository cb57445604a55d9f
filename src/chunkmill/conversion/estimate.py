"""Estimate memory, bytes and requests of a conversion from codec chains and chunk shapes (P12).

Not here: the plan of an array (`chunkmill.conversion.convert_job`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import NamedTuple

from chunkmill.array.layout import ChunkLayout, ShardedChunks
from chunkmill.array.present_keys import sampled_sizes
from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.n5_block import N5Block
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.sharding import ShardingIndexed
from chunkmill.conversion.actions import ChosenAction, group_keys
from chunkmill.conversion.coarsen import MeasuredAxis, coarsen, meet
from chunkmill.model.metadata import inner_layout
from chunkmill.runtime.computed import ComputedStore
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD

_VARIABLE_ITEMSIZE = 64
"""Assumed for values of variable length, whose length is not known before they are read."""


def itemsize(array: StoredArray) -> int:
    """Return the bytes assumed for an element."""
    return _VARIABLE_ITEMSIZE if array.dtype.kind in "OT" else array.dtype.itemsize


def chunk_bytes(array: StoredArray, layout: ChunkLayout) -> int:
    """Return the bytes of one chunk's values."""
    return itemsize(array) * prod(layout.regular.shape)  # decoded whole, also where a region has a part of it


def met_bytes(array: StoredArray, shape: Sequence[int], *, aligned: bool = True) -> int:
    """Return the most bytes that the chunks of an array have which a region of that shape meets.

    Parameters
    ----------
    aligned
        Whether regions begin at multiples of the shape.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-met", "a", shape=(12, 12), dtype="u1", chunks=(4, 12)).stored
    >>> [met_bytes(a, (n, 1)) for n in (2, 4, 6, 12)]
    [48, 48, 96, 144]
    """
    met = itemsize(array)
    for n, chunk, length in zip(shape, array.read_layout.regular.shape, array.shape, strict=True):
        first = chunk - (gcd(n, chunk) if aligned else 1)  # elements of the first chunk before the region, at most
        met *= min(-(-(first + n) // chunk), -(-length // chunk)) * chunk
    return met


def input_bytes(array: StoredArray, shape: Sequence[int], *, aligned: bool = True) -> int:
    """Return the most bytes of Dask blocks that a task holds whose region has that shape; 0 where values are stored."""
    return met_bytes(array, shape, aligned=aligned) if isinstance(array.store, ComputedStore) else 0


def most_encoded(array: StoredArray, layout: ChunkLayout) -> int:
    """Return the largest size of one chunk as it is stored: with values that do not compress."""
    return _most_encoded(layout.codecs, layout.regular, itemsize(array), spread=64)


def stored_bytes(array: StoredArray, layout: ChunkLayout, n_chunks: int, decoded_bytes: int) -> int:
    """Return the stored size of chunks, where the codecs tell it; else the size of their values and headers."""
    exact, grid = layout.codecs.encoded_size(layout.regular), layout.grid
    if exact is not None and grid.is_regular:
        return exact * n_chunks
    if exact is not None and n_chunks:  # chunks of many lengths, the last of which overhang
        ends = (axis.start(axis.n_chunks - 1) + axis.length(axis.n_chunks - 1) for axis in grid.axes)
        decoded_bytes = decoded_bytes * prod(ends) // prod(grid.shape)
    headers = _most_encoded(layout.codecs, layout.regular, itemsize(array), spread=1 << 62) - chunk_bytes(array, layout)
    return decoded_bytes + n_chunks * headers


def _most_encoded(codecs: CodecPipeline, spec: ChunkSpec, n_bytes: int, *, spread: int) -> int:
    for each in codecs.filters:
        spec = each.spec_after(spec)
    serializer = codecs.serializer
    if isinstance(serializer, ShardingIndexed):
        n_inner = prod(serializer.inner_grid_shape(spec))
        most = serializer.index_bytes(spec)
        most += n_inner * _most_encoded(serializer.inner, serializer.inner_spec(spec), n_bytes, spread=spread)
    elif isinstance(serializer, N5Block):
        most = _most_encoded(serializer.payload, spec, n_bytes, spread=spread) + 4 * (len(spec.shape) + 2)
    else:
        most = serializer.encoded_size(spec) or prod(spec.shape) * n_bytes
    for compressor in codecs.compressors:  # in blocks that do not compress, with a header each
        most = compressor.encoded_size(most) or most + most // spread + 64
    return most


def index_size(layout: ChunkLayout) -> int:
    """Return the size of a shard's index as it is stored; 0 where there are no shards."""
    serializer, spec = layout.codecs.serializer, layout.regular
    for each in layout.codecs.filters:
        spec = each.spec_after(spec)
    return serializer.index_bytes(spec) if isinstance(serializer, ShardingIndexed) else 0


def n_decoding(codecs: CodecPipeline) -> int:
    """Return the number of buffers of a chunk's size that are alive at once in addition to the encoded one."""
    return min(len(codecs.compressors), 2) + _n_serializing(codecs) + min(len(codecs.filters), 2)


def n_encoding(codecs: CodecPipeline) -> int:
    """Return the number alive at once besides the values: padded or made contiguous, filtered, serialized, compressed.

    Compressors allocate for what does not compress, and copy what comes out.
    """
    return 1 + min(len(codecs.filters), 2) + _n_serializing(codecs) + min(2 * len(codecs.compressors), 3)


def _n_serializing(codecs: CodecPipeline) -> int:
    serializer = codecs.serializer
    if isinstance(serializer, N5Block):  # cropped to the array, joined to its header
        payload = serializer.payload
        return 1 + _n_serializing(payload) + min(len(payload.filters), 2) + min(2 * len(payload.compressors), 3)
    if serializer.name == "bytes":
        return 0 if getattr(serializer, "endian", None) in {None, sys.byteorder} else 1
    return 2  # parts, and the whole that they are joined to


_OBJECTS = 1 << 10
"""Bytes (measured): Python's objects of a chunk that a task is going to move, such as its coords, key and range."""

_INDEX = 3
"""Copies of a shard's index in memory: decoded, encoded, with its checksum."""

_FIRST_AHEAD, _MOST_AHEAD, _AHEAD_BYTES = 16, 512, 64 << 20
"""Chunks, and bytes, that stores with latency fetch ahead for a task that asks for many chunks at once."""


NO_BUDGET = 1 << 62

MOST_STORING, _STORING_BYTES = 32, 32 << 20
"""Values, and bytes, that are being stored, where requests cost latency, while a task continues."""


class TaskMemory(NamedTuple):
    """Memory of one task in bytes, and its requests under way to stores with latency.

    Attributes
    ----------
    n_ahead
        Chunks that are fetched ahead, at most; 0: as many as the store likes.
    n_background
        Values that are being stored while the task continues, at most; 0: it waits for each.
    """

    n_bytes: int
    n_ahead: int = 0
    n_background: int = 0


def thread_overheads(source: StoredArray, target: StoredArray) -> tuple[int, int]:
    """Return the bytes to add to what a thread holds: as measured, and where memory is short, as its chunks have.

    A heap keeps some of what was freed: megabytes, but not of chunks of kilobytes.
    """
    chunks = chunk_bytes(source, source.read_layout) + chunk_bytes(target, target.write_layout)
    opened = 0 if source.read_layout is source.write_layout else _OPENED_SHARDS
    return THREAD_OVERHEAD, min(THREAD_OVERHEAD, chunks + opened)


_OPENED_SHARDS = 128 << 10
"""Indexes and parts of shards that a task holds as objects: 20 to 110 KiB were measured."""


def task_memory(
    source: StoredArray,
    target: StoredArray,
    action: ChosenAction,
    budget: int = NO_BUDGET,
    overhead: int = THREAD_OVERHEAD,
) -> TaskMemory:
    """Return the memory of one task.

    Chunks are counted as if they did not compress. Where `budget` allows fewer requests under way than a store with
    latency would have by itself, there are as many as it allows, and at least one chunk is fetched ahead.
    """
    copies = action.name == "copy"
    fetched = most_encoded(source, source.write_layout if copies else source.read_layout)
    n_keys = prod(action.group)
    n_chunks = n_keys
    n_bytes = overhead + fetched
    if copies:
        n_bytes += fetched * target.store.is_remote + _opened_bytes(source, target, action) * (
            "recode" in action.counts
        )
    else:
        n_chunks *= max(
            1, prod(target.write_layout.grid.chunk_shape) // max(prod(target.read_layout.grid.chunk_shape), 1)
        )
        n_bytes += _opened_bytes(source, target, action) + _stored_bytes(target)
        if index := index_size(source.write_layout):
            axes = zip(source.write_layout.grid.axes, target.write_layout.grid.axes, action.group, strict=True)
            shards = (min(old.n_chunks, new.widest * n // MeasuredAxis.of(old).shortest + 2) for old, new, n in axes)
            n_bytes += _INDEX * index * prod(shards)  # of all that one task may read
    n_bytes += n_chunks * _OBJECTS
    n_background = 0
    if target.store.is_remote:
        held = 2 * most_encoded(target, target.write_layout)  # the value, and the request's copy of it
        n_background = min(n_keys, MOST_STORING, _STORING_BYTES // max(held, 1))
        n_background = max(0, min(n_background, (budget - n_bytes) // 2 // max(held, 1)))
        n_bytes += n_background * held
    if not source.store.is_remote:
        return TaskMemory(n_bytes, 0, n_background)
    natural = min(n_chunks, max(_FIRST_AHEAD, min(_MOST_AHEAD, _AHEAD_BYTES // max(fetched, 1))))
    n_ahead = max(1, min(natural, (budget - n_bytes) // max(fetched, 1)))
    return TaskMemory(n_bytes + n_ahead * fetched, n_ahead if n_ahead < natural else 0, n_background)


def fit_memory(
    source: StoredArray, target: StoredArray, action: ChosenAction, budget: int
) -> tuple[ChosenAction, TaskMemory]:
    """Return the action with tasks that stay within `budget`, and their memory: the smallest, where even they do not.

    A heap keeps some of what was freed: megabytes, as measured, but where memory is short, and chunks are of kilobytes,
    no more than these have.
    """
    layouts = inner_layout(source.metadata), inner_layout(target.metadata)
    layouts = replace(layouts[0], keys=source.write_layout.grid, chunks=source.read_layout.grid), layouts[1]
    for overhead in thread_overheads(source, target):
        fitted, memory = action, task_memory(source, target, action, budget, overhead)
        while memory.n_bytes > budget and (n_keys := prod(fitted.group)) > 1:
            group = group_keys(*layouts, 1, max_bytes=1 << 62, max_keys=n_keys // 2, align_bytes=0)
            fitted = replace(action, group=group)
            memory = task_memory(source, target, fitted, budget, overhead)
        if memory.n_bytes <= budget:
            break
    return fitted, memory


def _opened_bytes(source: StoredArray, target: StoredArray, action: ChosenAction) -> int:
    """Return the memory to turn fetched bytes into a chunk of the target."""
    moved = most_encoded(target, target.read_layout) if action.unframe or action.frame else 0
    if not action.materialize and not {"recode", "rechunk"} & action.counts.keys():
        return moved
    n_decoded, n_encoded = max(1, n_decoding(source.read_layout.codecs)), n_encoding(target.read_layout.codecs)
    decoded = chunk_bytes(source, source.read_layout) * n_decoded
    return max(moved, decoded + chunk_bytes(target, target.read_layout) * n_encoded)


def _stored_bytes(target: StoredArray) -> int:
    """Return the memory to store the value of one key of the target, whose chunks come one by one."""
    chunk = most_encoded(target, target.read_layout)
    if not isinstance(target.read_layout.locator, ShardedChunks):
        return chunk * target.store.is_remote
    shard = most_encoded(target, target.write_layout)
    index = _INDEX * index_size(target.write_layout)
    if not target.store.writes_parts:  # the chunks, and the shard that they are joined to
        return index + shard * (2 + target.store.is_remote)
    # the first is held until all are written; all, where the index stands before them
    return index + (chunk if target.read_layout.locator.sharding.index_location == "end" else shard)


# --------------------------------------------------------------------------------------------------------------------
# Bytes and requests


class TransferEstimate(NamedTuple):
    """Estimated bytes and requests of moving arrays whose chunks all are as those that were sampled."""

    bytes_read: int = 0
    bytes_written: int = 0
    n_requests: int = 0


def estimate_transfers(moved: Sequence[tuple[StoredArray, StoredArray, ChosenAction]]) -> list[TransferEstimate]:
    """Estimate the bytes and requests of moving each of some arrays.

    Encoded sizes are those of the source's store keys; of a sample, where there are many. Chunks that are encoded
    again count with the bytes of their values, unless the codecs encode every chunk to the same size.
    """
    stored = _stored([source for source, _, _ in moved])
    return [_estimate(*each, sizes) for each, sizes in zip(moved, stored, strict=True)]


def sampled_bytes(arrays: Sequence[StoredArray]) -> list[int]:
    """Return the size of all store keys of each array, of which those of a sample are asked for."""
    sizes = _stored(arrays)
    return [round(each.key_bytes * array.write_layout.grid.n_chunks) for array, each in zip(arrays, sizes, strict=True)]


def _estimate(source: StoredArray, target: StoredArray, action: ChosenAction, stored: _Stored) -> TransferEstimate:
    old, new = source.write_layout.grid, target.write_layout.grid
    read = written = round(stored.key_bytes * old.n_chunks)
    n_chunks = target.read_layout.grid.n_chunks
    if action.name == "copy":
        return TransferEstimate(read, written, 2 * new.n_chunks)
    n_indexes = 0
    if source.read_layout is not source.write_layout:
        size = index_size(source.write_layout)
        axes = zip(old.axes, new.axes, action.group, strict=True)
        n_indexes = prod(meet(MeasuredAxis.of(a), MeasuredAxis.of(coarsen(b, n))).n_pairs for a, b, n in axes)
        written -= round(stored.present * old.n_chunks) * size
        read += round(stored.present * (n_indexes - old.n_chunks)) * size
    share = 1 if action.materialize else stored.present
    n_recoded = n_chunks
    if action.moves and not action.materialize:
        n_recoded = action.counts.get("recode", 0)  # blocks at an end: padded, or cropped
    else:
        written = 0
    decoded = target.nbytes if n_recoded == n_chunks else 0
    written += round(share * stored_bytes(target, target.read_layout, n_recoded, decoded))
    if target.read_layout is not target.write_layout and share:
        written += new.n_chunks * index_size(target.write_layout)
    return TransferEstimate(read, written, n_chunks + n_indexes + new.n_chunks)


class _Stored(NamedTuple):
    """Mean size of an array's store keys, absent ones included, and the fraction of present ones."""

    key_bytes: float
    present: float


_MOST_ARRAYS = 64
_MOST_KEYS, _MOST_KEYS_FAR = 1024, 32  # whose sizes are asked for; the second, all at once, where requests cost latency


def _stored(arrays: Sequence[StoredArray]) -> list[_Stored]:
    """Sample store keys of the largest arrays; the other arrays are assumed to be alike."""
    largest = sorted((i for i, array in enumerate(arrays) if array.size), key=lambda i: -arrays[i].nbytes)
    found: dict[int, _Stored] = {}
    for i in largest[:_MOST_ARRAYS]:
        array = arrays[i]
        most = _MOST_KEYS_FAR if array.store.is_remote else _MOST_KEYS
        sizes = sampled_sizes(array, max(1, most // min(len(largest), _MOST_ARRAYS)))
        there = [size for size in sizes if size is not None]
        found[i] = _Stored(sum(there) / len(sizes), len(there) / len(sizes))
    declared = [chunk_bytes(array, array.write_layout) for array in arrays]
    ratio = sum(each.key_bytes for each in found.values()) / max(sum(declared[i] for i in found), 1)
    present = sum(each.present for each in found.values()) / max(len(found), 1)
    return [found.get(i, _Stored(ratio * n_bytes, present)) for i, n_bytes in enumerate(declared)]
