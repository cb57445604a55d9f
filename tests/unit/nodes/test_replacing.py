"""Nodes that take the place of others: who else is at work there then."""

import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.formats.registry import get_format
from chunkmill.journal.lease import check_no_job, leased
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes.target import Target


def staged(store):
    groups = {"g": GroupMetadata({"new": 1})}
    return Target(store, "g", get_format("zarr3"), [], groups, overwrite=True).held("replace 'g'")


@cases("path", ["", "g", "g/a"])
def test_a_node_that_others_have_begun_to_write_stays(store, path):
    """Of a `to_store` below it, which was done, only the document was found in the new group, and no chunk."""
    cm.create_group(store, "g", attributes={"old": 1})
    with (
        leased(store, path, "write it"),
        pytest.raises(JobError, match=r"write to .*running: 'write it'"),
        staged(store) as new,
    ):
        new.publish()
    assert cm.open_group(store, "g").attributes == {"old": 1}
    with staged(store) as new:
        with pytest.raises(JobError, match="replace 'g'"):
            check_no_job(store, path, below=True)
        new.publish()
    assert cm.open_group(store, "g").attributes == {"new": 1}
    assert sorted(store.list_prefix("")) == ["g/zarr.json", "zarr.json"]


def test_what_is_staged_is_deleted_where_the_writer_fails(store):
    cm.create_group(store, "g", attributes={"old": 1})
    with pytest.raises(ZeroDivisionError), staged(store):
        1 / 0  # noqa: B018
    assert cm.open_group(store, "g").attributes == {"old": 1}
    assert sorted(store.list_prefix("")) == ["g/zarr.json", "zarr.json"]
