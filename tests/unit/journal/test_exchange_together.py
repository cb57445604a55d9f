"""Nodes that are replaced together: what one client has decided, whoever discards the job completes."""

import json
from hashlib import sha256

import pytest

from chunkmill.errors import StoreError
from chunkmill.journal.exchange_together import Other, complete_planned, note_others
from chunkmill.journal.journal_names import journal_prefix, new_mark, staged_prefix
from chunkmill.stores.memory import MemoryStore

RUN = "1"
STAGED = staged_prefix("a", RUN, 1)
PLAN = json.dumps({"run": RUN, "job": "x", "path": "a", "old_prefix": "a/"}).encode()


def decided(document=b"old"):
    """Return a store where the first node is in its place, and the other, of which that is there, is not."""
    store = MemoryStore()
    store.set(f"a/{new_mark(RUN)}", b"")
    store.set("b/meta", document)
    for name in ("meta", new_mark(RUN)):
        store.set(STAGED + name, b"new")
    hashes = [{"b/meta": sha256(value).hexdigest()} for value in (b"old", b"new")]
    note_others(store, "a", RUN, [Other("b", "b/", STAGED, *hashes, None)])
    return store


def test_who_discards_the_plan_puts_the_others_in_place():
    store = decided()
    assert complete_planned(store, "a", PLAN)
    assert store.get("b/meta") == b"new"
    assert list(store.list_prefix("b/")) == ["b/meta"]
    assert complete_planned(store, "a", PLAN)
    assert store.get("b/meta") == b"new"


def test_what_others_have_changed_meanwhile_stays():
    store = decided(b"theirs")
    assert complete_planned(store, "a", PLAN)
    assert store.get("b/meta") == b"theirs"


def test_before_the_first_is_decided_all_stay():
    store = decided()
    store.delete(f"a/{new_mark(RUN)}")
    assert not complete_planned(store, "a", PLAN)
    assert store.get("b/meta") == b"old"


@pytest.mark.parametrize(
    "damage",
    [{"path": 1}, {"staged": None}, {"prefix": ["b/"]}, {"seen": []}, {"documents": {"b/meta": 1}}, {"exchange": 1}],
    ids=str,
)
def test_a_record_with_values_of_other_types_is_named(damage):
    store = decided()
    key = f"{journal_prefix('a')}together-{RUN}.json"
    known = json.loads(store.get(key))
    store.set(key, json.dumps([{**known[0], **damage}]).encode())
    with pytest.raises(StoreError, match="together"):
        complete_planned(store, "a", PLAN)
    assert store.get("b/meta") == b"old"


@pytest.mark.parametrize("value", [b"[{]", b"{}x", b"1", b'["a"]', b"[[]]", b"[{}]", b"null"], ids=repr)
def test_a_damaged_record_is_named(value):
    store = decided()
    store.set(f"{journal_prefix('a')}together-{RUN}.json", value)
    with pytest.raises(StoreError, match="together"):
        complete_planned(store, "a", PLAN)
