"""Nodes: what is made, found, listed, replaced, and by which documents."""

import json
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from support import hostile
from support.cases import cases
from support.recording import FailingStore, FarStore, Meanwhile, RecordingStore, contents, copy_keys

import chunkmill as cm
from chunkmill.errors import MetadataError, NodeExists, NodeNotFound, StoreError, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.nodes import opening
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
ZARR = ["zarr2", "zarr3"]


def keys(store):
    return sorted(store.list_prefix(""))


def make(store, path="", fmt="zarr3", **more):
    return cm.create_array(store, path, format=fmt, **{"shape": (3,), "dtype": "i4", "chunks": (2,)} | more)


def store_of(documents):
    store = MemoryStore()
    for key, value in documents.items():
        store.set(key, value if isinstance(value, bytes) else json.dumps(value).encode())
    return store


# ----------------------------------------------------------------------------------------------------------------------
# What is made

DOCUMENTS = {
    "zarr2": [".zattrs", ".zgroup", "a/.zattrs", "a/.zgroup", "a/b/.zarray", "a/b/.zattrs"],
    "zarr3": ["a/b/zarr.json", "a/zarr.json", "zarr.json"],
    "zarr3-draft": ["meta/a.group.json", "meta/a/b.array.json", "meta/group.json", "zarr.json"],
    "n5": ["a/attributes.json", "a/b/attributes.json", "attributes.json"],
}


@cases("fmt", FORMATS)
class TestCreate:
    def test_parents_are_made_and_attributes_before_the_array_that_has_them(self, fmt):
        store = RecordingStore(MemoryStore())
        array = make(store, "a/b", fmt)
        written = store.keys("set_if")
        assert keys(store) == sorted(set(written)) == DOCUMENTS[fmt]
        if fmt == "zarr2":
            assert written.index("a/b/.zattrs") < written.index("a/b/.zarray")
        assert (array.path, array.format, array.url) == ("a/b", fmt, store.url)
        root = cm.open_group(store)
        assert (list(root), list(root["a"]), root.format) == (["a"], ["b"], fmt)

    def test_parents_keep_what_they_have(self, store, fmt):
        for path in ("", "a"):
            cm.create_group(store, path, format=fmt, attributes={"path": path})
        make(store, "a/b", fmt)
        root = cm.open_group(store)
        assert (root.attributes, root["a"].attributes, list(root["a"])) == ({"path": ""}, {"path": "a"}, ["b"])

    def test_paths_are_made_canonical(self, store, fmt):
        assert make(store, "/a//b/", fmt).path == "a/b"
        assert cm.open_array(store, "a/b/").path == "a/b"
        assert cm.open_group(store, "/")["a//b"].path == "a/b"

    def test_what_is_there_stays(self, store, fmt):
        make(store, "g/a", fmt)[...] = [1, 2, 3]
        cm.create_group(store, "empty", format=fmt, attributes={"n": 1})
        before = contents(store)
        for path, found in (("g/a", "array"), ("g", "group"), ("empty", "group")):
            for again in (make, cm.create_group):
                with pytest.raises(NodeExists, match="overwrite=True") as caught:
                    again(store, path, **{"fmt" if again is make else "format": fmt})
                assert (caught.value.path, caught.value.found) == (path, found)
        assert contents(store) == before

    @pytest.mark.parametrize("path", ["a/b", "a/b/c"])
    def test_below_an_array(self, store, fmt, path):
        make(store, "a", fmt)
        before = keys(store)
        with pytest.raises(NodeExists) as caught:
            make(store, path, fmt, overwrite=True)
        assert (caught.value.path, caught.value.found) == ("a", "array")
        with pytest.raises(NodeExists):
            cm.create_group(store, path, format=fmt)
        assert keys(store) == before

    @pytest.mark.parametrize("path", ["..", "a/../b", "../../x", "./a", "a/."])
    def test_paths_that_lead_out(self, store, fmt, path):
        for make_node in (lambda: make(store, path, fmt), lambda: cm.create_group(store, path, format=fmt)):
            with pytest.raises(MetadataError):
                make_node()
        with pytest.raises(MetadataError):
            cm.open(store, path)
        assert keys(store) == []


