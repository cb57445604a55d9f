from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from support.arrays import filled
from support.memory import peak_below
from support.scripts import run_script
from support.servers import FORK_WARNING
from support.systems import NEEDS_FORK

import chunkmill as cm
from chunkmill.errors import ChunkError, StoreError
from chunkmill.stores import zip as zip_module
from chunkmill.stores.base import ByteRange
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.zip import ZipStore

pytestmark = FORK_WARNING


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.zip"


def zipped(path, value, kind=zipfile.ZIP_STORED, **others):
    """Have zipfile write an archive with the member ``k``, and others."""
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, each in {"k": value, **others}.items():
            archive.writestr(name, each)


def names(path):
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_nothing_is_made_by_looking(path):
    store = ZipStore(path)
    assert (store.get("k"), store.list_dir("")) == (None, [])
    store.delete("k")
    store.delete_prefix("")
    store.close()
    assert not path.exists()


def test_the_file_changes_when_closed(path):
    with ZipStore(path) as store:
        store.set("a/0", b"zero")
        assert not path.exists()
        assert ZipStore(path).get("a/0") == b"zero"  # another store of the same process
    assert names(path) == ["a/0"]
    assert [p.name for p in path.parent.iterdir()] == ["x.zip"]
    before = path.read_bytes()
    with ZipStore(path) as store:
        store.set("a/0", b"one")
        store.set("a/1", b"more")
        store.delete("a/1")
        assert path.read_bytes() == before  # a crash now loses nothing of it
        assert store.get("a/0", ByteRange(1, 2)) == b"ne"
    assert (names(path), ZipStore(path).get("a/0")) == (["a/0"], b"one")
    with ZipStore(path) as store:
        store.delete_prefix("")
    assert (names(path), path.stat().st_size) == ([], 22)


def test_the_end_of_the_process_closes(tmp_path):
    path = tmp_path / "new" / "x.zip"
    run_script(f"from chunkmill.stores.zip import ZipStore; ZipStore({str(path)!r}).set('k', b'1')")
    assert ZipStore(path).get("k") == b"1"


def test_no_one_elses_file_is_overwritten(path):
    store = ZipStore(path)
    store.set("k", b"mine")
    zipped(path, b"theirs")
    with pytest.raises(StoreError, match="another process changed"):
        store.close()
    assert store.get("k") == b"theirs"
    assert [p.name for p in path.parent.iterdir()] == ["x.zip"]


@NEEDS_FORK
def test_other_processes_only_read(path):
    with ZipStore(path) as store:
        store.set("k", b"1")
    state = pickle.dumps(store)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            copy = pickle.loads(state)
            assert copy.get("k") == b"1"
            assert store.get("k") == b"1"
            for other in (copy, store):
                with pytest.raises(StoreError, match="write a directory store, then zip it"):
                    other.set("k", b"2")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_last_of_two_members_wins(path):
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the duplicate
        archive.writestr("k", b"first")
        archive.writestr("k", b"last")
    store = ZipStore(path)
    assert (store.get("k"), list(store.list_prefix(""))) == (b"last", ["k"])
    store.set("k", b"new")
    store.close()
    assert names(path) == ["k"]


def test_hostile_names_are_no_keys(path):
    zipped(path, b"x", **dict.fromkeys(("../up", "/etc/passwd", "a/../../up", "a//b", "folder/"), b"x"))
    store = ZipStore(path)
    assert (list(store.list_prefix("")), store.list_dir("")) == (["k"], ["k"])


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("at", [0.3, 0.6])
def test_damage_raises(path, kind, at):
    zipped(path, os.urandom(1000), kind)
    data = bytearray(path.read_bytes())
    data[int(1000 * at)] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StoreError, match="'k'"):
        ZipStore(path).get("k")


