"""Transactions of stores, as their callers ask for them."""

import contextlib

import pytest

from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.transactions import (
    changes_taken,
    check_computed_now,
    declare,
    has_transactions,
    joined,
    one_commit,
    snapshot_of,
)
from chunkmill.stores.wrapper import Meter, MeteredStore


class Committing(MemoryStore):
    """A store that says what it was asked for."""

    commits = True
    snapshot = "now"

    def __init__(self):
        super().__init__()
        self.said = []

    @contextlib.contextmanager
    def transaction(self, message):
        self.said.append(message)
        yield
        self.said.append("committed")

    def declare(self, documents, key):
        self.said.append((dict(documents), key))

    @contextlib.contextmanager
    def changes_taken(self):
        yield lambda: "changes"


class Text:
    def __init__(self, text):
        self.text = text

    def joined(self, others):
        return Text(self.text + "".join(each.text for each in others))


def test_abilities_are_found_through_wrappers():
    store = Committing()
    wrapped = MeteredStore(store, Meter())
    assert has_transactions(wrapped)
    with one_commit(wrapped, "a job"):
        declare(wrapped, {"a/zarr.json": b"{}"}, "a/c/0")
    assert store.said == ["a job", ({"a/zarr.json": b"{}"}, "a/c/0"), "committed"]
    with changes_taken(wrapped) as taken:
        assert taken() == "changes"
    assert snapshot_of(wrapped) == "now"
    with pytest.raises(ValueError, match="compute=False"):
        check_computed_now(wrapped)


def test_other_stores_have_none():
    store = MemoryStore()
    with one_commit(store, "a job"), changes_taken(store) as taken:
        declare(store, {"a/zarr.json": b"{}"}, "a/c/0")
    assert taken() is None
    assert not list(store.list_prefix(""))
    assert snapshot_of(store) is None
    check_computed_now(store)


def test_changes_are_joined():
    assert joined([None, None]) is None
    assert joined([None, Text("a")]).text == "a"
    assert joined([Text("a"), None, Text("b"), Text("c")]).text == "abc"
