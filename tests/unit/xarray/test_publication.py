"""Order of documents, and consolidated metadata."""

import pytest
from recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import GroupMetadata
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.publication import Publication

V3 = get_format("zarr3")


def documents(store, *paths):
    source = MemoryStore()
    for path in paths:
        cm.create_array(source, path, shape=(2,), dtype="i4", chunks=(2,))
    return {f"{path}/zarr.json": source.get(f"{path}/zarr.json") for path in paths}


def group(path=""):
    return V3.emit_group(path, GroupMetadata({"title": path}))


def test_groups_follow_their_arrays():
    store = RecordingStore(MemoryStore())
    Publication(store, V3, ("",), None, replaces=True).publish(group(), documents(store, "a", "b"))
    keys = store.keys("set", "set_if")
    assert set(keys[:-1]) == {"a/zarr.json", "b/zarr.json"}
    assert keys[-1] == "zarr.json"
    assert set(cm.open_group(store, consolidated=True)) == {"a", "b"}


def test_what_is_consolidated_above_is_updated():
    store = MemoryStore()
    Publication(store, V3, ("",), None, replaces=True).publish(group(), documents(store, "a"))
    Publication(store, V3, ("g",), None, replaces=False).publish(group("g"), documents(store, "g/b"))
    root = cm.open_group(store, consolidated=True)
    assert set(root) == {"a", "g"}
    assert set(root["g"]) == {"b"}


def test_replaced_nodes_leave_consolidated_metadata():
    store = MemoryStore()
    Publication(store, V3, ("",), None, replaces=True).publish({**group(), **group("g")}, documents(store, "a", "g/b"))
    Publication(store, V3, ("g",), None, replaces=True).publish(group("g"), documents(store, "g/c"))
    assert set(cm.open_group(store, consolidated=True)["g"]) == {"c"}


def test_a_store_without_consolidated_metadata_gets_none_by_itself():
    store = MemoryStore()
    cm.create_group(store)
    Publication(store, V3, ("g",), None, replaces=False).publish(group("g"), documents(store, "g/b"))
    assert b"consolidated" not in store.get("zarr.json")
    Publication(store, V3, ("g",), True, replaces=False).publish(group("g"), documents(store, "g/b"))
    assert set(cm.open_group(store, consolidated=True)["g"]) == {"b"}


def test_formats_without_consolidated_metadata():
    with pytest.raises(UnsupportedFeature, match="consolidated"):
        Publication(MemoryStore(), get_format("n5"), ("",), True, replaces=True)
