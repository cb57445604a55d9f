from __future__ import annotations

import ftplib
import pickle
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import Mock, call

import dask
import fsspec
import numpy as np
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem
from support.arrays import filled
from support.file_servers import ftp_server, sftp_server, webdav_server  # noqa: F401
from support.scripts import run_script
from support.servers import WARNINGS, http_server, s3_server, serve_files, serve_flaky  # noqa: F401

import chunkmill as cm
from chunkmill.errors import ChunkmillError, StoreError
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.fsspec import FsspecStore, open_filesystem, service_of
from chunkmill.stores.local import LocalStore
from chunkmill.stores.open import open_store

pytest.importorskip("obstore")
from support.cases import cases

from chunkmill.stores import obstore

pytestmark = WARNINGS


@pytest.fixture
def served(http_server):  # noqa: F811
    LocalStore(http_server.folder).set("a/k", bytes(range(100)))
    return http_server


# --- HTTP


def test_http_requests(served):
    store = open_store(served.url)
    for request in (("a/k",), ("a/k", ByteRange(10, 20)), ("a/k", ByteRange(-4)), ("absent",)):
        store.get(*request)
    store.size("a/k")
    assert served.log == [
        ("GET", "a/k", None), ("GET", "a/k", "bytes=10-29"), ("GET", "a/k", "bytes=-4"), ("GET", "absent", None),
        ("GET", "a/k", "bytes=0-0"),
    ]  # fmt: skip


@cases("key", ["sp ace/c#0", "per%cent/%41%2F", "question?mark=1&b", "plus+and;=@:,", "ünï-日本/0", "[0-9]*/c", "~t/x"])
def test_http_quotes(served, key):
    LocalStore(served.folder).set(key, b"value")
    store = open_store(served.url)
    assert (store.get(key), store.get(key, ByteRange(1, 2))) == (b"value", b"al")
    assert store.get(key + "x") is None


def test_http_query_of_the_root(served):
    store = open_store(served.url + "/a?token=1")
    assert store.get("k", ByteRange(0, 1)) == b"\0"


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
def test_http_errors_are_not_absence(served, status):
    served.status["a/k"] = status
    store = open_store(served.url)
    for request in (
        lambda: store.get("a/k"),
        lambda: store.get("a/k", ByteRange(0, 4)),
        lambda: list(store.get_many([ByteSpan("a/k")])),
        lambda: store.size("a/k"),
        lambda: store.get_versioned("a/k"),
    ):
        with pytest.raises(StoreError, match=f"'a/k'.*{status}"), dask.config.set({"chunkmill.retry-seconds": 0}):
            request()


def test_http_server_without_ranges(served, monkeypatch):
    served.ranges = False
    store = open_store(served.url)
    assert store.get("a/k", ByteRange(10, 3)) == bytes([10, 11, 12])
    assert store.get("a/k", ByteRange(-2)) == bytes([98, 99])
    assert store.size("a/k") == 100
    spans = [ByteSpan("a/k", ByteRange(90, 10)), ByteSpan("a/k", ByteRange(0, 1))]
    assert list(store.get_many(spans)) == [bytes(range(90, 100)), b"\0"]
    for byte_range in (ByteRange(90, 11), ByteRange(101)):
        with pytest.raises(StoreError, match=r"'a/k'.*expected"):
            store.get("a/k", byte_range)
    monkeypatch.setattr(obstore, "_MAX_IGNORED", 99)
    with pytest.raises(StoreError, match="does not support range requests"):
        store.get("a/k", ByteRange(10, 3))


def test_http_server_without_suffixes(served):
    served.suffix_ranges = False
    assert open_store(served.url).get("a/k", ByteRange(-2)) == bytes([98, 99])


# --- many at once


def test_get_many_runs_at_once_and_in_bounds(served):
    served.latency = 0.02
    for i in range(100):
        LocalStore(served.folder).set(f"c/{i}", b"%d" % i)
    store = open_store(served.url)
    assert list(store.get_many(ByteSpan(f"c/{i}") for i in range(100))) == [b"%d" % i for i in range(100)]
    assert 8 < served.most_at_once <= 64


