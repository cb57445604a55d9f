"""What servers of files do wrong, or differently; what they must do as all stores is in tests/contracts."""

import ftplib
import time

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem
from support.file_servers import ftp_server, sftp_server, webdav_server  # noqa: F401
from support.servers import WARNINGS

from chunkmill.errors import StoreError
from chunkmill.stores.fsspec import FsspecStore, open_filesystem
from chunkmill.stores.open import open_store

pytestmark = WARNINGS


def test_a_connection_that_the_server_closed_is_made_again(sftp_server):  # noqa: F811
    store = open_store(sftp_server.new_folder(), sftp_server.storage_options)
    store.set("a/b", b"1")
    for request, expected in (
        (lambda: store.get("a/b"), b"1"),
        (lambda: store.set("a/b", b"22"), None),
        (lambda: list(store.list_prefix("")), ["a/b"]),
        (lambda: store.size("a/b"), 2),
        (lambda: store.list_dir(""), ["a/"]),
    ):
        sftp_server.close_connections()
        time.sleep(0.1)
        assert request() == expected


def test_stores_of_one_host_have_one_lock(sftp_server):  # noqa: F811
    """fsspec gives them one client: with a lock each, two threads waited for it, for ever."""
    stores = [open_store(sftp_server.new_folder(), sftp_server.storage_options) for _ in range(2)]
    for store in stores:
        assert store.get("k") is None
    first, second = (store._open() for store in stores)
    assert first.fs is second.fs
    assert first.one_at_a_time is second.one_at_a_time


def test_a_file_that_cannot_be_sent_is_not_absent(ftp_server, monkeypatch):  # noqa: F811
    """fsspec says FileNotFoundError for every failure, which reads as fill values."""
    store = open_store(ftp_server.new_folder(), ftp_server.storage_options)
    store.set("k", b"1")

    def busy(*_, **__):
        raise ftplib.error_temp("450 Requested file action not taken")

    monkeypatch.setattr(ftplib.FTP, "transfercmd", busy)
    with pytest.raises(StoreError, match="450 Requested"):
        store.get("k")
    monkeypatch.setattr(ftplib.FTP, "mlsd", busy)
    with pytest.raises(StoreError, match="450 Requested"):
        list(store.list_prefix(""))
    monkeypatch.undo()
    assert (store.get("k"), list(store.list_prefix(""))) == (b"1", ["k"])


def test_deleting_a_key_deletes_no_folder(webdav_server):  # noqa: F811
    """WebDAV deletes a folder with all that is in it."""
    store = open_store(webdav_server.new_folder(), webdav_server.storage_options)
    store.set("a/c/0", b"1")
    store.delete("a/c")
    store.delete("a")
    assert store.get("a/c/0") == b"1"


def test_a_folder_that_cannot_be_listed_is_an_error():
    """fsspec's walk passes over it, and its chunks were absent, which reads as fill values."""

    class Half(MemoryFileSystem):
        store, pseudo_dirs = {}, [""]
        find = AbstractFileSystem.find  # as of most filesystems

        def ls(self, path, detail=True, **options):
            if path.endswith("/c/1"):
                raise OSError("the server is busy")
            return super().ls(path, detail, **options)

    store = FsspecStore("memory://root", {}, Half)
    for key in ("c/0/0", "c/1/0"):
        store.set(key, b"1")
    with pytest.raises(StoreError, match="busy"):
        list(store.list_prefix(""))
    with pytest.raises(StoreError, match="busy"):
        list(store.list_sizes("c/"))
    assert list(store.list_prefix("c/0/")) == ["c/0/0"]
    assert open_filesystem("memory://root", {}, Half, {}).fs.find("/root/c") == ["/root/c/0/0"]  # its own


class Contended(MemoryFileSystem):
    """Another process makes the same folders, one before each call, or may make them where this one may not."""

    store, pseudo_dirs, is_allowed = {}, [""], True

    def pipe_file(self, path, value, mode="overwrite", **options):
        if not self.isdir(path.rpartition("/")[0]):
            raise FileNotFoundError(path)
        super().pipe_file(path, value, mode, **options)

    def makedirs(self, path, exist_ok=False):
        if not self.is_allowed:
            raise PermissionError(path)
        names = self._strip_protocol(path).split("/")
        folders = ["/".join(names[:n]) for n in range(2, len(names) + 1)]
        if missing := [folder for folder in folders if not self.isdir(folder)]:
            self.pseudo_dirs.append(missing[0])
            raise FileExistsError(missing[0])


def test_folders_that_another_process_makes_at_the_same_time(monkeypatch):
    """Two processes that wrote to a new place: one was told that it does not exist."""
    store = FsspecStore("memory://contended", {}, Contended)
    store.set("own/0/k", b"1")
    assert store.set_if("own/1/k", b"2", None)
    assert [store.get(f"own/{i}/k") for i in (0, 1)] == [b"1", b"2"]
    monkeypatch.setattr(Contended, "is_allowed", False)
    with pytest.raises(StoreError, match="PermissionError"):
        store.set("other/k", b"1")
