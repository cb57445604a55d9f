"""The transaction of a job and the changes of its tasks, which another client finds in the journal."""

from functools import partial

import pytest

from chunkmill.journal.journal import Journal
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.transactions import changes_taken

icechunk = pytest.importorskip("icechunk")
GROUP = b'{"zarr_format": 3, "node_type": "group"}'


def opened(tmp_path, *, may_keep=True):
    from chunkmill.stores.icechunk_session import Place
    from chunkmill.stores.icechunk_store import IcechunkStore

    storage = icechunk.local_filesystem_storage(str(tmp_path / "repository"))
    repository = icechunk.Repository.open_or_create(storage)
    journal = partial(LocalStore, tmp_path / "side")
    return IcechunkStore(Place("here|icechunk:", repository, journal=journal, may_keep=may_keep))


def journal_of(store):
    return Journal(store, "a", "put it", "plan")


def begun(store):
    """A job that has begun, in whose first task a group was made."""
    journal = journal_of(store)
    journal.begin({})
    journal.keep_transaction()
    with journal.running():
        with changes_taken(store, here=journal.keeps_changes) as taken:
            store.set("b/zarr.json", GROUP)
        journal.keep_changes(0, 0, taken())
        journal.record(0, 0, {"n_keys": 1}, {})
    return journal


def dies(store):
    store.set("zarr.json", GROUP)
    begun(store)
    raise ZeroDivisionError


def test_another_client_commits_what_was_kept(tmp_path):
    store = opened(tmp_path)
    with pytest.raises(ZeroDivisionError), store.transaction("dies"):
        dies(store)
    assert store.get("b/zarr.json") is None
    later = opened(tmp_path)
    journal = journal_of(later)
    assert journal.is_resumable
    with later.transaction("resumes"), journal.running():
        assert journal.resume() == {}
        counts, changes = journal.recall_with_changes(0, 0)
        assert (counts, changes is not None) == ({"n_keys": 1}, True)
    assert opened(tmp_path).get("b/zarr.json") == GROUP


def test_a_transaction_with_credentials_is_not_stored(tmp_path):
    store = opened(tmp_path, may_keep=False)
    with store.transaction("keeps nothing"):
        store.set("zarr.json", GROUP)
        journal = begun(store)
        assert not journal.keeps_changes
        assert not journal.is_resumable
        with journal.running():
            assert journal.recall_with_changes(0, 0) is None


def test_stores_without_transactions_keep_records_alone():
    journal = journal_of(MemoryStore())
    journal.begin({})
    journal.keep_transaction()
    with journal.running():
        journal.record(0, 0, {"n_keys": 1}, {})
        assert journal.recall_with_changes(0, 0) == ({"n_keys": 1}, None)
    assert journal.is_resumable
