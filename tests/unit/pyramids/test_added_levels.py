"""Levels that are added next to an array, and replaced."""

import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import ChunkmillError
from chunkmill.stores.memory import MemoryStore


class Broken(RecordingStore):
    """Cannot read chunks of the base."""

    def _before(self, method, key, byte_range=None):
        if key.startswith("0/c/") and method.startswith("get"):
            raise OSError("broken")
        super()._before(method, key, byte_range)


def test_levels_stay_until_the_new_ones_are_complete():
    store = MemoryStore()
    base = cm.create_array(store, "0", shape=(8, 8), dtype="f4", chunks=(4, 4))
    base[...] = np.arange(64).reshape(8, 8)
    cm.pyramid((store, "0"), levels=2, method="max")
    old = cm.open_array(store, "1")[...]
    with pytest.raises(ChunkmillError, match="broken"):
        cm.pyramid((Broken(store), "0"), levels=2, method="min", overwrite=True)
    np.testing.assert_array_equal(cm.open_array(store, "1")[...], old)
    cm.plan_pyramid((store, "0"), levels=2, method="min", overwrite=True).run(resume=False)
    np.testing.assert_array_equal(cm.open_array(store, "1")[...], old - 9)
