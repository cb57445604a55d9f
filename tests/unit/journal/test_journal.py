"""The journal of a job: records, resuming, runs."""

import threading
from contextlib import ExitStack

import pytest
from support.cases import cases
from support.recording import Meanwhile, SlowStore
from support.small_jobs import dead_heartbeat, put

from chunkmill.errors import JobError
from chunkmill.journal import heartbeat
from chunkmill.journal.journal import Journal
from chunkmill.journal.lease import leased
from chunkmill.journal.plans import LEASE, RUNNING, Plan, end_plan
from chunkmill.journal.records import Record
from chunkmill.journal.unfinished import jobs_at
from chunkmill.runtime import task as stage_task
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


def test_tasks_of_a_job_that_was_discarded(store):
    """They may be at work on another machine when the next job begins: they speak for nobody."""
    old = Journal(store, Plan("a/b", "put it", "plan"))
    old.begin()
    new = Journal(store, Plan("a/b", "put it", "plan"))
    with pytest.raises(JobError, match="another job has begun"):
        new.begin()
    with old.running():
        new.discard()
        new.begin()
        with new.running():
            old.records.put(0, 3, Record({"n_keys": 1}, {}))
            assert new.records.names() == []
            assert new.records.read(0, 3) is None
            with pytest.raises(JobError, match="was replaced by another one; this result is discarded"):
                stage_task.run_task(stage_task.LocalStage(put, store, old, 0), 4, [4])
            assert store.get("data/4") is None
        new.finish()
        with pytest.raises(JobError, match="the job has ended"):
            stage_task.run_task(stage_task.LocalStage(put, store, new, 0), 4, [4])
    resumed = Journal(store, Plan("a/b", "put it", "plan"))
    assert resumed.resume() is False


def test_the_plan_of_another_run_stays(store):
    """It began after this one had looked at its own, while the result was published."""
    journal = Journal(store, Plan("a/b", "put it", "plan"))
    journal.begin()
    seen = store.get_versioned(journal.plan_key)
    other = Journal(store, Plan("a/b", "put that", "other plan"))
    other.take_over(seen[1], waits=False)
    before = store.get(other.plan_key)
    journal.finish(seen)
    assert store.get(other.plan_key) == before
    other.finish()
    assert not list(store.list_prefix(""))


@pytest.mark.parametrize("seconds", [0, 2e-4], ids=["fast files", "slow files"])
def test_values_that_are_not_as_on_record_are_written_again(store, seconds):
    """Of many: looked at by one thread, by many where files are slow."""
    n = 700
    journal = Journal(store, Plan("a/b", "put it", "plan"))
    journal.begin()
    with journal.running():
        for number in range(n):
            stage_task.run_task(stage_task.LocalStage(put, store, journal, 0), number, [number])
    store.set("data/3", b"torn")
    store.delete("data/600")
    store.set(f"{journal.prefix}0/650-{journal.plan.run}", b"{")
    threads = set()

    class Watched(SlowStore):
        def _before(self, method, key, byte_range=None):
            threads.add(threading.get_ident())
            super()._before(method, key, byte_range)

    again = Journal(Watched(store, seconds), Plan("a/b", "put it", "plan"))
    again.resume()
    assert {*range(n)} - again.records.forget_false(0, range(n)) == {3, 600, 650}
    assert 1 < len(threads) <= 17
    assert again.records.read(0, 3) is None


def test_a_job_that_ended_at_once_has_begun_all_the_same(store):
    class Vanishes(MemoryStore):
        def set_if(self, key, value, version):
            return False

    with pytest.raises(JobError, match="another job has begun"):
        Journal(Vanishes(), Plan("a", "put it", "plan")).begin()


def test_tasks_write_only_while_the_job_runs(store):
    journal = Journal(store, Plan("a", "put it", "plan"))
    journal.begin()
    with pytest.raises(JobError, match="is not running"):
        journal.check()
    with journal.running():
        journal.check()
    with pytest.raises(JobError, match="this result is discarded"):
        journal.check()
    assert journal.has_this_plan()


def test_dead_attempts_end_when_the_job_is_resumed(store):
    """Their tasks may still be at work; those of clients that are alive are joined."""
    journal = Journal(store, Plan("a", "put it", "plan"))
    journal.begin()
    dead = f"{journal.prefix}{RUNNING}dead"
    store.set(dead, dead_heartbeat())
    with journal.running():
        Journal(store, Plan("a", "put it", "plan")).resume()
        assert store.get(dead) is None
        journal.check(now=True)


def test_who_finds_no_plan_ends_no_attempt_that_is_about_to_begin(store):
    """It deletes what it takes for the rest of a job."""
    journal = Journal(store, Plan("a", "put it", "plan"))
    with journal.running():
        assert Journal(store, Plan("a", "another", "x")).resume() is False
        journal.begin()
        journal.check(now=True)


@cases("n_requests", [1, 2, 3])
def test_who_found_no_plan_leaves_what_another_job_stores_since(n_requests, monkeypatch):
    """Of two jobs that replaced one node at once, one lost what it wrote beside it, and the other was refused."""
    monkeypatch.setattr(MemoryStore, "remove_folder", lambda *_: False)
    store = MemoryStore()
    other = Journal(store, Plan("a", "put it", "plan"))
    store.set(f"{other.prefix}new-gone/0", b"x")

    def begin(_):
        meanwhile.enter_context(other.running())
        other.begin()
        store.set(f"{other.prefix}new-{other.plan.run}/0", b"x")

    with ExitStack() as meanwhile:
        asked = Meanwhile(store, lambda *_: True, begin, n_requests + 1)  # the plan, all that is there, the plan
        assert Journal(asked, Plan("a", "another", "x")).resume() is False
        assert asked.done
        assert store.get(f"{other.prefix}new-{other.plan.run}/0") == b"x"
        other.check(now=True)


