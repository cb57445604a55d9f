"""What a rechunk may hold and what it costs: workers, stores and codec chains -> the integers that planning takes.

Memory is counted for chunks that do not compress: each codec is taken to need its input and its output at once.
Not here: planning (`chunkmill.conversion.rechunking.plan`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed.system import MEMORY_LIMIT

from chunkmill.array.chunk_io import Array
from chunkmill.array.layout import Grain
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.n5_block import N5Block
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.registry import build_pipeline, default_serializer
from chunkmill.codecs.sharding import ShardingIndexed
from chunkmill.conversion.rechunking.plan import Costs, Side, Temporary
from chunkmill.model.metadata import NamedConfig
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores.base import Store

__all__ = [
    "THREAD_OVERHEAD",
    "Worker",
    "chunk_bytes",
    "current_worker",
    "index_size",
    "itemsize",
    "most_encoded",
    "n_decoding",
    "n_encoding",
    "parse_memory",
    "piece_coder",
    "read_side",
    "store_costs",
    "stored_bytes",
    "temporary_files",
    "write_side",
]

_SHARE = 0.3
"""Of a worker's memory limit: distributed begins to spill at 0.6, and the interpreter and its libraries need some."""

THREAD_OVERHEAD = 4 << 20
"""Measured: what a thread's heap keeps back, and Python's objects."""

_MAX_AHEAD = 32 << 20

_VARIABLE_ITEMSIZE = 64
"""Taken for values of variable length: nothing says how long they are before they are read."""


