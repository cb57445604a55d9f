"""Directories written beside those that they replace."""

import errno
import os
from unittest.mock import Mock

import pytest
from support.systems import NEEDS_FLOCK

from chunkmill.errors import StoreError
from chunkmill.stores import directories, posix_file
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(params=["exchanged", "renamed twice", "without flock"])
def local(request, tmp_path, monkeypatch):
    if request.param == "renamed twice":
        monkeypatch.setattr(posix_file, "_renamed", lambda *_: False)
    if request.param == "without flock" and directories.CAN_LOCK:
        monkeypatch.setattr(directories.fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "no locks")))
    return LocalStore(tmp_path / "store")


@pytest.mark.parametrize("prefix", ["", "g/a/"])
class TestReplacePrefix:
    """What is staged is in the same store, so that a later process finds it."""

    def check(self, store, prefix):
        store.set(f"{prefix}old/0", b"old")
        assert store.can_replace(prefix)
        # nothing is staged; then by a client that is late; then others are deleting it
        for key, value in (("other", b"other"), (".job/new/0/1", b"new"), (".job/new/mark", b"")):
            store.set(key, value)
            with pytest.raises(StoreError, match="others have ended this"):
                store.replace_prefix(prefix, ".job/new/", "mark")
            assert store.get(f"{prefix}old/0") == b"old"
        for key, value in ((".job/new/mark", b"run"), (".job/new/0/1", b"late")):  # the second time nothing happens
            store.set(key, value)
            store.replace_prefix(prefix, ".job/new/", "mark")
            assert store.get(f"{prefix}0/1") == b"new"
            mine = {f"{prefix}0/1", f"{prefix}mark"}
            assert set(store.list_prefix("")) == mine | ({"other"} if prefix else set())

    def test_directory(self, local, prefix, tmp_path):
        self.check(local, prefix)
        assert [entry.name for entry in tmp_path.iterdir()] == ["store"]

    def test_memory(self, prefix):
        self.check(MemoryStore(), prefix)

    def test_where_nothing_is_there_any_more(self, local, prefix):
        local.set(f"{prefix}old", b"old")
        local.set(".job/new/mark", b"run")
        if prefix:
            local.delete_prefix("g/")
        local.replace_prefix(prefix, ".job/new/", "mark")
        assert list(local.list_prefix(prefix)) == [f"{prefix}mark"]


def test_a_death_between_moving_out_and_exchanging(tmp_path, monkeypatch):
    """The root cannot be exchanged with a directory in it, which is first moved beside it."""
    store = LocalStore(tmp_path / "store")
    for key in ("old", ".job/new/mark", ".job/new/0"):
        store.set(key, b"x")
    with monkeypatch.context() as dying:
        dying.setattr(directories, "_exchange", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.replace_prefix("", ".job/new/", "mark")
    assert (store.get("old"), store.get(".job/new/mark")) == (b"x", None)
    store.replace_prefix("", ".job/new/", "mark")
    assert sorted(store.list_prefix("")) == ["0", "mark"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


@NEEDS_FLOCK
def test_a_lock_that_is_interrupted_is_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(directories.fcntl, "flock", Mock(side_effect=[KeyboardInterrupt, None]))
    with pytest.raises(KeyboardInterrupt), directories.locked(str(tmp_path)):
        pass


@NEEDS_FLOCK
def test_a_directory_that_goes_between_the_write_of_a_value_and_its_rename(tmp_path):
    (tmp_path / "partial").write_bytes(b"2")
    with pytest.raises(FileNotFoundError):
        directories.put(str(tmp_path / "no" / "k"), str(tmp_path / "no"), str(tmp_path / "partial"), "1")


def test_what_cannot_be_renamed(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert not LocalStore(tmp_path / "link").can_replace("")
    assert not LocalStore(tmp_path).can_replace("link/")
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "isdir", lambda _: True)  # it was there a moment ago
        assert not LocalStore(tmp_path).can_replace("gone/")
    assert not LocalStore(tmp_path / "not there").can_replace("")


def test_links_are_told_from_directories(tmp_path):
    store = LocalStore(tmp_path / "store")
    store.set("g/deep/k", b"")
    (tmp_path / "elsewhere" / "x").mkdir(parents=True)
    for name in ("g/deep/link", "link"):
        (tmp_path / "store" / name).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "nested").symlink_to(tmp_path / "store")
    assert [prefix for prefix in ("", "g/", "link/", "absent/") if store.is_link(prefix)] == ["link/"]
