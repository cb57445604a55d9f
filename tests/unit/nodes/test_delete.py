"""Deleting nodes: all that is theirs, in all formats; what is not stays."""

import copy
from contextlib import ExitStack

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.recording import CHANGES, Meanwhile, RecordingStore, deaths

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError, KeysLeft, NodeNotFound, StoreError
from chunkmill.formats.registry import get_format
from chunkmill.journal.journal import Journal
from chunkmill.journal.lease import discard_block_write, leased
from chunkmill.journal.plans import LEASE, Plan
from chunkmill.nodes.opening import walk
from chunkmill.stores import conflicts
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
VALUES = np.arange(1, 17).reshape(4, 4)


def make(store, kind="zarr3", paths=("g/a", "g/deep/b", "h")):
    cm.create_group(store, format=kind, attributes={"title": "x"})
    for path in paths:
        filled(VALUES, store, path, chunks=(2, 2), dtype="i4", format=kind, attributes={"n": 1})
    return store


@cases(("kind", "url"), [*((kind, "") for kind in FORMATS), ("zarr2", "a.zip"), ("n5", "a.n5")])
def test_a_node_and_all_below_it_is_gone(kind, url, tmp_path):
    store = make(str(tmp_path / url) if url else MemoryStore(), kind)
    cm.delete(store, "g/a")
    assert (list(cm.open_group(store)), list(cm.open_group(store, "g"))) == (["g", "h"], ["deep"])
    with pytest.raises(NodeNotFound):
        cm.delete(store, "g/a")
    cm.delete(store, "/g/")
    assert list(cm.open_group(store)) == ["h"]
    assert not cm.check(store).problems
    left = cm.open_group(store).store.list_prefix("")
    assert not [key for key in left if key.startswith(("g/", "meta/g/", "meta/g.", "data/g/"))]
    np.testing.assert_array_equal(cm.open_array(store, "h")[...], VALUES)


@cases("kind", FORMATS)
def test_the_root(kind, tmp_path):
    store = make(MemoryStore(), kind)
    cm.delete(store)
    assert not list(store.list_prefix(""))
    for fill in (make, lambda url, kind: cm.to_store(VALUES, url, chunks=2, format=kind)):
        fill(tmp_path / "a", kind)
        cm.delete(tmp_path / "a")
        assert list((tmp_path / "a").iterdir()) == []


@cases("kind", FORMATS)
def test_what_belongs_to_no_node_stays_and_is_named(kind, tmp_path):
    store = make(str(tmp_path / "a"), kind)
    cm.open_group(store).store.set("data/g/notes.txt" if kind == "zarr3-draft" else "g/a/notes.txt", b"mine")
    with pytest.warns(KeysLeft, match=r"deleted 'g' in .* but for 1 keys .*notes\.txt'") as told:
        cm.delete(store, "g")
    assert told[0].filename == __file__
    assert [path.name for path in (tmp_path / "a").rglob("*.txt")] == ["notes.txt"]
    if kind != "n5":  # where every folder is a group
        assert list(cm.open_group(store)) == ["h"]


def look(store):
    """No reader meets an array without its chunks."""
    for consolidated in (None, False):
        arrays = [n for n in walk(cm.open(store, consolidated=consolidated).stored) if isinstance(n, StoredArray)]
        assert arrays
        for array in map(cm.Array, arrays):
            assert np.array_equal(array[...], VALUES), array.path


@cases("kind", FORMATS)
def test_the_same_call_deletes_the_rest_after_a_death(kind, all_died):
    n, whole = 0, make(MemoryStore(), kind, ("g/deep/b", "h"))
    if kind in {"zarr2", "zarr3"}:
        cm.consolidate(whole)
    for store in deaths(lambda: copy.copy(whole), lambda dying: cm.delete(dying, "g")):
        look(store)
        if kind in {"zarr2", "zarr3"} and store.get(get_format(kind).array_keys("g/deep/b")[0]):
            assert store.get(get_format(kind).group_keys("g")[0])  # other readers find what is left by it
        try:
            cm.delete(store, "g")
        except NodeNotFound:  # only a part of its journal was left
            assert not {"plan.json", "nodes.json"} <= {key.rpartition("/")[2] for key in store.list_prefix("")}
        assert list(cm.open_group(store)) == ["h"], n
        problems = [str(problem) for problem in cm.check(store).problems]
        assert not [text for text in problems if "orphan" in text or "stale" in text], (n, problems)
        n += 1
    assert n > 10, kind


@cases("error", [StoreError(url="memory:", key="x", reason="cannot delete"), KeyboardInterrupt()])
@cases("key", ["g/a/c/1/0", "g/deep/b/c/0/0"])
def test_the_same_call_deletes_the_rest_after_an_error(key, error):
    def refuse(_):
        raise error

    store = make(MemoryStore())
    for _ in range(2):
        with pytest.raises(type(error)):
            cm.delete(Meanwhile(store, ("delete", key), refuse), "g")
    assert [problem.kind for problem in cm.check(store).problems if problem.kind != "orphan"]
    cm.delete(store, "g")
    assert list(cm.open_group(store)) == ["h"]
    assert cm.check(store).ok
    assert not [key for key in store.list_prefix("") if ".chunkmill" in key or key.startswith("g/")]


