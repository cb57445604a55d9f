"""`cm.check`: finds what is wrong, finds nothing where nothing is, repairs what follows from what is there."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from support import arrays
from support.cases import cases
from support.recording import FailingStore, contents, copy_keys

import chunkmill as cm
from chunkmill.errors import NodeNotFound, StoreError
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import Plan
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.posix_file import PARTIAL_SUFFIX, hidden_name

pytestmark = pytest.mark.usefixtures("one_thread")

GOLDEN = Path(__file__).parents[2] / "golden"
LAYOUTS = {
    "zarr2": {"format": "zarr2", "chunks": (4, 4)},
    "zarr3": {"format": "zarr3", "chunks": (4, 4)},
    "sharded": {"format": "zarr3", "chunks": (2, 2), "shards": (4, 4)},
    "zarr3-draft": {"format": "zarr3-draft", "chunks": (4, 4)},
    "n5": {"format": "n5", "chunks": (4, 4)},
}


def kinds(report):
    return sorted(problem.kind for problem in report.problems)


def filled(store, layout="zarr3", path="g/a", **kwargs):
    """Write an array of ten by nine, with one chunk of fill value, which is absent."""
    values = np.arange(90, dtype="i4").reshape(10, 9) + 1
    values[:4, :4] = 0
    return arrays.filled(values, store, path, **LAYOUTS[layout], **kwargs)


class TestNothingIsWrong:
    @cases(("layout", "path"), [("zarr2", ""), ("zarr3", "a"), ("sharded", ""), ("zarr3-draft", "g/a"), ("n5", "g/a")])
    def test_own_stores(self, store, layout, path):
        filled(store, layout, path)
        report = cm.check(store)
        assert report.problems == ()
        assert report.ok
        assert (report.n_arrays, report.n_keys) == (1, 8)
        documents = (".json", ".zarray", ".zattrs", ".zgroup")
        assert report.bytes_read == sum(store.size(k) for k in store.list_prefix("") if not k.endswith(documents))

    @cases("fmt", ["zarr2", "zarr3"])
    def test_consolidated(self, store, fmt):
        for path in ("a", "g/b", "g/h/c"):
            filled(store, fmt, path, attributes={"x": "NaN"})
        cm.consolidate(store, "g")
        cm.consolidate(store)
        report = cm.check(store)
        assert report.problems == ()
        assert (report.n_arrays, report.n_groups) == (3, 3)

    @pytest.mark.filterwarnings("ignore:.*has no endian")
    def test_those_of_others(self):
        """Of golden stores each third that was not made to be wrong; some have data types that we do not."""
        formats = ("n5", "zarr_v2", "zarr_v3", "zarr_v3_draft")
        writers = [each for name in formats for each in (GOLDEN / name).iterdir() if each.is_dir()]
        n_stores = 0
        for writer in writers:
            if writer.name.startswith(("hand", "lz4-java")):
                continue
            for folder in sorted(writer.iterdir())[::3]:
                found = {(p.kind, p.key) for p in cm.check(folder, progress=False).problems}
                n_stores += 1
                allowed = {("orphan", "meta/root/consolidated/.zmetadata"), ("metadata", "data/attributes.json")}
                assert all(kind == "unsupported" for kind, _ in found - allowed), (folder, found)
        assert n_stores > 150

    def test_scalars_and_axes_without_elements(self, store):
        cm.create_array(store, "scalar", shape=(), dtype="i4", chunks=())[...] = 5
        cm.create_array(store, "empty", shape=(0, 3), dtype="i4", chunks=(2, 2))
        assert (cm.check(store).problems, cm.check(store).n_keys) == ((), 1)


# layout -> what happens to the bytes of a chunk -> the kind
DAMAGE = [
    ("zarr2", lambda b: b[: len(b) // 2], "short"), ("zarr3", lambda b: b[:-1], "short"),
    ("zarr3", lambda b: b"", "short"), ("zarr3-draft", lambda b: b[: len(b) // 2], "short"),
    ("n5", lambda b: b[:6], "short"), ("n5", lambda b: b[: len(b) // 2], "short"),
    ("zarr3", lambda b: b[: len(b) // 2] + bytes(len(b) - len(b) // 2), "corrupt"),
    ("zarr2", lambda b: b"nonsense" * 5, "corrupt"), ("sharded", lambda b: b[: len(b) // 2], "torn"),
    ("sharded", lambda b: b[: len(b) // 2] + bytes(len(b) - len(b) // 2), "torn"),
    ("sharded", lambda b: b"", "short"),
]  # fmt: skip


class FailingWhere(FailingStore):
    """Fails at each request that `where` says of, by key and byte range."""

    def __init__(self, below, where):
        super().__init__(below, 1)
        self.where = where

    def _before(self, method, key, byte_range=None):
        if self.where(key, byte_range):
            super()._before(method, key, byte_range)


class TestChunks:
    @cases(("layout", "damage", "kind"), DAMAGE)
    def test_damage(self, store, layout, damage, kind):
        array = filled(store, layout)
        key = array.write_layout.locator.key((1, 2))
        store.set(key, damage(store.get(key)))
        (problem,) = cm.check(store).problems
        assert (problem.kind, problem.key, problem.coords, problem.path) == (kind, key, (1, 2), "g/a")
        assert problem.reason

    @cases(
        ("fmt", "codecs"),
        [
            ("zarr3", "raw"), ("zarr3", "zstd"), ("zarr3", "gzip"), ("zarr3", "blosc"),
            ("zarr2", [{"name": "numcodecs.bz2", "configuration": {}}]), ("n5", "raw"), ("n5", "gzip"),
            ("n5", [{"name": "n5_lz4", "configuration": {}}]),
        ],
    )  # fmt: skip
    def test_a_value_that_ends_early_is_short_whatever_its_codec_says(self, store, fmt, codecs):
        """Codecs tell it in messages of their own: one that is reworded must still be understood."""
        array = cm.create_array(store, "a", shape=(400,), dtype="i4", chunks=(400,), codecs=codecs, format=fmt)
        array[...] = np.random.default_rng(0).integers(0, 1000, 400)
        key = array.write_layout.locator.key((0,))
        store.set(key, store.get(key)[: 2 * store.size(key) // 3])
        assert [(p.kind, p.key, p.coords) for p in cm.check(store).problems] == [("short", key, (0,))]

    def test_every_damaged_chunk_of_a_shard_is_named(self, store):
        array = filled(store, "sharded")
        key = array.write_layout.locator.key((1, 1))
        value = bytearray(store.get(key))
        for coords in ((2, 2), (3, 3)):
            (span,) = array.read_layout.locator.locate(store, [coords])
            value[span.byte_range.start + 3] ^= 0xFF
        store.set(key, bytes(value))
        found = [(p.kind, p.key, p.coords) for p in cm.check(store).problems]
        assert found == [("corrupt", key, (2, 2)), ("corrupt", key, (3, 3))]

    def test_what_the_store_cannot_deliver(self, store):
        filled(store)
        report = cm.check(FailingWhere(store, lambda key, _: key.endswith(("c/1/1", "c/2/2"))))
        assert [(p.kind, p.key) for p in report.problems] == [("failed", "g/a/c/1/1"), ("failed", "g/a/c/2/2")]
        assert "injected failure" in report.problems[0].reason

    def test_what_the_store_cannot_deliver_of_a_damaged_shard(self, store):
        key = filled(store, "sharded").write_layout.locator.key((1, 1))
        store.set(key, b"\xff" * 20 + store.get(key)[20:])
        failing = FailingWhere(store, lambda _, part: part is not None and part.start == 0)
        found = [(p.kind, p.key) for p in cm.check(failing).problems]
        assert ("failed", key) in found, found


class TestKeys:
    @cases("layout", LAYOUTS)
    def test_orphans(self, store, layout):
        array = filled(store, layout)
        outside = array.write_layout.locator.key((3, 0))
        strange = array.stored.prefix + "notes.txt"
        for key in (outside, strange, "elsewhere/c/0/0"):
            store.set(key, b"?")
        report = cm.check(store)
        found = {p.key: (p.coords, p.path) for p in report.problems}
        assert found == {outside: ((3, 0), "g/a"), strange: (None, "g/a"), "elsewhere/c/0/0": (None, "")}
        assert (kinds(report), report.ok) == (["orphan"] * 3, False)

    def test_wrong_documents_hide_what_is_below(self, store):
        filled(store, path="g/a")
        filled(store, path="g/b")
        store.set("g/a/zarr.json", b"{")
        report = cm.check(store)
        assert [(p.kind, p.key, p.path) for p in report.problems] == [("metadata", "g/a/zarr.json", "g/a")]
        assert report.n_arrays == 1

    def test_codecs_that_are_not_here(self, store):
        filled(store, path="a")
        document = json.loads(store.get("a/zarr.json"))
        document["codecs"][-1] = {"name": "of-another-planet"}
        store.set("a/zarr.json", json.dumps(document).encode())
        (problem,) = cm.check(store).problems
        assert problem.kind == "unsupported"
        assert "of-another-planet" in problem.reason


def leave_partial(folder):
    """Die while a value is being written."""
    pid = os.fork()
    if pid == 0:
        store = LocalStore(folder)
        os.replace = lambda *_: os._exit(0)
        store.set("g/a/c/1/1", b"never there")
    os.waitpid(pid, 0)


class TestRepair:
    def test_leftovers(self, tmp_path):
        filled(str(tmp_path))
        leave_partial(tmp_path)
        store = LocalStore(tmp_path)
        before = contents(store)
        report = cm.check(tmp_path)
        assert kinds(report) == ["leftover"]
        assert report.problems[0].key.startswith("g/a/c/1/.1.")
        assert not report.ok
        report = cm.check(tmp_path, repair=True)
        assert report.ok
        assert [p.repaired for p in report.problems] == [True]
        assert "1 of them repaired" in str(report)
        assert str(report.problems[0]).endswith(" (repaired)")
        assert contents(store) == before
        assert not [p for p in tmp_path.rglob("*") if p.name.endswith(PARTIAL_SUFFIX)]
        assert cm.check(tmp_path).problems == ()

    def test_of_chunks_that_end_early_those_without_any_byte_are_removed(self, store):
        filled(store)
        torn = store.get("g/a/c/2/1")[:-1]
        store.set("g/a/c/1/1", b"")
        store.set("g/a/c/2/1", torn)
        found = [(p.kind, p.repaired, store.get(p.key)) for p in cm.check(store, repair=True).problems]
        assert found == [("short", True, None), ("short", False, torn)]

    def test_what_is_being_written_stays(self, tmp_path):
        filled(str(tmp_path))
        path = str(tmp_path / "g/a/c/0/0")
        partial = hidden_name(path)
        Path(partial).write_bytes(b"half")
        assert cm.check(tmp_path, repair=True).problems == ()
        assert Path(partial).exists()

    @cases("fmt", ["zarr2", "zarr3"])
    @cases("change", ["other", "gone", "new", "broken"])
    def test_stale_consolidated_metadata(self, store, fmt, change):
        for path in ("g/a", "g/b"):
            filled(store, fmt, path)
        cm.consolidate(store, "g")
        name = "zarr.json" if fmt == "zarr3" else ".zarray"
        key = "g/zarr.json" if fmt == "zarr3" else "g/.zmetadata"
        if change == "other":
            store.set(f"g/a/{name}", store.get(f"g/a/{name}").replace(b"10", b"11"))
        elif change == "gone":
            store.delete_prefix("g/a/")
        elif change == "new":
            fresh = MemoryStore()
            filled(fresh, fmt, "g/c")
            copy_keys(fresh, store, "g/c/")
        else:
            value = json.loads(store.get(key))
            (value["metadata"] if fmt == "zarr2" else value["consolidated_metadata"]["metadata"])["../x"] = {}
            store.set(key, json.dumps(value).encode())
        report = cm.check(store)
        assert [(p.kind, p.key, p.path) for p in report.problems] == [("stale", key, "g")]
        before = contents(store)
        report = cm.check(store, repair=True)
        assert report.ok
        after = contents(store)
        assert {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)} == {key}
        assert cm.check(store).problems == ()
        expected = {"other": ["a", "b"], "gone": ["b"], "new": ["a", "b", "c"], "broken": ["a", "b"]}[change]
        assert list(cm.open_group(store, "g", consolidated=True)) == expected

    @cases("fmt", ["zarr2", "zarr3"])
    def test_layout_of_json_is_not_stale_and_of_many_changes_few_are_named(self, store, fmt):
        filled(store, fmt, "b")
        cm.consolidate(store)
        key = "b/zarr.json" if fmt == "zarr3" else "b/.zarray"
        store.set(key, json.dumps(json.loads(store.get(key)), indent=9, sort_keys=True).encode())
        assert cm.check(store).problems == ()
        for n in range(20):
            for k in list(store.list_prefix("b/")):
                store.set(k.replace("b/", f"n{n:02}/", 1), store.get(k))
        (problem,) = cm.check(store).problems
        assert problem.reason.endswith(" more")
        assert "'n00/" in problem.reason
        assert len(problem.reason) < 200

    def test_stale_and_unreadable_stays_stale(self, store):
        """What cannot be read would be missing from the new metadata, for good."""
        for path in ("a", "b"):
            filled(store, path=path)
        cm.consolidate(store)
        store.set("a/zarr.json", b"{")
        before = contents(store)
        report = cm.check(store, repair=True)
        assert kinds(report) == ["metadata", "stale"]
        assert not report.ok
        assert contents(store) == before

    def test_chunks_orphans_and_jobs_are_not_touched(self, store):
        array = filled(store)
        store.set(array.write_layout.locator.key((1, 1)), b"torn")
        store.set("g/a/c/7/7", b"orphan")
        Journal(store, Plan("g/b", "write to 'g/b'", "mark")).begin()
        before = contents(store)
        report = cm.check(store, repair=True)
        assert kinds(report) == ["corrupt", "orphan", "unfinished"]
        assert not report.ok
        assert contents(store) == before


class TestShown:
    def test_report(self, store):
        filled(store)
        assert str(cm.check(store)).startswith("check: ok\n")
        store.set("g/a/c/1/1", b"x")
        store.set("g/a/c/9/9", b"x")
        report = cm.check(store)
        lines = str(report).splitlines()
        assert (lines[0], lines[3].split()[:3]) == ("check: 2 problems", ["problem", "key", "chunk"])
        assert "<b>check: 2 problems</b>" in report._repr_html_()
        found = json.loads(json.dumps(report.to_dict()))
        assert found["ok"] is False
        assert found["problems"][1]["coords"] == [1, 1]
        assert str(report.problems[1]).startswith("corrupt: g/a/c/1/1 chunk (1, 1): codec ")


class Unlisted(FailingStore):
    """As over HTTP, where servers list nothing: what the metadata tell of is checked."""

    def __init__(self, below):
        super().__init__(below, 1, ["list_prefix", "list_dir"])
        self.can_list = False


class TestWithoutListing:
    @cases("is_group", [False, True])
    def test_what_metadata_tell_of(self, store, is_group):
        filled(store, path="a")
        if is_group:
            cm.consolidate(store)
        report = cm.check(Unlisted(store), "" if is_group else "a")
        assert (report.problems, report.n_arrays, report.n_keys) == ((), 1, 9)
        store.set("a/c/1/1", b"x")
        assert kinds(cm.check(Unlisted(store), "a")) == ["corrupt"]

    def test_too_large_to_ask_for(self, store):
        cm.create_array(store, shape=(1 << 40,), dtype="i1", chunks=(1,))
        with pytest.raises(StoreError, match="cannot list keys"):
            cm.check(Unlisted(store))


@pytest.fixture
def three():
    store = MemoryStore()
    for path in ("g/a", "g/b", "c"):
        cm.create_array(store, path, shape=(4,), dtype="i4", chunks=(2,))[...] = 1
    cm.consolidate(store)
    return store


def test_below_a_group_or_a_path(three):
    whole, part = cm.check(three), cm.check(three, "g")
    assert (whole.n_arrays, part.n_arrays, part.path) == (3, 2, "g")
    group = cm.open_group(three)
    assert cm.check(group).n_arrays == 3
    assert cm.check(group["g"]).n_arrays == cm.check(group, "/g/").n_arrays == 2
    assert cm.check(group["g/a"]).n_keys == 2


def test_a_group_opened_by_consolidated_metadata_is_checked_by_its_documents(three):
    group = cm.open_group(three, consolidated=True)
    three.delete("c/zarr.json")
    assert [(problem.kind, problem.key) for problem in cm.check(group).problems] == [("metadata", "c/zarr.json")]


def test_nothing_to_check(tmp_path):
    with pytest.raises(NodeNotFound):
        cm.check(tmp_path / "nothing")
