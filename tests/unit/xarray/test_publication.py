"""Order of documents, and consolidated metadata."""

from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.formats.registry import get_format
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
