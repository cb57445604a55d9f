from __future__ import annotations

import errno
import multiprocessing
import ntpath
import os
import pickle
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from contracts.store_contract import count_up
from support.cases import cases
from support.memory import calls_no_deeper_than
from support.servers import FORK_WARNING
from support.systems import NEEDS_DESCRIPTORS, NEEDS_FLOCK, NEEDS_FORK, NEEDS_NEW_NAMES, NEEDS_PIPES

from chunkmill.errors import StoreError
from chunkmill.stores import directories, local, posix_file
from chunkmill.stores.base import ByteRange
from chunkmill.stores.local import LocalStore
from chunkmill.stores.posix_file import PARTIAL_SUFFIX

pytestmark = FORK_WARNING


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path)


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def fails_with(code: int):
    return Mock(side_effect=OSError(code, os.strerror(code)))


def open_fails(monkeypatch, when, error):
    """Have `os.open` raise, of the paths and flags that `when` says."""
    own = os.open

    def open_or_fail(path, flags, *more):
        if when(path, flags):
            raise error
        return own(path, flags, *more)

    monkeypatch.setattr(os, "open", open_or_fail)


def test_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert LocalStore("x.zarr/").url == f"file://{tmp_path}/x.zarr"
    assert LocalStore("~/x").url == "file:///home/someone/x"
    assert LocalStore(Path("/data/../x")).url == "file:///x"
    assert (LocalStore("/").get("etc"), repr(LocalStore("/x"))) == (None, "LocalStore('/x')")
    assert LocalStore("x") == LocalStore("x/")
    assert list(tmp_path.iterdir()) == []


def test_values_need_neither_come_nor_go_whole(store, monkeypatch):
    read, write = os.read, os.write
    monkeypatch.setattr(os, "write", lambda fd, view: write(fd, view[:7]))
    store.set("k", bytes(range(250)))
    monkeypatch.setattr(os, "read", lambda fd, n: read(fd, min(n, 7)))
    assert store.get("k") == bytes(range(250))
    assert store.get("k", ByteRange(-90)) == bytes(range(160, 250))


@cases("method", ["get", "get_writable"])
def test_a_file_cut_while_read_raises(store, monkeypatch, method):
    store.set("k", bytes(100))
    fstat = os.fstat

    def cut(fd):
        status = fstat(fd)
        os.truncate(store._path("k"), 60)
        return status

    monkeypatch.setattr(os, "fstat", cut)
    with pytest.raises(StoreError, match=r"'k'.*expected 100 bytes from 0, got 60"):
        getattr(store, method)("k")
    monkeypatch.setattr(os, "fstat", fails_with(errno.ESTALE))  # deleted on a server
    with pytest.raises(StoreError, match=r"'k'.*cannot read: "):
        getattr(store, method)("k")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ESTALE])
def test_other_errors_are_not_absence(store, monkeypatch, code):
    store.set("a/k", b"1")
    for name in ("open", "stat", "scandir", "unlink", "remove", "rename", "replace"):
        monkeypatch.setattr(os, name, fails_with(code))
    for request in (
        lambda: store.get("a/k"), lambda: store.get_versioned("a/k"), lambda: store.size("a/k"),
        lambda: store.list_dir("a/"), lambda: list(store.list_prefix("a/")), lambda: store.set("a/k", b"2"),
        lambda: store.set_if("a/k", b"2", None), lambda: store.delete("a/k"), lambda: store.delete_prefix("a/"),
    ):  # fmt: skip
        with pytest.raises(StoreError, match="a/") as caught:
            request()
        assert (caught.value.errno, caught.value.key[:2]) == (code, "a/")


@NEEDS_NEW_NAMES
def test_a_sync_that_fails_is_an_error(store, tmp_path, monkeypatch):
    LocalStore(tmp_path / "absent").sync()
    monkeypatch.setattr(posix_file, "_of_linux", lambda _: lambda _: -1)
    with pytest.raises(StoreError, match="cannot sync"):
        store.sync()


