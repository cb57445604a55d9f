"""Methods of groups: opened by kind, created and deleted below."""

import pytest
from support.cases import cases
from support.recording import Meanwhile, RecordingStore

import chunkmill as cm
from chunkmill.errors import MetadataError, NodeExists, NodeNotFound, StoreError, UnknownCodec
from chunkmill.stores.memory import MemoryStore


@cases("kind", ["zarr2", "zarr3", "zarr3-draft", "n5"])
def test_groups_are_filled_and_emptied(kind):
    group = cm.create_group(MemoryStore(), "top", format=kind)
    array = group.create_array("a/b", shape=(4,), dtype="i4", chunks=(2,), fill_value=0, attributes={"n": 1})
    assert (array.path, array.format, dict(array.attributes)) == ("top/a/b", kind, {"n": 1})
    assert group.create_group("c", attributes={"m": 2}).format == kind
    assert list(group) == list(group.keys()) == ["a", "c"]
    assert [(name, node.path) for name, node in group.items()] == [("a", "top/a"), ("c", "top/c")]
    assert [node.path for node in group.values()] == ["top/a", "top/c"]
    assert (group.array("a/b").shape, dict(group.group("c").attributes)) == ((4,), {"m": 2})
    with pytest.raises(NodeExists, match="update_attributes"):
        group.create_array("a/b", shape=(4,), dtype="i4")
    assert group.create_array("a/b", shape=(5,), dtype="i4", overwrite=True).shape == (5,)
    del group["a"]
    assert list(group) == ["c"]


@pytest.mark.parametrize(("method", "path", "found"), [("array", "g", "a group"), ("group", "a", "an array")])
def test_the_other_kind_is_an_error(method, path, found):
    group = cm.create_group(MemoryStore())
    group.create_array("a", shape=(), dtype="i4")
    group.create_group("g")
    with pytest.raises(NodeNotFound, match=f"is {found}"):
        getattr(group, method)(path)
    with pytest.raises(NodeNotFound, match="'x'"):
        getattr(group, method)("x")


def test_groups_for_reading_only():
    cm.create_group(store := MemoryStore()).create_group("g")
    group = cm.open_group(store)
    for change in (lambda: group.create_array("a", shape=(), dtype="i4"), lambda: group.create_group("h")):
        with pytest.raises(StoreError, match=r"mode='r\+'"):
            change()
    with pytest.raises(ValueError, match="below the group"):
        cm.open_group(store, mode="r+").create_group("/")


def test_only_arrays_named_as_levels_are_opened_for_images():
    group = cm.create_group(RecordingStore(MemoryStore()), format="n5")
    for name in ("s0", "s1", "sea", "temperature"):
        group.create_array(name, shape=(4,), dtype="u1", attributes={"downsamplingFactors": [1 + (name == "s1")]})
    group.store.log.clear()
    (image,) = group.multiscales
    assert [level.array.path for level in image] == ["s0", "s1"]
    assert not [key for key in group.store.keys("get") if key.startswith(("sea", "temperature"))]


def test_a_level_of_an_image_that_is_no_array_of_its_axes_is_an_error():
    source, store = cm.create_array({}, shape=(4, 4), dtype="u1"), MemoryStore()
    cm.pyramid(source, store, levels=1)
    group = cm.open_group(store, mode="r+")
    group.create_array("0", shape=(2, 3, 4), dtype="u1", overwrite=True)
    with pytest.raises(MetadataError, match="got 'an array of 3 axes', expected an array of 2 axes"):
        _ = group.multiscales
    group.create_group("0", overwrite=True)
    with pytest.raises(MetadataError, match="got 'a group', expected an array of 2 axes"):
        _ = group.multiscales


@cases("kind", ["zarr2", "zarr3", "n5"])
def test_values_are_stored_under_a_name_and_replace_an_array_alone(kind):
    group = cm.create_group(MemoryStore(), "top", format=kind)
    group["x"] = [[1, 2], [3, 4]]
    assert (group["x"].format, group["x"].shape) == (kind, (2, 2))
    group["x"] = [5, 6, 7]
    assert group["x"][...].tolist() == [5, 6, 7]
    group.create_group("below").create_array("a", shape=(2,), dtype="i4")
    with pytest.raises(NodeExists, match="values replace arrays alone"):
        group["below"] = [1]
    assert group["below/a"].shape == (2,)
    with pytest.raises(StoreError, match="reading only"):
        cm.open_group(group.store, "top")["y"] = [1]


