"""New arrays of one store: documents of groups above them, and consolidated metadata."""

from dataclasses import replace

import numpy as np
import pytest
from support.cases import cases
from support.recording import CHANGES, RecordingStore, contents

import chunkmill as cm
from chunkmill.errors import JobError, NodeExists
from chunkmill.formats.registry import get_format
from chunkmill.journal.plans import LEASE, Plan, journal_prefix
from chunkmill.nodes.changes import merged
from chunkmill.nodes.new_array import describe_array
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.target import Target
from chunkmill.stores.memory import MemoryStore


def writer(store, *paths, format_="zarr2", overwrite=False):
    documents_format = get_format(format_)
    arrays = [
        array_at(store, path, describe_array(documents_format, path, shape=(4,), dtype="i4"), documents_format)
        for path in paths
    ]
    return Target(store, paths[0], documents_format, arrays, overwrite=overwrite)


@cases("format_", ["zarr2", "zarr3", "n5"])
def test_groups_above_are_made_with_the_arrays(store, format_):
    own = writer(store, "g/a", "h/b", format_=format_)
    own.make_room()
    assert not list(store.list_prefix(""))
    own.publish()
    own.publish()  # again, where a client died after it
    with pytest.raises(NodeExists):
        replace(own, again=False).publish()
    assert cm.open_array(store, "h/b").shape == (4,)
    assert isinstance(cm.open(store, "g"), cm.Group)
    own.check_own()


def test_what_is_there_is_refused_and_nothing_is_written(store):
    cm.to_store(np.arange(3), store, "b", format="zarr2")
    before = sorted(store.list_prefix(""))
    with pytest.raises(NodeExists):
        writer(store, "a", "b").make_room()
    with pytest.raises(NodeExists):
        writer(store, "b").check_own()
    assert sorted(store.list_prefix("")) == before


def test_topmost_nodes_in_the_order_given():
    paths = ["b/c", "a", "a-b", "a/x", "b/c/d", "a.b"]
    target = writer(MemoryStore(), *paths)
    assert target.tops == ["b/c", "a", "a-b", "a.b"]
    assert writer(MemoryStore(), "", "a").tops == [""]


@cases("format_", ["zarr2", "zarr3", "n5"])
def test_a_group_that_exists_is_described_last(format_):
    store = RecordingStore(MemoryStore())
    group = cm.create_group(store, "g", format=format_)
    own = writer(store, "g/a", format_=format_)
    own.make_room()
    store.clear()
    own.publish(changes=[(group.stored, merged({"levels": ["a"]}))])
    assert store.keys(*CHANGES)[-1] in get_format(format_).group_keys("g")
    assert cm.open_group(store, "g").attributes == {"levels": ["a"]}


@cases("is_taken_over", [False, True])
def test_a_writer_whose_lease_was_taken_over_takes_nothing_back(store, is_taken_over):
    """It had been suspended, and deleted the chunks of the next one, who published zeros."""
    plan = {f"{journal_prefix('a')}plan.json": Plan("a", "another", "x", "theirs", kind=LEASE).packed()}
    theirs = {"a/0": b"a chunk", **(plan if is_taken_over else {})}

    def fail():
        with writer(store, "a").held("write it") as own:
            store.set("a/.zattrs", own.documents()["a"]["a/.zattrs"])  # which is taken back, where the lease is its own
            for key, value in theirs.items():
                store.set(key, value)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert contents(store) == (theirs | {"a/.zattrs": b"{}"} if is_taken_over else {})


def test_what_is_staged_is_put_in_place_whole_or_not_at_all(store):
    cm.create_array(store, "a", shape=(7,), dtype="i4", format="zarr2")
    with writer(store, "a", overwrite=True).held("write it", continues=True) as own:
        pass
    with pytest.raises(JobError, match="another writer has taken the place"), own.continued("write it", 1):
        pytest.fail("a chunk of it is not there any more")
    assert cm.open_array(store, "a").shape == (7,)
