"""Walks find every node: below folders without a document, and where consolidated metadata are stale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import filled
from support.cases import cases
from support.recording import copy_keys

import chunkmill as cm
from chunkmill.errors import MetadataError
from chunkmill.model.metadata import parents_of
from chunkmill.nodes.api import open_source
from chunkmill.nodes.opening import as_stored, walk
from chunkmill.stores.memory import MemoryStore

ZARR = ["zarr2", "zarr3"]
GROUP_DOCUMENTS = (".zgroup", ".zattrs", "zarr.json")


def make(store, path, fmt):
    return filled(np.arange(4, dtype="i4"), store, path, chunks=(2,), format=fmt)


def plate(fmt, store=None):
    """Return a store like an OME-Zarr plate of zarr-java: documents at the root, of wells and of arrays only."""
    store = MemoryStore() if store is None else store
    cm.create_group(store, format=fmt)
    for path in ("A/1/0", "A/2/0", "B/1/0"):
        make(store, path, fmt)
        for folder in (path[0], path[:3]):
            for name in GROUP_DOCUMENTS:
                store.delete(f"{folder}/{name}")
    return store


ALL = ["", "A", "A/1", "A/1/0", "A/2", "A/2/0", "B", "B/1", "B/1/0"]


@cases("fmt", ZARR)
class TestFoldersWithoutADocument:
    def test_they_are_no_children(self, fmt):
        group = cm.open_group(plate(fmt))
        assert (list(group), list(group.members())) == ([], ["A", "B"])
        assert [node.path for node in walk(group.stored, undocumented=False)] == [""]
        documented = {node.path for node in walk(group.stored) if getattr(node, "is_documented", True)}
        assert documented == {"", "A/1/0", "A/2/0", "B/1/0"}

    def test_a_tree_shows_them(self, fmt):
        group = cm.open_group(plate(fmt))
        assert group.tree().splitlines()[:4] == ["/", "├── A", "│   ├── 1", "│   │   └── 0 (4,) int32"]
        assert "(4,) int32" not in repr(group)
        assert group._repr_html_().count("int32") >= 3

    def test_copies_have_all_and_equal_the_source(self, fmt):
        source, target = plate(fmt), MemoryStore()
        cm.convert(source, target, format="n5")
        assert [node.path for node in walk(cm.open_group(target).stored)] == ALL
        report = cm.verify(source, target)
        assert report.equal
        assert report.n_arrays == 3
        target.delete("B/1/0/attributes.json")
        assert [each.path for each in cm.verify(source, target).differences] == ["B/1/0"]

    def test_folders_with_chunks_only_are_no_groups(self, fmt):
        store = plate(fmt)
        make(store, "dead", fmt)
        for name in (".zarray", ".zattrs", "zarr.json"):
            store.delete(f"dead/{name}")
        assert [node.path for node in walk(cm.open_group(store).stored)] == ALL

    def test_consolidated_metadata_leave_them_out(self, fmt):
        """zarr-python cannot open a root whose consolidated metadata name nodes without the groups above them."""
        store = plate(fmt)
        cm.consolidate(store)
        assert [node.path for node in walk(cm.open_group(store, consolidated=True).stored)] == [""]
        assert [node.path for node in walk(open_source(store))] == ALL


def test_an_empty_folder_of_n5_is_a_group(tmp_path):
    cm.create_group(tmp_path, format="n5")
    (tmp_path / "empty" / "below").mkdir(parents=True)
    group = cm.open_group(tmp_path)
    assert [node.path for node in walk(group.stored)] == ["", "empty", "empty/below"]
    assert list(group["empty"]) == ["below"]
    assert list(cm.open_group(tmp_path, "empty/below")) == []
    assert "none" not in group
    cm.convert(tmp_path, tmp_path.with_name("v3"), format="zarr3")
    assert list(cm.open_group(tmp_path.with_name("v3"), "empty")) == ["below"]


@pytest.mark.parametrize("fmt", ZARR)
class TestStaleConsolidatedMetadata:
    @pytest.fixture
    def store(self, fmt):
        """Return a store with an array that somebody else has written since its metadata were consolidated."""
        store, other = MemoryStore(), MemoryStore()
        make(store, "g/a", fmt)
        cm.consolidate(store)
        make(other, "g/b", fmt)
        copy_keys(other, store, "g/b/")
        return store

    def test_views_find_what_is_listed(self, store, fmt):
        group = cm.open_group(store)
        assert list(group["g"]) == ["a", "b"]
        assert group["g/b"][...].tolist() == group["g"]["b"][...].tolist() == [0, 1, 2, 3]
        assert "b (4,)" in group.tree()
        store.delete_prefix("g/a/")
        assert list(cm.open_group(store)["g"]) == ["b"]

    def test_jobs_see_the_documents(self, store, fmt):
        assert [node.path for node in walk(open_source(store))] == ["", "g", "g/a", "g/b"]
        assert [node.path for node in walk(open_source(cm.open_group(store)["g"]))] == ["g", "g/a", "g/b"]
        target = MemoryStore()
        cm.convert(store, target, format="n5")
        np.testing.assert_array_equal(cm.open_array(target, "g/b")[...], np.arange(4))
        assert cm.verify(store, target).n_arrays == 2

    def test_unless_the_caller_demands_them(self, store, fmt):
        group = cm.open_group(store, consolidated=True)
        assert [node.path for node in walk(open_source(group))] == ["", "g", "g/a"]


def test_a_group_of_a_web_server_stays_as_it_is(store):
    store.can_list = False
    make(store, "a", "zarr2")
    cm.consolidate(store)
    group = cm.open_group(store)
    assert as_stored(group.stored) is group.stored


@pytest.mark.parametrize(("outer", "inner"), [("zarr2", "zarr3"), ("zarr3", "zarr2")])
def test_nodes_of_another_version_are_found(outer, inner):
    store, other = MemoryStore(), MemoryStore()
    make(store, "a", outer)
    for path in ("b", "g/c", "x/y/d"):
        make(other, path, inner)
    for key in other.list_prefix(""):
        if "/" in key and key not in {"x/.zgroup", "x/.zattrs", "x/zarr.json"}:
            store.set(key, other.get(key))
    group = cm.open_group(store, format=outer)
    assert list(group) == ["a"]
    found = {node.path: node.format for node in walk(group.stored)}
    assert found == {
        "": outer, "a": outer, "b": inner, "g": inner, "g/c": inner, "x": outer, "x/y": inner, "x/y/d": inner,
    }  # fmt: skip
    store.set("b/.zarray" if inner == "zarr2" else "b/zarr.json", b"{")
    with pytest.raises(MetadataError):
        list(walk(group.stored))
    told = []
    assert len(list(walk(group.stored, on_error=lambda path, _: told.append(path)))) == 7
    assert told == ["b"]


def test_folders_of_chunks_without_a_document_are_no_groups_of_n5(store):
    cm.create_group(store, "g", format="n5")
    for key in ("0/0", "g/1/2/3", "g/4/s0/0/0"):
        store.set(key, b"chunk")
    assert [node.path for node in walk(cm.open_group(store).stored)] == ["", "g", "g/4", "g/4/s0"]


NAMES = st.sampled_from(["a", "b", "0", "c"])  # "c" and digits look like chunks
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@st.composite
def hierarchies(draw):
    """Draw a format, paths of arrays of which none is above another, and groups without a document."""
    paths = []
    for path in draw(st.lists(PATHS, min_size=1, max_size=5, unique=True)):
        if not any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in paths):
            paths.append(path)
    groups = sorted({parent for path in paths for parent in parents_of(path)} - {""})
    return (
        draw(st.sampled_from(["zarr2", "zarr3", "n5"])),
        paths,
        draw(st.sets(st.sampled_from(groups))) if groups else set(),
    )


@given(hierarchies())
def test_every_array_is_found_once(hierarchy):
    fmt, paths, undocumented = hierarchy
    store = MemoryStore()
    cm.create_group(store, format=fmt)
    for path in paths:
        cm.create_array(store, path, shape=(2, 2), dtype="i1", chunks=(1, 1), format=fmt)[...] = 1
    for group in undocumented:
        for name in (".zgroup", ".zattrs", "zarr.json", "attributes.json"):
            store.delete(f"{group}/{name}")
    found = [node.path for node in walk(cm.open_group(store).stored)]
    assert sorted(found) == sorted({*paths, *(parent for path in paths for parent in parents_of(path))})
    assert all(found.index(parent) < found.index(path) for path in paths for parent in parents_of(path))
    documented = [node.path for node in walk(cm.open_group(store).stored, undocumented=False)]
    if fmt != "n5":
        assert set(documented) == {p for p in found if not any(g in undocumented for g in (p, *parents_of(p)))}
