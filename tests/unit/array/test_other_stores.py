import numpy as np

import chunkmill as cm
from chunkmill.array.other_stores import begun_bytes, begun_reads
from chunkmill.stores.memory import MemoryStore


def test_all_store_keys_of_the_regions_are_requested():
    array = cm.create_array(MemoryStore(), shape=(10, 10), dtype="u2", chunks=(2, 2), shards=(4, 4))
    array[...] = 1
    reads = begun_reads(array.stored, [np.s_[0:4, 0:8], np.s_[8:10, 8:10]])
    assert all(reads.take(f"c/{key}") not in {None, (None,)} for key in ("0/0", "0/1", "2/2"))
    assert reads.take("c/1/1") is None
    assert begun_bytes(array.stored) == 32
