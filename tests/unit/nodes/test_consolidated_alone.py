"""Nodes that consolidated metadata alone name: one view of the hierarchy for listings and for jobs.

By `chunkmill.stores.memory`.

Some writers store no other documents (EOPF's Zarr v2); copies of others lose single ones.
"""

import shutil

import numpy as np
import pytest
import xarray as xr
from support.recording import copy_keys

import chunkmill as cm
from chunkmill.nodes.api import open_source
from chunkmill.nodes.opening import walk
from chunkmill.stores.memory import MemoryStore

ENTRY = {
    "zarr2": ("a/.zarray", "sub/.zgroup", "sub/b/.zarray"),
    "zarr3": ("a/zarr.json", "sub/zarr.json", "sub/b/zarr.json"),
}
PATHS = ["", "a", "sub", "sub/b"]


@pytest.fixture(params=["zarr2", "zarr3"])
def fmt(request):
    return request.param


def filled(url, fmt, *paths):
    """Make arrays whose last chunk is absent, and consolidate their metadata."""
    about = {"shape": (6,), "dtype": "i4", "chunks": (2,), "dimension_names": ["x"], "attributes": {"units": "K"}}
    for path in paths:
        cm.create_array(url, path, format=fmt, **about)[:4] = [1, 2, 3, 4]
    cm.consolidate(url)
    return url


@pytest.fixture
def store(fmt):
    store = MemoryStore()
    store.is_remote = fmt == "zarr2"  # documents are asked for ahead
    return filled(store, fmt, "a", "sub/b")


@pytest.fixture(params=["one", "group"])
def lost(request, fmt, store):
    """Delete documents that consolidated metadata have; return their keys."""
    array, group, below = ENTRY[fmt]
    keys = {"one": [array], "group": [group, below]}[request.param]
    for key in keys:
        store.delete(key)
    return keys


def paths(node):
    return [each.path for each in walk(node)]


def test_all_see_the_same_nodes(store, lost):
    group = cm.open_group(store)
    assert paths(group.stored) == paths(open_source(store)) == paths(open_source(group)) == PATHS
    assert group["a"][...].tolist() == group["sub/b"][...].tolist() == [1, 2, 3, 4, 0, 0]
    for fmt in ("zarr3", "n5"):
        target = MemoryStore()
        cm.convert(store, target, format=fmt)
        assert paths(cm.open_group(target, consolidated=False).stored) == PATHS
        assert cm.open_array(target, "a").attributes["units"] == "K"
        report = cm.verify(store, target)
        assert report.equal
        assert report.n_arrays == 2
    tree = xr.open_datatree(store, engine="chunkmill")
    assert tree["a"].values[:4].tolist() == tree["sub/b"].values[:4].tolist() == [1, 2, 3, 4]
    cm.rechunk(store, target := MemoryStore(), chunks=(3,))
    assert cm.open_array(target, "sub/b")[...].tolist() == [1, 2, 3, 4, 0, 0]


def test_an_array_of_which_nothing_else_is_stored_has_fill_values():
    store = MemoryStore()
    cm.create_array(store, "a", shape=(3,), dtype="i4", fill_value=7, format="zarr2")
    cm.consolidate(store)
    for key in set(store.list_prefix("")) - {".zmetadata"}:
        store.delete(key)
    assert cm.open_array(store, "a")[...].tolist() == [7, 7, 7]


def test_consolidating_again_keeps_them(store, lost):
    cm.consolidate(store)
    assert paths(cm.open_group(store, consolidated=True).stored) == PATHS


def test_check_tells_and_stores_them_again(store, lost):
    report = cm.check(store)
    assert [(each.kind, each.key) for each in report.problems] == [("metadata", key) for key in sorted(lost)]
    assert report.n_arrays == 2
    assert cm.check(store, repair=True).ok
    assert paths(cm.open_group(store, consolidated=False).stored) == PATHS
    assert cm.check(store).ok


def test_check_does_not_store_a_document_over_another_node(fmt):
    """One that stands for a node that has been replaced by a group is stale, not missing."""
    store, other = filled(MemoryStore(), fmt, "a", "b"), MemoryStore()
    cm.create_group(other, "a", format=fmt)
    store.delete_prefix("a/")
    copy_keys(other, store, "a/")
    assert isinstance(cm.open_group(store)["a"], cm.Group)
    assert isinstance(open_source(store)["a"], type(open_source(store)))
    assert [each.kind for each in cm.check(store).problems] == ["stale"]
    assert cm.check(store, repair=True).ok
    assert isinstance(cm.open_group(store, consolidated=True)["a"], cm.Group)


def test_what_was_deleted_stays_out(store, fmt):
    """By a client that leaves consolidated metadata as they are: nothing of the node is left."""
    store.delete_prefix("a/")
    assert paths(open_source(store)) == ["", "sub", "sub/b"]
    report = cm.convert(store, target := MemoryStore(), format="zarr3")
    assert report.n_keys == 3
    assert [(each.kind, each.path) for each in cm.check(store).problems] == [("stale", "")]
    cm.consolidate(store)
    assert paths(cm.open_group(store, consolidated=True).stored) == ["", "sub", "sub/b"]
    assert list(cm.open_group(target)) == ["sub"]


def test_writing_below_such_a_group(store, lost):
    group = cm.open_group(store, mode="r+")
    group.create_array("c", shape=4, dtype="u1")
    assert list(group) == ["a", "c", "sub"]
    del group["c"]
    assert list(group) == ["a", "sub"]
    group["a"] = np.arange(3)
    assert (group["a"][...].tolist(), list(group)) == ([0, 1, 2], ["a", "sub"])


# --------------------------------------------------------------------------------------------------------------------
# Consolidated metadata that the caller demands, where documents are invalid or all folders are gone


def test_demanded_metadata_are_read_instead(fmt, tmp_path):
    broken = filled(tmp_path / "broken.zarr", fmt, "a", "b")
    (broken / ENTRY[fmt][0]).write_text('{"shape": ')
    assert cm.open_array(broken, "a", consolidated=True)[...].tolist() == [1, 2, 3, 4, 0, 0]
    group = cm.open_group(broken, consolidated=True)
    cm.convert(group, target := MemoryStore(), format="n5")
    assert cm.open_array(target, "a")[...].tolist() == [1, 2, 3, 4, 0, 0]
    assert cm.verify(group, target).equal


def test_a_listing_without_any_folder_says_so(fmt, tmp_path):
    """Of a product of which only the metadata were downloaded."""
    url = filled(tmp_path / "x", fmt, "a", "sub/b")
    for folder in ("a", "sub"):
        shutil.rmtree(url / folder)
    told = r"nodes below '/' of which nothing is stored.*2 in all.*consolidated=True takes"
    with pytest.warns(UserWarning, match=told):
        assert list(cm.open_group(url)) == []
    assert paths(cm.open_group(url, consolidated=True).stored) == PATHS
