"""The store over a repository of Icechunk: transactions, documents that come before their time, keys of jobs."""

import pickle
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from chunkmill.errors import ChunkmillError, StoreError
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.icechunk_session import FORK, Place, commit
from chunkmill.stores.icechunk_store import IcechunkStore

icechunk = pytest.importorskip("icechunk")

GROUP = b'{"zarr_format":3,"node_type":"group"}'


def array(length):
    return (
        b'{"zarr_format":3,"node_type":"array","shape":[%d],"data_type":"uint8","fill_value":0,'
        b'"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},'
        b'"chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},'
        b'"codecs":[{"name":"bytes"}],"attributes":{}}' % length
    )


@pytest.fixture
def repository(tmp_path, capfd):
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))
    capfd.readouterr()
    return made


@pytest.fixture
def store(repository, tmp_path):
    opened = IcechunkStore(Place("here|icechunk:", repository))
    with opened.transaction("begin"):
        opened.set("zarr.json", GROUP)
        opened.set("a/zarr.json", array(8))
    return opened


def fail_after(store, change):
    with store.transaction("fails"):
        change()
        raise KeyError


def n_commits(repository):
    return len(list(repository.ancestry(branch="main"))) - 1


def test_a_transaction_is_one_commit(store, repository):
    other, before = IcechunkStore(Place("here|icechunk:", repository)), store.snapshot
    with store.transaction("two chunks"):
        assert store.snapshot != before
        store.set("a/c/0", b"12")
        with store.transaction("part of it"):
            store.set("a/c/1", b"34")
        assert store.get("a/c/0", ByteRange(1)) == b"2"
        assert list(store.get_many([ByteSpan("a/c/1"), None, ByteSpan("a/c/2")])) == [b"34", None, None]
        assert IcechunkStore(Place("here|icechunk:", repository)).get("a/c/0") is None
    assert n_commits(repository) == 2
    assert other.get("a/c/0") is None  # of the snapshot at which it was opened
    assert IcechunkStore(Place("here|icechunk:", repository)).get("a/c/0") == b"12"
    with store.transaction("nothing"):
        pass
    store.delete("a/c/0")
    assert store.get("a/c/0") is None
    assert n_commits(repository) == 3


def test_an_error_commits_nothing(store, repository):
    with pytest.raises(KeyError):
        fail_after(store, lambda: store.set("a/c/0", b"12"))
    assert store.get("a/c/0") is None
    assert n_commits(repository) == 1


def test_declared_documents_are_hidden_until_they_are_set(store):
    with store.transaction("arrays"):
        store.declare({"b/zarr.json": array(4)}, "b/c/0")
        store.declare({"a/zarr.json": array(12)}, "a/c/0")
        store.set("b/c/1", b"12")
        store.set("a/c/5", b"34")  # past the end of what readers find
        assert (store.get("b/zarr.json"), store.size("b/zarr.json")) == (None, None)
        assert (store.get("a/zarr.json"), store.size("a/zarr.json")) == (array(8), len(array(8)))
        assert "b/zarr.json" not in store.list_prefix("")
        assert store.list_dir("b/") == ["c/"]
        store.declare({"d/zarr.json": array(2)}, "d/c/0")
        store.set("d/c/0", b"12")
        store.delete_prefix("d/")
        assert (store.get("d/zarr.json"), store.get("a/zarr.json")) == (None, array(8))
        assert store.set_if("b/zarr.json", array(4), None)
        assert store.get("b/zarr.json") == array(4)
        store.set("a/zarr.json", array(12))
        store.declare({"e/f/zarr.json": array(2)}, "e/f/c/0")
        store.set("e/f/c/0", b"56")
        assert [*store.list_prefix("e/")] == ["e/f/c/0"]
        store.set("e/f/zarr.json", array(2))
    assert [*store.list_prefix("b/")] == ["b/zarr.json", "b/c/1"]
    assert store.get("a/c/5") == b"34"


def test_chunks_outside_of_a_shorter_array_are_deleted(store):
    store.set("a/c/3", b"12")
    with store.transaction("shorter"):
        store.set("a/zarr.json", array(4))
        store.delete("a/c/3")
    store.set("a/zarr.json", array(8))
    assert store.get("a/c/3") is None


def test_copies_of_a_transaction_share_it(store):
    with store.transaction("one"):
        store.set("a/c/0", b"12")
        copy = pickle.loads(pickle.dumps(store))
        copy.set("a/c/1", b"34")
        assert store.get("a/c/1") == b"34"
        assert copy == store
    assert copy.get("a/c/0") == b"12"
    later = pickle.loads(pickle.dumps(store))
    assert ({later}, later.get("a/c/1")) == ({store}, b"34")
    assert later not in (IcechunkStore(Place("elsewhere|icechunk:")), "here|icechunk:")
    with pytest.raises(StoreError, match="cannot be part of a commit that is made now"):
        later.declare({"b/zarr.json": array(4)}, "b/c/0")


