"""Order of documents, and consolidated metadata."""

import dataclasses

import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import DatasetError, NodeExists, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes.new_array import describe_array
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.target import Target
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.publication import ATTRIBUTE, Growth, Publication

V3 = get_format("zarr3")


def target(*arrays, groups=(), adds_to=None, store):
    metadata = describe_array(V3, "a", shape=(2,), dtype="i4", chunks=(2,))
    made = [array_at(store, path, metadata, V3) for path in arrays]
    first = groups[0] if groups else arrays[0]
    return Target(store, first, V3, made, {path: GroupMetadata({"title": path}) for path in groups}, group=adds_to)


def publish(store, path, *arrays, consolidated=None):
    """Publish a new group with arrays."""
    Publication(store, V3, path, consolidated).publish(target(*arrays, groups=[path], store=store), {})


def test_a_new_group_follows_its_arrays():
    store = RecordingStore(MemoryStore())
    publish(store, "", "a", "b")
    keys = [key for key in store.keys("set", "set_if") if not key.startswith(JOB_PREFIX)]
    assert set(keys[:-1]) == {"a/zarr.json", "b/zarr.json"}
    assert keys[-1] == "zarr.json"
    assert set(cm.open_group(store, consolidated=True)) == {"a", "b"}


def test_what_others_made_meanwhile_stays():
    store = MemoryStore()
    cm.create_group(store, attributes={"of": "others"})
    with pytest.raises(NodeExists):
        publish(store, "", "a")
    assert cm.open_group(store).attributes == {"of": "others"}


def test_consolidated_metadata_above_follow():
    store = MemoryStore()
    publish(store, "", "a")
    publish(store, "g", "g/b")
    root = cm.open_group(store, consolidated=True)
    assert set(root) == {"a", "g"}
    assert set(root["g"]) == {"b"}


def test_a_store_without_consolidated_metadata_gets_none_by_itself():
    store = MemoryStore()
    cm.create_group(store)
    publish(store, "g", "g/b")
    assert b"consolidated" not in store.get("zarr.json")
    Publication(store, V3, "g", True).publish(None, {})
    assert set(cm.open_group(store, consolidated=True)["g"]) == {"b"}


def test_formats_without_consolidated_metadata():
    with pytest.raises(UnsupportedFeature, match="consolidated"):
        Publication(MemoryStore(), get_format("n5"), "", True)


def test_attributes_of_others_are_kept():
    store = MemoryStore()
    publish(store, "", "a")
    cm.open_group(store, mode="r+").update_attributes({"of": "others", "coordinates": "y"})
    Publication(store, V3, "", None).publish(
        target("b", adds_to="", store=store), {"": {"title": "new", "coordinates": "x"}}
    )
    root = cm.open_group(store, consolidated=True)
    assert root.attributes == {"title": "new", "of": "others", "coordinates": "x y"}
    assert set(root) == {"a", "b"}


def growth(store, path, after):
    metadata = cm.open_array(store, path).metadata
    return Growth(path, metadata, metadata.shape, after)


def test_an_append_is_marked_until_all_arrays_are_longer():
    store = RecordingStore(MemoryStore())
    publish(store, "", "a", "b")
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
    publish(store, "", "a")
    one = growth(store, "a", (5,))
    Publication(store, V3, "", None).append("t", [dataclasses.replace(one, after=(3,))], {})
    with pytest.raises(DatasetError, match="changed or replaced by others"):
        Publication(store, V3, "", None).append("t", [one], {})
    assert cm.open_array(store, "a").shape == (3,)
