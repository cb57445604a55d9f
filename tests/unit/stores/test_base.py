"""Abilities of stores: what holds without them, what wrappers pass on, and what a store of one's own must have."""

import multiprocessing
import pickle
import zipfile

import numpy as np
import pytest
from support.servers import FORK_WARNING
from support.systems import NEEDS_FORK

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.stores import base
from chunkmill.stores.base import ByteRange, Store, digest, joined_changes
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore, OverlayStore
from chunkmill.stores.reference import ReferenceStore
from chunkmill.stores.wrapper import Meter, MeteredStore, digest_of
from chunkmill.stores.zip import ZipStore


class OwnStore(MemoryStore):
    """A user's, with abilities of its own."""

    writes_parts = True

    def explain_absence(self):
        return "the tape is not mounted"

    def set_parts(self, key, parts):
        self.set(key, b"<" + b"".join(parts) + b">")


def wrapped(store):
    return OverlayStore({}, MeteredStore(store, Meter()), frozenset({".none"}))


def test_without_abilities(store):
    store.set("a/b", b"value")
    store.flush()
    assert store.sweep() == []
    assert (store.explain_absence(), store.is_link("a/"), Store.can_replace(store, "a/")) == (None, False, False)
    assert not store.is_archive
    assert wrapped(ZipStore("x.zip")).is_archive
    assert store.can_list
    assert list(store.list_sizes("a/")) == [("a/b", None)]
    assert store.innermost is store.uncached is store.after_stored() is store
    assert store.locate("a/b") is None
    store.set_parts("c", iter([b"1", b"2"]))
    assert store.get("c") == b"12"


def test_digests_of_journals_are_those_of_later_versions():
    assert digest(b"value") == "blake2b-b9593f9e1096b5482cd35ed7e15d1f18"
    assert digest_of({"a/0": "1", "ü/1": "2", "a/2": "3"}) == 4058543173550922842


def test_parts():
    own = OwnStore()
    assert own.writes_parts
    assert not MemoryStore().writes_parts
    MeteredStore(own, Meter()).set_parts("k", iter([b"1", b"2"]))
    assert own.get("k") == b"<12>"


def test_absence_is_explained_to_users():
    with pytest.raises(cm.errors.NodeNotFound, match="the tape is not mounted"):
        cm.open(OwnStore())


def test_a_zip_file_below_consolidated_metadata_is_flushed(tmp_path):
    """What was written through an opened group was in no file before the store was closed."""
    cm.to_store(np.arange(4), tmp_path / "x.zip", "a", format="zarr2")
    group = cm.open_group(tmp_path / "x.zip", mode="r+")
    cm.consolidate(tmp_path / "x.zip")
    group = cm.open_group(ZipStore(tmp_path / "x.zip"), mode="r+")
    assert isinstance(group.store, OverlayStore)
    group.store.set("late", b"")
    group.store.flush()
    assert "late" in zipfile.ZipFile(tmp_path / "x.zip").namelist()


def test_a_store_that_reads_into_no_array_gives_bytes(tmp_path):
    local = LocalStore(tmp_path)
    for store, kind in ((MemoryStore(), bytes), (local, np.ndarray), (wrapped(local), bytes)):
        store.set("k", b"12345678")
        found = store.get_writable("k", ByteRange(2, 3))
        assert isinstance(found, kind)
        assert bytes(found) == b"345"


def test_a_store_without_a_method_of_every_store_cannot_be_made():
    class Short(Store):
        url, is_remote = "own://", False
        get = get_many = set = set_if = size = delete = delete_prefix = list_dir = get_versioned = print

    with pytest.raises(TypeError, match="list_prefix"):
        Short()


def test_what_a_store_cannot_do_is_an_error():
    with pytest.raises(StoreError, match="ReferenceStore cannot replace at once"):
        wrapped(ReferenceStore(ReferenceBuilder().build())).replace_prefix("a/", "b/", "mark")
    with pytest.raises(StoreError, match=r"'a'.*MemoryStore cannot hold virtual chunks"):
        wrapped(MemoryStore()).refer("a", [], None)


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
    assert joined_changes([None, only := Text("a")]) is only
    assert joined_changes([Text("a"), None, Text("b"), Text("c")]).text == "abc"


def test_a_listing_stands_while_keys_change(store):
    for i in range(4):
        store.set(f"a/{i}", b"")
    for key in store.list_prefix("a/"):
        store.delete(key)
    assert list(store.list_prefix("")) == []


@pytest.mark.parametrize("made_by", [MemoryStore, lambda: FsspecStore("memory://of-one-process")])
def test_it_is_known_elsewhere_by_a_name_as_processes_of_two_containers_have_one_number(made_by, monkeypatch):
    made = made_by()
    made.set("a/k", b"1")
    sent = pickle.dumps(made)
    monkeypatch.setattr(base, "_STARTED", "another")
    writes = {"set": ("a/k", b"2"), "set_if": ("a/k", b"2", None), "delete": ("a/k",), "delete_prefix": ("a/",)}
    for request, given in writes.items():
        with pytest.raises(StoreError, match="in the memory of another process"):
            getattr(pickle.loads(sent), request)(*given)


@FORK_WARNING
@NEEDS_FORK
def test_a_child_does_not_write_to_its_copy():
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(StoreError, match="of another process"):
        pool.apply(MemoryStore().set, ("a", b"1"))
