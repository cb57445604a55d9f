"""Every key of a store is a document, a chunk, a record, a leftover or an orphan."""

from contextlib import nullcontext

import numpy as np
import pytest
from support.arrays import filled

import chunkmill as cm
from chunkmill.checks.inventory import take_inventory
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import Plan


def make(store, path, fmt="zarr3"):
    filled(np.full((3, 4), 7), store, path, chunks=(2, 2), format=fmt)


def test_jobs_are_told_by_whether_they_run(store):
    make(store, "a")
    journal = Journal(store, Plan("b", "convert to 'b'", "0"))
    journal.begin()
    store.set("b/c/0/0", b"half of it")
    for kind, context in (("running", journal.running()), ("unfinished", nullcontext())):
        with context:
            (problem,) = take_inventory(store, "").problems
        assert (problem.kind, problem.path, problem.key) == (kind, "b", journal.plan_key)
    assert "run it again" in problem.reason


def test_documents_that_some_writers_store_in_consolidated_metadata_alone(store):
    make(store, "a", "zarr2")
    cm.consolidate(store)
    store.delete("a/.zarray")
    assert [each.key for each in cm.check(store).problems] == ["a/.zarray"]
    store.delete(".zgroup")
    assert cm.check(store).ok


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_nodes_that_no_group_leads_to(store, fmt):
    make(store, "A/1/0", fmt)
    make(store, "B", fmt)
    for path in ("A", "A/1"):
        for name in (".zgroup", ".zattrs", "zarr.json"):
            store.delete(f"{path}/{name}")
    found = take_inventory(store)
    assert found.undocumented == ["A/1/0"]
    assert sorted(array.path for array in found.arrays) == ["A/1/0", "B"]
    assert [group.path for group in found.groups] == [""]
    cm.consolidate(store)  # without them: zarr-python could not open the root
    report = cm.check(store)
    assert report.ok
    assert report.undocumented == ("A/1/0",)
    assert "'A/1/0', below folders without a group document" in str(report)
    assert report.to_dict()["undocumented"] == ["A/1/0"]
    np.testing.assert_array_equal(cm.open_array(store, "A/1/0")[...], 7)
    (document,) = (key for key in store.list_prefix("A/") if key.endswith(("zarr.json", ".zarray")))
    store.set(document, b"{")
    store.set("C/attributes.json", b"{")  # of another format
    store.set("C/0/0", b"?")
    found = take_inventory(store).problems  # their chunks are nobody's, but no orphans
    assert [(each.kind, each.key) for each in found] == [("metadata", document), ("metadata", "C/attributes.json")]
