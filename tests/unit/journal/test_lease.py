"""Jobs that have not ended: found, refused, discarded."""

import os
import time
from contextlib import ExitStack, suppress

import pytest
from support.kills import wait_for
from support.small_jobs import dead_heartbeat

from chunkmill.errors import JobError
from chunkmill.journal.journal import Journal
from chunkmill.journal.lease import check_no_job, discard_block_write, discard_jobs, leased
from chunkmill.journal.plans import Plan
from chunkmill.journal.unfinished import jobs_at, unfinished_jobs
from chunkmill.stores import conflicts


def begin(store, path, **kwargs):
    journal = Journal(store, Plan(path, f"write to {path!r}", "plan", **kwargs))
    journal.begin()
    return journal


def test_where_jobs_are_met(store):
    a, *_ = [begin(store, path) for path in ("a", "a/b/c", "ab")]
    assert [job.path for job in jobs_at(store, "a/b")] == ["a"]
    assert {job.path for job in jobs_at(store, "a/b", below=True)} == {"a", "a/b/c"}
    assert {job.path for job in jobs_at(store, "a/b/c", "ab")} == {"a", "a/b/c", "ab"}
    assert [job.path for job in jobs_at(store, "a", below=True, own_run=a.plan.run)] == ["a/b/c"]
    assert jobs_at(store, "") == jobs_at(store, "c") == []
    assert {job.path for job in jobs_at(store, "", below=True)} == {"a", "a/b/c", "ab"}


def test_an_interrupted_job_is_refused_and_its_way_out_told(store):
    begin(store, "a")
    for overwrite, hint in ((None, False), (False, True)):
        with pytest.raises(JobError, match=r"was interrupted: \"write to 'a'\", begun 20.*resume=False") as caught:
            check_no_job(store, "a/b", overwrite=overwrite)
        assert ("overwrite=True discards it" in str(caught.value)) is hint


def test_a_running_job_is_refused_by_those_who_overwrite_too(store):
    journal = begin(store, "a/b")
    with journal.running(), pytest.raises(JobError, match=r"is running.*wait until it is done"):
        check_no_job(store, "a", overwrite=True)
    assert [job.path for job in check_no_job(store, "a", overwrite=True)] == ["a/b"]


def test_overwriting_part_of_what_a_job_writes_discards_nothing(store):
    begin(store, "a")
    with pytest.raises(JobError, match="was interrupted"):
        check_no_job(store, "a/b", overwrite=True)


def test_only_block_writes_that_nobody_runs_are_discarded_unasked(store):
    begin(store, "a")
    blocks = begin(store, "b", kind="to_store")
    begin(store, "", kind="to_store")
    with blocks.running():
        discard_block_write(store, "b")
        assert len(unfinished_jobs(store)) == 3
    discard_block_write(store, "a")
    discard_block_write(store, "b")
    assert {job.path for job in unfinished_jobs(store)} == {"", "a"}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", bytes(300)])
@pytest.mark.parametrize("scope", ["", "append"])
def test_the_lease_of_a_damaged_plan_is_taken_over(store, damage, scope):
    """An empty one, as a crash of the machine may leave, refused every append for ever."""
    journal = Journal(store, Plan("a", "", "", scope=scope))
    store.set(journal.plan_key, damage)
    (job,) = unfinished_jobs(store)
    assert (job.path, job.is_running) == ("?", False)
    check_no_job(store, "b", below=True)
    check_no_job(store, "a")
    with leased(store, "a", "write to 'a'", scope=scope) as own:
        assert own.follows_interrupted
    assert not list(store.list_prefix(""))
    store.set(journal.plan_key, damage)
    discard_jobs(store, unfinished_jobs(store))
    assert not list(store.list_prefix(""))


def test_a_damaged_plan_of_a_client_that_is_alive_is_not_taken_over(store):
    journal = Journal(store, Plan("a", "put it", "plan"))
    with journal.running():
        store.set(journal.plan_key, b"")
        with pytest.raises(JobError, match="a job that writes there is running: a job whose plan is damaged"):
            check_no_job(store, "a")
        with pytest.raises(JobError, match="is running"), leased(store, "a", "write to 'a'"):
            pass
        with pytest.raises(JobError, match="is damaged, and a client of its job is alive"):
            Journal(store, Plan("a", "put it", "plan")).resume()


def dead_reservation(store, path, **kwargs):
    """Reserve a place, and die: nothing is cleared up."""
    with suppress(SystemExit), leased(store, path, f"write to {path!r}", **kwargs):
        found = dict(store._values)
        raise SystemExit
    for key, value in found.items():
        store.set(key, value.replace(f'"pid": {os.getpid()}'.encode(), b'"pid": 999999999'))


def test_a_reservation_is_alone_and_leaves_nothing(store):
    with leased(store, "a", "write to 'a'") as own:
        assert own.run
        assert not own.follows_interrupted
        with pytest.raises(JobError, match=r"is running.*wait until it is done"), leased(store, "a", "another"):
            pytest.fail("reserved twice")
        with pytest.raises(JobError, match="is running"):
            check_no_job(store, "a/b")
        check_no_job(store, "a", own_run=own.run)
    assert list(store.list_prefix("")) == []
    for stays in (False, True):
        with pytest.raises(ZeroDivisionError), leased(store, "a", "write to 'a'", stays=lambda: stays):  # noqa: B023
            raise ZeroDivisionError
        assert len(unfinished_jobs(store)) == stays


