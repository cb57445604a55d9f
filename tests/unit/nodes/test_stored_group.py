"""A stored group: its children are opened when asked for, and what cannot be opened is named or raised."""

import pytest

import chunkmill as cm
from chunkmill.errors import MetadataError, NodeNotFound
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def group():
    group = cm.create_group(MemoryStore())
    for name in "abc":
        group.create_array(name, shape=(2,), dtype="i4")
    return group


def test_members_name_each_child_that_does_not_open(group):
    group.store.set("b/zarr.json", b"{")
    errors = {}
    assert list(group.members(on_error=errors.__setitem__)) == ["a", "c"]
    assert list(errors) == ["b"]
    assert isinstance(errors["b"], MetadataError)
    with pytest.raises(MetadataError):
        group.members()


def test_members_leave_out_what_is_named(group):
    group.store.set("b/zarr.json", b"{")
    assert list(group.members(without=["b"])) == ["a", "c"]
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
