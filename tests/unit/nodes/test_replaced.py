"""Documents of a node that is being replaced, compared with what was seen."""

import pytest

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.formats.registry import get_format
from chunkmill.nodes.replaced import check_as_seen, seen_documents
from chunkmill.stores.memory import MemoryStore


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
