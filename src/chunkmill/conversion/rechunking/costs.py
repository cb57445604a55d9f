"""Input and output of planning a rechunk: grids, limits, unit costs, estimates.

Plain values. Not here: choosing (`chunkmill.conversion.rechunking.strategies`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from chunkmill.model.grid import ChunkGrid

__all__ = ["LEAST_SLICE", "Estimate", "IntermediateFormat", "Limits", "Side", "Strategy", "UnitCosts"]

LEAST_SLICE = 1 << 16
"""Bytes that slices of chunks have at least, on average: where disks seek, smaller ones cost more than a spill."""

Strategy: TypeAlias = Literal["direct", "spill"]


@dataclass(frozen=True, slots=True)
class Side:
    """Source or target of a rechunk.

    Attributes
    ----------
    keys
        The grid of store keys, which are written whole: of shards, when sharded.
    chunks
        The grid of chunks that can be read by themselves: of inner chunks, when sharded.
    working_bytes
        Memory to fetch and decode one of `chunks` (source), or to encode and store one of `keys` (target), without the
        block that it is copied to or from.
    ahead_bytes
        Memory for chunks that are fetched ahead of their use: none where a request costs no latency.
    is_sharded
        Whether `chunks` are found through the index of their shard, even where a shard has one chunk only.
    sliced
        The axis along which any slice of one of `chunks` can be read by itself, as a range of bytes. `working_bytes`
        are those of the whole length then, of which tasks with shorter blocks need a fraction.
    """

    keys: ChunkGrid
    chunks: ChunkGrid
    working_bytes: int
    ahead_bytes: int = 0
    is_sharded: bool = False
    sliced: int | None = None


@dataclass(frozen=True, slots=True)
class IntermediateFormat:
    """Format of intermediate files.

    Attributes
    ----------
    format
        ``"raw"``: the offset of a section is arithmetic. ``"coded"`` (lz4, values of variable length): each section is
        encoded, and found through an index at the head of its file.
    ahead_bytes
        Memory for sections that are fetched ahead of their use: none where a request costs no latency.
    n_copies
        Copies that the store makes of a file while it writes it.
    """

    format: Literal["raw", "coded"] = "raw"
    ahead_bytes: int = 0
    n_copies: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a plan.

    Attributes
    ----------
    max_mem
        Bytes for one worker, all its threads together.
    n_threads, n_workers
        Tasks that run at once in a worker, and workers: `max_mem` is divided among the threads.
    max_tasks
        More tasks than this in a stage are only planned when memory leaves no choice.
    overhead_bytes
        Of each thread, on top of all buffers.
    """

    max_mem: int
    n_threads: int = 1
    n_workers: int = 1
    max_tasks: int = 100_000
    overhead_bytes: int = 0


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds of a thread for a byte, a request, a copy between two blocks (and each of its bytes), a task.

    The defaults are those of local disks and fast codecs; only their ratios matter, and those only where strategies are
    close.
    """

    decoded_byte: float = 1.5e-9  # fetched and decoded
    written_byte: float = 2e-9  # encoded and written
    intermediate_byte: float = 1e-9  # written once and fetched once
    source_request: float = 30e-6
    intermediate_request: float = 30e-6
    target_request: float = 60e-6
    copy: float = 3e-6
    copied_byte: float = 0.5e-9
    task: float = 3e-3


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated cost of a strategy.

    Attributes
    ----------
    n_tasks
        Tasks of each stage.
    decoded_bytes
        Decoded bytes of all source chunks read; `amplification` times the array's own.
    written_bytes, intermediate_bytes
        Decoded bytes of all target chunks; bytes of all intermediate files.
    n_chunk_reads, n_index_reads
        Source chunks decoded, and indexes of shards fetched for them.
    n_requests
        Reads and writes of all stores together, when all chunks are present.
    peak_bytes
        Memory of a worker, all its threads together.
    through_block
        Whether target chunks are cut out of a task's block when it is complete. Otherwise each is assembled in memory
        of its own, which copies every byte once less, in more and smaller copies.
    seconds
        Cost: comparable among plans of one array, not a prediction.
    """

    strategy: Strategy
    n_tasks: tuple[int, ...]
    decoded_bytes: int
    written_bytes: int
    intermediate_bytes: int
    n_chunk_reads: int
    n_index_reads: int
    n_requests: int
    peak_bytes: int
    amplification: float
    through_block: bool
    seconds: float