@NEEDS_NEW_NAMES
@NEEDS_FLOCK
@pytest.mark.parametrize("fsync", [True, False])
def test_what_is_synced_outlives_a_crash(tmp_path, monkeypatch, fsync):
    """Values before they are renamed, then each folder whose names changed; without the setting what is compared."""
    store, synced, job = LocalStore(tmp_path / "s", fsync=fsync), [], ".chunkmill-job"
    for key in (f"{job}/new/mark", "g/old"):
        store.set(key, b"1")

    def sync(fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced.append("value" if path.name.endswith(PARTIAL_SUFFIX) else os.path.relpath(path, tmp_path))

    monkeypatch.setattr(os, "fsync", sync)
    for request, always, with_the_setting in (
        (lambda: store.set("a/b/c/k", b"1"), "", "s s/a s/a/b value s/a/b/c"),
        (lambda: store.set("a/b/c/k", b"2"), "", "value s/a/b/c"),
        (lambda: store.set_if("a/b/c/k", b"3", store.version("a/b/c/k")), "value", "value s/a/b/c"),
        (lambda: store.set_if("a/b/c/k", b"3", None), "", "value"),
        (lambda: store.set(f"{job}/plan.json", b"{}"), "value", f"value s/{job}"),
        (lambda: store.set(f"{job}/beat", b"1"), "", f"value s/{job}"),
        (lambda: store.set_if(f"{job}/beat", b"2", store.version(f"{job}/beat")), "", f"value s/{job}"),
        (lambda: store.delete("a/b/c/k"), "", "s/a/b/c"),
        (lambda: store.remove_folder("a/b/c/"), "", "s/a/b"),
        (lambda: store.delete_prefix("a/b/"), "", "s/a"),
        (lambda: store.delete_prefix("never/was/"), "", ""),
        (lambda: store.replace_prefix("g/", f"{job}/new/", "mark"), "", f"s s/{job}"),
    ):
        synced.clear()
        request()
        assert " ".join(synced) == (with_the_setting if fsync else always)


@cases("call", ["write", "replace", "fsync"])
def test_no_space_leaves_nothing(tmp_path, monkeypatch, call):
    store = LocalStore(tmp_path, fsync=True)
    store.set("a/k", b"before")
    _, version = store.get_versioned("a/k")
    monkeypatch.setattr(os, call, fails_with(errno.ENOSPC))
    with pytest.raises(StoreError, match="No space left") as caught:
        store.set("a/k", b"after")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(StoreError, match="No space left"):
        store.set_if("a/k", b"after", version)
    assert files(tmp_path) == ["a/k"]
    assert store.get("a/k") == b"before"


def test_partial_files_are_hidden(store, tmp_path):
    store.set("a/k", b"1")
    left = f"a/.k.0123{PARTIAL_SUFFIX}"
    (tmp_path / left).write_bytes(b"half of a val")
    assert (store.get(left), store.get_versioned(left), store.size(left)) == (None, (None, None), None)
    assert (store.list_dir("a/"), list(store.list_prefix(""))) == (["k"], ["a/k"])
    with pytest.raises(ValueError, match="suffix"):
        store.set(left, b"")
    store.delete_prefix("a/")
    assert list(tmp_path.iterdir()) == []


def test_long_names(store):
    key = "a/" + "k" * 255
    store.set(key, b"1")
    assert store.get(key) == b"1"


def test_permissions_follow_the_umask(store, tmp_path):
    store.set("k", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "k").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_directory_in_the_way(store):
    store.set("a/k", b"1")
    with pytest.raises(StoreError, match="'a'"):
        store.set("a", b"2")
    with pytest.raises(StoreError, match="'a/k/0'"):
        store.set("a/k/0", b"2")
    assert list(store.list_prefix("")) == ["a/k"]


def test_links_are_followed(store, tmp_path):
    elsewhere = tmp_path.parent / (tmp_path.name + "-elsewhere")
    LocalStore(elsewhere).set("x/0", b"there")
    store.set("a/0", b"here")
    (tmp_path / "linked").symlink_to(elsewhere)
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "broken").symlink_to(tmp_path / "nowhere")
    assert store.get("linked/x/0") == b"there"
    with pytest.raises(StoreError, match="cannot follow the symbolic link") as caught:
        store.get("a/broken")  # as git-annex leaves it where contents were not fetched: no fill value
    assert caught.value.key == "a/broken"
    assert (store.list_dir(""), store.list_dir("a/")) == (["a/", "linked/"], ["0", "broken"])
    assert sorted(store.list_prefix("")) == ["a/0", "a/broken", "linked/x/0"]  # and it ends
    store.delete_prefix("linked/")
    assert store.list_dir("") == ["a/"]
    assert LocalStore(elsewhere).get("x/0") == b"there"


