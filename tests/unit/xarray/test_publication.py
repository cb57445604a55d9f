"""Order of documents, and consolidated metadata."""

import dataclasses

import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import DatasetError, NodeExists, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import GroupMetadata
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.publication import ATTRIBUTE, Growth, Publication

V3 = get_format("zarr3")


def array(path):
    source = MemoryStore()
    cm.create_array(source, path, shape=(2,), dtype="i4", chunks=(2,))
    return {path: {f"{path}/zarr.json": source.get(f"{path}/zarr.json")}}


def group(path=""):
    return V3.emit_group(path, GroupMetadata({"title": path}))


def test_a_new_group_follows_its_arrays():
    store = RecordingStore(MemoryStore())
    Publication(store, V3, "", None).create(group(), array("a") | array("b"))
    keys = store.keys("set", "set_if")
    assert set(keys[:-1]) == {"a/zarr.json", "b/zarr.json"}
    assert keys[-1] == "zarr.json"
    assert set(cm.open_group(store, consolidated=True)) == {"a", "b"}


def test_what_others_made_meanwhile_stays():
    store = MemoryStore()
    cm.create_group(store, attributes={"of": "others"})
    with pytest.raises(NodeExists):
        Publication(store, V3, "", None).create(group(), array("a"))
    assert cm.open_group(store).attributes == {"of": "others"}


def test_consolidated_metadata_above_follow():
    store = MemoryStore()
    Publication(store, V3, "", None).create(group(), array("a"))
    Publication(store, V3, "g", None).create(group("g"), array("g/b"))
    root = cm.open_group(store, consolidated=True)
    assert set(root) == {"a", "g"}
    assert set(root["g"]) == {"b"}


def test_a_store_without_consolidated_metadata_gets_none_by_itself():
    store = MemoryStore()
    cm.create_group(store)
    Publication(store, V3, "g", None).create(group("g"), array("g/b"))
    assert b"consolidated" not in store.get("zarr.json")
    Publication(store, V3, "g", True).add({}, {})
    assert set(cm.open_group(store, consolidated=True)["g"]) == {"b"}


def test_formats_without_consolidated_metadata():
    with pytest.raises(UnsupportedFeature, match="consolidated"):
        Publication(MemoryStore(), get_format("n5"), "", True)


def test_attributes_of_others_are_kept():
    store = MemoryStore()
    Publication(store, V3, "", None).create(group(), array("a"))
    cm.open_group(store, mode="r+").update_attributes({"of": "others", "coordinates": "y"})
    Publication(store, V3, "", None).add(array("b"), {"": {"title": "new", "coordinates": "x"}})
    root = cm.open_group(store, consolidated=True)
    assert root.attributes == {"title": "new", "of": "others", "coordinates": "x y"}
    assert set(root) == {"a", "b"}


def growth(store, path, after):
    metadata = cm.open_array(store, path).metadata
    return Growth(path, metadata, metadata.shape, after)


def test_an_append_is_marked_until_all_arrays_are_longer():
    store = RecordingStore(MemoryStore())
    Publication(store, V3, "", None).create(group(), array("a") | array("b"))
    grown = [growth(store, name, (5,)) for name in "ab"]
    store.clear()
    Publication(store, V3, "", None).append("t", grown, {})
    assert store.keys("set", "set_if") == ["zarr.json", "a/zarr.json", "b/zarr.json", "zarr.json"]
    root = cm.open_group(store, consolidated=True)
    assert ATTRIBUTE not in root.attributes
    assert root.attributes["title"] == ""
    assert [root[name].shape for name in "ab"] == [(5,), (5,)]


def test_an_array_that_others_changed_is_not_made_longer():
    store = MemoryStore()
    Publication(store, V3, "", None).create(group(), array("a"))
    one = growth(store, "a", (5,))
    Publication(store, V3, "", None).append("t", [dataclasses.replace(one, after=(3,))], {})
    with pytest.raises(DatasetError, match="changed or replaced by others"):
        Publication(store, V3, "", None).append("t", [one], {})
    assert cm.open_array(store, "a").shape == (3,)
