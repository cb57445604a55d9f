"""Consolidated metadata cost what the nodes cost: no chunk is looked for, and no folder of chunks is listed."""

from collections import Counter

import numpy as np
import pytest
from support.arrays import filled
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.formats import base
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_no_chunk_is_listed(fmt):
    store = RecordingStore(MemoryStore())
    for path in ("a", "g/b", "g/h/c"):
        filled(np.arange(40) + 1, store, path, chunks=(2,), format=fmt)
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


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
@pytest.mark.parametrize(
    "make",
    [
        lambda group: cm.create_array(group.store, "new", shape=(4,), dtype="i4"),
        lambda group: cm.create_group(group.store, "new"),
        lambda group: group.create_array("new", shape=(4,), dtype="i4"),
    ],
    ids=["create_array", "create_group", "method"],
)
def test_creating_a_node_parses_the_documents_of_all_others_once(fmt, make, monkeypatch):
    """It was parsed seven times, which at 600 arrays were two thirds of the time."""
    store = MemoryStore()
    cm.create_arrays(store, {f"a{n}": {"shape": (4,), "dtype": "i4"} for n in range(50)}, format=fmt)
    cm.consolidate(store)
    group = cm.open_group(store, mode="r+")
    key = ".zmetadata" if fmt == "zarr2" else "zarr.json"
    n_bytes, parsed = len(store.get(key)), []

    loads = base.json.loads

    def counted(text):
        parsed.append(len(text) > n_bytes // 2)
        return loads(text)

    monkeypatch.setattr(base.json, "loads", counted)
    make(group)
    assert sum(parsed) == 1
    monkeypatch.undo()
    assert "new" in cm.open_group(group.store, consolidated=True)
