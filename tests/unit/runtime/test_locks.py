"""Locks: those of a cluster, without one, and Array.lock: what others, who take it, cannot do at the same time."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from unittest.mock import Mock

import dask
import dask.array as da
import pytest
from dask.utils import SerializableLock
from support.cases import cases
from support.recording import RecordingStore, UnfencedStore

import chunkmill as cm
from chunkmill.errors import JobError, StoreError
from chunkmill.journal.plans import LOCK_PREFIX
from chunkmill.runtime import locks
from chunkmill.runtime.locks import UserLock, automatic_lock, check_guarded, lock_factory, no_lock
from chunkmill.stores.local import LocalStore
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


@pytest.fixture(params=["memory", "local", "no versions"])
def array(request, tmp_path, monkeypatch):
    place = {} if request.param == "memory" else tmp_path / "a"
    array = cm.create_array(place, shape=(8, 8), dtype="i4", chunks=(2, 4))
    if request.param == "no versions":
        monkeypatch.setattr(type(array.store), "compares_versions", False)
    return array


def left(array):
    return [key for key in array.store.list_prefix("") if LOCK_PREFIX in key]


def test_threads_that_hold_the_same_store_keys_come_one_after_the_other(array):
    seen, inside = [], []

    def change(row):
        with array.lock((slice(row, row + 1), slice(0, 8)), timeout=30):
            inside.append(row)
            time.sleep(0.05)
            seen.append(len(inside))
            inside.remove(row)

    with ThreadPoolExecutor(3) as pool:
        assert not any(pool.map(change, (0, 1, 1)))  # of the chunks of one row
    assert seen == [1, 1, 1]
    assert left(array) == []


def test_a_lock_that_others_took_over_is_an_error():
    array = cm.create_array({}, shape=(8,), dtype="i4", chunks=(4,))
    with pytest.raises(StoreError, match="its lock was taken over by others"), array.lock():
        any(map(array.store.delete, left(array)))


def test_who_waits_long_for_a_worker_s_lock_is_told_of_whom(monkeypatch, caplog):
    answers = iter([False, True])
    monkeypatch.setattr(locks, "Lock", lambda *_, **__: Mock(acquire=lambda **_: next(answers)))
    lock = locks.ClusterLock(Mock(), "c/0")
    with lock:
        assert "waiting for the lock of c/0 for" in caplog.text
    with pytest.raises(StopIteration):
        lock.__enter__()
    assert lock._local.acquire(blocking=False)  # a stripe of the process's
    lock._local.release()


def test_workers_without_versions_wait_for_a_lock_of_the_cluster_until_the_time_is_over(monkeypatch):
    monkeypatch.setattr(locks, "worker_here", Mock)
    monkeypatch.setattr(locks, "Lock", lambda *_, **__: Mock(acquire=lambda **_: False))
    array = cm.create_array(UnfencedStore(MemoryStore()), shape=(8,), dtype="i4", chunks=(4,))
    with pytest.raises(TimeoutError, match="locked by another worker of the cluster"), array.lock(timeout=0.01):
        pass


def test_others_are_waited_for_until_the_time_is_over(array):
    with array.lock(slice(0, 1)):
        assert not cm.check(array).problems
        failed = in_thread(lambda: array.lock(slice(1, 2), timeout=0.1).__enter__())
        passed = in_thread(lambda: hold_and_leave(array, slice(2, 4)))
    assert isinstance(failed, TimeoutError)
    assert "locked by another" in str(failed)
    assert passed is None
    hold_and_leave(array, None)
    assert 0 < locks._left(array, time.monotonic() + 0.5, "others") <= 0.5


def in_thread(call):
    """Return the error of a call in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).exception()


def hold_and_leave(array, region):
    with array.lock(region, timeout=0.1):
        pass


def test_own_writes_and_smaller_regions_inside_are_not_held_up(array):
    with array.lock(timeout=1), array.lock(slice(1, 3), timeout=1):
        array[1:3, 1:3] = 5
        cm.store(array.to_dask()[0:2] + 1, array, regions=(slice(0, 2), slice(0, 8)))
    assert array[1, 1] == 6


