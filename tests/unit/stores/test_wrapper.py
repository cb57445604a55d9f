"""Stores that wrap another one: counted, guarded, with versions, and with keys known to be absent."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from support.cases import cases
from support.recording import Meanwhile, RecordingStore, UnfencedStore

from chunkmill.errors import JobError
from chunkmill.stores import wrapper
from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import GuardedStore, Meter, MeteredStore, StoreWrapper, digest_of, guarded
from chunkmill.stores.zip import ZipStore

METHODS = sorted(name for name, each in vars(StoreWrapper).items() if isinstance(each, wrapper._PassedOn))


@cases("name", METHODS)
def test_every_member_is_passed_on(name):
    below = SimpleNamespace(url="mine://", is_remote=True)
    member = object()
    setattr(below, name, member)
    store = StoreWrapper(below)
    assert getattr(store, name) is member
    assert (store.url, store.is_remote) == ("mine://", True)


def test_what_is_not_passed_on_is_made_of_what_is():
    names = {name for name in vars(Store) if not name.startswith("_")} - {*METHODS}
    made_up = {
        "get_writable", "set_parts", "delete_many", "is_empty", "check_listed", "remove_empty_folders", "cut",
        "failed", "remembered", "named_in_errors", "bounds",
    }  # fmt: skip
    of_its_own = {"has_versions", "get_noting", "get_many_noting", "version", "list_versions", "is_demanded"}
    views = {"uncached", "after_stored", "limited_to", "references", "targets", "locate", "locates_values"}
    assert names == made_up | of_its_own | views | {"writes_parts"}


def test_only_listed_keys_are_asked_for():
    below = RecordingStore(MemoryStore())
    for key in ("a", "b"):
        below.set(key, b"123")
    below.clear()
    store = wrapper.ListedStore(below, {"a", "gone"})
    assert (store.get("a", ByteRange(1)), store.get("b"), store.get("gone")) == (b"23", None, None)
    assert list(store.get_many([ByteSpan("b"), None, ByteSpan("a")])) == [None, None, b"123"]
    assert (store.size("a"), store.size("b")) == (3, None)
    assert (store.get_versioned("a")[0], store.get_versioned("b")) == (b"123", (None, None))
    assert "b" not in below.keys("get", "get_many", "size", "get_versioned")


def test_every_request_of_a_task_is_counted_and_what_it_wrote_recorded():
    meter = Meter()
    store = MeteredStore(MemoryStore(), meter)
    requests = [
        lambda: store.set("a/0", b"123"),
        lambda: store.set_if("a/1", b"12", None) and store.set_if("a/1", b"refused", None),
        lambda: store.set_parts("a/2", [b"1", b"2"]), lambda: store.get("a/0"),
        lambda: list(store.get_many([ByteSpan("a/0"), None])), lambda: store.get_versioned("a/0"),
        lambda: store.size("a/0"), lambda: store.list_dir("a/"), lambda: list(store.list_prefix("a/")),
        lambda: store.delete("a/2"), lambda: store.set_if("a/1", None, store.below.version("a/1")),
        lambda: store.delete_prefix("a/"),
    ]  # fmt: skip
    for n, request in enumerate(requests, 1):
        request()
        assert meter.n_requests == n
    assert meter.counts() == {"n_requests": 12, "bytes_read": 9, "bytes_written": 7}
    assert meter.writes == {"a/0": 3, "a/1": None, "a/2": None}


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
    "set": lambda store: store.set("a", b"new"), "set_parts": lambda store: store.set_parts("a", [b"n", b"ew"]),
    "set_if": lambda store: store.set_if("a", b"new", None), "delete": lambda store: store.delete("a"),
    "delete_prefix": lambda store: store.delete_prefix("a/"),
}  # fmt: skip


@cases("write", WRITES)
@cases("fenced", [True, False])
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
    store.delete_prefix("a/")
    assert store.set_if("c", b"3", None)
    assert guard.asked


def test_a_new_value_costs_one_request(below, guard):
    GuardedStore(below, guard).set("a", b"1")
    assert [method for method, _, _ in below.log] == ["set_if" if below.compares_versions else "set"]


def test_large_values_of_remote_stores_are_uploaded_as_others_are(guard, monkeypatch):
    monkeypatch.setattr("chunkmill.stores.wrapper._LARGEST_COMPARED", 3)
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
    assert guard.asked == [False, True]
    comparing.clear()
    store.set("b", b"2")
    assert [method for method, _, _ in comparing.log] == ["get_versioned", "set_if"]


def is_set_if(method, _):
    """Say where somebody else writes between the guard's answer and the write."""
    return method == "set_if"