def test_get_many_stops_when_the_caller_does(served):
    served.latency = 0.05
    values = open_store(served.url).get_many(ByteSpan("a/k", ByteRange(-i)) for i in range(1, 1000))
    next(values)
    values.close()
    time.sleep(0.1)
    assert len(served.log) < 200


# --- processes, protocols


def test_no_thread_and_no_loop_before_use():
    code = """
import threading
from chunkmill.stores.open import open_store
stores = [open_store(url) for url in ("s3://b/x", "http://h/x", "memory://x", "/x", "zip://::/x.zip")]
import fsspec.asyn
print(threading.active_count(), fsspec.asyn.loop[0])
"""
    assert run_script(code) == "1 None"


class MineFileSystem(MemoryFileSystem):
    protocol = "mine"
    store = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.replace("mine://", "memory://"))


@pytest.mark.parametrize("url", ["mine://x", "dir://x::mine://"])
def test_protocols_of_the_user(url, monkeypatch):
    """Other processes do not know them, in a chain of urls neither."""
    fsspec.register_implementation("mine", MineFileSystem, clobber=True)
    store = FsspecStore(url)
    store.set("a/k", b"1")
    assert (store.get("a/k"), store.list_dir("a/"), store.url) == (b"1", ["k"], url.rstrip("/"))
    state = pickle.dumps(store)
    sys.modules["fsspec.registry"]._registry.pop("mine")  # as in another process
    monkeypatch.setattr("chunkmill.stores.fsspec._filesystems", {})
    assert pickle.loads(state).get("a/k") == b"1"


def test_filesystem_that_fails_to_open():
    store = FsspecStore("memory://x", {"asynchronous": True})
    assert store.get("k") is None
    with pytest.raises(StoreError, match="FileNotFoundError"):  # of the archive: nothing is known of the key
        FsspecStore("zip://::memory://absent.zip").get("k")
    store = FsspecStore("simplecache::memory://x")  # of which chunks that were read before are kept
    for write in (store.set, partial(store.set_if, version=None), lambda key, _: store.delete_prefix(key)):
        with pytest.raises(StoreError, match=r"cannot write through 'simplecache'.*write to memory://x"):
            write("k", b"1")
    whole = filled(np.arange(6).reshape(3, 2), "memory://cached", chunks=(3, 2))
    cached = cm.open_array("simplecache::memory://cached", mode="r+")
    with pytest.raises(ChunkmillError, match=r"cannot write through 'simplecache'.*write to memory://"):
        cached[:2] = -1
    assert whole[...].tolist() == [[0, 1], [2, 3], [4, 5]]


# --- filesystems that were made by hand


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_directories_of_filesystems(protocol, tmp_path):
    """Fsspec's ``dir`` says that it can wait, also over filesystems that cannot."""
    base = DirFileSystem(str(tmp_path), fsspec.filesystem(protocol))
    open_store(base.get_mapper("x")).set("a/b", b"1")
    chained = open_store(f"dir://x::{protocol}://{tmp_path}")
    assert (chained.get("a/b"), list(chained.list_prefix(""))) == (b"1", ["a/b"])
    assert base.cat_file("x/a/b") == b"1"


class Endless(BaseHTTPRequestHandler):
    """Sends without end, whatever it was asked for; says no length, of the key ``unsaid``."""

    def do_GET(self):
        ranged = "Range" in self.headers
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", "bytes 0-9/10")
        if not self.path.endswith("unsaid"):
            self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(bytes(1 << 16))

    def log_message(self, *_):
        pass


@cases("byte_range", [ByteRange(0, 10), ByteRange(-10)])
@cases(("key", "words"), [("a", "more than the 10 bytes"), ("unsaid", "does not say how long")])
def test_a_server_that_never_ends(byte_range, key, words):
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        store = open_store(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StoreError, match=words):
            store.get(key, byte_range)
        server.shutdown()


