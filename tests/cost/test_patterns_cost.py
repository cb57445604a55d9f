"""Patterns of access take no more tasks, store keys and bytes than the best peer of the same kind of Dask arrays."""

import numpy as np
import pytest
from support.arrays import filled
from support.recording import RecordingStore

from benchmarks.patterns import PATTERNS, cost
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_costs_no_more_than_with_the_peer(pattern, kind):
    own, peer = cost(pattern, kind, peer=False), cost(pattern, kind, peer=True)
    assert [a <= b for a, b in zip(own, peer, strict=True)] == [True] * 3, (own, peer)


def test_a_slice_of_what_is_computed_reads_the_shard_that_it_meets(kind):
    store = RecordingStore(MemoryStore())
    values = np.arange(500 * 500, dtype="f4").reshape(500, 500)
    array = filled(values, store, chunks=(25, 25), shards=(100, 100))
    store.clear()
    found = ((array.to_dask(chunked_array_type=kind) + 1) * 2)[10:60, 320:390].compute(scheduler="sync")
    np.testing.assert_allclose(found, ((values + 1) * 2)[10:60, 320:390], rtol=1e-6)  # fused, in another precision
    assert {key for _, key, _ in store.log if key.startswith("c/")} == {"c/0/3"}
