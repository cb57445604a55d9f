"""Consolidated metadata cost what the nodes cost: no chunk is looked for, and no folder of chunks is listed."""

from collections import Counter

import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_no_chunk_is_listed(fmt):
    store = RecordingStore(MemoryStore())
    for path in ("a", "g/b", "g/h/c"):
        cm.create_array(store, path, shape=(40,), dtype="i4", chunks=(2,), format=fmt)[...] = np.arange(40) + 1
    store.clear()
    cm.consolidate(store)
    assert store.keys("list_prefix", "size") == []
    assert sorted(set(store.keys("list_dir"))) == ["", "g/", "g/h/"]
    names = {".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json", "attributes.json"}  # the last: is it N5?
    assert {key.rpartition("/")[2] for key in store.keys("get", "set")} <= names
    root = {".zarray", ".zattrs", "attributes.json", ".zgroup", ".zmetadata", "zarr.json"}
    reads = Counter(key for key in store.keys("get") if key not in root)
    assert max(reads.values()) == 2  # looked at again after writing: what others made meanwhile
    assert len(store.keys("set", "set_if")) == 1
