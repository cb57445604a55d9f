"""A value changes only while it is what was read; each way to be refused ends."""

import pytest
from support.cases import cases

from chunkmill.errors import StoreError
from chunkmill.stores import conflicts
from chunkmill.stores.conflicts import create, swap, update
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    waited = []
    monkeypatch.setattr(conflicts, "pause", waited.append)
    return waited


class Racing(MemoryStore):
    """Others write so many times before a write of ours."""

    n_others = 0

    def set_if(self, key, value, version):
        if self.n_others:
            self.n_others -= 1
            self.set(key, b"%d" % (int(self.get(key) or 0) + 10))
        return super().set_if(key, value, version)


class Weakening(MemoryStore):
    """A proxy changes ETags, so that no version is accepted."""

    n_tries = 0

    def set_if(self, key, value, version):
        self.n_tries += 1
        return version is None and super().set_if(key, value, version)


class LosingResponses(MemoryStore):
    """The client repeats a request whose response was lost, and is refused because of its own write."""

    is_remote = True

    def set_if(self, key, value, version):
        super().set_if(key, value, version)
        return False


def add_one(value):
    return b"%d" % (int(value or 0) + 1)


@cases("n_others, n_pauses", [(0, 0), (1, 0), (3, 0), (20, 17)])
def test_a_change_is_made_again_after_each_conflict_and_pauses_among_many_others(n_others, n_pauses, pauses):
    store = Racing()
    pauses.clear()
    store.set("n", b"0")
    store.n_others = n_others
    assert update(store, "n", add_one) == store.get("n") == b"%d" % (10 * n_others + 1)
    assert len(pauses) == n_pauses


def test_others_that_never_end_are_an_error(monkeypatch):
    monkeypatch.setattr(conflicts, "_MOST_CONFLICTS", 7)
    store = Racing()
    store.n_others = 1 << 30
    with pytest.raises(StoreError, match="others changed it 7 times"):
        update(store, "n", add_one)


def test_a_store_that_accepts_no_version_is_one_error(pauses):
    """It was asked for ever, 60 times a second."""
    store = Weakening()
    store.set("n", b"1")
    with pytest.raises(StoreError, match="refused 10 times to replace the version that it gave out"):
        update(store, "n", add_one)
    assert (store.n_tries, pauses, store.get("n")) == (10, [0.05, 0.1, 0.2, 0.4, *[0.8] * 5], b"1")


@pytest.mark.parametrize("value", [b"2", None])
def test_a_lost_response_is_a_write(value):
    store = LosingResponses()
    store.set("n", b"1")
    calls = []
    assert update(store, "n", lambda there: calls.append(there) or value) == value
    assert calls == [b"1"]
    assert store.get("n") == value
    store.set("n", b"1")
    assert swap(store, "n", value, store.get_versioned("n")[1])
    assert create(LosingResponses(), "m", b"1")
    assert not create(store, "n", b"3") or store.get("n") == b"3"


def test_what_does_not_change_is_not_written(store, monkeypatch):
    store.set("n", b"1")
    version = store.get_versioned("n")[1]
    assert update(store, "n", lambda value: value) == b"1"
    assert update(store, "absent", lambda value: value) is None
    assert store.get_versioned("n")[1] == version
    assert update(store, "n", lambda value: value, rewrites=True) == b"1"
    assert store.get_versioned("n")[1] != version


def test_a_change_may_raise_and_nothing_is_written(store):
    with pytest.raises(ZeroDivisionError):
        update(store, "n", lambda _: 1 // 0)
    assert store.get("n") is None


def test_a_create_that_is_refused_for_ever_ends(store):
    with pytest.raises(StoreError, match="refused for 0 s to create this key, and there is no such key"):
        conflicts.create_again(store, "k", lambda: False, 0.1)
    store.set("k", b"others'")
    assert conflicts.create_again(store, "k", lambda: True, 0.1) is False


@cases(
    ("text", "expected"),
    [
        ("403 Forbidden <Code>AccessDenied</Code>", True), ("The provided token has expired.", False),
        ("403 <Code>InvalidAccessKeyId</Code>", False), ("The request signature we calculated does not match", False),
    ],
)  # fmt: skip
def test_an_answer_of_expired_credentials_is_not_that_of_an_absent_key(text, expected):
    error = StoreError(url="s3://b", key="k", reason=text)
    error.__cause__ = PermissionError(text)
    assert conflicts.is_forbidden(error) is expected
