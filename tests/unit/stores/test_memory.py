from __future__ import annotations


def test_a_listing_stands_while_keys_change(store):
    for i in range(4):
        store.set(f"a/{i}", b"")
    for key in store.list_prefix("a/"):
        store.delete(key)
    assert list(store.list_prefix("")) == []