def test_links_at_names_of_ours_are_not_followed(store, tmp_path, caplog):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    (outside / "docs").mkdir(parents=True)
    (outside / "letter").write_bytes(b"dear")
    own = tmp_path / ".chunkmill-job-0"
    own.symlink_to(outside, target_is_directory=True)
    assert store.list_dir("") == [own.name]
    assert list(store.list_prefix(f"{own.name}/")) == []
    assert store.get(f"{own.name}/letter") is store.size(f"{own.name}/letter") is store.version(f"{own.name}/x") is None
    assert store.get_versioned(f"{own.name}/letter") == (None, None)
    assert store.sweep(f"{own.name}/") == []
    assert own.is_symlink()
    store.delete(f"{own.name}/letter")
    assert not own.is_symlink()
    store.set(f"{own.name}/plan.json", b"{}")
    (own / "docs").symlink_to(outside / "docs", target_is_directory=True)
    (own / "letter").symlink_to(outside / "letter")
    assert sorted(store.list_prefix(f"{own.name}/")) == [f"{own.name}/{n}" for n in ("docs", "letter", "plan.json")]
    assert not store.set_if(f"{own.name}/letter", b"new", store.version(f"{own.name}/plan.json"))
    assert store.set_if(f"{own.name}/letter", b"new", None)
    assert store.get(f"{own.name}/letter") == b"new"
    for remove, prefix in ((store.delete_prefix, "docs/x/"), (store.remove_folder, "docs/")):
        remove(f"{own.name}/{prefix}")
        assert not (own / "docs").is_symlink()
        (own / "docs").symlink_to(outside / "docs", target_is_directory=True)
    assert f"{own}/docs is a symbolic link where chunkmill keeps its own files" in caplog.text
    assert (outside / "letter").read_bytes() == b"dear"
    assert (outside / "docs").is_dir()


def test_links_to_another_drive(monkeypatch):
    monkeypatch.setattr(os.path, "realpath", str)
    monkeypatch.setattr(os.path, "commonpath", ntpath.commonpath)
    assert not posix_file.leads_up(r"D:\data", r"C:\store")
    assert posix_file.leads_up(r"C:\store", r"C:\store\a")