@cases("fmt", FORMATS)
class TestOverwrite:
    def test_a_group_with_all_below_it(self, store, fmt):
        make(store, "g/h/a", fmt)[...] = 1
        make(store, "gh", fmt)[...] = 1
        make(store, "g", fmt, overwrite=True)
        assert not [key for key in keys(store) if "/h" in key]
        assert isinstance(cm.open(store, "g"), cm.Array)
        np.testing.assert_array_equal(cm.open_array(store, "gh")[...], [1, 1, 1])

    @pytest.mark.parametrize("other", FORMATS)
    def test_a_node_of_another_format(self, store, fmt, other):
        make(store, "a", other)[...] = 1
        if {fmt, other} == {"zarr3", "zarr3-draft"}:
            return  # both have their root in zarr.json, see below
        make(store, "a", fmt, overwrite=True)[...] = 2
        array = cm.open_array(store, "a")
        assert array.format == fmt
        np.testing.assert_array_equal(array[...], [2, 2, 2])
        fresh = MemoryStore()
        make(fresh, "a", fmt)[...] = 2
        roots = {".zgroup", ".zattrs", "zarr.json", "attributes.json", "meta/group.json"}
        assert set(keys(fresh)) <= set(keys(store)) <= set(keys(fresh)) | roots
        for each in set(FORMATS) - {fmt}:
            with pytest.raises((NodeNotFound, MetadataError)):
                cm.open_array(store, "a", format=each)

    def test_a_document_that_is_broken(self, store, fmt):
        make(store, "a/b", fmt)[...] = 1
        ends = ("b/.zarray", "b/zarr.json", "b.array.json", "b/attributes.json")
        store.set(next(key for key in DOCUMENTS[fmt] if key.endswith(ends)), b"{")
        for refused in (cm.open, partial(make, fmt=fmt)):
            with pytest.raises(MetadataError):
                refused(store, "a/b")
        make(store, "a/b", fmt, overwrite=True)
        np.testing.assert_array_equal(cm.open_array(store, "a/b")[...], [0, 0, 0])


def test_draft_and_final_share_no_store():
    """Each would make the other's root document its own."""
    for first, second in (("zarr3", "zarr3-draft"), ("zarr3-draft", "zarr3")):
        store = MemoryStore()
        make(store, "a", first)[...] = 1
        for path, overwrite in (("d", False), ("a", True)):
            with pytest.raises(UnsupportedFeature, match="another url"):
                make(store, path, second, overwrite=overwrite)
        assert cm.open_array(store, "a")[...].tolist() == [1, 1, 1]


NAMES = ["x y", "日本", "a.b", "-", "..x", "__x", "c", "0", "data", "meta", "zarr", "attributes"]


@pytest.mark.filterwarnings("ignore:the name of a node begins with '__'")
@cases("fmt", FORMATS)
@cases("name", NAMES)
def test_names(store, fmt, name):
    """What one format bars does not bar others from being found."""
    barred = {"zarr3-draft": name in {"x y", "日本"}}.get(fmt, False)
    if barred:
        with pytest.raises(MetadataError):
            make(store, f"g/{name}", fmt)
        assert keys(store) == []
        return
    make(store, f"g/{name}", fmt)[...] = [1, 2, 3]
    node = cm.open(store, f"g/{name}")
    assert (node.path, node.format) == (f"g/{name}", fmt)
    assert list(cm.open_group(store, "g")) == [name]
    np.testing.assert_array_equal(cm.open_group(store)["g"][name][...], [1, 2, 3])


# ----------------------------------------------------------------------------------------------------------------------
# What is listed


@pytest.fixture(params=FORMATS)
def tree(request):
    store = MemoryStore()
    fmt = request.param
    for path in ("b", "a/y/deep", "a/x"):
        make(store, path, fmt)[...] = 1
    cm.create_group(store, "none", format=fmt)
    return cm.open_group(store)