@dataclass(frozen=True, slots=True)
class Worker:
    """What runs the tasks.

    Attributes
    ----------
    max_mem
        Bytes that the tasks of one worker may hold, all threads together.
    n_threads, n_workers
        Tasks at once in a worker, and workers.
    """

    max_mem: int
    n_threads: int
    n_workers: int

    overhead_bytes = THREAD_OVERHEAD

    @property
    def ahead_bytes(self) -> int:
        """What a thread may fetch before it is used, from stores whose requests cost latency."""
        return min(_MAX_AHEAD, self.max_mem // self.n_threads // 8)


def current_worker(max_mem: int | str | None = None) -> Worker:
    """Return what the current dask scheduler or Client runs tasks on.

    `max_mem` is, when ``None``, what ``chunkmill.max-mem`` in dask's config says, or else a share of the memory that a
    worker may use.
    """
    scheduler = Scheduler()
    n_threads, n_workers, limit = scheduler.threads_per_worker, 1, MEMORY_LIMIT
    if scheduler.client is not None:
        workers = list(scheduler.client.scheduler_info(n_workers=-1)["workers"].values())
        n_workers = max(1, len(workers))
        n_threads = n_threads if workers else CPU_COUNT  # workers to come: as many as they are likely to have
        limit = min((w["memory_limit"] or MEMORY_LIMIT // n_workers for w in workers), default=MEMORY_LIMIT)
    elif not scheduler.in_process:
        n_workers = int(dask.config.get("num_workers", None) or CPU_COUNT)
        limit = MEMORY_LIMIT // n_workers
    if max_mem is None:
        max_mem = dask.config.get("chunkmill.max-mem", None)
    return Worker(int(limit * _SHARE) if max_mem is None else parse_memory(max_mem), n_threads, n_workers)


def parse_memory(max_mem: int | str) -> int:
    """Return `max_mem` in bytes.

    Raises
    ------
    ValueError
        It is no number of bytes.

    Examples
    --------
    >>> parse_memory("1 MiB")
    1048576
    """
    try:
        n_bytes = int(parse_bytes(max_mem))
    except (ValueError, TypeError):
        n_bytes = 0
    if n_bytes <= 0:
        msg = f"max_mem={max_mem!r}: expected a number of bytes above 0, or text such as '2 GiB'"
        raise ValueError(msg)
    return n_bytes


def itemsize(array: Array) -> int:
    """Return the bytes that an element is taken to need."""
    return _VARIABLE_ITEMSIZE if array.dtype.kind in "OT" else array.dtype.itemsize


def read_side(array: Array, worker: Worker) -> Side:
    """Describe the source: memory to fetch and decode one of its chunks."""
    grain = array.reading
    ahead = worker.ahead_bytes if array.store.is_remote else 0
    working = most_encoded(array, grain) + chunk_bytes(array, grain) * n_decoding(grain.codecs)
    return Side(array.writing.grid, grain.grid, working, ahead, is_sharded=grain is not array.writing)


def write_side(array: Array) -> Side:
    """Describe the target: memory to encode and store what lies under one of its keys."""
    grain = array.writing
    working = chunk_bytes(array, grain) * n_encoding(grain.codecs)
    return Side(grain.grid, grain.grid, working + most_encoded(array, grain) * array.store.is_remote)


def chunk_bytes(array: Array, grain: Grain) -> int:
    """Return the bytes of one chunk's values."""
    return itemsize(array) * prod(grain.grid.chunk_shape)


def most_encoded(array: Array, grain: Grain) -> int:
    """Return how many bytes one chunk may have as it is stored: of values that do not compress."""
    return _most_encoded(grain.codecs, grain.regular, itemsize(array), spread=64)


def stored_bytes(array: Array, grain: Grain, n_chunks: int, decoded_bytes: int) -> int:
    """Return the bytes of some chunks as they are stored, where that is known; else of their values, and headers."""
    exact, grid = grain.codecs.encoded_size(grain.regular), grain.grid
    if exact is not None and grid.is_regular:
        return exact * n_chunks
    if exact is not None and n_chunks:  # chunks of many lengths, the last of which overhang
        ends = (axis.start(axis.n_chunks - 1) + axis.length(axis.n_chunks - 1) for axis in grid.axes)
        decoded_bytes = decoded_bytes * prod(ends) // prod(grid.shape)
    headers = _most_encoded(grain.codecs, grain.regular, itemsize(array), spread=1 << 62) - chunk_bytes(array, grain)
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


def index_size(grain: Grain) -> int:
    """Return the size of a shard's index as it is stored; 0 where there are no shards."""
    serializer, spec = grain.codecs.serializer, grain.regular
    for each in grain.codecs.filters:
        spec = each.spec_after(spec)
    return serializer.index_bytes(spec) if isinstance(serializer, ShardingIndexed) else 0


def n_decoding(codecs: CodecPipeline) -> int:
    """Return how many buffers of a chunk's size are alive at once beside the encoded one."""
    return min(len(codecs.compressors), 2) + _n_serializing(codecs) + min(len(codecs.filters), 2)


def n_encoding(codecs: CodecPipeline) -> int:
    """Return how many are alive at once beside the values: padded or made contiguous, filtered, serialized, compressed.

    Compressors allocate for what does not compress, and copy what comes out.
    """
    return 1 + min(len(codecs.filters), 2) + _n_serializing(codecs) + min(2 * len(codecs.compressors), 3)


def _n_serializing(codecs: CodecPipeline) -> int:
    serializer = codecs.serializer
    if isinstance(serializer, N5Block):  # cut to what it has, joined to its header
        payload = serializer.payload
        return 1 + _n_serializing(payload) + min(len(payload.filters), 2) + min(2 * len(payload.compressors), 3)
    if serializer.name == "bytes":
        return 0 if getattr(serializer, "endian", None) in {None, sys.byteorder} else 1
    return 2  # pieces, and the whole that they are joined to


def piece_coder(array: Array, *, compress: bool) -> CodecPipeline | None:
    """Return what encodes pieces in temporary files, ``None`` where they are raw."""
    is_variable = array.dtype.kind in "OT"
    if not is_variable and not compress:
        return None
    chain = (default_serializer(array.dtype), NamedConfig("numcodecs.lz4", {"acceleration": 1}))
    if array.dtype.kind == "O":  # what the values are, only the array's own codecs know
        return array.reading.codecs
    return build_pipeline(chain, ChunkSpec((1,) * array.ndim, array.dtype, array.fill_value))


def temporary_files(store: Store, coder: CodecPipeline | None, worker: Worker) -> Temporary:
    """Describe temporary files in `store`."""
    is_remote = store.is_remote
    return Temporary("raw" if coder is None else "coded", worker.ahead_bytes if is_remote else 0, int(is_remote))


_REMOTE_REQUEST = 5e-3  # 40 ms each, eight at once
_REMOTE_BYTE = 1e-8  # 100 MB/s for each thread


def store_costs(source: Store, temporary: Store, target: Store) -> Costs:
    """Return what requests and bytes cost with these stores."""
    local = Costs()
    return Costs(
        decoded_byte=_REMOTE_BYTE if source.is_remote else local.decoded_byte,
        source_request=_REMOTE_REQUEST if source.is_remote else local.source_request,
        temporary_byte=2 * _REMOTE_BYTE if temporary.is_remote else local.temporary_byte,
        temporary_request=_REMOTE_REQUEST if temporary.is_remote else local.temporary_request,
        written_byte=_REMOTE_BYTE if target.is_remote else local.written_byte,
        target_request=8 * _REMOTE_REQUEST if target.is_remote else local.target_request,
    )