@NEEDS_PIPES
def test_what_is_no_file_is_not_waited_for(store, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for key in ("pipe", "endless"):
        with pytest.raises(StoreError, match="not a file, but a pipe or a device") as caught:
            store.get(key)
        assert caught.value.key == key


@pytest.mark.skipif(not posix_file._NONBLOCK, reason="LEASES ARE NOT TESTED: this system waits for none")
def test_a_file_server_s_lease_is_waited_for(store, monkeypatch):
    store.set("k", b"1")
    error = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    open_fails(monkeypatch, lambda path, flags: flags & os.O_NONBLOCK and str(path).endswith("/k"), error)
    assert store.get("k") == b"1"


def test_files_that_memory_cannot_hold(store, tmp_path, monkeypatch):
    (tmp_path / "k").touch()
    os.truncate(tmp_path / "k", 1 << 40)  # all of it a hole
    monkeypatch.setattr(os, "read", Mock(side_effect=MemoryError))
    with pytest.raises(StoreError, match="1099511627776 bytes do not fit into memory"):
        store.get("k")


def test_folders_deeper_than_the_stack(store, tmp_path, monkeypatch):
    key = "a/" * 300
    store.set(f"{key}k", b"1")
    partial = tmp_path / key / f".k.{'0' * 32}{PARTIAL_SUFFIX}"
    partial.touch()
    now = time.time()
    monkeypatch.setattr(posix_file.time, "time", lambda: now + 3700)
    monkeypatch.setattr(posix_file, "_now_in", lambda _: now + 3700)
    with calls_no_deeper_than(100):
        assert list(store.list_prefix("")) == [f"{key}k"]
        assert len(store.sweep()) == 1
    assert not partial.exists()


def test_delete_prefix_removes_directories(store, tmp_path):
    store.set("a/c/0/0", b"1")
    assert store.remove_folder("a/") is False
    store.delete_prefix("a/c/")
    assert store.list_dir("a/") == []
    store.delete_prefix("")
    assert not tmp_path.exists()
    store.set("k", b"1")
    assert store.get("k") == b"1"


@pytest.mark.parametrize("lock", ["directory", pytest.param("file", marks=NEEDS_DESCRIPTORS)])
@NEEDS_FLOCK
def test_processes_count_without_losing(store, tmp_path, monkeypatch, lock):
    """All values are of one length, so that only inode and time tell versions apart."""
    if lock == "file":
        monkeypatch.setattr(directories.fcntl, "flock", flock_as_on_nfs(directories.fcntl.flock))
    store.set("a/counter", b"%06d" % 0)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.starmap(count_up, [(store, "a/counter", 50)] * 4, chunksize=1)
    assert store.get("a/counter") == b"%06d" % 200
    assert files(tmp_path) == ["a/counter"]  # no lock file, no partial file


def flock_as_on_nfs(flock):
    def locked(fd, operation):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(fd, operation)

    return locked


def test_where_there_is_no_flock_the_store_says_so(store, monkeypatch):
    """Windows, or Lustre without the mount option: `set_if` still compares, and a lock of the cluster must do the rest."""
    if directories.CAN_LOCK:
        monkeypatch.setattr(directories.fcntl, "flock", fails_with(errno.ENOSYS))
    assert not store.compares_versions
    assert not LocalStore(f"{store._root}/not/yet").compares_versions
    assert store.set_if("a/k", b"1", None)
    assert not store.set_if("a/k", b"2", None)
    store.set("a/k", b"3")
    store.delete("a/k")
    assert list(store.list_prefix("")) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EBADF, errno.EINVAL, errno.EACCES])
@NEEDS_FLOCK
def test_a_lock_that_fails_is_an_error(store, monkeypatch, code):
    """Where another one is tried (of a file, as on NFS), it fails as well."""
    store.set("a/k", b"0")
    _, version = store.get_versioned("a/k")
    monkeypatch.setattr(directories.fcntl, "flock", fails_with(code))
    for write in (lambda: store.set_if("a/k", b"1", version), lambda: store.set("a/k", b"1")):
        with pytest.raises(StoreError, match=r"flock failed: .*mounted with locks"):
            write()
    assert store.get("a/k") == b"0"


def test_a_directory_that_may_be_written_and_not_listed(store, monkeypatch):
    store.set("a/k", b"0")
    open_fails(monkeypatch, lambda path, _: Path(path).is_dir(), PermissionError(errno.EACCES, "Permission denied"))
    store.set("a/k", b"1")
    _, version = store.get_versioned("a/k")
    assert store.set_if("a/k", b"2", version)
    assert not store.set_if("a/k", b"3", version)
    assert list(store.list_prefix("")) == ["a/k"]
    assert LocalStore(f"{store._root}/a").compares_versions is directories.CAN_LOCK


