"""Order of documents, consolidated metadata, and the attribute that records an unfinished append."""

from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes.new_array import describe_array
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.target import Target
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.publication import ATTRIBUTE, Growth, Publication, UnfinishedAppend

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


@cases("shape", [(5,), (9, 2), (8, 3)])
def test_marks_of_another_array_count_for_nothing(shape):
    one = cm.create_array(MemoryStore(), "v", shape=(8, 2), dtype="i4", chunks=(4, 2)).stored
    assert UnfinishedAppend("t", {"v": shape}).arrays_before({"v": one})["v"] is one


@cases(
    "value", [None, 3, {"dim": "t"}, {"dim": 1, "shapes": {}}, {"dim": "t", "shapes": {"v": "5"}},
              {"dim": "t", "shapes": {"v": [-1]}}, {"dim": "t", "shapes": {"v": [True]}}],
)  # fmt: skip
def test_what_is_no_mark(value):
    assert not UnfinishedAppend.of({ATTRIBUTE: value}).shapes
    assert not UnfinishedAppend.of({}).shapes


def test_marks_of_groups_above_count_more():
    above, own = UnfinishedAppend("t", {"g/v": (5,), "w": (1,)}), UnfinishedAppend("t", {"v": (6,), "x": (2,)})
    assert above.below("g").joined(own).shapes == {"v": (5,), "x": (2,)}


def test_the_attribute_is_not_shown_as_one_of_the_users():
    append = UnfinishedAppend("t", {"v": (5, 2)})
    group = cm.create_group(MemoryStore(), attributes={ATTRIBUTE: append.to_json(), "title": "t"})
    assert group.attributes == {"title": "t"}
    assert UnfinishedAppend.of(group.metadata.attributes) == append
    group.update_attributes({"more": 1})
    assert ATTRIBUTE in cm.open_group(group.store).metadata.attributes
