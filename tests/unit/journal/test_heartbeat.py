"""Attempts at jobs: heartbeats, and the question whether one still stands."""

import json
import os
import socket
import time
from datetime import UTC, datetime, timedelta

import pytest
from support.recording import FailingStore, RecordingStore
from support.systems import NEEDS_FORK

from chunkmill.errors import JobError, StoreError
from chunkmill.journal import heartbeat
from chunkmill.journal.heartbeat import CHECK_SECONDS, LIVE_SECONDS, Heartbeat, is_live
from chunkmill.stores.memory import MemoryStore

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
    monkeypatch.setattr(heartbeat, "_clock", lambda: now[0])
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


def test_it_is_there_again_when_others_deleted_it_before_the_plan_was_there(store, attempt, clock):
    store.is_remote = True  # beside other requests
    with attempt.running():
        store.below.delete(KEY)
        attempt.keep()
        assert attempt.stop()
        assert store.below.get(KEY) is not None
        assert not attempt.stop()


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


def test_it_is_over_when_the_client_is(store, attempt):
    with pytest.raises(KeyboardInterrupt), attempt.running():
        raise KeyboardInterrupt
    assert store.get(KEY) is None


def test_a_store_that_fails_hides_no_error():
    failing = FailingStore(MemoryStore(), every=1, methods=["delete"])
    with pytest.raises(KeyboardInterrupt), Heartbeat(failing, KEY, "put it").running():
        raise KeyboardInterrupt


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
        deadline = time.monotonic() + 20
        while len(versions) < 4:
            assert time.monotonic() < deadline
            versions.add(store.below.get_versioned(KEY)[1])
            time.sleep(0.01)
        store.below.delete(KEY)
        time.sleep(0.2)
        assert store.below.get(KEY) is None  # nobody brings back what others ended


def test_stores_that_free_nothing_get_one_heartbeat(monkeypatch, attempt, store):
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    store.scratch_store = MemoryStore
    with attempt.running():
        time.sleep(0.2)
        assert store.keys("set_if") == [KEY]


def aged_heartbeat(age, host=None, pid=None):
    seen = datetime.now(UTC) - timedelta(seconds=age)
    host = socket.gethostname() if host is None else host
    return json.dumps({"seen": seen.isoformat(), "host": host, "pid": os.getpid() if pid is None else pid}).encode()


@pytest.mark.parametrize(
    ("make", "live"),
    [
        (lambda: aged_heartbeat(0), True),
        (lambda: aged_heartbeat(LIVE_SECONDS - 5), True),
        (lambda: aged_heartbeat(LIVE_SECONDS + 1), False),
        (lambda: aged_heartbeat(0, "elsewhere", 1), True),
        (lambda: aged_heartbeat(LIVE_SECONDS + 1, "elsewhere", 1), False),
        (lambda: aged_heartbeat(-30, "elsewhere", 1), True),  # its clock is fast
        (lambda: b"{", False),
        (lambda: b"[]", False),
    ],
    ids=["fresh", "late", "old", "elsewhere", "old elsewhere", "of the future", "torn", "something else"],
)
def test_who_is_alive(make, live):
    assert is_live(make()) is live


@NEEDS_FORK
def test_a_process_of_this_machine_that_is_gone_is_dead_at_once():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert not is_live(aged_heartbeat(0, pid=pid))
