"""The document of a plan."""

import json

from support.cases import cases
from support.recording import FailingStore

from chunkmill.journal.plans import LEASE, Plan, delete_plan, end_plan, is_of_run, store_plan
from chunkmill.stores.memory import MemoryStore


@cases("old_prefix", [None, "", "a/"])
def test_what_is_written_is_read(old_prefix):
    plan = Plan("a" if old_prefix else "", "put it", "plan", "r1", "now", 2, LEASE, old_prefix=old_prefix)
    value = plan.packed()
    assert Plan.parsed(value) == plan
    assert is_of_run(value, "r1")
    assert not is_of_run(value, "r")
    assert not is_of_run(None, "r1")
    store = MemoryStore()
    store.set("plan", value)
    assert end_plan(store, "plan", *store.get_versioned("plan"), "r1")
    over = Plan.parsed(store.get("plan"))
    assert (over.over, over.old_prefix) == (True, old_prefix)
    store.set("plan", value)
    end_plan(FailingStore(store, 1, ["set_if"]), "plan", *store.get_versioned("plan"), "r1")  # as where a disk is full
    assert store.get("plan") is None


@cases("value", [b"{", b"[]", b"[" * 100_000, b'["run"]', b'{"run": 3}'])
def test_a_damaged_plan_is_known(value):
    assert (Plan.parsed(value) or Plan()).is_damaged


def test_a_plan_is_stored_and_deleted_while_there_is_no_other():
    store = MemoryStore()
    mine, other = (Plan(run=run).packed() for run in ("r1", "r2"))
    assert store_plan(store, "plan", mine, None)
    assert store_plan(store, "plan", mine, None)  # the answer to the first was lost
    assert not store_plan(store, "plan", other, None)
    another_client = Plan(run="r1", fingerprint="b").packed()
    assert not store_plan(store, "plan", another_client, None)
    assert not delete_plan(store, "plan", other)
    assert delete_plan(store, "plan", mine)
    assert delete_plan(store, "plan", mine)


@cases("damage", [{"run": "../x"}, {"run": ["x"]}, {"old_prefix": "a/../"}, {"old_prefix": 1}, {"version": "3"}])
def test_a_plan_is_damaged_whose_members_are_not_what_they_must_be(damage):
    value = Plan(job="put it", path="a", run="1234", old_prefix="a/").packed()
    assert Plan.parsed(value) is not None
    assert Plan.parsed(json.dumps(json.loads(value) | damage).encode()) is None
