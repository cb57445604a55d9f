"""The state of a job as others see it."""

import json

from chunkmill.journal.plans import journal_prefix, run_tag, staged_prefix
from chunkmill.journal.unfinished import described, with_state
from chunkmill.stores.memory import MemoryStore

PLAN = {"job": "convert", "path": "a", "began": "once", "run": "1", "old_prefix": "a/"}


def test_how_far_a_replacement_has_come():
    store, key = MemoryStore(), f"{journal_prefix('a')}plan.json"
    job = described(key, json.dumps(PLAN).encode())
    assert job.replaces

    def state():
        seen = with_state(store, job)
        return seen.is_running, seen.is_in_place

    staged = staged_prefix("a", "1") + run_tag("1")
    store.set(staged, b"1")
    assert state() == (False, False)
    store.delete(staged)
    store.set("a/" + run_tag("1"), b"1")
    assert state() == (False, True)


def test_a_damaged_plan():
    assert described("x/plan.json", b"{").path == "?"
    assert described("x/plan.json", b"[]").run == ""
    job = described(f"{journal_prefix('g/a')}plan.json", b"", ["g", "g/a"])
    assert (job.path, str(job), job.is_damaged) == ("g/a", "a job whose plan is damaged", True)
