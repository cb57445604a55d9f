"""Targets of rechunking: arrays and groups that are there already, and never the source."""

from pathlib import Path

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.rechunks import check, make
from support.recording import DyingStore
from support.systems import NEEDS_POSIX_NAMES

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.convert import plan_rechunk, rechunk
from chunkmill.errors import AlignmentError, JobError, StoreError
from chunkmill.nodes.opening import walk
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


def test_an_existing_array_says_the_chunks():
    store = MemoryStore()
    array, values = make(store, absent=[(0, 0, 0)])
    about = {"chunks": (20, 7, 4), "codecs": "gzip", "attributes": {"x": 1}}
    filled(np.full(array.shape, 99, "i4"), store, "b", **about)  # where the source is absent, this must go
    rechunk(array, cm.open_array(store, "b", mode="r+"), chunks=None)
    got = check(store, values)
    assert (got.chunks, got.attributes) == ((20, 7, 4), {"x": 1})
    rechunk(array, cm.open_array(store, "b", mode="r+"), chunks=(20, 7, 4))


def test_an_existing_array_must_fit():
    store = MemoryStore()
    array, _ = make(store)
    target = cm.create_array(store, "b", shape=array.shape, dtype="i4", chunks=(20, 7, 4))
    with pytest.raises(AlignmentError, match="the target has its chunks already"):
        plan_rechunk(array, target, chunks=(5, 5, 5))
    with pytest.raises(AlignmentError, match="shape and dtype"):
        plan_rechunk(array, cm.create_array(store, "c", shape=(2, 2), dtype="i4", chunks=(1, 1)), chunks=None)
    with pytest.raises(StoreError, match="mode='r\\+'"):
        plan_rechunk(array, cm.open_array(store, "b"), chunks=None)
    with pytest.raises(TypeError, match="the source a group"):
        plan_rechunk(cm.open_group(store), target, chunks=None)
    with pytest.raises(TypeError, match="'b' has its keys already"):
        plan_rechunk(array, target, chunks=None, chunk_key_encoding="/")
    with pytest.raises(TypeError, match=r"'b' is written into as an Array; give \(url, path\)"):
        plan_rechunk(array, target, chunks=None, overwrite=True)


def test_absent_chunks_that_a_copy_writes_out_are_reported_as_encoded():
    array, values = make(store := MemoryStore(), absent=[(0, 0, 0)], fill_value=5)
    cm.create_array(store, "b", shape=array.shape, dtype="i4", chunks=array.chunks, fill_value=6)
    report = rechunk(array, cm.open_array(store, "b", mode="r+"), chunks=None)
    check(store, values)
    assert report.actions == {"copy": 6, "recode": 1}


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_arrays_are_added_to_a_group_that_is_there(tmp_path, strategy):
    """As rechunker's users do; what is in the group stays, and no name is taken twice."""
    source = cm.create_group(tmp_path / "a")
    for path in ("t", "deep/u"):
        filled(np.arange(48).reshape(8, 6), tmp_path / "a", path, chunks=(2, 6))
    there = cm.create_group(tmp_path / "b", attributes={"kept": 1})
    filled(np.full(4, 7), tmp_path / "b", "old")
    cm.consolidate(tmp_path / "b")
    rechunk(source, there, chunks=(8, 2), strategy=strategy)
    rechunk(source["t"], there["deep"], chunks=(8, 2), strategy=strategy)
    for consolidated in (True, False):
        found = cm.open_group(tmp_path / "b", consolidated=consolidated)
        paths = [each.path for each in walk(found.stored) if isinstance(each, StoredArray)]
        assert sorted(paths) == ["deep/t", "deep/u", "old", "t"]
        assert found.attributes == {"kept": 1}
    for path in ("t", "deep/u", "deep/t"):
        assert found[path].chunks == (8, 2)
        np.testing.assert_array_equal(found[path][...], np.arange(48).reshape(8, 6))
    assert (found["old"][...] == 7).all()
    assert cm.check(tmp_path / "b").ok
    with pytest.raises(cm.errors.NodeExists, match="'deep'"):
        rechunk(source, there, chunks=(8, 2), include="deep")
    with pytest.raises(cm.errors.NodeExists, match="deep/t"):
        cm.convert(source["t"], cm.open_group(tmp_path / "b", "deep", mode="r+"), format="zarr3")
    with pytest.raises(JobError, match="a group without nodes"):
        rechunk(cm.create_group(tmp_path / "c"), there, chunks=(8, 2))
    with pytest.raises(TypeError, match="no name in its store"):
        rechunk(cm.create_array(tmp_path / "d", shape=(4,), dtype="i4"), there, chunks=(2,))


@pytest.mark.parametrize(
    ("resume", "n"), [(lambda again, _: again(), 4), (lambda _, target: cm.resume(target), 8)], ids=["again", "url"]
)
def test_adding_to_a_group_resumes_and_takes_no_name_of_others(tmp_path, resume, n):
    source = cm.create_group(tmp_path / "a")
    for path in ("t", "u"):
        filled(np.arange(48).reshape(8, 6), tmp_path / "a", path, chunks=(2, 6))
    cm.create_group(tmp_path / "b", attributes={"kept": 1})
    dying = DyingStore(LocalStore(tmp_path / "b"), n + 5, ["set", "set_if"])
    with dask.config.set(scheduler="sync"), pytest.raises(Exception, match="injected"):
        rechunk(source, cm.open_group(dying, mode="r+"), chunks=(8, 1))
    assert sorted(cm.open_group(tmp_path / "b")) in ([], ["t"], ["t", "u"])
    if cm.jobs(tmp_path / "b"):
        resume(lambda: rechunk(source, cm.open_group(tmp_path / "b", mode="r+"), chunks=(8, 1)), tmp_path / "b")
    found = cm.open_group(tmp_path / "b")
    assert (sorted(found), found.attributes) == (["t", "u"], {"kept": 1})
    for path in ("t", "u"):
        np.testing.assert_array_equal(found[path][...], np.arange(48).reshape(8, 6))
    assert cm.check(tmp_path / "b").ok


@cases(
    ("source", "target", "overwrite", "message"),
    [
        pytest.param(("g.zarr", "a"), "g.zarr/a", True, "same place", id="the path in the url"),
        pytest.param(("g.zarr", "a"), ("./g.zarr/../g.zarr", "a"), True, "same place", id="dots"),
        pytest.param(("g.zarr", "a"), ("link", "a"), True, "same place", id="a link"),
        pytest.param("link/a", "g.zarr/a", True, "same place", id="a link, and the path in the url"),
        pytest.param("g.zarr/a", "g.zarr", True, "source, .* is inside the target, .* deleted", id="the group above"),
        pytest.param("g.zarr/a", "g.zarr/a/b", False, "target, .* is inside the source", id="inside an array"),
        pytest.param("g.zarr", ("link", "sub"), False, "target, .* is inside the source", id="inside a group"),
    ],
)
@NEEDS_POSIX_NAMES
def test_a_source_is_not_overwritten_by_whatever_name(tmp_path, monkeypatch, source, target, *, overwrite, message):
    monkeypatch.chdir(tmp_path)
    make("g.zarr")
    Path("link").symlink_to("g.zarr")
    for planner, options in ((plan_rechunk, {"chunks": 5}), (cm.plan_convert, {"format": "zarr3"})):
        with pytest.raises(JobError, match=message):
            planner(source, target, overwrite=overwrite, **options)
        assert planner(("g.zarr", "a"), ("g.zarr", "ab"), **options)  # a name that only begins alike
