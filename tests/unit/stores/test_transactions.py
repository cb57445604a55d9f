"""Transactions of stores, as their callers ask for them."""

import contextlib

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.stores.base import joined_changes
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import Meter, MeteredStore


class Committing(MemoryStore):
    """A store that says what it was asked for."""

    commits = has_transactions = True
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


def test_wrappers_pass_them_on():
    store = Committing()
    wrapped = MeteredStore(store, Meter())
    assert wrapped.has_transactions
    assert wrapped.commits
    with wrapped.transaction("a job"):
        wrapped.declare({"a/zarr.json": b"{}"}, "a/c/0")
    assert store.said == ["a job", ({"a/zarr.json": b"{}"}, "a/c/0"), "committed"]
    with wrapped.changes_taken() as taken:
        assert taken() == "changes"
    assert wrapped.snapshot == "now"
    array = cm.create_array(MemoryStore(), shape=4, dtype="i4").stored.with_store(store)
    with pytest.raises(ValueError, match="compute=False"):
        cm.to_store(np.zeros(4), cm.Array(array), region=(slice(0, 4),), compute=False)


def test_other_stores_have_none(store):
    with store.transaction("a job"), store.changes_taken() as taken:
        store.declare({"a/zarr.json": b"{}"}, "a/c/0")
    assert taken() is None
    assert not list(store.list_prefix(""))
    assert store.snapshot is None
    assert not store.commits


def test_changes_are_joined():
    assert joined_changes([None, None]) is None
    assert joined_changes([None, Text("a")]).text == "a"
    assert joined_changes([Text("a"), None, Text("b"), Text("c")]).text == "abc"