def test_a_part_of_what_this_thread_holds_is_refused_not_waited_for(array):
    with array.lock(slice(0, 2)), pytest.raises(StoreError, match="larger region first"), array.lock(slice(0, 3)):
        pass


def test_what_is_empty_or_has_no_axes_is_locked_too(tmp_path):
    one = cm.create_array(tmp_path / "one", shape=(), dtype="i4", chunks=())
    none = cm.create_array(tmp_path / "none", shape=(0, 3), dtype="i4", chunks=(1, 3))
    with one.lock(), none.lock(timeout=1):
        one[...] = 3
    assert one[...] == 3


def test_a_table_that_is_none_is_an_error_that_names_it(tmp_path):
    array = cm.create_array(tmp_path / "a", shape=(8,), dtype="i4", chunks=(2,))
    with array.lock():
        (table,) = [key for key in left(array) if key.endswith("-held")]
    for bad in (b"[", b"[]", b'{"a": 3}', b'{"../x": [[0, 1]]}', b'{"a": [[0, 1, 2]]}', b'{"a": [["x", "y"]]}'):
        array.store.set(table, bad)
        with pytest.raises(StoreError, match="held"), array.lock(timeout=1):
            pass
    array.store.set(table, json.dumps({"gone": [[0, 1]]}).encode())
    assert [problem.key for problem in cm.check(tmp_path / "a").problems] == [table]
    with array.lock(timeout=1):  # it has no heartbeat: its process died
        pass
    assert left(array) == []


def test_a_box_of_an_array_of_other_rank_that_was_there_before_is_waited_for(tmp_path):
    make = {"dtype": "i4", "overwrite": True}
    cm.create_group(tmp_path / "g")
    with cm.create_array(tmp_path / "g", "a", shape=(8,), chunks=(2,), **make).lock():
        new = cm.create_array(tmp_path / "g", "a", shape=(8, 8), chunks=(2, 2), **make)
        assert isinstance(in_thread(lambda: hold_and_leave(new, None)), TimeoutError)
    hold_and_leave(new, None)


def test_the_requests_are_as_many_as_the_documentation_says():
    store = RecordingStore(MemoryStore())
    store.is_remote, store.deletes_conditionally = True, False
    array = cm.create_array(store, shape=(8,), dtype="i4", chunks=(2,))
    store.clear()
    with array.lock():
        pass
    assert len(store.keys("get", "get_versioned", "set", "set_if", "delete")) == 6


@pytest.mark.parametrize("kind", ["memory", "local", "no renames"])
def test_a_whole_store_is_not_replaced_while_a_lock_is_held_in_it(kind, tmp_path, monkeypatch):
    """It took the table of the locks with it, and the holder was told at the end only."""
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "a")
    if kind == "no renames":
        monkeypatch.setattr(LocalStore, "can_replace", lambda *_: False)
    array = cm.create_array(store, "g/a", shape=(8, 8), dtype="i4", chunks=(2, 4))
    with array.lock(slice(0, 2)):
        for replace in (
            lambda: cm.create_group(store, overwrite=True),
            lambda: cm.to_store(da.ones(4), store, mode="w"),
        ):
            with pytest.raises(JobError, match=r"process \d+ on .* holds the lock of an array there"):
                replace()
        array[0:2] = 7
    cm.create_group(store, overwrite=True)
    assert left(array) == []


def test_a_whole_store_is_deleted_but_for_the_table_of_locks(array):
    with array.lock(slice(0, 2)):
        cm.delete(array.store)
        assert bool(left(array)) is array.store.compares_versions
    assert left(array) == []


def test_a_lock_of_a_stranger_that_names_no_machine_is_an_error_of_ours(array):
    beat = {"seen": datetime.now(UTC).isoformat(), "pid": 1}
    array.store.set(f"{LOCK_PREFIX}x", json.dumps(beat).encode())
    with pytest.raises(JobError, match="process 1 on an unknown machine holds the lock"):
        cm.create_group(array.store, overwrite=True)
