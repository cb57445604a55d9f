"""Replacing a node: what was there stays until the new one is whole (P6)."""

import os
import shutil

import dask
import dask.array as da
import numpy as np
import pytest
from support.cases import cases
from support.recording import DeletingStore, contents
from support.systems import NEEDS_POSIX_NAMES

import chunkmill as cm
from chunkmill.errors import JobError, NodeExists
from chunkmill.formats.registry import get_format
from chunkmill.journal.lease import check_no_job, leased
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes import target
from chunkmill.nodes.target import Target
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.zip import ZipStore

OLD = np.arange(20).reshape(4, 5)
NEW = da.ones((4, 6), chunks=(2, 6))


def fail(block):
    if block.sum() > 0:
        raise RuntimeError("the source is broken")
    return block


STORES = {"directory": lambda at: LocalStore(at / "store"), "memory": lambda _: MemoryStore()}
"""In which the old node stays until the new one is complete."""


@pytest.fixture(params=STORES)
def keeping(request, tmp_path):
    return STORES[request.param](tmp_path)


@pytest.fixture(params=[*STORES, "deleting"])
def any_store(request, tmp_path):
    return STORES.get(request.param, lambda _: DeletingStore())(tmp_path)


PLACES = [("zarr2", ""), ("zarr3", "g/a"), ("n5", "a"), ("zarr3-draft", "")]
"""Not the draft below the root: its documents are not below one prefix, and the old is deleted first."""


@pytest.mark.parametrize(("fmt", "path"), PLACES)
def test_the_old_stays_until_the_new_is_whole(keeping, fmt, path, tmp_path):
    seen = []
    cm.to_store(OLD, keeping, path, chunks=(2, 5), format=fmt, attributes={"old": 1})
    before = sorted(keeping.list_prefix(""))
    with pytest.raises(RuntimeError, match="broken"):
        cm.to_store(NEW.map_blocks(fail, dtype="f8"), keeping, path, mode="w", format=fmt)
    assert cm.open_array(keeping, path).attributes["old"] == 1
    assert sorted(keeping.list_prefix("")) == before
    assert {each.name for each in tmp_path.iterdir()} <= {"store"}  # nothing is left beside it

    def look(block):
        seen.append(cm.open_array(keeping, path)[...])
        return block

    cm.to_store(NEW.map_blocks(look, dtype="f8", meta=np.empty((0, 0))), keeping, path, mode="w", format=fmt)
    assert len(seen) == 2
    for each in seen:
        np.testing.assert_array_equal(each, OLD)
    assert cm.open_array(keeping, path)[...].sum() == 24


@pytest.mark.parametrize(("fmt", "path"), [*PLACES, ("zarr3-draft", "g/a")])
def test_nothing_of_the_old_shines_through(any_store, fmt, path):
    cm.to_store(OLD + 1, any_store, path, chunks=(2, 5), format=fmt, attributes={"old": 1})
    cm.to_store(np.zeros((4, 5), "i8"), any_store, path, chunks=(2, 5), format=fmt, mode="w")
    assert not cm.open_array(any_store, path)[...].any()
    assert "old" not in cm.open_array(any_store, path).attributes
    assert cm.check(any_store).ok
    cm.create_array(any_store, path, shape=(3,), dtype="i4", chunks=(2,), format=fmt, overwrite=True)
    assert cm.open_array(any_store, path)[...].tolist() == [0, 0, 0]
    cm.create_group(any_store, path, format=fmt, overwrite=True)
    assert list(cm.open_group(any_store, path)) == []


def test_a_graph_that_is_computed_later(keeping):
    cm.to_store(OLD, keeping, "a", chunks=(2, 5))
    broken = cm.to_store(NEW.map_blocks(fail, dtype="f8"), keeping, "a", mode="w", compute=False)
    with pytest.raises(RuntimeError, match="broken"):
        broken.compute()
    new = da.concatenate([NEW, da.zeros((4, 3), chunks=(2, 3))], axis=1)  # the last chunks are not stored
    later = cm.to_store(new, keeping, "a", mode="w", compute=False)
    np.testing.assert_array_equal(cm.open_array(keeping, "a")[...], OLD)
    for _ in range(2):
        assert later.compute().n_keys == 4
        assert cm.open_array(keeping, "a")[...].sum() == 24
    assert cm.check(keeping, repair=True).ok
    assert not [key for key in keeping.list_prefix("") if "chunkmill" in key]


def test_what_a_repair_deletes_before_the_last_step_is_not_put_in_place(keeping, monkeypatch):
    own = target.leased
    cm.to_store(OLD, keeping, "a", chunks=(2, 5))
    later = cm.to_store(NEW, keeping, "a", mode="w", compute=False)

    def leased(*args, **options):
        cm.check(keeping, repair=True)
        return own(*args, **options)

    monkeypatch.setattr(target, "leased", leased)
    with dask.config.set(scheduler="synchronous"), pytest.raises(JobError, match="has taken the place since"):
        later.compute()
    np.testing.assert_array_equal(cm.open_array(keeping, "a")[...], OLD)


@pytest.mark.parametrize("how", ["now", "later", "resume"])
def test_a_node_that_does_not_open_stays(keeping, how):
    cm.to_store(OLD, keeping, "a", chunks=(2, 5))
    keeping.set("a/zarr.json", b'{"zarr_format": 3, "node_type": "arr')
    before = contents(keeping, "a/")

    def replace(new):
        resume = how == "resume" and new is not NEW
        written = cm.to_store(new, keeping, "a", mode="w", resume=resume, compute=how != "later")
        written.compute() if how == "later" else None

    with pytest.raises(RuntimeError, match="broken"):
        replace(NEW.map_blocks(fail, dtype="f8"))
    assert contents(keeping, "a/") == before
    cm.check(keeping, repair=True)  # of an interrupted job
    replace(NEW)
    np.testing.assert_array_equal(cm.open_array(keeping, "a")[...], 1)
    assert cm.check(keeping).ok