def test_tasks_write_to_forks(store, monkeypatch):
    with store.transaction("two tasks"):
        store.set("a/c/0", b"00")
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("chunkmill.stores.icechunk_store.LIVE", {})
            other = pickle.loads(pickle.dumps(store))
        changes = []
        for chunk in (1, 2):
            with other.changes_taken() as taken, other.transaction("part of it"):
                other.set(f"a/c/{chunk}", b"%d%d" % (chunk, chunk))
                assert other.get(f"a/c/{chunk}") is not None
                assert other.get("a/c/0") == b"00"
                changes.append(taken())
        for write in (lambda: other.set("a/c/3", b"33"), lambda: other.declare({"a/zarr.json": array(4)}, "a/c/0")):
            with pytest.raises(StoreError, match="to which nothing returns what is written"):
                write()
        with store.changes_taken() as taken:
            assert taken() is None
        assert store.get("a/c/1") is None
        with pytest.raises(StoreError, match="that this process does not have"):
            changes[0].joined([replace(changes[1], token="of another")])
        with pytest.raises(StoreError, match="that this process does not have"):
            replace(changes[0], token="of another").apply()
        changes[0].joined([changes[1].joined([])]).apply()
        assert store.get("a/c/1") == b"11"
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("chunkmill.stores.icechunk_store.LIVE", {})
            assert pickle.loads(pickle.dumps(store)).get("a/c/1") == b"11"
    assert [*store.list_prefix("a/")] == ["a/zarr.json", "a/c/0", "a/c/1", "a/c/2"]
    assert FORK.get() is None


def test_sessions_are_left_to_their_owner(repository, store):
    session = repository.writable_session("main")
    own = IcechunkStore(Place("session"), session)
    with own.transaction("not made"):
        own.set("a/c/0", b"12")
    assert session.has_uncommitted_changes
    with pytest.raises(KeyError):
        fail_after(own, lambda: own.declare({"b/zarr.json": array(4)}, "b/c/0"))
    assert own.list_dir("") == ["a/", "zarr.json"]
    read = IcechunkStore(Place("session"), repository.readonly_session("main"))
    with pytest.raises(StoreError, match="opened for reading only"):
        read.set("a/c/0", b"12")
    assert store.get("a/c/0") is None


def test_keys_of_jobs_are_stored_elsewhere(store, repository):
    key = ".chunkmill-job-1/plan.json"
    assert store.set_if(key, b"1", None)
    assert not store.set_if(key, b"2", None)
    value, version = store.get_versioned(key)
    assert value == b"1"
    assert store.set_if(key, b"3", version)
    assert (store.get(key), store.size(key)) == (b"3", 1)
    assert [*store.get_many([ByteSpan(key), None, ByteSpan("zarr.json"), ByteSpan(f"{key}.not")])] == [
        b"3", None, GROUP, None,
    ]  # fmt: skip
    assert store.list_dir("") == [".chunkmill-job-1/", "a/", "zarr.json"]
    assert store.list_dir(".chunkmill-job-1/") == ["plan.json"]
    assert [*store.list_prefix(".chunkmill-job-1/")] == [key]
    assert key not in [*store.list_prefix("")]
    store.set_parts(".chunkmill-job-1/part", [b"1", b"2"])
    assert store.get(".chunkmill-job-1/part") == b"12"
    store.delete(key)
    store.delete_prefix(".chunkmill-job-1/")
    store.remove_folder(".chunkmill-job-1/")
    assert store.list_dir("") == ["a/", "zarr.json"]
    assert n_commits(repository) == 1


@pytest.mark.parametrize("key", ["a/.zarray", "a/0.0", "attributes.json"])
def test_other_formats_are_refused(store, key):
    with pytest.raises(StoreError, match="holds arrays and groups of Zarr v3"):
        store.set(key, b"{}")
    with store.transaction("none"), pytest.raises(StoreError, match="holds arrays and groups of Zarr v3"):
        store.declare({"b/zarr.json": array(2)}, "b/c.0")
    assert (store.get(key), store.size(key)) == (None, None)


def test_prefixes_are_deleted(store):
    store.set("a/c/0", b"12")
    store.delete_prefix("nothing/")
    store.delete_prefix("a/")
    assert [*store.list_prefix("")] == ["zarr.json"]
    store.delete_prefix("")
    assert [*store.list_prefix("")] == []


def test_a_failure_of_the_repository_is_an_error(store, monkeypatch):
    with store.transaction("none"), pytest.raises(StoreError, match=r"'a/c/9'.*chunk"):
        store.delete("a/c/9")  # outside of the array
    failure = icechunk.IcechunkError("no space\nat line 1")
    with monkeypatch.context() as of_version:
        of_version.setattr(type(store.below_zarr), "set", AsyncMock(side_effect=failure))
        unsupported = "Icechunk 1 does not support a rectilinear grid"
        for version, new, text in (
            ("1.1.21", b"regular", "no space"), ("1.1.21", b"rectilinear", unsupported), ("2.0.0", b"rectilinear", "no space"),
        ):  # fmt: skip
            of_version.setattr(icechunk, "__version__", version)
            with pytest.raises(ChunkmillError, match=text):
                store.set("b/zarr.json", array(4).replace(b"regular", new))
    with pytest.raises(StoreError, match=r"the commit failed: no space$"):
        commit(Mock(commit=Mock(side_effect=failure)), "one", "here")
    monkeypatch.setattr(type(store.below_zarr), "exists", AsyncMock(side_effect=failure))
    with pytest.raises(StoreError, match=r"'a/'.*no space"):
        store.list_dir("a/")  # of a document, which would be hidden
