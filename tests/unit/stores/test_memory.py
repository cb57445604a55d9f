from __future__ import annotations

import pickle

from chunkmill.stores.memory import MemoryStore


def test_each_is_private():
    a, b = MemoryStore(), MemoryStore()
    a.set("k", b"1")
    assert b.get("k") is None
    assert a.url != b.url


def test_pickles_by_content():
    store = MemoryStore()
    store.set("k", b"1")
    copy = pickle.loads(pickle.dumps(store))
    copy.set("k", b"2")
    assert (store.get("k"), copy.get("k")) == (b"1", b"2")


def test_a_listing_stands_while_keys_change():
    store = MemoryStore()
    for i in range(4):
        store.set(f"a/{i}", b"")
    for key in store.list_prefix("a/"):
        store.delete(key)
    assert list(store.list_prefix("")) == []
