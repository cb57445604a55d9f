"""Attributes: read-only in memory, written through beside whoever else changes them."""

import json
import pickle

import pytest
from support.cases import cases
from support.recording import Meanwhile

import chunkmill as cm
from chunkmill.errors import NodeNotFound, StoreError
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]


def make(fmt, **attributes):
    store = MemoryStore()
    cm.create_group(store, format=fmt, attributes=attributes)
    cm.create_array(store, "a", shape=(4,), dtype="i4", chunks=(2,), format=fmt, attributes=attributes)
    return store


@cases("path", ["", "a"])
@cases("fmt", FORMATS)
class TestChange:
    def test_written_through(self, fmt, path):
        store = make(fmt, old=1)
        node = cm.open(store, path, mode="r+")
        assert node.update_attributes({"new": [2]}) is node
        assert node.attributes["new"] == cm.open(store, path).attributes["new"] == [2]
        node.del_attributes("old")
        assert "old" not in cm.open(store, path).attributes
        assert node.attrs == node.attributes

    def test_not_in_memory_alone(self, fmt, path):
        node = cm.open(make(fmt, old=1), path, mode="r+")
        with pytest.raises(TypeError, match="update_attributes"):
            node.attributes["x"] = 1
        for method, given in (("update", [{"x": 1}]), ("pop", ["old"]), ("clear", []), ("setdefault", ["x"])):
            with pytest.raises(TypeError, match="update_attributes"):
                getattr(node.attributes, method)(*given)
        with pytest.raises(KeyError, match="no attributes \\['x'\\]"):
            node.del_attributes("x")
        with pytest.raises(TypeError, match="attributes are a dict, not None"):
            node.update_attributes(None)
        with pytest.raises(StoreError, match="mode='r\\+'"):
            cm.open(node.store, path).update_attributes({"x": 1})


@cases("fmt", FORMATS)
def test_a_node_that_others_have_deleted_is_not_made_again(store, fmt):
    """A folder is a group in N5: the deleted one was there again, with these attributes alone."""
    cm.create_group(store, "g", format=fmt, attributes={"made": "before"})
    cm.create_array(store, "g/a", shape=(4,), dtype="i4", format=fmt)
    nodes = [cm.open(store, path, mode="r+") for path in ("", "g", "g/a")]
    cm.delete(store, "g")
    with pytest.raises(NodeNotFound, match="deleted or replaced after it was opened"):
        nodes[1].update_attributes({"x": 1})
    store.delete_prefix("")
    for node in nodes[fmt not in {"zarr2", "zarr3"} :]:
        with pytest.raises(NodeNotFound):
            node.update_attributes({"x": 1})
    assert list(store.list_prefix("")) == []


@cases("fmt", ["zarr2", "zarr3"])
@cases("path", ["", "a"])
def test_consolidated_metadata_follow(fmt, path):
    store = make(fmt, old=1)
    cm.consolidate(store)
    cm.open(store, path, mode="r+").update_attributes({"new": 2})
    root = cm.open_group(store, consolidated=True)
    assert (root[path] if path else root).attributes["new"] == 2
    assert sorted(root) == ["a"]
    assert cm.check(store).ok


def test_attributes_travel():
    attributes = cm.open(make("zarr3", old={"deep": [1]})).attributes
    assert json.loads(json.dumps(attributes)) == {"old": {"deep": [1]}}
    assert pickle.loads(pickle.dumps(attributes)) == attributes
    assert type(attributes.copy()) is dict  # one's own, to change


def test_a_resize_is_done_though_others_change_attributes_between_its_documents(store):
    """Zarr v2 keeps attributes in a document of their own: the change of the other one was taken for refused."""

    cm.create_array(store, "a", shape=(8,), dtype="i4", chunks=(4,), format="zarr2", attributes={"x": 1})
    is_resized = lambda *_: cm.open_array(store, "a").shape == (6,)  # noqa: E731
    changed = Meanwhile(store, is_resized, lambda own: own.set("a/.zattrs", b'{"x": 2}'))
    cm.open_array(changed, "a", mode="r+").resize((6,))
    stored = cm.open_array(store, "a")
    assert (stored.shape, stored.attributes) == ((6,), {"x": 2})


def test_brackets_in_texts_are_not_nested(tmp_path):
    attributes = {"text": "[{" * 200 + '\\"[', "many": [[]] * 200}
    cm.create_array(tmp_path, shape=2, dtype="f4", attributes=attributes)
    assert cm.open(tmp_path).attributes == attributes


def nested(depth):
    deep = []
    for _ in range(depth):
        deep = [deep]
    return deep


AROUND = {}
AROUND["again"] = [AROUND]


@cases("node_format", FORMATS)
def test_attributes_that_no_reader_could_send_are_not_written(tmp_path, node_format):
    for value in (nested(120), nested(5000), AROUND, {1: 2}, {1, 2}, object(), 1j):
        with pytest.raises(cm.errors.MetadataError, match="100 deep"):
            cm.create_array(tmp_path / "a", shape=2, dtype="f4", attributes={"deep": value}, format=node_format)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3", "n5"])
def test_a_document_that_says_the_same_already_stays_as_others_spelt_it(fmt):
    store, keys = MemoryStore(), {"zarr2": ".zattrs", "zarr3": "zarr.json", "n5": "attributes.json"}
    group = cm.create_group(store, format=fmt, attributes={"a": 1})
    spelt = json.dumps(json.loads(store.get(keys[fmt])), indent=7).encode()
    store.set(keys[fmt], spelt)
    group.update_attributes({"a": 1})
    assert store.get(keys[fmt]) == spelt
    group.update_attributes({"a": 2})
    assert cm.open(store).attributes["a"] == 2
