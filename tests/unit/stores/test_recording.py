from __future__ import annotations

import pickle

import pytest
from support.recording import FailingStore, RecordingStore

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore


def test_recording():
    store = RecordingStore(MemoryStore())
    store.set("k", b"123")
    store.get("k", ByteRange(1, 1))
    list(store.get_many([ByteSpan("k"), None, ByteSpan("l")]))
    store.list_dir("")
    assert store.log == [
        ("set", "k", None),
        ("get", "k", ByteRange(1, 1)),
        ("get", "k", None),
        ("get", "l", None),
        ("list_dir", "", None),
    ]
    assert store.keys("get") == ["k", "k", "l"]
    store.clear()
    assert store.log == []


def test_failing():
    store = FailingStore(MemoryStore(), 3, methods=["get"], times=2)
    store.set("k", b"1")
    outcomes = []
    for _ in range(10):
        try:
            outcomes.append(store.get("k"))
        except StoreError:
            outcomes.append("failed")
    assert outcomes == [b"1", b"1", "failed", b"1", b"1", "failed", b"1", b"1", b"1", b"1"]
    assert pickle.loads(pickle.dumps(store)).n_failures == 2
    with pytest.raises(StoreError, match="injected"):
        list(FailingStore(store, 1).get_many([ByteSpan("k")]))
