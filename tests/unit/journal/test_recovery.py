"""What a job that is over has left: deleted, but nothing of the job that has begun since."""

import json

import pytest
from support.recording import Died, DyingStore
from support.small_jobs import dead_heartbeat

from chunkmill.errors import StoreError
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import PLAN, RUNNING, Plan, journal_prefix, run_tag, staged_prefix
from chunkmill.journal.unfinished import clear_journal, clear_listed, described, with_state
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

DEAD = dead_heartbeat()


@pytest.fixture(params=["memory", "local"])
def journal(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path))
    journal = Journal(store, Plan("a", "put it", "plan"))
    for name in ("0/0-gone", "new-gone/c/0", f"{RUNNING}dead"):
        store.set(journal.prefix + name, DEAD)
    return journal


def test_all_of_a_job_that_is_over_is_deleted_with_its_folders(journal):
    clear_journal(journal.store, journal.prefix)
    assert not journal.store.list_dir("")


def test_nothing_is_deleted_where_there_is_a_plan(journal):
    journal.store.set(f"{journal.prefix}{PLAN}", b"{}")
    before = sorted(journal.store.list_prefix(""))
    clear_journal(journal.store, journal.prefix)
    assert sorted(journal.store.list_prefix("")) == before


def test_who_is_about_to_begin_is_left_alone(journal):
    with journal.running():
        clear_journal(journal.store, journal.prefix)
        assert list(journal.store.list_prefix("")) == [journal.heartbeat.key]
        clear_listed(journal.store, journal.prefix, [journal.heartbeat.key], ended=[journal.heartbeat.key])
        assert not list(journal.store.list_prefix(""))


def test_what_was_not_listed_stays(journal):
    listed = list(journal.store.list_prefix(journal.prefix))
    journal.store.set(f"{journal.prefix}0/0-next", b"x")
    clear_listed(journal.store, journal.prefix, listed)
    assert list(journal.store.list_prefix("")) == [f"{journal.prefix}0/0-next"]


@pytest.mark.parametrize("kind", ["files", "memory"])
def test_what_is_being_deleted_is_not_put_in_place(tmp_path, kind):
    """A client that had joined a job stored a chunk after the exchange; who deletes that dies half-way."""
    store = LocalStore(tmp_path) if kind == "files" else MemoryStore()
    store.set("a/0", b"whole")
    late = staged_prefix("a", "r")
    store.set(f"{late}0", b"late")

    with pytest.raises(Died):
        clear_journal(DyingStore(store, 0, ["delete", "delete_prefix"], Died), journal_prefix("a"))
    with pytest.raises(StoreError, match="others have ended this"):
        store.replace_prefix("a/", late, run_tag("r"))
    assert store.get("a/0") == b"whole"
    clear_journal(store, journal_prefix("a"))
    assert sorted(store.list_prefix("")) == ["a/0"]


# --------------------------------------------------------------------------------------------------------------------
# The state of a job as others see it


KNOWN = {"job": "convert", "path": "a", "began": "once", "run": "1", "old_prefix": "a/"}


def test_how_far_a_replacement_has_come():
    store, key = MemoryStore(), f"{journal_prefix('a')}plan.json"
    job = described(key, json.dumps(KNOWN).encode())
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