def test_the_reservation_of_a_dead_writer_is_taken_over_and_refuses_nobody(store):
    dead_reservation(store, "a")
    assert [job.is_lease for job in unfinished_jobs(store)] == [True]
    assert [job.path for job in check_no_job(store, "a")] == ["a"]
    assert check_no_job(store, "a/b") == []
    assert [job.path for job in check_no_job(store, "a", overwrite=True)] == ["a"]
    with leased(store, "a", "write to 'a'") as own:
        assert own.follows_interrupted
        assert [job.run for job in unfinished_jobs(store)] == [own.run]
    assert list(store.list_prefix("")) == []


def test_who_was_taken_for_dead_leaves_the_reservation_to_its_successor(store):
    with leased(store, "a", "write to 'a'"):
        store.set(Journal(store, Plan("a", "", "")).plan_key, b'{"path": "a", "run": "another"}')
    assert [job.run for job in unfinished_jobs(store)] == ["another"]


def test_a_reservation_takes_over_no_other_job(store):
    begin(store, "a")
    with pytest.raises(JobError, match=r"was interrupted.*resume=False"), leased(store, "a", "write to 'a'"):
        pytest.fail("reserved beside a job")
    assert len(unfinished_jobs(store)) == 1


def test_what_is_reserved_in_a_scope_is_met_there_and_by_those_who_overwrite(store):
    with leased(store, "a", "append to 'a'", scope="append"):
        check_no_job(store, "a", "a/b")
        with pytest.raises(JobError, match="append to 'a'"), leased(store, "a", "another", scope="append"):
            pytest.fail("reserved twice")
        with pytest.raises(JobError, match="append to 'a'"):
            check_no_job(store, "a", overwrite=True)
    dead_reservation(store, "a", scope="append")
    discard_jobs(store, check_no_job(store, "a", overwrite=True))
    assert list(store.list_prefix("")) == []


def test_of_two_that_meet_one_waits_for_the_other_to_give_up(store, monkeypatch):
    waited = []
    with ExitStack() as other:
        rival = other.enter_context(leased(store, "a", "write to 'a'")).run
        monkeypatch.setattr(conflicts, "pause", lambda seconds: (waited.append(seconds), other.close()))
        with pytest.raises(JobError, match="is running"):
            check_no_job(store, "a/b", own_run=f"{rival}~", waits=True)
        assert not waited
        check_no_job(store, "a/b", own_run="!", waits=True)
        assert len(waited) == 1


def test_another_client_of_the_same_run_is_waited_for(store, monkeypatch):
    with ExitStack() as other:
        run = other.enter_context(leased(store, "a", "append to 'a'")).run
        monkeypatch.setattr(conflicts, "pause", lambda _: other.close())
        with leased(store, "a", "append to 'a'", run=run) as own:
            assert (own.run, own.follows_interrupted) == (run, False)


def test_nobody_waits_for_tasks_that_do_not_ask(store, monkeypatch):
    """Tasks of a plain write do not ask whether its reservation stands; those of a job do, at most once a second."""
    waits = []
    monkeypatch.setattr("chunkmill.journal.journal.time.sleep", waits.append)

    def take_over():
        with leased(store, "a", "write to 'a'") as own:
            assert own.follows_interrupted

    for end in (take_over, lambda: discard_jobs(store, unfinished_jobs(store))):
        dead_reservation(store, "a")
        end()
        assert waits == []
        job = begin(store, "a", kind="to_store")
        store.set(f"{job.prefix}running-{job.plan.run}-dead", b"{}")
        end()
        assert waits.pop() == 1.0
    assert list(store.list_prefix("")) == []


def test_a_lease_is_one_object_that_beats(store, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.heartbeat.HEARTBEAT_SECONDS", 0.01)
    with leased(store, "a", "write to 'a'") as own:
        (key,) = store.list_prefix("")
        _, first = store.get_versioned(key)
        wait_for(lambda: store.get_versioned(key)[1] != first)
        (job,) = jobs_at(store, "a")
        assert (job.run, job.is_running, job.began[:2]) == (own.run, True, "20")
        theirs = Plan("a", "write to 'a'", "plan", "another").packed()
        store.set(key, theirs)  # of who has taken it over, as this client had been suspended
        time.sleep(0.05)
        assert store.get(key) == theirs


def test_a_client_that_is_silent_is_watched_before_its_job_counts_as_interrupted(store, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.heartbeat.HEARTBEAT_SECONDS", 0.05)
    job = begin(store, "a")
    store.set(f"{job.prefix}running-x", dead_heartbeat(key="k").replace(b'"host": "', b'"host": "elsewhere-'))
    with pytest.raises(JobError, match="was interrupted"):
        check_no_job(store, "a")


def test_a_lease_that_stays_is_of_nobody(store):
    with leased(store, "a", "write to 'a'", continues=True) as own:
        pass
    (job,) = jobs_at(store, "a")
    assert (job.run, job.is_running, job.silence) == (own.run, False, None)
    with leased(store, "a", "write to 'a'", run=own.run) as again:
        assert again.follows_interrupted
    assert not list(store.list_prefix(""))