@pytest.mark.parametrize("claimed", [10, 1_000_000_000, 2**32 - 2])
def test_sizes_that_lie(path, claimed):
    """A directory that says other than the data is refused, without the memory that it wants."""
    zipped(path, bytes(1000), zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = claimed.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(StoreError, match="'k'"):
        ZipStore(path).get("k")


def test_bombs_are_refused(path, monkeypatch):
    monkeypatch.setattr(zip_module, "_MAX_MEMBER_BYTES", 10_000)
    zipped(path, bytes(10_001), zipfile.ZIP_DEFLATED)
    with pytest.raises(StoreError, match="decompresses to 10001 bytes"):
        ZipStore(path).get("k")


def test_a_document_that_decompresses_to_far_more(path, monkeypatch):
    """512 MiB of consolidated metadata took 1.5 GiB of memory before they were refused."""
    monkeypatch.setattr(zip_module, "_MAX_UNLIMITED_BYTES", 10_000)
    alike = json.dumps({str(i): {"shape": [10], "dtype": "<f4", "chunks": [5]} for i in range(300)})
    zipped(path, b"", zipfile.ZIP_DEFLATED, alike=alike, **{".zmetadata": b" " * 2**20})
    with pytest.raises(StoreError, match=r"'.zmetadata'.*decompresses to 1048576 bytes"):
        ZipStore(path).get(".zmetadata")
    assert len(alike) > 10_000
    assert ZipStore(path).get("alike") == alike.encode()


@pytest.mark.parametrize("open_limited", [ZipStore, lambda path: FsspecStore(f"zip://::file://{path}")])
def test_readers_limit_what_is_decompressed(path, open_limited):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("k", bytes(10_001))
        archive.writestr("stored", bytes(10_001), zipfile.ZIP_STORED)
        archive.writestr("small", bytes(10_000))
    store = open_limited(path).limited_to(10_000)
    for again in (store, pickle.loads(pickle.dumps(store))):
        assert again.get("small") == bytes(10_000)
        with pytest.raises(StoreError, match=r"'k'.*decompresses to 10001 bytes, expected at most 10000"):
            again.get("k")
    assert open_limited(path).get("k") == bytes(10_001)


@pytest.mark.parametrize("open_url", ["{}", "zip://::file://{}", "zip://::local://{}"])
def test_a_chunk_that_decompresses_to_far_more(path, open_url):
    """512 MiB were in memory for a chunk of 16 bytes, before it was refused."""
    with ZipStore(path) as store:
        filled(np.arange(8, dtype="i4"), store, "a", chunks=(4,), format="zarr2", codecs=[])
        documents = {key: store.get(key) for key in store.list_prefix("")}
    zipped(path, b"", zipfile.ZIP_DEFLATED, **documents | {"a/1": bytes(32 * 2**20)})
    array = cm.open_array(open_url.format(path), "a")
    with peak_below(2**20), pytest.raises(ChunkError, match=r"chunk \(1,\).*decompresses to 33554432 bytes"):
        array[...]
    np.testing.assert_array_equal(array[:4], np.arange(4))


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_nothing_bounds_is_not_decompressed(path, kind):
    """4 KiB of it can hold 4 GiB, whatever the directory says."""
    zipped(path, b"value", kind)
    with pytest.raises(StoreError, match=r"'k'.*neither stored nor deflated"):
        ZipStore(path).get("k")


@pytest.mark.parametrize("content", [b"", b"no zip file", b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_zip_file(path, content):
    path.write_bytes(content)
    for request in (lambda s: s.get("k"), lambda s: s.list_dir(""), lambda s: s.set("k", b"")):
        with pytest.raises(StoreError, match="zip"):
            request(ZipStore(path))


def test_a_chain_of_fsspec_reads_the_same(path):
    with ZipStore(path) as store:
        store.set("a/b/0", b"zero")
    chained = FsspecStore(f"zip://a::file://{path}")
    assert chained.get("b/0") == b"zero"
    assert chained.get("b/1") is None
    assert (chained.list_dir(""), list(chained.list_prefix(""))) == (["b/"], ["b/0"])
    assert ZipStore(path, "a").list_dir("b/") == ["0"]


@pytest.mark.parametrize("by", ["ours", "fsspec"])
def test_many_threads_read_ranges(path, by):
    """Python 3.12 and 3.13.0 gave wrong bytes: zipfile seeks from where another thread has read last."""
    values = {f"k{i}": bytes([i]) * 30_000 + bytes([i + 100]) * 30_000 for i in range(16)}
    with zipfile.ZipFile(path, "w") as archive:
        for i, (name, value) in enumerate(values.items()):
            info = zipfile.ZipInfo(name)
            info.extra = b"\x99\x99\x04\x00abcd"
            info.compress_type = zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED
            archive.writestr(info, value)
    store = ZipStore(path) if by == "ours" else FsspecStore(f"zip://::file://{path}")

    def is_right(n):
        key = f"k{n % 16}"
        wanted = slice(29_000, 31_000) if n % 3 else slice(0, 60_000)
        return store.get(key, ByteRange(wanted.start, wanted.stop - wanted.start)) == values[key][wanted]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(is_right, range(2000)))
    finally:
        sys.setswitchinterval(interval)


def test_journals_are_not_in_the_file(path):
    with ZipStore(path, "in") as store:
        store.set(".chunkmill-job-0/plan.json", b"{}")
        store.set("a/.chunkmill-new-0", b"run")
        assert not store.set_if(".chunkmill-job-0/plan.json", b"other", None)
        version = ZipStore(path, "in").version(".chunkmill-job-0/plan.json")
        store.set("a/0", b"zero")
        assert store.get(".chunkmill-job-0/plan.json", ByteRange(1, 1)) == b"}"
        assert store.set_if(".chunkmill-job-0/plan.json", b"[]", version)
        assert not store.set_if(".chunkmill-job-0/plan.json", None, version)
        assert sorted(store.list_prefix("a/")) == ["a/.chunkmill-new-0", "a/0"]
    assert names(path) == ["in/a/0"]
    assert b"chunkmill" not in path.read_bytes()
    assert store.list_dir("") == [".chunkmill-job-0/", "a/"]  # of this process
    store.delete_prefix(".chunkmill-job-0/")
    store.delete("a/.chunkmill-new-0")
    assert list(store.list_prefix("")) == ["a/0"]
    store.set(".chunkmill-job-0/plan.json", b"{}")
    store.delete_prefix("a/")
    store.close()
    assert path.stat().st_size == 22


def test_what_has_no_document_of_zarr_v3_is_not_described(tmp_path):
    with ZipStore(tmp_path / "x.ozx") as store:
        store.set(".zgroup", b"{}")
    with zipfile.ZipFile(tmp_path / "x.ozx") as archive:
        assert archive.comment == b""


def test_through_a_symbolic_link_the_file_itself_is_written(tmp_path):
    with ZipStore(tmp_path / "a.zip") as store:
        store.set("k", b"old")
    link = tmp_path / "link.zip"
    link.symlink_to(tmp_path / "a.zip")
    with ZipStore(link) as linked, ZipStore(tmp_path / "a.zip") as store:
        linked.set("k", b"new")
        store.set("other", b"1")  # two names of one file have one writer
        assert store.get("k") == b"new"
    assert link.is_symlink()
    with ZipStore(tmp_path / "a.zip") as store:
        assert (store.get("k"), store.get("other")) == (b"new", b"1")


def test_readers_wait_while_a_member_is_replaced(path, monkeypatch):
    has_members, is_forgotten = threading.Event(), threading.Event()
    members, forget = zip_module._Archive.members, zip_module._Archive._forget

    def members_of_a_slow_reader(archive):
        found = members(archive)
        if threading.current_thread() is not threading.main_thread():
            has_members.set()
            is_forgotten.wait(0.1)
        return found

    def forget_and_pause(archive, gone):
        forget(archive, gone)
        is_forgotten.set()
        wait(reads, 0.1)

    with ZipStore(path) as store, ThreadPoolExecutor(1) as pool:
        store.set("k", b"old")
        monkeypatch.setattr(zip_module._Archive, "members", members_of_a_slow_reader)
        monkeypatch.setattr(zip_module._Archive, "_forget", forget_and_pause)
        for read, found in ((lambda: store.get("k"), {b"old", b"new"}), (lambda: next(store.list_prefix("")), {"k"})):
            has_members.clear()
            is_forgotten.clear()
            reads = [pool.submit(read)]
            assert has_members.wait(10)
            store.set("k", b"new")
            assert reads[0].result() in found


def test_where_the_bytes_of_a_member_are(path):
    zipped(path, b"value")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("small", b"value", zipfile.ZIP_DEFLATED)
    with ZipStore(path) as store:
        found = store.locate("k")
        assert path.read_bytes()[found.offset :][: found.length] == b"value"
        assert (found.url, store.locate("no")) == (f"file://{path}", None)
        with pytest.raises(StoreError, match=r"'small'.*is compressed"):
            store.locate("small")
        store.set("new", b"1")
        with pytest.raises(StoreError, match=r"'new'.*close the store first"):
            store.locate("new")


def test_a_file_that_is_cut_off_or_removed_while_it_is_read(path, monkeypatch):
    zipped(path, b"value")
    store = ZipStore(path)
    assert store == ZipStore(path) != ZipStore(path, "below")
    monkeypatch.setattr(zip_module, "_read", lambda *_: b"va")
    with pytest.raises(StoreError, match="expected 5 bytes from 0, got 2: the zip file is truncated"):
        store.get("k")
    archive = store._open()
    member = archive.members()["k"]
    path.unlink()
    archive.members()
    with pytest.raises(FileNotFoundError, match="was removed while it was read"):
        archive.read(member, 0, 5)


def test_a_copy_that_fails_leaves_nothing(path, monkeypatch):
    zipped(path, b"old")
    monkeypatch.setattr(zip_module.shutil, "copyfile", lambda _, partial: 1 // Path(partial).write_bytes(b""))
    with pytest.raises(StoreError, match="ZeroDivisionError"):
        ZipStore(path).set("k", b"new")
    assert [each.name for each in path.parent.iterdir()] == ["x.zip"]
    assert ZipStore(path).get("k") == b"old"