def test_require_group_makes_what_is_missing_and_keeps_what_is_there():
    group = cm.create_group(MemoryStore())
    made = group.require_group("a/b")
    made.update_attributes({"n": 1})
    assert dict(group.require_group("a/b").attributes) == {"n": 1}
    group.create_array("x", shape=(2,), dtype="i4")
    with pytest.raises(NodeExists):
        group.require_group("x")
    with pytest.raises(NodeExists):
        group.require_group("x/y")
    raced = Meanwhile(group.store, ("set_if", "g/zarr.json"), lambda s: cm.create_group(s, "g", attributes={"n": 2}))
    assert dict(cm.open_group(raced, mode="r+").require_group("g").attributes) == {"n": 2}


def test_open_group_for_appending_makes_it(tmp_path):
    group = cm.open_group(tmp_path / "x.zarr", mode="a")
    group.update_attributes({"n": 1})
    assert dict(cm.open_group(tmp_path / "x.zarr", mode="a").attributes) == {"n": 1}
    assert cm.open_group(tmp_path / "y", "deep", mode="a", format="n5").format == "n5"
    cm.create_array(tmp_path / "x.zarr", "a", shape=(2,), dtype="i4")
    with pytest.raises(NodeNotFound, match="there is an array"):
        cm.open_group(tmp_path / "x.zarr", "a", mode="a")


def test_info_of_an_array():
    array = cm.create_array(MemoryStore(), "a", shape=(8, 6), dtype="f4", chunks=(2, 3), shards=(4, 6))
    lines = repr(array.info).splitlines()
    assert lines[0] == "array"
    assert any(line.split() == ["Shard", "shape", "(4,", "6)"] for line in lines)
    assert any("sharding_indexed" in line for line in lines)


# --------------------------------------------------------------------------------------------------------------------
# A stored group: its children are opened when asked for, and what cannot be opened is named or raised


@pytest.fixture
def group():
    group = cm.create_group(MemoryStore())
    for name in "abc":
        group.create_array(name, shape=(2,), dtype="i4")
    return group


def test_members_name_each_child_that_does_not_open(group):
    group.store.set("c/zarr.json", group.store.get("c/zarr.json").replace(b"zstd", b"nosuch"))
    assert list(group.members()) == ["a", "b", "c"]  # which may be left closed
    group.store.set("b/zarr.json", b"{")
    errors = {}
    assert list(group.members(on_error=errors.__setitem__)) == ["a"]
    assert {path: type(error) for path, error in errors.items()} == {"b": MetadataError, "c": UnknownCodec}
    with pytest.raises(MetadataError):
        group.members()


def test_members_leave_out_what_is_named(group):
    group.store.set("b/zarr.json", b"{")
    assert list(group.children(without=["b"])) == ["a", "c"]
    assert list(group.stored.arrays(lambda name: name > "b")) == ["c"]
    assert list(group.members(without=["b"], on_error=lambda *_: pytest.fail("was opened"))) == ["a", "c"]


def test_a_path_that_is_no_node_is_an_error_that_lists_the_children(group):
    with pytest.raises(NodeNotFound, match="the group '' has 'a', 'b', 'c'"):
        group["x"]
    with pytest.raises(NodeNotFound, match="no children"):
        cm.create_group(MemoryStore())["x"]


def test_read_missing_is_handed_down(group):
    group.create_array("d/e", shape=(2,), dtype="i4")
    other = group.stored.with_read_missing("error")
    assert (group.stored.read_missing, other.read_missing) == ("fill", "error")
    assert {node.read_missing for node in other.children().values()} == {"error"}
    assert other["d/e"].read_missing == "error"
    assert {node.stored.read_missing for node in group.children().values()} == {"fill"}
