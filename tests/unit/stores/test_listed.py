"""A store that knows by a listing what is absent."""

from support.recording import RecordingStore

from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.capabilities import innermost, uncached
from chunkmill.stores.listed import ListedStore
from chunkmill.stores.memory import MemoryStore


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