@pytest.mark.parametrize(("how", "path"), [("to_store", ""), ("convert", "g/a")])
@NEEDS_POSIX_NAMES
def test_who_is_killed_leaves_a_zip_file_with_the_old_or_the_new(tmp_path, monkeypatch, how, path):
    """What is in the file survives a kill: it changes once, by a rename."""
    file, seen, replace = tmp_path / "store.zip", [], os.replace
    cm.to_store(np.ones((4, 6)), source := MemoryStore(), "x", chunks=(2, 3))
    with ZipStore(file) as store:
        cm.to_store(OLD, store, path, chunks=(2, 5), attributes={"old": 1})
        cm.to_store(OLD, store, "other", chunks=(2, 5)) if path else None

    def renamed(*names):
        for rename in (lambda: None, lambda: replace(*names)):
            rename()
            shutil.copy(file, tmp_path / f"{len(seen)}.zip")
            seen.append(cm.open_array(f"{tmp_path}/{len(seen)}.zip", path)[...].sum())

    monkeypatch.setattr("os.replace", renamed)
    with ZipStore(file) as store, dask.config.set(scheduler="sync"):
        if how == "convert":
            cm.convert((source, "x"), (store, path), format="zarr3", overwrite=True)
        else:
            cm.to_store(NEW, store, path, mode="w")
    assert seen == [OLD.sum(), 24]
    assert cm.check(f"{file}").ok
    assert [each.name for each in tmp_path.iterdir() if not each.suffix] == []
    if path:
        np.testing.assert_array_equal(cm.open_array(f"{file}", "other")[...], OLD)
    assert b"chunkmill-" not in file.read_bytes()  # nothing of a journal


@cases("path", ["", "g", "g/a"])
def test_a_group_in_which_others_have_begun_to_write_stays(store, path):
    """Of a `to_store` below it, which was done, only the document was found in the new group, and no chunk."""

    def replacing():
        groups = {"g": GroupMetadata({"new": 1})}
        return Target(store, "g", get_format("zarr3"), [], groups, overwrite=True).held("replace 'g'")

    cm.create_group(store, "g", attributes={"old": 1})
    with (
        leased(store, path, "write it"),
        pytest.raises(JobError, match=r"write to .*running: 'write it'"),
        replacing() as new,
    ):
        new.publish()
    assert cm.open_group(store, "g").attributes == {"old": 1}
    with replacing() as new:
        with pytest.raises(JobError, match="replace 'g'"):
            check_no_job(store, path, below=True)
        new.publish()
    assert cm.open_group(store, "g").attributes == {"new": 1}
    assert sorted(store.list_prefix("")) == ["g/zarr.json", "zarr.json"]


def test_a_zip_file_with_a_journal_has_none_to_resume(tmp_path):
    with pytest.raises(ValueError, match="zip files keep nothing"):
        cm.to_store(da.from_array(OLD), tmp_path / "x.zip", resume=True)


@pytest.mark.parametrize(("kind", "fmt", "path"), [("link", "zarr3", ""), ("mount point", "n5", "a")])
@NEEDS_POSIX_NAMES
def test_a_directory_that_cannot_be_renamed(tmp_path, monkeypatch, kind, fmt, path):
    """It stays, and what is in it is deleted first; not what links in it lead to."""
    place = tmp_path / "store" / path
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(tmp_path / "elsewhere")
    else:
        monkeypatch.setattr("chunkmill.stores.directories.os.path.ismount", lambda name: str(name) == str(place))
    store = LocalStore(tmp_path / "store")
    cm.create_group(store, path, format=fmt, attributes={"old": 1})
    cm.to_store(OLD, store, f"{path}/old/x".strip("/"), chunks=(2, 5), format=fmt)
    cm.to_store(OLD, tmp_path / "other", "b", format=fmt)
    (place / "old" / "deep").symlink_to(tmp_path / "other")
    inode = place.stat().st_ino
    for resume in (False, True):
        with pytest.raises(RuntimeError, match="broken"):
            cm.to_store(NEW.map_blocks(fail, dtype="f8"), store, path, mode="w", format=fmt, resume=resume)
    cm.to_store(NEW, store, path, mode="w", format=fmt)
    np.testing.assert_array_equal(cm.open_array(store, path)[...], 1)
    assert place.is_symlink() == (kind == "link")
    assert place.stat().st_ino == inode
    assert not (place / "old").exists()
    np.testing.assert_array_equal(cm.open_array(tmp_path / "other", "b")[...], OLD)
    assert cm.check(store).ok
    assert not list(tmp_path.rglob("*chunkmill*"))


@pytest.mark.parametrize(("fmt", "path"), [("zarr2", ""), ("zarr3", "plate")])
def test_nodes_below_folders_without_a_document_are_not_hidden(any_store, fmt, path):
    """TensorStore writes no documents of groups."""
    cm.to_store(OLD, any_store, "plate/row/a", chunks=(2, 5), format=fmt)
    for name in ("zarr.json", ".zgroup", ".zattrs"):
        for folder in ("", "plate/", "plate/row/"):
            any_store.delete(f"{folder}{name}")
    with pytest.raises(NodeExists, match="folder without a document"):
        cm.create_array(any_store, path, shape=(3,), dtype="i4", chunks=(2,), format=fmt)
    with pytest.raises(NodeExists, match="folder without a document"):
        cm.to_store(OLD, any_store, path, format=fmt)
    np.testing.assert_array_equal(cm.open_array(any_store, "plate/row/a")[...], OLD)
