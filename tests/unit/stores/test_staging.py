"""Directories written beside those that they replace."""

import os

import pytest

from chunkmill.stores import staging
from chunkmill.stores.capabilities import stage, swap_in
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(params=[True, False], ids=["exchanged", "renamed twice"])
def local(request, tmp_path, monkeypatch):
    if not request.param:
        monkeypatch.setattr(staging, "_renameat2", lambda: None)
    return LocalStore(tmp_path / "store")


@pytest.mark.parametrize("prefix", ["", "g/a/"])
class TestSwap:
    def check(self, store, prefix):
        store.set(f"{prefix}old/0", b"old")
        store.set("other", b"other")
        staged = stage(store, prefix)
        staged.set("new/0", b"new")
        assert store.get(f"{prefix}old/0") == b"old"
        assert not [key for key in store.list_prefix("") if key.endswith("new/0")]
        swap_in(store, prefix, staged)
        assert store.get(f"{prefix}new/0") == b"new"
        assert store.get(f"{prefix}old/0") is None
        assert store.get("other") == (b"other" if prefix else None)

    def test_directory(self, local, prefix, tmp_path):
        self.check(local, prefix)
        assert [entry.name for entry in tmp_path.iterdir()] == ["store"]
        assert sorted(entry.name for entry in (tmp_path / "store").iterdir()) == (["g", "other"] if prefix else ["new"])

    def test_memory(self, prefix):
        self.check(MemoryStore(), prefix)

    def test_where_nothing_is_there_any_more(self, local, prefix):
        local.set(f"{prefix}old", b"old")
        staged = stage(local, prefix)
        staged.set("new", b"new")
        local.delete_prefix(prefix)
        swap_in(local, prefix, staged)
        assert local.get(f"{prefix}new") == b"new"


def test_what_cannot_be_renamed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert LocalStore(tmp_path / "link").stage("") is None
    assert LocalStore(tmp_path / "not there").stage("") is None


def test_what_dead_writers_left(tmp_path, monkeypatch):
    (tmp_path / "store").mkdir()
    store = LocalStore(tmp_path / "store")
    dead, alive = stage(store, ""), stage(store, "")
    dead.set("x", b"")
    pid = f"-{os.getpid()}."
    left = next(entry for entry in tmp_path.iterdir() if pid in entry.name)
    left.rename(left.with_name(left.name.replace(pid, "-4194305.")))  # above Linux's largest number of a process
    alive.set("x", b"")
    stage(store, "")
    assert sum(pid in entry.name for entry in tmp_path.iterdir()) == 1
    assert not [entry for entry in tmp_path.iterdir() if "-4194305." in entry.name]


def test_stores_that_cannot():
    class Plain:
        url = "plain://"

    assert stage(Plain(), "") is None
