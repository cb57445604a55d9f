"""What counts as a change of a source."""

from contextlib import nullcontext

import pytest
from support.cases import cases
from support.rechunks import make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError
from chunkmill.jobs.sources import check_absent, check_sources, see_sources
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]


def change(array, seen):
    return seen[0].seen.change(array)


def made_again(store, fmt, chunks):
    store.delete_prefix("")
    make(store, shape=(6, 4), chunks=chunks, format=fmt)


CHANGES = {
    "nothing": (lambda store, _: None, None),
    "attributes": (lambda store, _: cm.open_array(store, "a", mode="r+").update_attributes({"units": "K"}), None),
    "deleted": (lambda store, _: store.delete_prefix(""), "deleted"),
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
    class Plain(RecordingStore):
        pass

    store = Plain(MemoryStore())
    store.compares_versions = False
    array, _ = make(store, shape=(6, 4), chunks=(2, 4))
    seen = see_sources([getattr(array, "stored", array)])
    assert seen[0].seen.versions == {}
    store.set("a/zarr.json", store.get("a/zarr.json"))
    assert change(array, seen) is None


def test_documents_are_not_taken_from_consolidated_metadata(tmp_path):
    cm.create_group(str(tmp_path))
    make(LocalStore(tmp_path), shape=(6, 4), chunks=(2, 4))
    cm.consolidate(str(tmp_path))
    array = cm.open_group(str(tmp_path), consolidated=True)["a"]
    seen = see_sources([getattr(array, "stored", array)])
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


def test_a_source_whose_document_is_gone_when_it_is_first_looked_at():
    """It was taken for one that is known from consolidated metadata: new chunks were copied by old documents."""
    store = MemoryStore()
    cm.create_array(store, "a", shape=(4,), dtype="i4", chunks=(2,))
    opened = cm.open_array(store, "a")
    store.delete("a/zarr.json")
    with pytest.raises(JobError, match="was replaced after it was opened"):
        see_sources([opened.stored])
