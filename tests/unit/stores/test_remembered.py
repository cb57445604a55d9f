"""A store that remembers what it has returned."""

from __future__ import annotations

import pickle

import pytest
from support.recording import RecordingStore

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore, OverlayStore
from chunkmill.stores.wrapper import Meter, MeteredStore, RememberedReads


@pytest.fixture
def meter():
    return Meter()


@pytest.fixture
def reads(meter):
    store = MemoryStore()
    store.set("a", b"0123456789")
    store.set("b", b"xyz")
    return RememberedReads(MeteredStore(store, meter))


def test_each_value_is_fetched_once(reads, meter):
    spans = [ByteSpan("a"), ByteSpan("c"), None, ByteSpan("b", ByteRange(1)), ByteSpan("a")]
    assert list(reads.get_many(spans)) == [b"0123456789", None, None, b"yz", b"0123456789"]
    assert meter.n_requests == 3
    again = [ByteSpan("a", ByteRange(-2)), ByteSpan("c", ByteRange(0, 4)), ByteSpan("b", ByteRange(1))]
    assert list(reads.get_many(again)) == [b"89", None, b"yz"]
    assert meter.n_requests == 3
    assert reads.get("b") == b"xyz"  # a range of it does not tell
    assert meter.n_requests == 4


def test_values_are_forgotten(reads, meter):
    assert not reads.any_present
    reads.get("c")
    assert not reads.any_present
    reads.get("a")
    assert reads.any_present
    assert reads.absent == {"c"}
    reads.forget()
    assert not reads.any_present
    assert reads.get("a") == b"0123456789"
    assert meter.n_requests == 3


def test_a_range_past_the_end(reads):
    reads.get("b")
    with pytest.raises(StoreError, match="truncated"):
        reads.get("b", ByteRange(2, 5))


def test_it_is_not_written_to(reads):
    with pytest.raises(StoreError, match="not written to"):
        reads.set("a", b"")
    assert (reads.list_dir(""), list(reads.list_prefix(""))) == (["a", "b"], ["a", "b"])
    assert (reads.size("b"), reads.get_versioned("b")[0]) == (3, b"xyz")


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
    assert (store.get("a/.zarray"), store.get("a/.zarray", ByteRange(-2))) == (b"array", b"ay")
    assert store.size("a/.zarray") == 5
    assert store.get("late/.zarray") is None
    assert store.size("b/.zattrs") is None
    assert store.list_dir("") == [".zgroup", "a/", "b/"]
    assert (store.list_dir("a/"), store.list_dir("b/")) == ([".zarray", ".zattrs"], ["c/"])
    assert store.list_dir("nowhere/") == []
    with pytest.raises(ValueError, match="not a prefix"):
        store.list_dir("a")
    assert below.log == []


def test_all_else_comes_from_below(store, below):
    assert (store.get("a/0.0"), store.size("a/0.0")) == (b"below", 5)
    spans = [ByteSpan("a/.zarray"), ByteSpan("a/0.0"), None, ByteSpan("a/.zgroup"), ByteSpan("a/0.0", ByteRange(0, 1))]
    assert list(store.get_many(spans)) == [b"array", b"below", None, None, b"b"]
    assert below.keys() == ["a/0.0", "a/0.0", "a/0.0", "a/0.0"]
    assert sorted(store.list_prefix("a/")) == ["a/.zarray", "a/0.0"]


def test_what_is_written_is_answered_from_below(store):
    store.set("a/.zarray", b"new")
    assert (store.get("a/.zarray"), store.get("a/.zattrs")) == (b"new", b"attrs")
    assert "late/" in store.list_dir("")
    store.set("a/0.1", b"chunk")
    assert store.get("a/0.1") == b"chunk"
    store.delete_prefix("b/")
    assert store.get("b/c/.zgroup") is None
    value, version = store.get_versioned("late/.zarray")
    assert store.set_if("late/.zarray", value + b"!", version)
    assert store.get("late/.zarray") == b"below!"


def test_documents_answer_for_what_is_not_stored_alone(below):
    store = OverlayStore(DOCUMENTS, below, ANSWERS, entries=frozenset({".zarray", ".zgroup"}))
    later = store.after_stored(without="b/")
    expected = {
        "a/.zarray": b"below", "late/.zarray": b"below", ".zgroup": b"{}", "a/.zattrs": None, "b/c/.zgroup": None,
    }  # fmt: skip
    assert {key: later.get(key) for key in expected} == expected
    assert list(later.get_many(map(ByteSpan, expected))) == list(expected.values())
    assert (later.list_dir(""), later.list_dir("a/")) == ([".zgroup", "a/", "late/"], [".zarray", "0.0"])
    below.below.can_list = False
    assert store.after_stored() is store.uncached is below


def test_pickle(store):
    store.list_dir("")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get("a/.zarray") == b"array"
    assert copy.list_dir("") == store.list_dir("")
    assert b"_children" not in pickle.dumps(store)
