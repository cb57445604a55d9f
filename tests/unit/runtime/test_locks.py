"""Locks of a cluster, without one: what is meant, and which keys are remembered."""

import threading

import dask
import pytest
from dask.utils import SerializableLock
from support.cases import cases
from support.recording import UnfencedStore

from chunkmill.errors import StoreError
from chunkmill.runtime import locks
from chunkmill.runtime.locks import UserLock, automatic_lock, check_guarded, lock_factory, no_lock
from chunkmill.stores.memory import MemoryStore


def test_the_user_s_lock_is_that_of_every_key():
    lock = threading.Lock()
    with dask.config.set(scheduler="threads"):
        factory = lock_factory(lock)
    assert factory("a") is factory("b", contended=True) is lock


def test_what_is_no_lock():
    with pytest.raises(TypeError, match=r"lock=3 is neither 'auto' nor None nor a context manager"):
        lock_factory(3)
    with dask.config.set(scheduler="processes"), pytest.raises(TypeError, match="cannot be sent to workers"):
        lock_factory(threading.Lock())


def test_a_contended_key_is_remembered_for_a_second(monkeypatch):
    """Whoever met another writer asks for the cluster's lock at once; then this process's will do again."""
    now = [100.0]
    asked = []
    monkeypatch.setattr(locks.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(locks, "_CONTENDED_UNTIL", [0.0] * len(locks._CONTENDED_UNTIL))
    monkeypatch.setattr(locks, "worker_here", lambda: asked.append(now[0]))
    automatic_lock("a")
    assert asked == []
    automatic_lock("a", contended=True)
    now[0] += 0.9
    automatic_lock("a")
    assert asked == [100.0, 100.9]
    now[0] += 0.2
    automatic_lock("a")
    assert len(asked) == 2


@cases(
    ("scheduler", "lock", "reason"),
    [
        ("threads", no_lock, "lock=None leaves partial writes unguarded"),
        ("processes", UserLock(SerializableLock()), "a SerializableLock is a lock of one process only"),
        ("processes", automatic_lock, "processes without a cluster have no lock in common"),
        ("threads", automatic_lock, None),
        ("threads", UserLock(SerializableLock()), None),
        ("processes", UserLock(object()), None),
    ],
)
def test_unguarded_writes_are_refused(scheduler, lock, reason):
    store = UnfencedStore(MemoryStore())
    with dask.config.set(scheduler=scheduler):
        check_guarded(MemoryStore(), "a", lock)  # it compares versions
        if reason is None:
            check_guarded(store, "a", lock)
            return
        with pytest.raises(StoreError, match=reason) as caught:
            check_guarded(store, "a", lock)
    assert "whole chunks (shards)" in str(caught.value)
