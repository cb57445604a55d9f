"""Sessions of Icechunk: forks come back with their changes, and a commit says what others have changed."""

import numpy as np
import pytest

from chunkmill.errors import StoreError
from chunkmill.stores.icechunk_session import Place, SessionChanges, TaskFork, Transaction

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")


@pytest.fixture
def repository(tmp_path, capfd):
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))
    session = made.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(2,), dtype="i4", fill_value=0)
    session.commit("begin")
    capfd.readouterr()
    return made


def changed(transaction, chunk, value):
    """Return the changes of a fork that writes one chunk."""
    fork = TaskFork(transaction.token, transaction.packed()[0])
    zarr.open_array(fork.session.store, path="a")[2 * chunk : 2 * chunk + 2] = value
    fork.keys.add(f"a/c/{chunk}")
    return fork.changes()


def begun(repository):
    transaction = Transaction(Place("here", repository), repository.readonly_session("main"))
    transaction.begin()
    return transaction


def test_changes_of_forks_are_merged_in_a_tree(repository):
    transaction = begun(repository)
    changes = [changed(transaction, chunk, chunk + 1) for chunk in range(4)]
    left, right = changes[0].joined(changes[1:2]), changes[2].joined(changes[3:])
    left.joined([right]).apply()
    transaction.end("four tasks")
    session = repository.readonly_session("main")
    assert np.array_equal(zarr.open_array(session.store, path="a", mode="r")[:], [1, 1, 2, 2, 3, 3, 4, 4])
    assert [each.message for each in repository.ancestry(branch="main")][:2] == ["four tasks", "begin"]


def test_a_task_that_writes_nothing_has_no_changes(repository):
    transaction = begun(repository)
    assert TaskFork(transaction.token, transaction.packed()[0]).changes() is None


def test_changes_of_another_transaction_are_refused(repository):
    one, other = begun(repository), begun(repository)
    first, second = changed(one, 0, 1), changed(other, 1, 2)
    with pytest.raises(StoreError, match="that this process does not have"):
        first.joined([second])
    with pytest.raises(StoreError, match="that this process does not have"):
        SessionChanges("unknown", first.data).apply()
