"""`cm.check` of stores with jobs: unfinished, over, or of which records and plans are damaged."""

import copy

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases
from support.recording import deaths

import chunkmill as cm
from chunkmill.formats.registry import get_format
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import TAG_PREFIX, Plan
from chunkmill.journal.records import Record
from chunkmill.nodes.delete import announce_below, withdraw_below
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


def kinds(store):
    return [problem.kind for problem in cm.check(store).problems]


def test_unfinished(store):
    def fail(block):
        if (block == 1).any():
            raise RuntimeError("no such luck")
        return block

    filled(np.ones(4), store, "g/b")
    x = da.from_array(np.arange(8), chunks=2, name="eight").map_blocks(fail, dtype=int, meta=np.empty(0, int))
    with pytest.raises(RuntimeError):
        cm.to_store(x, store, "g/a", resume=True)
    assert list(store.list_prefix("g/a/c/"))
    report = cm.check(store)
    (problem,) = report.problems  # what it has written so far is not an orphan
    assert (problem.kind, problem.path) == ("unfinished", "g/a")
    assert "'g/a'" in problem.reason
    assert cm.check(store, "g").problems == report.problems
    assert cm.check(store, "g/b").problems == ()


@pytest.fixture
def plan_key(store):
    """Begin a job next to an array, with a record; return the key of its plan."""
    filled(np.ones(4), store, "g/a")
    journal = Journal(store, Plan("g/b", "write", "mark"))
    journal.begin()
    journal.records.put(0, 1, Record({}, {}))
    return journal.plan_key


def test_records_without_a_plan_and_probes(store, plan_key):
    store.delete(plan_key)
    store.set(".chunkmill-probe-123/4-on-here", b"probe")
    assert kinds(store) == ["leftover", "leftover"]
    assert cm.check(store, repair=True).ok
    assert not [key for key in store.list_prefix("") if key.startswith(".chunkmill")]


def test_a_plan_that_is_damaged(store, plan_key):
    store.set(plan_key, b"")
    (problem,) = cm.check(store, repair=True).problems
    assert problem.kind == "unfinished"
    assert "jobs --discard" in str(problem)
    (job,) = cm.jobs(store)
    job.discard()
    assert cm.check(store).ok


def documents_of_x(store):
    return [key for key in store.list_prefix("") if "x" in key and key.endswith(".json")]


# the document of a draft's hierarchy, which is no node, has the key of a group of version 3
@cases(("format_", "entry"), [("zarr3-draft", "meta/group.json"), ("zarr3", "zarr.json")])
def test_a_writer_that_died_before_its_group_was_visible(format_, entry, all_died):
    one, n, published = xr.Dataset({"x": ("t", [1.0])}), 0, 0
    for store in deaths(MemoryStore, lambda dying: cm.write_dataset(one, dying, format=format_), first=1):
        n += 1
        if store.get(entry) is not None:
            break
        assert kinds(store) == ["unfinished"]
        published += bool(documents_of_x(store))
        (job,) = cm.jobs(discarded := copy.copy(store))
        job.discard()
        assert documents_of_x(discarded) == []
        assert list(cm.create_group(store, format=format_)) == []
    assert published
    assert n > 3
    assert kinds(store) == ["leftover"]
    announce_below(store, get_format(format_), "")
    withdraw_below(store, "")
    assert list(cm.open_group(store)) == ["x"]  # which is visible


def test_a_damaged_plan_without_records_is_removed(store):
    filled(np.ones(4), store, "g/a")
    store.set(Journal(store, Plan("g/b", "write", "mark")).plan_key, b"")
    assert kinds(store) == ["leftover"]
    assert cm.check(store, repair=True).ok
    assert cm.check(store).ok
    assert not cm.jobs(store)


def test_proofs_of_commits_of_jobs_that_are_over_are_deleted(store):
    filled(np.ones(4), store, "g/a")
    store.set(f"{TAG_PREFIX}abc", b"")
    (problem,) = cm.check(store).problems
    assert "commit proof of a job" in problem.reason
    cm.check(store, repair=True)
    assert cm.check(store).ok