def test_windows_opens_no_directories(store, monkeypatch):
    store.set("a/k", b"1")
    monkeypatch.setattr(posix_file, "_IS_WINDOWS", True)
    flags_of_reads = posix_file._READ | posix_file._NONBLOCK
    error = PermissionError(errno.EACCES, "Permission denied")
    open_fails(monkeypatch, lambda path, flags: Path(path).is_dir() and flags == flags_of_reads, error)
    assert (store.get("a"), store.get("a/k"), store.get_versioned("a")) == (None, b"1", (None, None))
    assert store.set_if("a", None, None)


def test_windows_holds_files_that_are_read(store, monkeypatch):
    monkeypatch.setattr(posix_file, "_N_REFUSED", 5)
    monkeypatch.setattr(posix_file, "_renamed", lambda *_: False)
    calls, waited = [], []
    monkeypatch.setattr(posix_file.time, "sleep", waited.append)

    def refused_at_first(name):
        own = getattr(os, name)

        def call(*given):
            calls.append(name)
            if calls.count(name) < 4:
                raise PermissionError(errno.EACCES, "Access is denied")
            own(*given)

        return call

    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, refused_at_first(name))
    store.set("a/k", b"1")
    assert store.get("a/k") == b"1"
    store.delete("a/k")
    assert store.get("a/k") is None
    assert calls == ["replace"] * 4 + ["unlink"] * 4
    assert waited == [0.001, 0.002, 0.004] * 2


def test_urls_of_files_on_windows(monkeypatch):
    assert posix_file.path_of_url("/C:/data") == "/C:/data"
    monkeypatch.setattr(posix_file, "_IS_WINDOWS", True)
    found = [posix_file.path_of_url(path) for path in ("/C:/data", "/data", "C:/data")]
    assert found == ["C:/data", "/data", "C:/data"]


def test_names_that_windows_cannot_hold(store, monkeypatch):
    monkeypatch.setattr(posix_file, "_IS_WINDOWS", True)
    for key in ("a/b:c", "a/what?", "con/0", "a/NUL", "a/lpt1.json", "a./b", "a/b ", "a\\b", "a/*"):
        with pytest.raises(ValueError, match="cannot be stored on Windows"):
            store.set(key, b"")
    for key in ("a/.zarray", "control/0", "a/c.0", "nulls/1", "sp ace/0"):
        store.set(key, b"")


@cases(
    ("line", "reaches"),
    [
        ("36 25 8:1 / {root} rw,relatime shared:1 - ext4 /dev/sda1 rw", True),
        ("36 25 0:49 / {root} rw,relatime - nfs4 server:/x rw,vers=4.2,local_lock=none,addr=1", True),
        ("36 25 0:49 / {root} rw - nfs server:/x rw,vers=3,nolock,proto=tcp,local_lock=all", False),
        ("36 25 0:49 / {root} rw - nfs server:/x rw,vers=3,local_lock=flock", False),
        ("36 25 0:49 / {root} rw - nfs server:/x rw,vers=3,local_lock=posix", True),
        ("36 25 0:49 / {root} rw - lustre a@tcp:/x rw,localflock,lazystatfs", False),
        ("36 25 0:49 / {root} rw - lustre a@tcp:/x rw,flock,lazystatfs", True),
        ("36 25 0:49 / /elsewhere rw - nfs server:/x rw,nolock", True),
    ],
)
@NEEDS_FLOCK
def test_mounts_that_keep_locks_to_one_machine(tmp_path, monkeypatch, line, reaches):
    root = "36 1 8:1 / / rw - ext4 /dev/root rw\n"
    lines = root + line.format(root=tmp_path) + "\n"
    monkeypatch.setattr(directories.Path, "read_text", lambda *_: lines)
    assert LocalStore(tmp_path / "x").compares_versions is reaches