class TestGroup:
    def test_children_are_sorted_and_direct_and_paths_go_on_from_the_group(self, tree):
        assert (list(tree), len(tree)) == (["a", "b", "none"], 3)
        assert (list(tree.arrays()), list(tree.groups())) == (["b"], ["a", "none"])
        assert list(tree["none"]) == []
        assert (tree["a"]["y"]["deep"].path, tree["a/y/deep"].path) == ("a/y/deep", "a/y/deep")
        with pytest.raises(NodeNotFound):
            tree["a"]["b"]

    def test_one_listing_and_one_round_of_documents(self):
        store = RecordingStore(MemoryStore())
        for n in range(20):
            make(store, f"a{n}")
        group = cm.open_group(store)
        store.clear()
        assert len(group.arrays()) == 20
        assert (len(store.keys("list_dir")), len(store.keys("get"))) == (1, 20)


# ----------------------------------------------------------------------------------------------------------------------
# Which format

V2_ARRAY = hostile.v2(shape=[3], chunks=[2])[".zarray"]
V3_GROUP = {"zarr_format": 3, "node_type": "group"}
V3_ARRAY = hostile.v3(shape=[4], chunk_grid=hostile.regular(2))["zarr.json"]
EXPERIMENT_ENTRY = {
    "zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0", "metadata_encoding": "https://purl.org/zarr/spec/protocol/core/3.0",
    "metadata_key_suffix": ".json", "extensions": [],
}  # fmt: skip
DRAFT_ENTRY, DRAFT_ARRAY = hostile.ENTRY, json.loads(hostile.draft(shape=[5])["meta/array.json"])
N5_ARRAY = {"dimensions": [6], "blockSize": [2], "dataType": "int16", "compression": {"type": "raw"}}

GUESSES = {
    "v2": ({".zarray": V2_ARRAY}, "", "zarr2", (3,)),
    "v2 group": ({".zgroup": {"zarr_format": 2}}, "", "zarr2", None),
    "v3": ({"zarr.json": V3_ARRAY}, "", "zarr3", (4,)),
    "v3 before v2": ({".zarray": V2_ARRAY, "zarr.json": V3_ARRAY}, "", "zarr3", (4,)),
    "v3 group before v2 array": ({".zarray": V2_ARRAY, "zarr.json": V3_GROUP}, "", "zarr3", None),
    "v2 array inside a v3 group": ({"zarr.json": V3_GROUP, "a/.zarray": V2_ARRAY}, "a", "zarr2", (3,)),
    "v3 array inside a v2 group": ({".zgroup": {"zarr_format": 2}, "a/zarr.json": V3_ARRAY}, "a", "zarr3", (4,)),
    "v3 group with meta and data": ({"zarr.json": V3_GROUP, "meta/zarr.json": V3_GROUP, "data/zarr.json": V3_ARRAY}, "", "zarr3", None),
    "v3 array called meta/array.json": ({"zarr.json": V3_GROUP, "meta/array.json/zarr.json": V3_ARRAY}, "meta/array.json", "zarr3", (4,)),
    "draft": ({"zarr.json": DRAFT_ENTRY, "meta/array.json": DRAFT_ARRAY}, "", "zarr3-draft", (5,)),
    "draft of a later minor version": ({"zarr.json": DRAFT_ENTRY | {"zarr_format": "https://purl.org/zarr/spec/core/3.7", "more": 1}, "meta/a.array.json": DRAFT_ARRAY}, "a", "zarr3-draft", (5,)),
    "draft, implicit root": ({"zarr.json": DRAFT_ENTRY, "meta/g/a.array.json": DRAFT_ARRAY}, "", "zarr3-draft", None),
    "draft beside a v2 array": ({"zarr.json": DRAFT_ENTRY, "meta/a.array.json": DRAFT_ARRAY, "a/.zarray": V2_ARRAY}, "a", "zarr2", (3,)),
    "experiment": (
        {"zarr.json": EXPERIMENT_ENTRY, "meta/root/a.array.json": DRAFT_ARRAY | {"compressor": None}},
        "a", "zarr3-experimental", (5,),
    ),
    "n5": ({"attributes.json": N5_ARRAY}, "", "n5", (6,)),
    "n5 group": ({"attributes.json": {"n5": "2.0.0"}, "a/attributes.json": N5_ARRAY}, "", "n5", None),
    "n5 without a version": ({"a/attributes.json": N5_ARRAY}, "a", "n5", (6,)),
    "n5 without a version, its folder": ({"a/attributes.json": N5_ARRAY}, "", "n5", None),
    "n5 beside v2": ({"attributes.json": N5_ARRAY, ".zarray": V2_ARRAY}, "", "zarr2", (3,)),
    "attributes, for all that anyone can tell of an N5 group": ({"attributes.json": {"a": 1}}, "", "n5", None),
    "n5 beside v3": ({"attributes.json": N5_ARRAY, "zarr.json": V3_ARRAY}, "", "zarr3", (4,)),
}  # fmt: skip


