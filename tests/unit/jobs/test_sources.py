"""Sources that change or are misread during a job (P9): nothing is published; stores that fail (P7) or are far away."""

from contextlib import nullcontext

import dask.array as da
import numpy as np
import pytest
from support.cases import cases
from support.rechunks import check, make
from support.recording import FailingStore, FarStore, Meanwhile, RecordingStore, reads_a_chunk

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, NodeNotFound, StoreError
from chunkmill.jobs import sources
from chunkmill.jobs.sources import check_absent, check_sources, see_sources
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]


def change(array, seen):
    return seen[0].seen.change(array)


def made_again(store, fmt, chunks):
    store.delete_prefix("")
    make(store, shape=(6, 4), chunks=chunks, format=fmt)


def damaged(store):
    for key in list(store.list_prefix("")):
        if store.get(key).startswith(b"{"):
            store.set(key, b"{")


CHANGES = {
    "nothing": (lambda store, _: None, None),
    "attributes": (lambda store, _: cm.open_array(store, "a", mode="r+").update_attributes({"units": "K"}), None),
    "deleted": (lambda store, _: store.delete_prefix(""), "deleted"),
    "damaged": (lambda store, _: damaged(store), "changed"),
    "other chunks": (lambda store, fmt: made_again(store, fmt, (3, 4)), "changed"),
    "made again alike": (lambda store, fmt: made_again(store, fmt, (2, 4)), "replaced"),
}


@cases("fmt", FORMATS)
@cases("name", CHANGES)
def test_changes_are_told_apart(fmt, name):
    make_change, expected = CHANGES[name]
    array = make(MemoryStore(), shape=(6, 4), chunks=(2, 4), format=fmt)[0].stored
    seen = see_sources([array])
    make_change(array.store, fmt)
    assert change(array, seen) == expected
    said = nullcontext() if expected is None else pytest.raises(JobError, match=rf"the source 'a' .*was {expected}")
    with said:
        check_sources("copy", seen)


def test_stores_that_compare_no_versions_are_compared_by_documents():
    store = RecordingStore(MemoryStore())
    store.compares_versions = False
    array, _ = make(store, shape=(6, 4), chunks=(2, 4))
    seen = see_sources([array.stored])
    assert seen[0].seen.versions == {}
    store.set("a/zarr.json", store.get("a/zarr.json"))
    assert change(array, seen) is None


def test_documents_are_not_taken_from_consolidated_metadata(tmp_path):
    cm.create_group(str(tmp_path))
    make(LocalStore(tmp_path), shape=(6, 4), chunks=(2, 4))
    cm.consolidate(str(tmp_path))
    array = cm.open_group(str(tmp_path), consolidated=True)["a"]
    seen = see_sources([array.stored])
    (tmp_path / "a" / "zarr.json").unlink()
    assert change(array, seen) == "deleted"


@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_absent_chunks_are_looked_for_again(shards):
    array, _ = make(MemoryStore(), shape=(8, 4), chunks=(2, 4), shards=shards, absent=[(0, 0)])
    check_absent(array.stored, array.read_layout, [(0, 0)])
    check_absent(array.stored, array.read_layout, [])
    with pytest.raises(ChunkError, match="is present now") as caught:
        check_absent(array.stored, array.read_layout, [(0, 0), (3, 0)])
    assert caught.value.coords == (3, 0)


@cases("consolidated", [False, True])
def test_a_source_whose_document_is_gone_when_it_is_first_looked_at(store, consolidated):
    """It was taken for one that is known from consolidated metadata: new chunks were copied by old documents."""
    cm.create_group(store).create_array("a", shape=(4,), dtype="i4", chunks=(2,))
    cm.consolidate(store)
    opened = cm.open_group(store, consolidated=consolidated)["a"]
    store.delete("a/zarr.json")
    with pytest.raises(JobError, match="was replaced after it was opened"):
        see_sources([opened.stored])


class ByGet(RecordingStore):
    """A store whose answers `get` decides."""

    def get_many(self, spans):
        return (None if span is None else self.get(span.key, span.byte_range) for span in spans)


class Misreading(ByGet):
    """A network file system that answers "no such file" now and then."""

    def get(self, key, byte_range=None):
        value = super().get(key, byte_range)
        return None if "/c/" in key and sum("/c/" in each for each in self.keys("get")) % 5 == 0 else value


JOBS = {
    "copy": lambda a, b: cm.plan_convert(a, b, format="zarr3"),
    "recode": lambda a, b: cm.plan_convert(a, b, format="zarr3", codecs="gzip"),
    "repack": lambda a, b: cm.plan_convert(a, b, format="zarr3", shards=(40, 10)),
    "direct": lambda a, b: cm.plan_rechunk(a, b, chunks=(10, 10), strategy="direct"),
    "spill": lambda a, b: cm.plan_rechunk(a, b, chunks=(40, 1), strategy="spill"),
}
SOURCE = {"shape": (40, 10), "chunks": (1, 10)}