def test_writers_respect_it_and_it_respects_them():
    store = make(MemoryStore())
    for path in ("g", "g/a", "g/deep/b", ""):
        with leased(store, path, "write there"), pytest.raises(JobError, match="is running"):
            cm.delete(store, "g")
    with leased(store, "g", "delete 'g'"), pytest.raises(JobError, match="is running"):
        cm.create_array(store, "g/new", shape=(1,), dtype="i4")
    Journal(store, Plan("g/a", "put it", "plan", kind="to_store")).begin()
    with pytest.raises(JobError, match="was interrupted"):  # it can be resumed, which needs its records
        cm.delete(store, "g/a")
    discard_block_write(store, "g/a")
    with leased(store, "h", "write beside"):
        cm.delete(store, "g")


def test_of_a_writer_that_begins_at_the_same_time_nothing_is_deleted(monkeypatch):
    monkeypatch.setattr(conflicts, "pause", lambda _: None)
    store = make(MemoryStore())
    with ExitStack() as held:
        begins = Meanwhile(
            store,
            lambda method, key: method in CHANGES and ".chunkmill" in key,
            lambda below: held.enter_context(leased(below, "g/a", "write there")),
        )
        with pytest.raises(JobError, match="is running: 'write there'"):
            cm.delete(begins, "g")
    np.testing.assert_array_equal(cm.open_array(store, "g/a")[...], VALUES)


@cases("kind", ["zarr2", "zarr3"])
def test_what_others_consolidate_at_the_same_time_is_forgotten(kind):
    store = make(MemoryStore(), kind)
    cm.delete(Meanwhile(store, lambda method, key: method in CHANGES and key.startswith("g/a/"), cm.consolidate), "g")
    assert list(cm.open_group(store, consolidated=True)) == ["h"]


def test_a_replaced_array_is_left_as_it_is(monkeypatch):
    store = make(MemoryStore())
    from chunkmill.nodes import delete

    def forget(store, path):
        other = cm.create_array(MemoryStore(), path, shape=(3,), dtype="f8")
        store.set("g/a/zarr.json", other.store.get("g/a/zarr.json"))

    monkeypatch.setattr(delete, "forget_consolidated", forget)
    with pytest.raises(StoreError, match="was replaced by others"):
        cm.delete(store, "g/a")
    assert cm.open_array(store, "g/a").shape == (3,)


@cases(
    ("kind", "path", "name"),
    [
        ("zarr2", "g/link", "g/link"),
        ("zarr3", "g/link", "g/link"),
        ("zarr3", "g", "g/link"),
        ("n5", "g", "g/link"),
        ("n5", "", "g/link"),
        ("zarr3", "", "link"),
    ],
)
def test_of_a_symbolic_link_the_link_is_deleted(kind, path, name, tmp_path):
    store, elsewhere = make(str(tmp_path / "a"), kind), make(str(tmp_path / "elsewhere"), kind)
    link = tmp_path / "a" / name
    link.symlink_to(elsewhere)
    watched = RecordingStore(LocalStore(store))
    cm.delete(watched, path)
    assert not link.is_symlink()
    assert not [key for key in watched.keys(*CHANGES) if key.startswith(f"{name}/") and key != f"{name}/"]
    assert list(cm.open_group(elsewhere)) == ["g", "h"]
    for each in ("g/a", "g/deep/b", "h"):
        np.testing.assert_array_equal(cm.open_array(elsewhere, each)[...], VALUES)
    if path == "g/link":
        assert list(cm.open_group(store, "g")) == ["a", "deep"]


def test_what_is_named_behind_a_symbolic_link_is_deleted_there(tmp_path):
    store, elsewhere = make(str(tmp_path / "a")), make(str(tmp_path / "elsewhere"))
    (tmp_path / "a" / "link").symlink_to(elsewhere)
    cm.delete(store, "link/h")
    assert list(cm.open_group(elsewhere)) == ["g"]
    assert (tmp_path / "a" / "link").is_symlink()


def test_messages(tmp_path):
    store = make(str(tmp_path / "a"))
    with pytest.raises(NodeNotFound, match="'x'"):
        cm.delete(store, "x")
    Journal(LocalStore(store), Plan("y", "make it", "plan", kind=LEASE)).begin()
    with pytest.raises(NodeNotFound, match="'y'"):  # its writer died before it made it
        cm.delete(store, "y")
    with pytest.raises(NodeNotFound):
        cm.delete(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(StoreError, match=r"mode='r\+'"):
        del cm.open_group(store)["h"]
    with pytest.raises(ValueError, match="below the group"):
        del cm.open_group(store, mode="r+")[""]
    cm.to_references(store, tmp_path / "refs.json")
    with pytest.raises(StoreError, match="read-only"):
        cm.delete(tmp_path / "refs.json", "h")
    assert list(cm.open_group(store)) == ["g", "h"]


def test_folders_of_chunks_next_to_a_foreign_file_are_no_groups(tmp_path):
    """In N5 every folder is a group: those of the deleted chunks were listed as groups."""
    store = str(tmp_path)
    cm.create_array(store, "g/a", shape=(4, 4), dtype="u1", chunks=(2, 2), format="n5")[...] = 1
    (tmp_path / "g/a/0/1.txt").write_text("of somebody")
    (tmp_path / "g/a/notes.txt").write_text("of somebody")
    with pytest.warns(KeysLeft, match="2 keys") as told:
        del cm.open_group(store, mode="r+")["g/a"]
    assert told[0].filename == __file__
    assert sorted(path.name for path in tmp_path.glob("g/a/**/*")) == ["0", "1.txt", "notes.txt"]
