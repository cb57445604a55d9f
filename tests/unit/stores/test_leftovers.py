"""What a killed replacement leaves is removed, in the store and next to it (P8)."""

import functools

import dask.array as da
import numpy as np
import pytest
from support.cases import cases
from support.scripts import run_script
from support.systems import NEEDS_NEW_NAMES

import chunkmill as cm
from chunkmill.stores import posix_file
from chunkmill.stores.local import LocalStore
from chunkmill.stores.zip import ZipStore

VALUES = np.arange(16, dtype="i4").reshape(4, 4)
JOURNAL = ".chunkmill-job-ca978112ca1bbdca"  # of "a"


@functools.cache
def dead_names():
    return run_script("from chunkmill.stores.posix_file import partial_name; print(partial_name('NAME'))")


def dead_name(name):
    """Return the name that a process which has ended would have given to a hidden file or directory."""
    return dead_names().replace("NAME", name)


def lay(path, kind):
    if kind == "file":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    else:
        (path / "c").mkdir(parents=True)
        (path / "zarr.json").write_bytes(b"{}")
        (path / "c" / "0").write_bytes(b"chunk")


def hidden(folder):
    return [path for path in folder.rglob("*") if ".chunkmill" in path.name]


PLACES = {
    "next to the array": lambda url: url / dead_name("a"),
    "in its journal": lambda url: url / JOURNAL / dead_name("new-1"),
    "next to the store": lambda url: url.parent / dead_name(url.name),
    "next to the zip file": lambda url: url.parent / dead_name(url.name),
}
AGAIN = {
    "check": lambda url: cm.check(url, repair=True),
    "replace": lambda url: cm.to_store(VALUES, url, "a", mode="w"),
    "convert": lambda url: cm.convert((url, "b"), (url, "a"), overwrite=True, format="zarr3"),
}


@NEEDS_NEW_NAMES
@pytest.mark.parametrize(
    ("place", "again", "kind"),
    [
        # the root is not replaced; files next to an array are left to check
        *((place, "check", kind) for place in PLACES for kind in ("file", "directory")),
        ("next to the array", "convert", "directory"),
        ("in its journal", "replace", "file"),
        ("in its journal", "convert", "directory"),
        ("next to the zip file", "replace", "file"),
        ("next to the zip file", "convert", "file"),
    ],
)
def test_what_is_left_is_removed(tmp_path, place, again, kind):
    url = tmp_path / ("s.zip" if "zip" in place else "s.zarr")
    for path in "ab":
        cm.to_store(VALUES, url, path, chunks=2)
    lay(PLACES[place](url), kind)
    assert not cm.check(url).ok
    AGAIN[again](url)
    assert hidden(tmp_path) == []
    assert cm.check(url).ok


@NEEDS_NEW_NAMES
@cases("kind", [ZipStore, LocalStore])
def test_what_is_left_next_to_a_store_is_below_no_prefix(tmp_path, kind):
    store = kind(str(tmp_path / "s"))
    store.set("a/k", b"1")
    lay(tmp_path / dead_name("s"), "file")
    assert store.sweep("a/") == store.sweep(recursive=False) == []
    assert len(store.sweep()) == 1


def test_of_a_reference_set(tmp_path):
    cm.to_store(VALUES, tmp_path / "s.zarr", "a", chunks=2)
    lay(tmp_path / dead_name("set.json"), "file")
    cm.to_references(tmp_path / "s.zarr", tmp_path / "set.json")
    assert hidden(tmp_path) == []


@NEEDS_NEW_NAMES
def test_a_new_node_that_is_complete_stays_for_a_day(tmp_path, monkeypatch):
    """The same job puts it in place; others would have to write it again."""
    cm.to_store(VALUES, tmp_path / "s.zarr", "a", chunks=2)
    lay(left := tmp_path / dead_name("s.zarr"), "directory")
    (left / ".chunkmill-new-0123abcd").write_bytes(b"0123abcd")
    cm.check(tmp_path / "s.zarr", repair=True)
    assert left.exists()
    now = posix_file.time.time() + 25 * 3600
    monkeypatch.setattr(posix_file.time, "time", lambda: now)
    monkeypatch.setattr(posix_file, "_now_in", lambda _: now)
    cm.check(tmp_path / "s.zarr", repair=True)
    assert not left.exists()


@cases("call", [cm.convert, lambda _, target: cm.to_store(da.ones(4, chunks=2), target, "a", resume=True)])
def test_a_job_that_is_refused_leaves_no_folder(tmp_path, call):
    source, target = tmp_path / "s.zarr", tmp_path / "t.zarr"
    for each in (source, target):
        cm.create_array(each, "a", shape=(4,), dtype="i4", chunks=(2,))
    with pytest.raises(cm.errors.NodeExists):
        call(source, target)
    assert sorted(path.name for path in target.iterdir()) == ["a", "zarr.json"]
