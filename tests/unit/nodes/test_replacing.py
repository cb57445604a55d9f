"""Nodes that take the place of others: who else is at work there then."""

import pytest

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.journal.lease import leased
from chunkmill.nodes.replacing import replacing
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
