"""A new node is put in place by copies, by one client at a time, and whoever comes next finishes it."""

import itertools
import json
from dataclasses import asdict

import pytest

from chunkmill.errors import JobError, StoreError
from chunkmill.journal import attempts, exchange, plan_document
from chunkmill.journal.exchange import (
    Exchange,
    complete_exchange,
    is_decided,
    is_exchanging,
    note_exchange,
    note_key,
)
from chunkmill.journal.journal_names import journal_prefix
from chunkmill.stores.memory import MemoryStore

JOURNAL = journal_prefix("a")
NOTE = note_key("a", "1")
PLANNED = Exchange(
    job="replace 'a'",
    prefix="a/",
    staged=f"{JOURNAL}new-1/",
    mark=".chunkmill-new-1",
    documents=f"{JOURNAL}documents-1/",
    new_documents=(("a/c/meta",), ("a/meta",)),
    old_prefixes=("a/",),
    old_documents=(("a/meta",), ("a/b/meta",)),
    sign="a/sign",
)
PLACED = {"a/0": b"new", "a/meta": b"new", "a/c/meta": b"new", "other": b"other", f"a/{PLANNED.mark}": b""}


def staged():
    store = MemoryStore()
    for key in ("a/0", "a/1", "a/meta", "a/b/meta"):
        store.set(key, b"old")
    store.set("other", b"other")
    store.set(f"{JOURNAL}plan.json", b'{"run": "1"}')
    for key in ("a/meta", "a/c/meta"):
        store.set(f"{PLANNED.documents}{key}", b"new")
    store.set(f"{PLANNED.staged}0", b"new")
    store.set(f"{PLANNED.staged}{PLANNED.mark}", b"1")
    return store


def noted():
    store = staged()
    note_exchange(store, "a", "1", PLANNED)
    return store


def values(store):
    return {key: store.get(key) for key in store.list_prefix("") if not key.startswith(JOURNAL)}


def left(store):
    return [key for key in store.list_prefix(JOURNAL) if key not in {NOTE, f"{JOURNAL}plan.json"}]


def test_the_new_is_in_place_and_nothing_else():
    store = noted()
    assert complete_exchange(store, "a", "1")
    assert values(store) == PLACED
    assert not left(store)
    store.set("a/1", b"since")
    assert complete_exchange(store, "a", "1")  # again: nothing happens
    assert values(store) == {**PLACED, "a/1": b"since"}


class Died(BaseException):
    pass


class Dying(MemoryStore):
    n_left = 1 << 30

    def _spend(self):
        self.n_left -= 1
        if self.n_left < 0:
            raise Died

    def set(self, key, value, **pin):
        self._spend()
        super().set(key, value, **pin)

    def set_if(self, key, value, version, **pin):
        self._spend()
        return super().set_if(key, value, version, **pin)

    def delete(self, key, **pin):
        self._spend()
        super().delete(key, **pin)


def test_whoever_comes_next_finishes_it(monkeypatch):
    monkeypatch.setattr(attempts, "is_live", lambda _: False)
    for n in itertools.count():
        store = Dying()
        for key, (value, _) in noted()._values.items():
            store.set(key, value)
        store.n_left = n
        try:
            complete_exchange(store, "a", "1")
        except Died:
            there = values(store)
            assert there.get("a/meta") != b"new" or (there["a/0"], there["a/c/meta"]) == (b"new", b"new")
            assert there.get("a/meta") != b"old" or there["a/0"] == b"old"
        else:
            break
        store.n_left = 1 << 30
        assert complete_exchange(store, "a", "1")
        assert values(store) == PLACED
        assert not [key for key in left(store) if "/running/" not in key]
    assert n > 10


def test_one_client_at_a_time(monkeypatch):
    """The second one waits until the first has ended, and replaces nothing that came since."""
    store, waited = noted(), []

    def first_ends(_):
        waited.append(1)
        owner = next(key for key in store.list_prefix(f"{JOURNAL}running/") if key != mine[0])
        attempts._ALIVE.pop(owner)

    monkeypatch.setattr(plan_document, "pause", first_ends)
    mine = []
    with attempts.Attempt(store, f"{JOURNAL}running/first", "").running():
        first = attempts.Attempt(store, f"{JOURNAL}running/first", "")
        assert isinstance(exchange._claimed(store, NOTE, first), Exchange)
        mine.append(f"{JOURNAL}running/second")
        monkeypatch.setattr(exchange, "uuid4", lambda: type("Name", (), {"hex": "second"}))
        assert complete_exchange(store, "a", "1")
        assert waited
        with pytest.raises(JobError):  # suspended meanwhile: it deletes nothing any more
            first.check(now=True)
    assert values(store) == PLACED


def test_a_lost_answer_to_the_claim_is_not_another_client(monkeypatch):
    class LosesAnswers(MemoryStore):
        def set_if(self, key, value, version):
            return super().set_if(key, value, version) and key != NOTE

    def waited(_):
        pytest.fail("waits for itself")

    store = LosesAnswers()
    for key, value in ((key, noted().get(key)) for key in noted().list_prefix("")):
        store.set(key, value)
    monkeypatch.setattr(plan_document, "pause", waited)
    assert complete_exchange(store, "a", "1")
    assert values(store) == PLACED


def test_nothing_is_deleted_where_nothing_is_staged():
    store = staged()
    assert not is_decided(store, "a", "1", "a/")
    before = values(store)
    store.delete(f"{PLANNED.staged}{PLANNED.mark}")
    with pytest.raises(JobError, match="has ended"):
        note_exchange(store, "a", "1", PLANNED)
    assert not is_exchanging(store, "a", "1")
    with pytest.raises(JobError, match=r"replace 'a'.*has ended"):
        complete_exchange(store, "a", "1", "replace 'a'")
    assert values(store) == before


def test_another_node_is_not_replaced():
    store = noted()

    class Racing(MemoryStore):
        def delete(self, key, **pin):
            super().delete(key, **pin)
            if key == "a/1":
                self.set("a/meta", b"somebody's")

    racing = Racing()
    for key, (value, _) in store._values.items():
        racing.set(key, value)
    with pytest.raises(StoreError, match="others have made or changed a node here"):
        complete_exchange(racing, "a", "1")
    assert racing.get("a/meta") == b"somebody's"
    assert racing.get(f"{PLANNED.staged}0") == b"new"  # and nothing is lost


@pytest.mark.parametrize(
    "note", [b"", b"[" * 100_000, b"[]", b"{}", b'{"last": 1, "old_prefixes": [], "old_documents": []}']
)
def test_a_damaged_note_is_one_error_and_deletes_nothing(note):
    store = MemoryStore()
    store.set(exchange.note_key("a", "r"), note)
    store.set("a/zarr.json", b"old")
    with pytest.raises(StoreError, match="the note of an interrupted exchange is damaged"):
        exchange.complete_exchange(store, "a", "r")
    assert store.get("a/zarr.json") == b"old"


@pytest.mark.parametrize(
    "damage", [{"staged": 1}, {"mark": None}, {"old_prefixes": [1]}, {"new_documents": [[{}]]}], ids=str
)
def test_a_note_with_values_of_other_types_is_the_same_error(damage):
    test_a_damaged_note_is_one_error_and_deletes_nothing(json.dumps({**asdict(PLANNED), **damage}).encode())