def unpublished(target):
    with pytest.raises(NodeNotFound):
        cm.open_array(target)


@pytest.mark.parametrize("job", JOBS)
def test_a_source_that_is_deleted(job, store):
    make(store, **SOURCE)
    source = Meanwhile(store, reads_a_chunk, lambda its: its.delete_prefix("a/"), n=3)
    plan = JOBS[job](cm.open_array(source, "a"), target := MemoryStore())
    with pytest.raises(JobError, match=r"the source 'a' .*was deleted after this job was planned.*resume=False"):
        plan.run()
    unpublished(target)


@pytest.mark.parametrize("job", JOBS)
def test_a_source_that_is_made_again_alike(job, store):
    array, values = make(store, **SOURCE)

    def replace(store):
        store.delete_prefix("a/")
        make(store, **SOURCE)[0][...] = -values

    source = Meanwhile(store, reads_a_chunk, replace, n=20)
    plan = JOBS[job](cm.open_array(source, "a"), target := MemoryStore())
    with pytest.raises(JobError, match=r"'a' .*was (replaced|deleted) after"):
        plan.run()
    unpublished(target)
    with pytest.raises(JobError, match="another plan"):  # what was written has the old values
        JOBS[job](array, target).run()
    JOBS[job](array, target).run(resume=False)
    np.testing.assert_array_equal(cm.open_array(target)[...], -values)


@pytest.mark.parametrize("job", JOBS)
def test_a_file_system_that_misses_files_now_and_then(job, store):
    array, values = make(store, **SOURCE, absent=[(7, 0)])
    plan = JOBS[job](cm.open_array(Misreading(store), "a"), target := MemoryStore())
    with pytest.raises(ChunkError, match="absent when it was read, and is present now") as caught:
        plan.run()
    assert caught.value.key.startswith("a/c/")
    unpublished(target)
    JOBS[job](array, target).run()
    check(target, values, "")


@pytest.mark.parametrize("fmt", ["zarr3", "n5"])  # where a folder is a group
def test_a_group_that_is_deleted_between_its_document_and_what_is_in_it(store, fmt):
    """It would be converted to a group in which nothing is."""
    cm.create_group(store, "g", format=fmt, attributes={"of": "g"}).create_array("a", shape=(4,), dtype="i4")
    source = Meanwhile(store, ("list_dir", "g/"), lambda its: its.delete_prefix("g/"))
    with pytest.raises(JobError, match=r"the source group 'g' in .* was deleted while it was read"):
        cm.convert((source, "g"), target := MemoryStore(), format="zarr3")
    assert not list(target.list_prefix(""))


def test_a_group_that_consolidated_metadata_alone_know(store):
    cm.create_group(store, "g", format="zarr2", attributes={"of": "g"})
    cm.consolidate(store)
    store.delete_many([".zgroup", "g/.zgroup", "g/.zattrs"])
    cm.convert(cm.open_group(store, consolidated=True), target := MemoryStore(), format="zarr3")
    assert cm.open_group(target, "g").attributes == {"of": "g"}


def test_a_group_that_consolidated_metadata_of_another_root_do_not_know(store):
    """The root was replaced between reading the document of the group and that of the root."""
    cm.create_group(store, "g", attributes={"of": "g"}).create_array("a", shape=(4,), dtype="i4")

    def replace(store):
        store.delete_prefix("")
        cm.create_group(store)
        cm.consolidate(store)

    source = Meanwhile(store, lambda _, key: key == "zarr.json" and store.get("g/zarr.json") is not None, replace)
    with pytest.raises(NodeNotFound, match="'g'"):
        cm.convert((source, "g"), target := MemoryStore(), format="zarr3")
    assert not list(target.list_prefix(""))


@pytest.mark.parametrize("job", JOBS)
def test_chunks_that_change_under_an_equal_document_are_old_or_new_and_whole(job, store):
    """The only change of a source that is not noticed, as the documentation says."""
    _, values = make(store, **SOURCE)

    def change(store):
        cm.open_array(store, "a", mode="r+")[...] = values + 1

    target = MemoryStore()
    source = cm.open_array(Meanwhile(store, reads_a_chunk, change, n=17), "a")
    JOBS[job](source, target).run()
    found = cm.open_array(target)[...]
    is_new = found != values
    np.testing.assert_array_equal(found[is_new], (values + 1)[is_new])
    assert is_new.any()
    assert not is_new.all()
    if job != "direct":  # of which several tasks read the same chunks
        assert all(row.all() or not row.any() for row in is_new)
    assert not cm.verify((store, "a"), target).equal


