"""The document of a plan."""

import errno
import json
import os

import pytest
from support.cases import cases
from support.recording import FailingStore

from chunkmill.errors import JobError, StoreError
from chunkmill.journal import plans
from chunkmill.journal.plans import Plan
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@cases("old_prefix", [None, "", "a/"])
def test_what_is_written_is_read(old_prefix):
    plan = Plan("a" if old_prefix else "", "put it", "plan", "r1", "now", 2, plans.LEASE, old_prefix=old_prefix)
    value = plan.packed()
    assert Plan.parsed(value) == plan
    assert plans.is_of_run(value, "r1")
    assert not plans.is_of_run(value, "r")
    assert not plans.is_of_run(None, "r1")
    store = MemoryStore()
    store.set("plan", value)
    assert plans.end_plan(store, "plan", *store.get_versioned("plan"), "r1")
    over = Plan.parsed(store.get("plan"))
    assert (over.over, over.old_prefix) == (True, old_prefix)
    store.set("plan", value)
    full = FailingStore(store, 1, ["set_if"])  # as where a disk is full
    plans.end_plan(full, "plan", *store.get_versioned("plan"), "r1")
    assert store.get("plan") is None


@cases("value", [b"{", b"[]", b"[" * 100_000, b'["run"]', b'{"run": 3}'])
def test_a_damaged_plan_is_known(value):
    assert (Plan.parsed(value) or Plan()).is_damaged


@cases("damage", [{"run": "../x"}, {"run": ["x"]}, {"old_prefix": "a/../"}, {"old_prefix": 1}, {"version": "3"}])
def test_a_plan_is_damaged_whose_members_are_not_what_they_must_be(damage):
    value = Plan(job="put it", path="a", run="1234", old_prefix="a/").packed()
    assert Plan.parsed(value) is not None
    assert Plan.parsed(json.dumps(json.loads(value) | damage).encode()) is None


# --------------------------------------------------------------------------------------------------------------------
# A new node takes the place of the old one by one rename, once


STAGED = plans.staged_prefix("a", "1")
PLAN_KEY = f"{plans.journal_prefix('a')}plan.json"


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "s")
    store.set(PLAN_KEY, json.dumps({"run": "1", "job": "x", "path": "a", "old_prefix": "a/"}).encode())
    for key in ("a/zarr.json", "a/c/0", "a/c/1"):
        store.set(key, b"old")
    for key in ("zarr.json", "c/0", plans.run_tag("1")):
        store.set(STAGED + key, b"new")
    return store


def put(store):
    plans.put_in_place(store, "replace 'a'", "a", "1", old_prefix="a/", staged=STAGED)


def test_the_new_node_is_in_place_alone(store):
    assert plans.is_tagged(store, STAGED, "1")
    assert not plans.is_in_place(store, "1", "a/")
    put(store)
    assert plans.is_in_place(store, "1", "a/")
    assert {*store.list_prefix("a/")} == {"a/zarr.json", "a/c/0", f"a/{plans.run_tag('1')}"}
    assert not [*store.list_prefix(STAGED)]
    store.set("a/c/1", b"since")
    put(store)  # again: nothing happens
    assert store.get("a/c/1") == b"since"
    plans.forget_tag(store, "1", "a/")
    assert not plans.is_in_place(store, "1", "a/")


@pytest.mark.parametrize("lost", ["tag", "plan", "another plan"])
def test_a_job_that_has_ended_replaces_nothing(store, lost):
    if lost == "tag":
        store.delete(STAGED + plans.run_tag("1"))
    elif lost == "plan":
        store.delete(PLAN_KEY)
    else:
        store.set(PLAN_KEY, b'{"run": "2"}')
    with pytest.raises(JobError, match=r"replace 'a'.*the job has ended"):
        put(store)
    assert store.get("a/c/0") == b"old"


@cases("code", [errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_refuses_the_rename_is_the_cause_that_is_told(code):
    """The new node has been moved next to its place by then, and is not where it was staged."""

    class Refuses(MemoryStore):
        def replace_prefix(self, prefix, staged, proof):
            self.delete_prefix(staged)
            error = StoreError(url=self.url, key=prefix, reason=f"cannot put it in place: {os.strerror(code)}")
            error.errno = code
            raise error

    store = Refuses()
    store.set(PLAN_KEY, json.dumps({"run": "1", "job": "x", "path": "a", "old_prefix": "a/"}).encode())
    store.set(STAGED + plans.run_tag("1"), b"1")
    with pytest.raises(StoreError, match=os.strerror(code)):
        put(store)
