"""Nodes that take the place of others: who else is at work there then."""

import pytest

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.formats.registry import get_format
from chunkmill.journal.lease import leased
from chunkmill.nodes.replacing import check_as_seen, replacing, seen_documents
from chunkmill.stores.memory import MemoryStore


def put_in_place(store):
    with replacing(store, "g", "zarr3") as new:
        new.finish({"g/zarr.json": b'{"zarr_format": 3, "node_type": "group", "attributes": {"new": 1}}'})


@pytest.mark.parametrize("path", ["", "g", "g/a"])
def test_a_node_that_others_have_begun_to_write_meanwhile_stays(path):
    """Of a `to_store` below it, which was done, only the document was found in the new group, and no chunk."""
    store = MemoryStore()
    cm.create_group(store, "g", attributes={"old": 1})
    with (
        pytest.raises(JobError, match=r"replace 'g'|write to .*running: 'write it'"),
        replacing(store, "g", "zarr3") as new,
        leased(store, path, "write it"),
    ):
        new.finish({"g/zarr.json": b"{}"})
    assert cm.open_group(store, "g").attributes == {"old": 1}
    put_in_place(store)
    assert cm.open_group(store, "g").attributes == {"new": 1}
    assert sorted(store.list_prefix("")) == ["g/zarr.json", "zarr.json"]


@pytest.mark.parametrize("key", ["g/.zattrs", "g/.zgroup", "g/.zmetadata", "g/.zarray"])
def test_what_was_changed_or_came_is_named_and_what_was_deleted_is_not(key):
    store = MemoryStore()
    cm.create_group(store, "g", format="zarr2", attributes={"old": 1})
    seen = seen_documents(store, "g", get_format("zarr2"))
    check_as_seen(store, seen, {}, "replace 'g'")
    there = store.get(key)
    store.set(key, b'{"new": 1}')
    with pytest.raises(JobError, match=rf"^replace 'g': others have changed '{key}' since this began"):
        check_as_seen(store, seen, {}, "replace 'g'")
    check_as_seen(store, seen, {key: b'{"new": 1}'}, "written by an earlier run")
    check_as_seen(store, {}, {}, "of an earlier version, which noted nothing")
    store.delete(key)
    check_as_seen(store, seen, {}, "replace 'g'")
    if there is not None:
        store.set(key, there)
        check_as_seen(store, seen, {}, "replace 'g'")
    assert list(seen) == ["g/.zarray", "g/.zattrs", "g/.zgroup", "g/.zmetadata"]
