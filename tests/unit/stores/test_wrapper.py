"""A store that knows by a listing what is absent."""

from __future__ import annotations

import inspect

import pytest
from support.recording import RecordingStore

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.capabilities import innermost, uncached
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import ListedStore, StoreWrapper

METHODS = [name for name, each in vars(Store).items() if inspect.isfunction(each) and not name.startswith("_")]


class Recording:
    url = "mine://"
    is_remote = True
    compares_versions = False

    def __getattr__(self, name: str):
        if name not in METHODS:
            raise AttributeError(name)
        return lambda *args: (name, args)


@pytest.mark.parametrize("name", METHODS)
def test_every_call_is_passed_on(name):
    method = getattr(StoreWrapper(Recording()), name)
    args = tuple(range(len(inspect.signature(method).parameters)))
    passed = method(*args)
    assert passed in (None, (name, args))
    assert (passed is None) == (inspect.signature(method).return_annotation == "None")


def test_what_a_store_of_ones_own_does_not_say():
    wrapper = StoreWrapper(Recording())
    assert (wrapper.url, wrapper.is_remote, wrapper.compares_versions) == ("mine://", True, False)
    assert wrapper.replaces_atomically


def test_a_call_that_returns_nothing_is_passed_on():
    store = MemoryStore()
    wrapper = StoreWrapper(store)
    wrapper.set("a/b", b"1")
    wrapper.set("a/c", b"2")
    wrapper.delete("a/b")
    assert list(store.list_prefix("")) == ["a/c"]
    wrapper.delete_prefix("a/")
    assert list(store.list_prefix("")) == []


def test_only_listed_keys_are_asked_for():
    below = RecordingStore(MemoryStore())
    for key in ("a", "b"):
        below.set(key, b"123")
    below.clear()
    store = ListedStore(below, {"a", "gone"})
    assert (store.get("a", ByteRange(1)), store.get("b"), store.get("gone")) == (b"23", None, None)
    assert list(store.get_many([ByteSpan("b"), None, ByteSpan("a")])) == [None, None, b"123"]
    assert (store.size("a"), store.size("b")) == (3, None)
    assert (store.get_versioned("a")[0], store.get_versioned("b")) == (b"123", (None, None))
    assert "b" not in below.keys("get", "get_many", "size", "get_versioned")


def test_all_else_is_the_store_below():
    below = MemoryStore()
    store = ListedStore(below, {"a"})
    store.set("a", b"1")
    assert store.set_if("b", b"2", None)
    assert sorted(store.list_prefix("")) == store.list_dir("") == ["a", "b"]
    store.delete("a")
    store.delete_prefix("")
    assert below.list_dir("") == []
    assert uncached(store) is innermost(store) is below
    assert (store.url, store.is_remote, store.compares_versions) == (below.url, False, below.compares_versions)
