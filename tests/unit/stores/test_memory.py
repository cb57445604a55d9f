"""Stores in memory."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest

from chunkmill.errors import StoreError
from chunkmill.stores import base, fsspec, memory


def test_a_listing_stands_while_keys_change(store):
    for i in range(4):
        store.set(f"a/{i}", b"")
    for key in store.list_prefix("a/"):
        store.delete(key)
    assert list(store.list_prefix("")) == []


@pytest.mark.parametrize("made_by", [memory.MemoryStore, lambda: fsspec.FsspecStore("memory://of-one-process")])
def test_it_is_known_elsewhere_by_a_name_as_processes_of_two_containers_have_one_number(made_by, monkeypatch):
    sent = pickle.dumps(made_by())
    monkeypatch.setattr(base, "_STARTED", "another")
    with pytest.raises(StoreError, match="in the memory of another process"):
        pickle.loads(sent).set("a", b"1")


def test_a_child_does_not_write_to_its_copy():
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(StoreError, match="of another process"):
        pool.apply(memory.MemoryStore().set, ("a", b"1"))