@cases("name", GUESSES)
def test_guess(name):
    documents, path, fmt, shape = GUESSES[name]
    node = cm.open(store_of(documents), path)
    assert node.format == fmt
    assert (node.shape if isinstance(node, cm.Array) else None) == shape
    same = cm.open(store_of(documents), path, format=fmt)
    assert (same.format, type(same)) == (fmt, type(node))
    if name == "n5 beside v2":
        assert cm.open(store_of(documents), format="n5").format == "n5"


@cases(
    "documents",
    [
        {"zarr.json": V3_GROUP | {"zarr_format": 4}},
        {"zarr.json": DRAFT_ENTRY | {"zarr_format": "https://purl.org/zarr/spec/core/4.0"}},
        {"zarr.json": DRAFT_ENTRY | {"zarr_format": "https://example.org/3.0"}},
        {"zarr.json": {"node_type": "group"}}, {"zarr.json": V3_GROUP | {"node_type": "table"}},
        {".zgroup": {"zarr_format": 3}}, {"attributes.json": {"n5": "5.0.0"}}, {"zarr.json": b"\xff"},
    ],
)  # fmt: skip
def test_what_is_of_no_known_version_is_no_absence(documents):
    with pytest.raises(MetadataError):
        cm.open(store_of(documents))


@cases(
    "documents",
    [
        {"data.csv": b"1,2"}, {"meta/array.json": DRAFT_ARRAY}, {"a/attributes.json": {"a": 1}},
    ],
)  # fmt: skip
def test_what_is_no_node(documents):
    with pytest.raises(NodeNotFound):
        cm.open(store_of(documents))


def test_wrong_kinds(store):
    make(store, "g/a")
    with pytest.raises(NodeNotFound, match="'a'"):
        cm.open_array(store, "g")
    with pytest.raises(NodeNotFound, match="open_array"):
        cm.open_group(store, "g/a")


# ----------------------------------------------------------------------------------------------------------------------
# Consolidated metadata