def test_set_and_delete_wait_for_set_if(store, tmp_path):
    """Or they could come between its comparing and its renaming, and be lost."""
    store.set("a/k", b"1")
    with ThreadPoolExecutor(2) as pool:
        with directories.locked(str(tmp_path / "a")):
            requests = [pool.submit(store.set, "a/k", b"2"), pool.submit(store.delete, "a/x")]
            time.sleep(0.2)
            assert not any(each.done() for each in requests)
        assert [each.result() for each in requests] == [None, None]
    assert store.get("a/k") == b"2"


@pytest.mark.parametrize("system", ["renameat2", "no renameat2", "no flock either"])
def test_of_many_who_create_a_key_one_does(store, monkeypatch, system):
    if system != "renameat2":
        monkeypatch.setattr(posix_file, "_renamed", lambda *_: False)
    if system == "no flock either":
        monkeypatch.setattr(directories, "CAN_LOCK", False)
    ready = threading.Barrier(4)

    def create(i):
        ready.wait()
        return [store.set_if(f"a/{k}", b"%d" % i, None) for k in range(50)]

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(create, range(4)))
    assert [sum(column) for column in zip(*done, strict=True)] == [1] * 50
    assert [store.get(f"a/{k}") for k in range(50)] == [b"%d" % x.index(True) for x in zip(*done, strict=True)]


@NEEDS_NEW_NAMES
def test_a_key_that_is_created_while_its_absence_is_checked_stays(store, monkeypatch):
    """Under the lock, since who creates a key does not wait for it."""
    store.set("a/other", b"")
    compare = directories.version_of

    def look_then_another_creates(path):
        found = compare(path)
        monkeypatch.setattr(directories, "version_of", compare)
        monkeypatch.setattr(directories, "rename_new", rename_new)
        assert store.set_if("a/k", b"another's", None)
        return found

    rename_new = directories.rename_new
    # it was there, and is deleted before the lock is held
    monkeypatch.setattr(directories, "rename_new", lambda *_: False)
    monkeypatch.setattr(directories, "version_of", look_then_another_creates)
    assert store.set_if("a/k", b"mine", None) is False
    assert (store.get("a/k"), files(Path(store._root))) == (b"another's", ["a/k", "a/other"])


@NEEDS_FORK
def test_sweep_takes_what_the_dead_left(store, tmp_path):
    store.set("a/k", b"1")
    pid = os.fork()
    if pid == 0:
        (tmp_path / "a" / posix_file.partial_name("k")).write_bytes(b"half")
        os._exit(0)
    os.waitpid(pid, 0)
    (left,) = [name for name in files(tmp_path) if name != "a/k"]
    mine = tmp_path / "a" / posix_file.partial_name("k")
    mine.write_bytes(b"being written")
    others = tmp_path / "a" / f".k.another_host-1.{'0' * 32}{PARTIAL_SUFFIX}"
    others.write_bytes(b"being written, for all we know")
    assert store.sweep(remove=False) == [left]
    assert store.sweep("b/") == []
    assert store.sweep() == [left]
    assert store.sweep() == []
    assert mine.exists()
    assert others.exists()


def test_sweep_takes_the_old_of_other_machines(store, tmp_path, monkeypatch):
    (tmp_path / f".k.another_host-1.{'0' * 32}{PARTIAL_SUFFIX}").write_bytes(b"half")
    now = time.time()
    monkeypatch.setattr(posix_file.time, "time", lambda: now + 3700)
    assert store.sweep() == []  # the clock of this machine is fast
    monkeypatch.setattr(posix_file, "_now_in", lambda _: now + 3700)
    LocalStore(tmp_path / "s").set("k", b"")
    (tmp_path / "s" / "linked").symlink_to(tmp_path)
    assert LocalStore(tmp_path / "s").sweep() == []  # of what is elsewhere
    assert len(store.sweep()) == 1
    assert files(tmp_path) == ["s/k"]


