"""What is written to a tree of keys reaches no other one that takes its place."""

import pytest
from support.systems import NEEDS_PINS

from chunkmill.errors import StoreError
from chunkmill.stores.capabilities import pinned
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "s")
    for key in ("a/doc", "a/c/0", "b"):
        store.set(key, b"old")
    return store


def _swap(store):
    staged = store.stage("a/")
    staged.set("doc", b"new")
    store.swap_in("a/", staged)


@pytest.mark.parametrize("change", [_swap, lambda store: store.delete_prefix("a/")], ids=["replaced", "deleted"])
@pytest.mark.parametrize("store", ["memory", pytest.param("local", marks=NEEDS_PINS)], indirect=True)
def test_writes_end_with_their_tree(store, change):
    tree = pinned(store, "a/")
    tree.set("a/c/1", b"1")
    version = tree.get_versioned("a/c/1")[1]
    assert tree.set_if("a/c/1", b"2", version)
    tree.delete("a/c/0")
    assert sorted(tree.list_prefix("a/")) == ["a/c/1", "a/doc"]
    assert list(tree.get_many([None])) == [None]
    change(store)
    left = sorted(store.list_prefix("a/"))
    for write in (
        lambda: tree.set("a/c/1", b"3"),
        lambda: tree.set("a/new", b"3"),
        lambda: tree.set_if("a/c/2", b"3", None),
        lambda: tree.set_if("a/c/1", None, None),
        lambda: tree.delete("a/doc"),
    ):
        with pytest.raises(StoreError, match="a/"):
            write()
    if left:
        assert store.get("a/doc") == b"new"
    assert sorted(store.list_prefix("a/")) == left


def test_keys_elsewhere_are_those_of_the_store(store):
    tree = pinned(store, "a/")
    tree.set("b", b"new")
    assert store.get("b") == tree.get("b") == b"new"
    assert tree.url == store.url


@NEEDS_PINS
def test_a_tree_is_deleted_only_where_it_has_its_name(tmp_path):
    store = LocalStore(tmp_path / "s")
    store.set("a/doc", b"old")
    tree = pinned(store, "a/")
    _swap(store)
    tree.delete_prefix("a/")
    assert store.get("a/doc") == b"new"
    pinned(store, "a/").delete_prefix("a/")
    assert list(store.list_prefix("")) == []
    pinned(store, "a/").delete_prefix("a/")


def test_a_directory_that_is_not_there_is_not_pinned(tmp_path):
    store = LocalStore(tmp_path / "s")
    assert pinned(store, "a/") is store