@pytest.mark.parametrize(("old", "write"), [(None, "set"), (b"old", "set"), (b"old", "delete")])
def test_a_value_that_came_meanwhile_stays(comparing, guard, old, write):
    """The run ended, and a user has written, while this task slept."""
    if old is not None:
        comparing.set("a", old)

    def meanwhile(_):
        guard.is_over = True
        comparing.set("a", b"the user's")

    store = GuardedStore(Meanwhile(comparing, is_set_if, meanwhile), guard)
    with pytest.raises(JobError):
        WRITES[write](store)
    assert comparing.get("a") == b"the user's"


def test_the_same_task_elsewhere(below, guard):
    """Dask runs tasks twice; while the run stands both may write, and none fails."""
    store = GuardedStore(Meanwhile(below, is_set_if, lambda _: below.set("a", b"as the other encoded it")), guard)
    store.set("a", b"new")
    assert below.get("a") == b"new"
    store = GuardedStore(Meanwhile(MemoryStore(), is_set_if, lambda there: there.set("a", b"new")), guard)
    store.set("a", b"new")
    assert [method for method, _, _ in store.below.log] == ["set_if", "get_versioned"]  # it is there


def test_parts_are_asked_about_again_before_they_are_published(below, guard):
    GuardedStore(below, guard).set_parts("a", [b"1", b"2"])
    assert guard.asked == [False, False, True]


def test_only_tasks_are_guarded(below, guard):
    assert guarded(below) is below
    token = wrapper.write_guard.set(guard)
    try:
        guarded(below).set("a", b"1")
    finally:
        wrapper.write_guard.reset(token)
    assert guard.asked == [False]


@cases("is_remote", [True, False])
def test_it_is_asked_before_others_changes_would_be_replaced(is_remote):
    ask, below = Mock(), MemoryStore()
    below.is_remote = is_remote
    store = wrapper.AsksAboutChunks(below, ask)
    assert (store.get_versioned("a"), ask.call_count) == ((None, None), int(not is_remote))
    assert (store.set_if("a", b"1", None), ask.call_count) == (True, int(not is_remote))
    assert (store.set_if("a", b"2", None), ask.call_count) == (False, 1)


def obstore_memory(_):
    obstore = pytest.importorskip("obstore.store")
    from chunkmill.stores.obstore import ObstoreStore

    return ObstoreStore(obstore.MemoryStore())


STORES = {
    "memory": lambda _: MemoryStore(), "files": LocalStore, "zip": lambda path: ZipStore(path / "a.zip"),
    "obstore": obstore_memory,
}  # fmt: skip


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    store = STORES[request.param](tmp_path)
    for key in ("a/0", "a/1"):
        store.set(key, b"0123456789")
    return store


def test_versions_of_whole_values_and_ranges(store):
    assert store.has_versions
    read = Meter()
    noted = MeteredStore(store, read, is_source=True)
    assert (noted.get("a/0"), noted.get("a/2")) == (b"0123456789", None)
    spans = [ByteSpan("a/1", ByteRange(-3)), None, ByteSpan("a/1", ByteRange(1, 2))]
    assert list(noted.get_many(spans)) == [b"789", None, b"12"]
    now = {key: store.version(key) for key in ("a/0", "a/1")}
    assert read.digest() == digest_of(now)
    assert store.version("a/2") is None
    listed = store.list_versions("a/")
    assert listed is None or dict(listed) == now


def test_a_value_that_is_replaced_has_another_version(store):
    read = Meter()
    noted = MeteredStore(store, read, is_source=True)
    noted.get("a/0")
    store.set("a/0", b"0123456789")
    assert read.digest() != digest_of({"a/0": store.version("a/0")})
    noted.get("a/0")  # read twice, of two values
    assert read.digest() != digest_of({"a/0": store.version("a/0")})
