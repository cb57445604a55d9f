"""Attempts at jobs: heartbeats, and the question whether one still stands."""

import json
import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from support.cases import cases
from support.kills import wait_for
from support.recording import FailingStore, RecordingStore

from chunkmill.errors import JobError, StoreError
from chunkmill.journal import heartbeat
from chunkmill.journal.heartbeat import CHECK_SECONDS, HEARTBEAT_SECONDS, LIVE_SECONDS, Heartbeat, is_live
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.posix_file import origin

KEY = "journal/running/x"


@pytest.fixture
def store():
    return RecordingStore(MemoryStore())


@pytest.fixture
def attempt(store):
    return Heartbeat(store, KEY, "put it")


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [0.0]
    monkeypatch.setattr(heartbeat, "clock", lambda: now[0])
    return now


def test_the_store_is_asked_once_a_second(store, attempt, clock):
    with attempt.running():
        store.clear()
        attempt.check()  # it has just begun
        assert store.keys("get") == []
        clock[0] += CHECK_SECONDS
        for _ in range(100):
            attempt.check()
        assert store.keys("get") == [KEY]
        clock[0] += CHECK_SECONDS
        attempt.check()
        attempt.check(now=True)
        assert store.keys("get") == [KEY] * 3


def test_an_attempt_that_was_ended_elsewhere_is_found_within_a_second(store, attempt, clock):
    with attempt.running():
        attempt.check()
        store.below.delete(KEY)  # by another process
        attempt.check()
        clock[0] += CHECK_SECONDS
        with pytest.raises(JobError, match="put it: the job has ended, was interrupted, or was replaced"):
            attempt.check()
        with pytest.raises(JobError):
            attempt.check()


def test_an_attempt_that_ended_here_is_found_at_once(attempt, clock):
    with attempt.running():
        attempt.check()
        attempt.end()
        with pytest.raises(JobError):
            attempt.check()
        attempt.end()  # nothing more happens
        assert (attempt.stop(), attempt.stop()) == (True, False)


def test_it_is_over_when_the_client_is(store, attempt):
    with pytest.raises(KeyboardInterrupt), attempt.running():
        raise KeyboardInterrupt
    assert store.get(KEY) is None


def test_a_store_that_fails_hides_no_error(store):
    failing = FailingStore(store, every=1, methods=["delete"])
    with pytest.raises(KeyboardInterrupt), Heartbeat(failing, KEY, "put it").running():
        raise KeyboardInterrupt
    assert not is_live(store.get(KEY))  # which is left
    assert heartbeat.end_dead(store, [KEY, "absent"]) == 1


def test_a_store_that_cannot_be_asked_is_no_yes(store, attempt):
    failing = FailingStore(store, every=1, methods=["get"])
    with attempt.running(), pytest.raises(StoreError):
        Heartbeat(failing, KEY, "put it").check(now=True)


def test_the_heartbeat_continues_after_errors(monkeypatch, store, attempt):
    errors, get_versioned = [RuntimeError("of a client library"), OSError("no answer")], store.get_versioned

    def fails_at_first(key):
        if errors:
            raise errors.pop(0)
        return get_versioned(key)

    monkeypatch.setattr(store, "get_versioned", fails_at_first)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.02)
    with attempt.running():
        versions = set()
        wait_for(lambda: versions.add(store.below.get_versioned(KEY)[1]) or len(versions) == 4)
        store.below.delete(KEY)
        time.sleep(0.2)
        assert store.below.get(KEY) is None  # nobody brings back what others ended


def aged_heartbeat(age, host=None, pid=None, **said):
    seen = datetime.now(UTC) - timedelta(seconds=age)
    where = dict(zip(("host", "boot", "namespace"), origin(), strict=True)) | ({} if host is None else {"host": host})
    return json.dumps({"seen": seen.isoformat(), **where, "pid": os.getpid() if pid is None else pid, **said}).encode()


@cases(
    ("make", "live", "silent"),
    [
        (lambda: aged_heartbeat(0), True, False),
        (lambda: aged_heartbeat(LIVE_SECONDS - 5), True, False),
        (lambda: aged_heartbeat(LIVE_SECONDS + 1), True, True),
        (lambda: aged_heartbeat(0, "elsewhere", 1), True, False),
        (lambda: aged_heartbeat(LIVE_SECONDS + 1, "elsewhere", 1), True, True),
        (lambda: aged_heartbeat(-30, "elsewhere", 1), True, False),  # its clock is fast
        (lambda: aged_heartbeat(-7200, "elsewhere", 1), True, True),  # by hours
        (lambda: aged_heartbeat(0, pid=999_999_999), False, False),
        (lambda: aged_heartbeat(0, pid=999_999_999, namespace="pid:[1]"), True, False),  # of another container
        (lambda: aged_heartbeat(99, pid=999_999_999, namespace="pid:[1]"), True, True),
        (lambda: aged_heartbeat(99, pid=999_999_999, boot=""), True, True),  # without /proc
        (lambda: b"{", False, False),
        (lambda: b"[]", False, False),
    ],
)  # fmt: skip
def test_clients_that_are_alive(make, live, silent):
    beat = make()
    assert is_live(beat) is live
    assert (heartbeat.silence([beat]) is not None) is silent


@pytest.fixture
def seconds(monkeypatch):
    """The monotonic clock of this process, which passes while one waits."""
    now = [0.0]
    monkeypatch.setattr(heartbeat, "_WATCHED", {})
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(heartbeat.conflicts, "pause", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_client_whose_clock_is_hours_away_is_alive_when_it_beats(seconds, hours):
    """It was thrown out after 3 s."""

    def beats():
        return [aged_heartbeat(hours * 3600 + HEARTBEAT_SECONDS * (seconds[0] // HEARTBEAT_SECONDS), "a", key="k")]

    first = beats()
    heartbeat.watch(lambda: first if seconds[0] < HEARTBEAT_SECONDS else beats(), "put it")
    assert HEARTBEAT_SECONDS <= seconds[0] < 2 * HEARTBEAT_SECONDS
    found = beats()
    assert is_live(found[0])
    assert heartbeat.silence(found) is None  # the same again


def test_a_client_that_misses_two_beats_is_dead(seconds, caplog):
    beat = aged_heartbeat(7200, "elsewhere", 1, key="k")
    heartbeat.watch(lambda: [beat], "put it")
    assert seconds[0] == 2 * HEARTBEAT_SECONDS
    assert not is_live(beat)
    assert caplog.messages == [
        "put it: its client is silent for 7200 s by the clocks; waits up to 20 s for its heartbeat"
    ]
    assert is_live(aged_heartbeat(7190, "elsewhere", 1, key="k"))  # it was suspended, and is back


def test_no_more_silent_clients_are_remembered_than_a_stranger_can_invent(seconds, monkeypatch):
    monkeypatch.setattr(heartbeat, "_MAX_STOOD", 2)
    assert all(is_live(aged_heartbeat(7200, "elsewhere", 1, key=key)) for key in "abcd")
    assert list(heartbeat._WATCHED) == ["d"]


@cases("damage", [{"key": ["x"]}, {"pid": 1e999}, {"seen": 5}, {"host": {}}])
def test_a_damaged_heartbeat_raises_nothing(damage):
    known = json.loads(heartbeat._heartbeat("k"))
    assert heartbeat.is_live(json.dumps(known | damage).encode()) in {False, True}
