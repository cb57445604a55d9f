"""Describe source, target and intermediate files of a rechunk to its planner: grids, bytes, unit costs."""

from __future__ import annotations

from dataclasses import replace

from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.registry import build_pipeline, default_serializer
from chunkmill.conversion.estimate import MOST_STORING, chunk_bytes, most_encoded, n_decoding, n_encoding
from chunkmill.conversion.rechunking.plan import IntermediateFormat, Side, UnitCosts
from chunkmill.conversion.rechunking.source_chunks import Slices, sliced_axes
from chunkmill.model.metadata import NamedConfig
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store

__all__ = [
    "intermediate_codecs",
    "intermediate_files",
    "read_costs",
    "read_side",
    "sliced_sides",
    "store_costs",
    "write_side",
    "writes_at_once",
]


def read_side(array: StoredArray, worker: Worker) -> Side:
    """Describe the source: memory to fetch and decode one of its chunks."""
    layout = array.read_layout
    ahead = worker.ahead_bytes if array.store.is_remote else 0
    working = most_encoded(array, layout) + chunk_bytes(array, layout) * n_decoding(layout.codecs)
    return Side(array.write_layout.grid, layout.grid, working, ahead, is_sharded=layout is not array.write_layout)


def sliced_sides(array: StoredArray, worker: Worker) -> tuple[Side, ...]:
    """Describe the source as slices of its chunks, along each axis that allows them."""
    whole, found = read_side(array, worker), []
    for axis in sliced_axes(array):
        slices = Slices(array, axis)
        working = slices.largest * (1 + n_decoding(array.read_layout.codecs))
        found.append(replace(whole, chunks=slices.grid, working_bytes=working, sliced=axis))
    return tuple(found)


def write_side(array: StoredArray, worker: Worker) -> Side:
    """Describe the target: memory to encode and store the values of as many keys as are stored at once."""
    grid = array.write_layout.grid
    return Side(grid, grid, _writing_bytes(array) * max(1, writes_at_once(array, worker.ahead_bytes)))


def writes_at_once(array: StoredArray, ahead_bytes: int) -> int:
    """Return the number of values that a task stores at once, in the memory that it fetched ahead before.

    0: one after the other, where requests cost no latency or memory does not suffice for two.
    """
    n = min(MOST_STORING, ahead_bytes // max(1, _writing_bytes(array))) if array.store.is_remote else 0
    return n if n > 1 else 0


def _writing_bytes(array: StoredArray) -> int:
    layout = array.write_layout
    return chunk_bytes(array, layout) * n_encoding(layout.codecs) + most_encoded(array, layout) * array.store.is_remote


def intermediate_codecs(array: StoredArray, *, compress: bool) -> CodecPipeline | None:
    """Return the codecs of sections in intermediate files, ``None`` where they are raw."""
    is_variable = array.dtype.kind in "OT"
    if not is_variable and not compress:
        return None
    chain = (default_serializer(array.dtype), NamedConfig("numcodecs.lz4", {"acceleration": 1}))
    if array.dtype.kind == "O":  # only the array's own codecs know what the objects are
        return array.read_layout.codecs
    return build_pipeline(chain, ChunkSpec((1,) * array.ndim, array.dtype, array.fill_value))


def intermediate_files(store: Store, codecs: CodecPipeline | None, worker: Worker) -> IntermediateFormat:
    """Describe intermediate files in `store`."""
    is_remote = store.is_remote
    return IntermediateFormat(
        "raw" if codecs is None else "coded", worker.ahead_bytes if is_remote else 0, int(is_remote)
    )


_REMOTE_REQUEST = 5e-3  # 40 ms each, eight at once


_REMOTE_BYTE = 1e-8  # 100 MB/s for each thread


_REMOTE_TASK = 0.16  # four requests one after the other: its record, its first value, its last, its record


def read_costs(*, is_remote: bool) -> UnitCosts:
    """Return the unit costs of a source, of which requests cost latency or not; all others are local."""
    return UnitCosts(decoded_byte=_REMOTE_BYTE, source_request=_REMOTE_REQUEST) if is_remote else UnitCosts()


def store_costs(source: Store, intermediate: Store, target: Store) -> UnitCosts:
    """Return the unit costs of requests and bytes with these stores."""
    local = UnitCosts()
    return replace(
        read_costs(is_remote=source.is_remote),
        intermediate_byte=2 * _REMOTE_BYTE if intermediate.is_remote else local.intermediate_byte,
        intermediate_request=_REMOTE_REQUEST if intermediate.is_remote else local.intermediate_request,
        written_byte=_REMOTE_BYTE if target.is_remote else local.written_byte,
        target_request=_REMOTE_REQUEST if target.is_remote else local.target_request,
        task=_REMOTE_TASK if target.is_remote else local.task,
    )