def test_a_body_that_ends_early_is_asked_for_again(served):
    with serve_flaky(served.url, every=2, methods=("GET",), cut=True) as proxy:
        store = open_store(proxy.url)
        assert [store.get("a/k") for _ in range(4)] == [bytes(range(100))] * 4
        assert proxy.n_failures >= 3
        proxy.every = 1
        for byte_range in (None, ByteRange(0, 90), ByteRange(-90)):
            with pytest.raises(StoreError, match="'a/k'"), dask.config.set({"chunkmill.retry-seconds": 0}):
                open_store(proxy.url).get("a/k", byte_range)


def test_a_server_that_sends_nothing_is_given_up():
    """It was waited for 300 s, whatever the setting."""
    with socket.create_server(("127.0.0.1", 0)) as server, dask.config.set({"chunkmill.retry-seconds": 1}):
        store = open_store(f"http://127.0.0.1:{server.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(StoreError, match="the server sent nothing for too long"):
            store.get("k")
        assert time.monotonic() - begun < 120


# --- what servers of files do wrong, or differently; what they must do as all stores is in tests/contracts


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
    busy = Mock(side_effect=ftplib.error_temp("450 Requested file action not taken"))
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
    monkeypatch.setattr(Contended, "is_allowed", True)
    monkeypatch.setattr(Contended, "pipe_file", Mock(side_effect=FileNotFoundError))
    with pytest.raises(StoreError, match=r"other/k.*cannot write: the place does not exist"):
        store.set("other/k", b"1")


@cases(
    ("protocol", "error", "raised"),
    [
        ("ftp", ftplib.error_perm("550 No such file"), FileNotFoundError),
        ("ftp", ftplib.error_perm("530 Not logged in"), ftplib.error_perm),
        ("zip", KeyError("k"), FileNotFoundError),  # of fsspec before 2026.6
        ("memory", KeyError("550"), KeyError),
    ],
)
def test_which_errors_say_that_a_key_is_absent(protocol, error, raised):
    fs = Mock(protocol=protocol, async_impl=False)
    fs.cat_file.side_effect = error
    with pytest.raises(raised):
        service_of(fs, "root").fetch("k")


def test_a_refusal_says_that_it_may_mean_an_absent_key():
    class Refusing(MemoryFileSystem):
        cat_file = Mock(side_effect=PermissionError("Forbidden"))

    with pytest.raises(StoreError, match=r"'k'.*Forbidden; servers answer so for absent keys too"):
        FsspecStore("s3://b/x", {}, Refusing).get("k")


def test_nothing_that_a_filesystem_remembers_is_believed():
    """Sizes and listings of its own cache are those from before others wrote; what has no size is fetched."""
    fs = Mock(protocol=("x", "y"), async_impl=False)
    service = service_of(fs, "root")
    fs.info.return_value, fs.cat_file.return_value = {"type": "file", "size": None}, b"123"
    assert (service.size("k"), service.delete("k"), service.entries("a")) == (3, None, fs.ls.return_value)
    look = [call.invalidate_cache(), call.info("k"), call.cat_file("k")]
    assert fs.method_calls == [*look, *look, call.rm_file("k"), call.invalidate_cache(), call.ls("a", detail=True)]


@pytest.fixture
def of_files(tmp_path):
    return FsspecStore(f"local://{tmp_path}")


def test_a_rename_that_fails_leaves_nothing(of_files, tmp_path, monkeypatch):
    of_files.set("k", b"old")
    monkeypatch.setattr(type(of_files._open().fs), "mv", lambda *_, **__: 1 / 0)
    with pytest.raises(StoreError, match="ZeroDivisionError"):
        of_files.set("k", b"new")
    assert (of_files.get("k"), [each.name for each in tmp_path.iterdir()]) == (b"old", ["k"])


def test_folders_in_which_nothing_is_left_are_removed(of_files, tmp_path):
    for key in ("a/b/k", "c/k"):
        of_files.set(key, b"1")
    of_files.delete("a/b/k")
    of_files.remove_empty_folders("")
    (tmp_path / "d").mkdir()
    assert (of_files.remove_folder("c/"), of_files.remove_folder("d/")) == (False, True)
    assert (of_files.list_dir(""), of_files.get("c/k")) == (["c/"], b"1")