def test_discarding_a_job_spares_the_client_that_is_about_to_begin_the_next(store, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.journal.CHECK_SECONDS", 0.0)
    old, new = (Journal(store, Plan("a", "put it", fingerprint)) for fingerprint in ("plan", "another"))
    with old.running():
        old.begin()
        with new.running():
            assert Journal(store, Plan("a", "discard it", "x")).discard()
            with pytest.raises(JobError, match="has ended"):
                old.check(now=True)
            new.begin()
            new.check(now=True)


def test_a_job_whose_client_is_alive_is_not_discarded(store):
    journal = Journal(store, Plan("a", "put it", "plan"))
    journal.check_dead()
    journal.begin()
    journal.check_dead()
    with journal.running():
        for plan, kind in (("plan", "of this plan"), ("another", "with another plan")):
            other = Journal(store, Plan("a", "put more", plan))
            with pytest.raises(
                JobError, match=rf"put more: there is a job {kind} at the target, which is running: 'put"
            ) as raised:
                other.check_dead()
            assert "resume" not in str(raised.value)
        with pytest.raises(JobError, match=r"is running: 'put it', begun \d+ s ago; wait until it is done, or stop it"):
            Journal(store, Plan("a", "put more", "another")).resume()
    with pytest.raises(JobError, match=r"whose client has ended: 'put it', begun \d+ s ago; give resume=False"):
        Journal(store, Plan("a", "put more", "another")).resume()


def test_a_job_whose_client_is_silent_tells_when_it_can_be_discarded(store, monkeypatch):
    journal = Journal(store, Plan("a", "put it", "plan"))
    journal.begin()
    beat = dead_heartbeat(key="silent").replace(b'"host": "', b'"host": "elsewhere-')
    store.set(f"{journal.prefix}{RUNNING}x", beat)
    told = r"whose client is silent for \d+ s: 'put it'.*resume=False.* discards it when that client has missed two"
    with pytest.raises(JobError, match=told):
        Journal(store, Plan("a", "put more", "another")).resume()
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.02)
    found = [[job.is_running for job in jobs_at(store, "a", watches=watches)] for watches in (False, True)]
    assert found == [[True], [False]]


def test_who_mends_a_damaged_plan_leaves_that_of_a_job_that_began_meanwhile(store, monkeypatch):
    journal, other = (Journal(store, Plan("a", "put it", fingerprint)) for fingerprint in ("plan", "another"))
    journal.begin()
    journal.records.put(0, 0, Record({}, {}))
    store.set(journal.plan_key, b"")
    monkeypatch.setattr("chunkmill.journal.plans.watch_client", lambda *_: store.set(other.plan_key, b"theirs"))
    with pytest.raises(JobError, match="another job has begun to write the target; try again"):
        Journal(store, Plan("a", "put it", "plan")).resume()
    assert store.get(other.plan_key) == b"theirs"


@pytest.mark.parametrize("kind", ["convert", LEASE])
def test_what_nothing_resumes_is_not_to_be_finished(store, kind):
    Journal(store, Plan("a", "put it", "plan", kind=kind)).begin()
    with pytest.raises(JobError, match=r"give resume=False \(of plan.run, or to_store\) to discard") as raised:
        Journal(store, Plan("a", "put more", "another")).resume()
    assert ("finish it with its own arguments" in str(raised.value)) is (kind != LEASE)


def test_nothing_is_left_of_a_job_that_was_killed_while_it_cleared_up(tmp_path):
    journal = Journal(LocalStore(tmp_path), Plan("", "job", "f"))
    journal.store.set(f"{journal.prefix}{RUNNING}dead", b"{}")
    assert journal.resume() is False
    assert not [*tmp_path.rglob("*")]
    with leased(journal.store, "", "job"):
        journal.store.set(f"{journal.prefix}0/1-gone", b"{}")
    assert not [*tmp_path.rglob("*")]


def test_a_job_that_is_over_refuses_no_other(store):
    old = Journal(store, Plan("a", "put it", "plan"))
    old.begin()
    end_plan(store, old.plan_key, *store.get_versioned(old.plan_key), old.plan.run)
    assert Journal(store, Plan("a", "another", "x")).resume() is False
    assert not list(store.list_prefix(""))


def test_what_is_staged_without_a_place_that_it_takes_is_of_a_damaged_plan(store):
    journal = Journal(store, Plan("a", "put it", "plan"))
    journal.begin()
    store.set(f"{journal.prefix}new-{journal.plan.run}/c/0", b"x")
    assert Journal(store, Plan("a", "put it", "plan")).resume() is False
    assert not list(store.list_prefix(""))


def test_a_beat_that_follows_the_end_of_its_job_is_cleared_up(store, monkeypatch):
    """The client of a discarded job learns of it a second later; what it stored until then goes with the rest."""
    old = Journal(store, Plan("a/b", "put it", "plan"))
    old.begin()
    beat = f"{old.prefix}{RUNNING}late"
    store.set(beat, dead_heartbeat(key=beat))
    monkeypatch.setattr("chunkmill.journal.journal.time.sleep", lambda _: store.set(beat, dead_heartbeat(key=beat)))
    assert Journal(store, Plan("a/b", "put it", "plan")).discard()
    assert not list(store.list_prefix(""))
