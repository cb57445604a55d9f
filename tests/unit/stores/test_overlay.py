from __future__ import annotations

import pickle

import pytest
from support.recording import RecordingStore

from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.overlay import OverlayStore

DOCUMENTS = {".zgroup": b"{}", "a/.zarray": b"array", "a/.zattrs": b"attrs", "b/c/.zgroup": b"{ }"}
ANSWERS = frozenset({".zgroup", ".zarray", ".zattrs"})


@pytest.fixture
def below():
    store = RecordingStore(MemoryStore())
    for key in ("a/.zarray", "a/0.0", "late/.zarray"):
        store.set(key, b"below")
    store.clear()
    return store


@pytest.fixture
def store(below):
    return OverlayStore(DOCUMENTS, below, ANSWERS)


def test_documents_are_answered_without_a_request(store, below):
    assert store.get("a/.zarray") == b"array"
    assert store.get("a/.zarray", ByteRange(-2)) == b"ay"
    assert store.size("a/.zarray") == 5
    assert store.get("late/.zarray") is None
    assert store.size("b/.zattrs") is None
    assert store.list_dir("") == [".zgroup", "a/", "b/"]
    assert store.list_dir("a/") == [".zarray", ".zattrs"]
    assert store.list_dir("b/") == ["c/"]
    assert store.list_dir("nowhere/") == []
    assert below.log == []


def test_all_else_comes_from_below(store, below):
    assert store.get("a/0.0") == b"below"
    assert store.size("a/0.0") == 5
    spans = [ByteSpan("a/.zarray"), ByteSpan("a/0.0"), None, ByteSpan("a/.zgroup"), ByteSpan("a/0.0", ByteRange(0, 1))]
    assert list(store.get_many(spans)) == [b"array", b"below", None, None, b"b"]
    assert below.keys() == ["a/0.0", "a/0.0", "a/0.0", "a/0.0"]
    assert sorted(store.list_prefix("a/")) == ["a/.zarray", "a/0.0"]


def test_what_is_written_is_answered_from_below(store):
    store.set("a/.zarray", b"new")
    assert store.get("a/.zarray") == b"new"
    assert store.get("a/.zattrs") == b"attrs"
    assert "late/" in store.list_dir("")
    store.set("a/0.1", b"chunk")
    assert store.get("a/0.1") == b"chunk"
    store.delete_prefix("b/")
    assert store.get("b/c/.zgroup") is None
    value, version = store.get_versioned("late/.zarray")
    assert store.set_if("late/.zarray", value + b"!", version)
    assert store.get("late/.zarray") == b"below!"


def test_pickle(store):
    store.list_dir("")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get("a/.zarray") == b"array"
    assert copy.list_dir("") == store.list_dir("")
    assert b"_children" not in pickle.dumps(store)
