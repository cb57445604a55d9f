"""Arrays, stores and intermediate files as the planner of a rechunk sees them."""

import numpy as np
from support.rechunks import make
from support.recording import RecordingStore

from chunkmill.conversion.rechunking.job import read_side, store_costs, write_side
from chunkmill.conversion.rechunking.strategies import UnitCosts
from chunkmill.conversion.rechunking.target_chunks import writes_at_once
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore

WORKER = Worker(1 << 30, 2, 1)


def far(array):
    store = RecordingStore(array.store)
    store.is_remote = True
    return array.stored.with_store(store)


def test_grids_of_an_array_in_shards():
    array, _ = make(MemoryStore(), shape=(8, 8), chunks=(2, 4), shards=(4, 8))
    side = read_side(array.stored, WORKER)
    assert (side.keys.chunk_shape, side.chunks.chunk_shape, side.is_sharded) == ((4, 8), (2, 4), True)
    assert write_side(array.stored, WORKER).chunks.chunk_shape == (4, 8)  # shards are written whole


def test_stores_with_latency_fetch_ahead():
    array, _ = make(MemoryStore(), shape=(8, 8), chunks=(2, 4))
    assert read_side(array.stored, WORKER).ahead_bytes == 0
    assert read_side(far(array), WORKER).ahead_bytes == WORKER.ahead_bytes
    assert write_side(far(array), WORKER).working_bytes > write_side(array.stored, WORKER).working_bytes


def test_as_many_values_are_stored_at_once_as_memory_was_fetched_ahead():
    array, _ = make(MemoryStore(), shape=(64, 64), chunks=(32, 32))
    one = write_side(far(array), Worker(1, 1, 1)).working_bytes
    assert writes_at_once(array.stored, 1 << 30) == 0  # no latency
    assert [writes_at_once(far(array), n * one) for n in (0, 1, 2, 5, 99)] == [0, 0, 2, 5, 32]
    assert write_side(far(array), Worker(8 * 5 * one, 1, 1)).working_bytes == 5 * one


def test_requests_to_stores_with_latency_cost_more():
    array, _ = make(MemoryStore())
    local, remote = array.store, far(array).store
    assert store_costs(local, local, local) == UnitCosts()
    costs = store_costs(remote, local, local)
    assert costs.source_request > UnitCosts().source_request
    assert costs.target_request == UnitCosts().target_request
    assert store_costs(local, local, remote).task > 10 * UnitCosts().task
    assert store_costs(local, remote, remote).intermediate_request > UnitCosts().intermediate_request
    assert np.isfinite(costs.decoded_byte)