@NEEDS_NEW_NAMES
@cases(("error", "expected"), [(ProcessLookupError, True), (PermissionError, False), (OverflowError, False)])
def test_of_which_processes_it_is_known_that_they_have_ended(monkeypatch, error, expected):
    monkeypatch.setattr(os, "kill", Mock(side_effect=error))
    host, *namespace = posix_file.origin()
    assert posix_file.is_gone((host, *namespace), 1) is expected
    assert posix_file.is_gone(("elsewhere", *namespace), 1) is False
    assert f".{posix_file._place.__wrapped__()}-{os.getpid()}." in posix_file.partial_name("k")
    monkeypatch.setattr(posix_file, "origin", lambda: (host, "", ""))
    assert not posix_file.is_gone((host, "", ""), 1)


def test_set_if_in_a_directory_that_goes(store):
    store.set("a/k", b"1")
    _, version = store.get_versioned("a/k")
    store.delete_prefix("a/")
    assert not store.set_if("a/k", None, version)
    assert not store.set_if("a/k", b"2", version)
    assert store.set_if("a/k", b"2", None)


def test_a_place_that_cannot_be_made(tmp_path, monkeypatch):
    """Where others delete folders as fast as they are made, or a drive of Windows is absent."""
    monkeypatch.setattr(os, "mkdir", Mock(side_effect=FileNotFoundError))
    open_fails(monkeypatch, lambda *_: True, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        posix_file.create(str(tmp_path / "a" / "k"))


def test_a_file_system_that_keeps_no_times(store, monkeypatch):
    monkeypatch.setattr(os, "utime", fails_with(errno.EPERM))
    store.set("a/k", b"1")
    assert store.get("a/k") == b"1"


def test_a_file_system_that_says_enoent_now_and_then(store, monkeypatch):
    """It read as absent, which is fill values."""
    store.set("a/k", b"value")
    n_calls = 0

    def sometimes(path):
        nonlocal n_calls
        n_calls += 1
        if n_calls % 2:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return posix_file.open_to_read(path)

    monkeypatch.setattr(local, "open_to_read", sometimes)
    for _ in range(4):
        assert (store.get("a/k"), store.get_versioned("a/k")[0]) == (b"value", b"value")
    assert store.get("a/absent") is None
    monkeypatch.setattr(local, "open_to_read", fails_with(errno.ENOENT))
    with pytest.raises(StoreError, match=r"'a/k'.*both that there is such a file and that there is none"):
        store.get("a/k")


@pytest.mark.parametrize("how", ["same process", "pickled"])
def test_a_store_that_is_gone_has_no_absent_keys(tmp_path, how):
    """An unmounted source read as fill values."""
    folder = tmp_path / "mounted"
    store = LocalStore(folder)
    store.set("a/k", b"value")
    store.get("a/k")
    if how == "pickled":
        store = pickle.loads(pickle.dumps(store))
    folder.rename(tmp_path / "unmounted")
    asked = [(request, "a/k") for request in (store.get, store.get_versioned, store.size)]
    for request, name in (*asked, (store.list_dir, "a/"), (lambda prefix: list(store.list_prefix(prefix)), "a/")):
        with pytest.raises(StoreError, match="the directory of the store is gone"):
            request(name)
    (tmp_path / "unmounted").rename(folder)
    assert store.get("a/k") == b"value"
    store.delete_prefix("")
    assert store.get("a/k") is None
    assert store.list_dir("") == []


def test_versions_find_writes_in_place_with_the_old_time(store, tmp_path):
    """rsync --inplace --times does so: the value was replaced by one made from the old bytes."""
    store.set("a/k", b"old")
    value, version = store.get_versioned("a/k")
    (path,) = tmp_path.rglob("k")
    status = path.stat()
    time.sleep(0.02)  # the kernel's clock ticks every few milliseconds
    with path.open("r+b") as file:
        file.write(b"new")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert not store.set_if("a/k", value + b"!", version)
    assert store.get("a/k") == b"new"


@pytest.fixture
def calls(monkeypatch):
    """System calls that are made: where two threads write small values, each may cost a switch between them."""
    made = []
    names = (
        "open", "read", "write", "utime", "fsync", "close", "replace", "stat", "fstat", "mkdir", "urandom", "unlink",
    )  # fmt: skip
    for module, name in [(os, name) for name in names] + [(directories.fcntl, "flock")] * directories.CAN_LOCK:
        own = getattr(module, name)

        def call(*given, _name=name, _own=own, **options):
            made.append((_name, given))
            return _own(*given, **options)

        monkeypatch.setattr(module, name, call)
    return made


@NEEDS_FLOCK
@NEEDS_NEW_NAMES
def test_what_reads_and_writes_cost(store, calls):
    store.set("a/c/0/0", b"chunk")
    file, under_lock = ["open", "write", "utime", "close"], ["open", "flock", "replace", "flock", "close"]
    for cost, request in (
        (file, lambda: store.set("a/c/0/1", b"chunk")),  # of a new name
        (file + under_lock, lambda: store.set("a/c/0/1", b"other")),
        (["open", "fstat", "read", "close"], lambda: store.get("a/c/0/1")),
        (["open", "fstat", "close"], lambda: store.version("a/c/0/1")),
        (["open", "fstat", "read", "close"], lambda: store.get("a/c/0/1", ByteRange(-4))),
    ):
        calls.clear()
        request()
        assert [name for name, _ in calls] == cost


@pytest.mark.parametrize(
    "make", [lambda x: x, memoryview, lambda x: memoryview(x.reshape(-1)).cast("B")], ids=["array", "view", "flat"]
)
def test_a_buffer_is_written_from_where_it_lies(store, calls, make):
    values = np.arange(12, dtype="u2").reshape(3, 4)
    store.set("k", make(values))
    (written,) = [given[1] for name, given in calls if name == "write"]
    assert np.shares_memory(np.frombuffer(written, "u1"), values)
    assert store.get("k") == values.tobytes()


def test_parts_are_written_as_they_come_and_appear_together(store, tmp_path):
    def parts():
        for i in range(3):
            yield bytes([i]) * 4
            (partial,) = tmp_path.glob("a/.*")
            seen.append(partial.stat().st_size)
            assert store.get("a/b") is None

    seen = []
    store.set_parts("a/b", parts())
    assert seen == [4, 8, 12]
    assert store.get("a/b") == b"\0\0\0\0\1\1\1\1\2\2\2\2"
    assert files(tmp_path) == ["a/b"]


def test_a_part_that_cannot_be_made_leaves_what_was_there(store, tmp_path):
    def parts():
        yield b"new"
        raise KeyboardInterrupt

    store.set("a/b", b"old")
    with pytest.raises(KeyboardInterrupt):
        store.set_parts("a/b", parts())
    assert store.get("a/b") == b"old"
    assert files(tmp_path) == ["a/b"]


@pytest.mark.parametrize("system_reads", [posix_file._read_into, None])
def test_values_are_read_into_arrays(store, monkeypatch, system_reads):
    monkeypatch.setattr(posix_file, "_read_into", system_reads)
    store.set("a/k", bytes(range(100)))
    for byte_range in (None, ByteRange(10, 20), ByteRange(-4), ByteRange(7), ByteRange(5, 0)):
        found = store.get_writable("a/k", byte_range)
        assert found.tobytes() == store.get("a/k", byte_range)
        assert found.flags.writeable == (system_reads is not None)
    assert store.get_writable("a/absent") is None
    with pytest.raises(StoreError, match="truncated"):
        store.get_writable("a/k", ByteRange(90, 20))


def test_a_store_that_answers_otherwise_is_asked():
    class Other(LocalStore):
        def get(self, key, byte_range=None):
            return b"other"

    assert Other("/").get_writable("k") == b"other"