@pytest.mark.parametrize("fmt", ZARR)
class TestConsolidated:
    @pytest.fixture
    def store(self, fmt):
        store = RecordingStore(MemoryStore())
        for path in ("g/a", "g/h/b", "top"):
            make(store, path, fmt, attributes={"path": path})
        cm.create_group(store, "none", format=fmt, attributes={"empty": True})
        cm.consolidate(store)
        store.clear()
        return store

    def test_a_walk_costs_no_further_request(self, store, fmt):
        store.is_remote = True
        group = cm.open_group(store)
        store.clear()
        nodes = list(opening.walk(group.stored))
        assert len(nodes) == 7
        assert group["g/h/b"].attributes == {"path": "g/h/b"}
        assert group["none"].attributes == {"empty": True}
        assert store.log == []

    def test_it_can_be_left_aside_or_demanded(self, store, fmt):
        assert list(cm.open_group(store, consolidated=False)) == ["g", "none", "top"]
        assert store.keys("list_dir")
        assert list(cm.open_group(store, consolidated=True)) == ["g", "none", "top"]
        group = cm.open_group(store, "g", consolidated=True)  # as the root's says
        assert (list(group), group["h/b"].path) == (["a", "h"], "g/h/b")
        bare = MemoryStore()
        make(bare, "a", fmt)
        with pytest.raises(MetadataError, match="consolidated=True"):
            cm.open_group(bare, consolidated=True)
        with pytest.raises(NodeNotFound):
            cm.open_group(MemoryStore(), consolidated=True)

    def test_new_arrays_are_in_it(self, store, fmt):
        cm.consolidate(store, "g")
        make(store, "g/new", fmt, attributes={"late": 1})
        assert list(cm.open_group(store, "g", consolidated=True)) == ["a", "h", "new"]
        for consolidated in (None, True, False):
            group = cm.open_group(store, consolidated=consolidated)
            assert (list(group["g"]), group["g/new"].attributes) == (["a", "h", "new"], {"late": 1})

    def test_what_is_replaced_leaves_no_ghost(self, store, fmt):
        """An array that is gone would read as fill value."""
        cm.create_group(store, "g", format=fmt, overwrite=True)
        for consolidated in (None, True, False):
            group = cm.open_group(store, consolidated=consolidated)
            assert list(group["g"]) == []
            assert "g/a" not in group
        with pytest.raises(NodeNotFound):
            cm.open(store, "g/a")

    def test_replaced_by_another_format(self, store, fmt):
        other = {"zarr2": "n5", "zarr3": "zarr2"}[fmt]
        make(store, "g", other, overwrite=True)
        assert "g/a" not in cm.open_group(store, format=fmt)
        assert cm.open(store, "g").format == other

    def test_documents_that_others_changed_are_seen_where_that_is_cheap(self, store, fmt):
        other = MemoryStore()
        cm.create_array(other, "top", shape=(5,), dtype="i4", chunks=(2,), format=fmt)
        copy_keys(other, store.below, "top/")
        assert cm.open_group(store)["top"].shape == (5,)
        assert cm.open_group(store, consolidated=True)["top"].shape == (3,)
        store.is_remote = True
        assert cm.open_group(store)["top"].shape == (3,)


@pytest.mark.parametrize("fmt", ["n5", "zarr3-draft"])
def test_formats_without_consolidated_metadata(url, fmt):
    make(url, "a", fmt)
    with pytest.raises(UnsupportedFeature, match="consolidated"):
        cm.consolidate(url)
    with pytest.raises(MetadataError):
        cm.open_group(url, consolidated=True)


def test_consolidating_an_array(store):
    make(store)
    with pytest.raises(NodeNotFound, match="group"):
        cm.consolidate(store)


# ----------------------------------------------------------------------------------------------------------------------
# Attributes


@cases("fmt", FORMATS)
def test_nan_in_attributes_of_a_source_is_written_as_json_can(store, fmt):
    bare = {"valid_range": [float("nan"), float("inf")]}
    described = replace(make(MemoryStore(), "a", fmt).stored.metadata, attributes=bare)
    with pytest.warns(UserWarning, match="attributes hold NaN or infinities"):
        documents = get_format(fmt).emit_array("a", described)
    for key, value in documents.items():
        store.set(key, value)
    for key in keys(store):
        json.loads(store.get(key), parse_constant=partial(pytest.fail, f"no JSON in {key}"))
    found = get_format(fmt).parse_array("a", contents(store))
    assert found.attributes == {"valid_range": ["NaN", "Infinity"]}