class Forgetful(ByGet):
    """A network disk that lists files, and says "no such file" for some of them, however often it is asked."""

    def __init__(self, below, lost, *, is_remote):
        super().__init__(below)
        self.lost, self.is_remote = lost, is_remote

    def get(self, key, byte_range=None):
        return None if key in self.lost else self.below.get(key, byte_range)

    def get_versioned(self, key):
        return (None, None) if key in self.lost else self.below.get_versioned(key)

    def size(self, key):
        return None if key in self.lost else self.below.size(key)


LOST = {"a/c/3/0", "a/c/9/0", "a/c/27/0"}


@pytest.mark.parametrize(("job", "is_remote"), [*((job, True) for job in JOBS), ("copy", False), ("direct", False)])
def test_keys_that_are_listed_and_said_to_be_absent(job, store, is_remote):
    """They became fill values: what is asked twice by name is answered twice alike."""
    array, values = make(store, **SOURCE, absent=[(7, 0)])
    source = Forgetful(store, LOST, is_remote=is_remote)
    plan = JOBS[job](cm.open_array(source, "a"), target := MemoryStore())
    with pytest.raises(ChunkError, match="the store lists it") as caught:
        plan.run()
    assert caught.value.key in LOST
    unpublished(target)
    JOBS[job](array, target).run(resume=False)
    check(target, values, "")


def test_a_store_that_may_not_be_listed_is_believed(store):
    _, values = make(store, **SOURCE, absent=[(7, 0)])

    class Unlisted(Forgetful):
        def list_prefix(self, prefix):
            raise PermissionError("AccessDenied")

    source = cm.open_array(Unlisted(store, (), is_remote=True), "a")
    cm.rechunk(source, target := MemoryStore(), chunks=(10, 10), strategy="direct")
    check(target, values, "")


def test_a_grid_of_too_many_keys_is_not_listed(store, monkeypatch):
    monkeypatch.setattr(sources, "_MOST_REMOTE", 3)
    far = RecordingStore(store)
    far.is_remote = True
    array, _ = make(far, shape=(8, 4), chunks=(2, 4), absent=[(0, 0)])
    far.clear()
    check_absent(array.stored, array.read_layout, [(0, 0)])
    assert not far.keys()


@pytest.mark.parametrize(
    ("methods", "every", "step"), [(["set", "set_if"], 9, 4), (["get", "get_versioned"], 3, 1)], ids=["set", "get"]
)
def test_a_store_that_fails_again_and_again(methods, every, step):
    source, store = MemoryStore(), MemoryStore()
    values = np.random.default_rng(0).integers(1, 1000, (64, 40)).astype("i4")
    values[8:12] = 0  # absent
    cm.to_store(values, source, "a", chunks=(4, 10), format="zarr2")
    n_failed, report = 0, None
    while report is None and n_failed < 150:
        failing = FailingStore(store, every=every + step * n_failed, methods=methods, times=1)
        try:
            report = cm.rechunk((source, "a"), (failing, "a"), chunks=(64, 4), strategy="spill", max_mem="9 MB")
        except (StoreError, ChunkError) as error:
            n_failed += 1
            # all chunks are there before the first document is, and the plan is read when all are
            if unfinished_jobs(store) and not error.key.endswith((".json", "plan.json")):
                with pytest.raises(NodeNotFound):
                    cm.open_array(store, "a")
    assert n_failed > 1
    assert report.n_resumed > 0
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], values)
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]


VALUES = np.arange(32 * 40).reshape(32, 40)  # 8 x 10 chunks
SECONDS = 0.01


@pytest.fixture
def source():
    far = FarStore()
    cm.to_store(da.from_array(VALUES, chunks=(4, 4)), far.below)
    far.seconds = SECONDS
    return far


@pytest.mark.parametrize(
    ("job", "options", "n_keys"),
    [
        (cm.convert, {"format": "zarr2"}, 80),
        (cm.convert, {"format": "zarr3", "codecs": "gzip"}, 80),
        (cm.convert, {"format": "zarr3", "shards": (8, 8)}, 20),
        (cm.rechunk, {"chunks": (5, 5)}, 56),
        (cm.rechunk, {"chunks": (32, 1)}, 40),
        (cm.rechunk, {"chunks": (32, 1), "strategy": "spill", "max_mem": "16 MiB"}, 40),
    ],
    ids=["copy", "recode", "shards", "rechunk", "lines", "spill"],
)
def test_jobs(source, job, options, n_keys):
    target = FarStore(seconds=SECONDS)
    job(source, target, **options)
    np.testing.assert_array_equal(cm.open_array(target.below)[...], VALUES)
    assert set(source.chunks("get").values()) == {1}
    if options.get("format") != "zarr2":  # whose keys the log does not tell from others
        stored = target.chunks("set", "set_if")
        assert len(stored) == n_keys
        assert set(stored.values()) == {1}
    assert source.most_at_once >= 8
    assert target.most_at_once >= 8  # of 16 to 32, as the machine is busy
