"""What is looked at around a path before a node is made there."""

from support.recording import FarStore

import chunkmill as cm
from chunkmill.formats.registry import get_format
from chunkmill.nodes.opening import seen_at_once


def test_far_stores_are_asked_once():
    store = FarStore()
    cm.create_group(store, "g")
    store.clear()
    seen = seen_at_once(store, "g/a", get_format("zarr3"))
    n = len(store.log)
    assert len(set(store.log)) == n
    assert seen.get("g/zarr.json") is not None
    assert seen.get("g/a/.zarray") is None
    assert seen.list_dir("g/") == ["zarr.json"]
    assert len(store.log) == n
    store.set("g/a/zarr.json", b"{}")
    assert seen.get("g/a/zarr.json") is None
