"""Nodes of Zarr inside an N5 tree, and of N5 in one of Zarr: opened, drawn, copied and checked as what they are."""

import json

import numpy as np
import pytest
from support.recording import RecordingStore, copy_keys

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import NodeNotFound, StoreError
from chunkmill.nodes import documents
from chunkmill.nodes.array import Array
from chunkmill.nodes.opening import walk
from chunkmill.nodes.stored_group import documents_of_zarr
from chunkmill.stores import conflicts
from chunkmill.stores.memory import MemoryStore

ARRAYS = ("n5", "0", "g/0", "g/n5")
"""In an N5 tree: those named by numbers, with chunks named so, look like folders of chunks without a document."""


@pytest.fixture(params=["zarr2", "zarr3"])
def mixed(request):
    store, apart = MemoryStore(), MemoryStore()
    cm.create_group(store, format="n5").create_array("n5", shape=(4,), dtype="i4")[...] = np.arange(4)
    cm.create_group(apart, "g", format=request.param, attributes={"by": "zarr"})
    for path in ("0", "g/0"):
        cm.create_array(apart, path, shape=(4,), dtype="i4", format=request.param)[...] = np.arange(4)
    for name in ("0/", "g/"):
        copy_keys(apart, store, name)
    store.set("g/n5/attributes.json", store.get("n5/attributes.json"))
    store.set("g/n5/0", store.get("n5/0"))
    return store


def test_they_are_what_they_are(mixed):
    group = cm.open_group(mixed)
    arrays = {node.path: Array(node) for node in walk(group.stored) if isinstance(node, StoredArray)}
    assert set(arrays) == set(ARRAYS)
    for path, array in arrays.items():
        np.testing.assert_array_equal(array[...], np.arange(4))
        assert type(group[path]) is cm.Array
        assert group[path].format == array.format
    assert dict(group["g"].attributes) == {"by": "zarr"}
    assert group.tree().count("(4,) int32") == len(ARRAYS)
    of_zarr = cm.open_group(mixed, "g")
    mixed.set("g/notes/attributes.json", b"not ours")
    assert of_zarr.format.startswith("zarr")
    assert {name: node.format for name, node in of_zarr.members().items()} == {"0": of_zarr.format, "n5": "n5"}


@pytest.mark.parametrize("target", ["zarr3", "n5"])
def test_they_are_copied_compared_and_checked(mixed, target):
    copy = MemoryStore()
    cm.convert(mixed, copy, format=target)
    assert {node.path for node in walk(cm.open_group(copy).stored) if isinstance(node, StoredArray)} == set(ARRAYS)
    report = cm.verify(mixed, copy)
    assert report.equal
    assert cm.check(mixed).problems == ()
    cm.open_array(copy, "g/0", mode="r+")[0] = 9
    assert not cm.verify(mixed, copy).equal
    cm.delete(mixed, "g")
    assert not list(mixed.list_prefix("g/"))


def test_consolidated_metadata_that_are_damaged_are_written_anew(store):
    cm.create_group(store, format="zarr2").create_array("a", shape=(3,), dtype="i4")
    store.set(".zmetadata", b"{")
    assert list(cm.consolidate(store)) == ["a"]


class Restless(MemoryStore):
    """Others change an array before each write to a document."""

    def set_if(self, key, value, version):
        if key.endswith("zarr.json") and (there := self.get("a/zarr.json")) is not None:
            about = json.loads(there)
            about["attributes"]["n"] = about["attributes"].get("n", 0) + 1
            self.set("a/zarr.json", json.dumps(about).encode())
        return super().set_if(key, value, version)


def test_documents_that_never_stay_are_an_error(monkeypatch):
    monkeypatch.setattr(documents, "_MOST_CONFLICTS", 12)
    array = cm.create_group(store := Restless(), format="zarr3").create_array("a", shape=(3,), dtype="i4")
    monkeypatch.setattr(conflicts, "pause", (waited := []).append)
    with pytest.raises(StoreError, match="others changed it 12 times"):
        array.update_attributes({"b": 1})
    assert waited == [0.05] * 8  # after a few that follow at once
    with pytest.raises(StoreError, match="nodes were made and deleted below it 12 times"):
        cm.consolidate(store)


def test_documents_are_asked_for_at_once(mixed):
    store = RecordingStore(mixed)
    found = documents_of_zarr(store, ["0", "g", "n5"])
    assert sorted(found) == ["0", "g"]
    assert len(store.log) == len(set(store.keys())) == 3 * 4


def test_arrays_of_zarr_make_no_tree_of_n5(store):
    cm.create_array(store, "a", shape=(4,), dtype="i4")
    store.delete("zarr.json")
    with pytest.raises(NodeNotFound):
        cm.open(store)
