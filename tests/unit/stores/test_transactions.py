"""Transactions of stores, as their callers ask for them."""

from chunkmill.stores.base import joined_changes


class Text:
    def __init__(self, text):
        self.text = text

    def joined(self, others):
        return Text(self.text + "".join(each.text for each in others))


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
