"""Guarded stores: writes that are asked about first, and that replace nothing they have not seen."""

import numpy as np
import pytest
from support.recording import RecordingStore, UnfencedStore

from chunkmill.errors import JobError, StoreError
from chunkmill.stores.guarded import GuardedStore, guarded, write_guard
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


class Guard:
    """Allows everything until it is told otherwise."""

    def __init__(self):
        self.asked = []
        self.is_over = False

    def __call__(self, *, now=False):
        self.asked.append(now)
        if self.is_over:
            raise JobError(job="put it", reason="over")


@pytest.fixture
def guard():
    return Guard()


@pytest.fixture(params=["memory", "local"])
def below(request, tmp_path):
    return RecordingStore(MemoryStore() if request.param == "memory" else LocalStore(tmp_path))


@pytest.fixture
def comparing(below):
    if not below.compares_versions:
        pytest.skip("COMPARING FILES IS NOT TESTED: this system has no flock")
    return below


WRITES = {
    "set": lambda store: store.set("a", b"new"),
    "set_parts": lambda store: store.set_parts("a", [b"n", b"ew"]),
    "set_if": lambda store: store.set_if("a", b"new", None),
    "delete": lambda store: store.delete("a"),
    "delete_prefix": lambda store: store.delete_prefix("a/"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fenced", [True, False])
def test_nothing_is_written_once_it_is_over(below, guard, write, fenced):
    below.set("a", b"old")
    below.set("a/b", b"old") if isinstance(below.below, MemoryStore) else None
    store = GuardedStore(below if fenced else UnfencedStore(below), guard)
    guard.is_over = True
    with pytest.raises(JobError, match="over"):
        WRITES[write](store)
    assert below.get("a") == b"old"


@pytest.mark.parametrize("fenced", [True, False])
def test_values_are_stored(below, guard, fenced):
    store = GuardedStore(below if fenced else UnfencedStore(below), guard)
    store.set("a", memoryview(np.arange(3, dtype="<u2")))
    store.set("a", bytearray(b"12"))
    assert store.get("a") == b"12"
    store.set_parts("b", iter([b"1", b"2"]))
    assert store.get("b") == b"12"
    store.delete("b")
    store.delete("b")
    assert store.get("b") is None
    assert guard.asked


def test_a_new_value_costs_one_request(below, guard):
    GuardedStore(below, guard).set("a", b"1")
    assert [method for method, _, _ in below.log] == ["set_if" if below.compares_versions else "set"]


def test_large_values_of_remote_stores_are_uploaded_as_others_are(guard, monkeypatch):
    monkeypatch.setattr("chunkmill.stores.guarded._LARGEST_COMPARED", 3)
    below = RecordingStore(MemoryStore())
    below.is_remote = True
    store = GuardedStore(below, guard)
    store.set("a", b"1234")
    store.set("b", b"123")
    assert [method for method, _, _ in below.log] == ["set", "set_if"]
    assert guard.asked == [False, False]


def test_after_the_first_that_is_there_versions_are_looked_up_first(comparing, guard):
    for key in "ab":
        comparing.set(key, b"old")
    store = GuardedStore(comparing, guard)
    store.set("a", b"1")
    comparing.clear()
    store.set("b", b"2")
    assert [method for method, _, _ in comparing.log] == ["get_versioned", "set_if"]


class Late(RecordingStore):
    """Lets somebody else write between the guard's answer and the write."""

    def __init__(self, below, meanwhile):
        super().__init__(below)
        self.meanwhile = [meanwhile]

    def _before(self, method, key, byte_range=None):
        super()._before(method, key)
        if method == "set_if" and self.meanwhile:
            self.meanwhile.pop()()


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("write", ["set", "delete"])
def test_a_value_that_came_meanwhile_stays(comparing, guard, old, write):
    """The run ended, and a user has written, while this task slept."""
    if old is not None:
        comparing.set("a", old)

    def meanwhile():
        guard.is_over = True
        comparing.set("a", b"the user's")

    store = GuardedStore(Late(comparing, meanwhile), guard)
    if old is None and write == "delete":
        return WRITES[write](store)  # there is nothing to delete, so nothing happens
    with pytest.raises(JobError):
        WRITES[write](store)
    assert comparing.get("a") == b"the user's"
    return None


def test_the_same_task_elsewhere(below, guard):
    """Dask runs tasks twice; while the run stands both may write, and none fails."""
    store = GuardedStore(Late(below, lambda: below.set("a", b"as the other encoded it")), guard)
    store.set("a", b"new")
    assert below.get("a") == b"new"
    store = GuardedStore(Late(MemoryStore(), lambda: store.below.below.set("a", b"new")), guard)
    store.set("a", b"new")
    assert [method for method, _, _ in store.below.log] == ["set_if", "get_versioned"]  # it is there


def test_endless_contention_is_an_error(guard):
    class Refuses(MemoryStore):
        def set_if(self, key, value, version):
            return False

    refuses = Refuses()
    refuses.set("a", b"old")
    for write in ("set", "delete"):
        with pytest.raises(StoreError, match="100 times"):
            WRITES[write](GuardedStore(refuses, guard))


def test_parts_stop_where_it_is_over(below, guard):
    def parts():
        yield b"1"
        guard.is_over = True
        yield b"2"

    with pytest.raises(JobError):
        GuardedStore(below, guard).set_parts("a", parts())
    assert below.get("a") is None


def test_parts_are_asked_about_again_before_they_are_published(below, guard):
    GuardedStore(below, guard).set_parts("a", [b"1", b"2"])
    assert guard.asked == [False, False, True]


def test_only_tasks_are_guarded(below, guard):
    assert guarded(below) is below
    token = write_guard.set(guard)
    try:
        guarded(below).set("a", b"1")
    finally:
        write_guard.reset(token)
    assert guard.asked == [False]