@cases("value", [float("inf"), [float("nan")], {"a": -float("inf")}])
def test_attributes_that_a_user_gives_are_stored_exactly_or_refused(value):
    store, given = MemoryStore(), {"a": value}
    array = make(store, "a", "zarr3")
    for call in (
        lambda: array.update_attributes(given),
        lambda: cm.create_array(store, "b", shape=(2,), dtype="i4", attributes=given),
        lambda: cm.create_arrays(store, {"b": {"shape": (2,), "dtype": "i4", "attributes": given}}),
        lambda: cm.create_group(store, "b", attributes=given),
        lambda: cm.to_store(np.arange(2), store, "b", attributes=given),
    ):
        with pytest.raises(MetadataError, match="give NaN and infinities as texts"):
            call()
    assert keys(store) == ["a/zarr.json", "zarr.json"]
    assert cm.open(store, "a").attributes == {}


# --------------------------------------------------------------------------------------------------------------------
# The format of what is created without a word about it


@cases("fmt", FORMATS)
def test_the_format_is_that_of_the_group_above(store, fmt):
    make(store, "g/a", fmt)
    assert cm.create_array(store, "g/h/c", shape=(2,), dtype="i4").format == fmt
    assert cm.create_group(store, "g/k").format == fmt
    cm.to_store(np.ones(3), store, "g/x")
    cm.to_store(np.ones(3), store, "g/y", mode="a")
    root = cm.open_group(store)
    assert (root.format, list(root), list(root["g"])) == (fmt, ["g"], ["a", "h", "k", "x", "y"])


def test_the_nearest_group_says_the_format(store):
    cm.create_group(store, format="n5")
    cm.create_group(store, "in/zarr", format="zarr2")
    assert cm.create_array(store, "in/zarr/a", shape=(2,), dtype="i4").format == "zarr2"
    assert cm.create_array(store, "b", shape=(2,), dtype="i4").format == "zarr2"  # which all guess of the root, too
    assert cm.create_array(MemoryStore(), "a/b", shape=(2,), dtype="i4").format == "zarr3"


def test_groups_without_documents_say_it_too(store):
    """Only tensorstore makes such roots: an N5 array in a folder that says nothing of itself."""
    make(store, "a", "n5")[...] = 1
    store.delete("attributes.json")
    assert cm.create_array(store, "b", shape=(2,), dtype="i4").format == "n5"


def test_a_folder_of_parquet_references_opens_by_its_url(tmp_path):
    """It is looked for last: where no node is found."""
    pytest.importorskip("pyarrow")
    source, folder = str(tmp_path / "source"), str(tmp_path / "folder")
    cm.create_array(source, shape=4, dtype="i4", format="zarr2")[...] = 7
    cm.to_references(source, folder, format="parquet")
    assert cm.open_array(folder)[...].tolist() == [7] * 4


def test_a_store_that_cannot_be_listed_is_said_to_have_nothing_of_a_known_format():
    with pytest.raises(NodeNotFound, match="nothing of a known format answers there"):
        cm.open(FailingStore(MemoryStore(), 1, ("list_dir",)))


def test_web_pages_that_servers_send_for_absent_documents_hide_no_node():
    far = FarStore()
    cm.create_array(far.below, "a", shape=(2,), dtype="i4", chunks=(2,), format="zarr2")[...] = 1
    far.below.set("a/zarr.json", b"  <html>not found</html>")
    assert cm.open_array(far, "a")[...].tolist() == [1, 1]


def test_a_document_that_cannot_be_read_is_not_taken_for_absent_where_others_are_forbidden(monkeypatch):
    """The node would be another one: of the format that was found."""
    forbidden, lost = (StoreError(url="", key="", reason=why) for why in ("403", "the connection was lost"))
    forbidden.__cause__ = PermissionError()
    cm.create_group(store := MemoryStore(), format="zarr2")
    failing = Meanwhile(store, ("get", "zarr.json"), Mock(side_effect=lost))
    failing.is_remote = True
    monkeypatch.setattr(opening, "fetch", Mock(side_effect=forbidden))
    with pytest.raises(StoreError, match="connection was lost"):
        cm.open(failing)
    assert cm.open(failing).format == "zarr2"
