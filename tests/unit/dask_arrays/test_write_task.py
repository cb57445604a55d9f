"""The task that writes one block."""

import os
import pickle

import cloudpickle
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.array.local_locks import local_lock
from chunkmill.dask_arrays.write_task import WriteCounts, WriteTask, block_number
from chunkmill.errors import JobError
from chunkmill.runtime.journal import Journal
from chunkmill.stores.memory import MemoryStore


def task_on(array, journal=None, start=(0, 0), **changed):
    arguments = {"client_process": os.getpid(), "needs": b"", "name": "write-a-1", "stored": None} | changed
    return WriteTask(array, start, local_lock, write_empty=False, journal=journal, **arguments)


@pytest.fixture
def array():
    return cm.create_array(MemoryStore(), "a", shape=(8, 6), dtype="i2", chunks=(4, 3))


def test_counts_add_up():
    assert WriteCounts.total([]) == WriteCounts(0, 0, 0, 0)
    blocks = np.stack([WriteCounts(1, 0, 1, 0).as_block(1), WriteCounts(2, 1, 0, 9).as_block(1)])
    assert WriteCounts.of(blocks) == WriteCounts(3, 1, 1, 9)
    assert all(type(n) is int for n in WriteCounts.of(blocks))


def test_a_block_is_written_where_it_belongs(array):
    block = np.arange(1, 13, dtype="i2").reshape(4, 3)
    counts = task_on(array, start=(2, 1))(block, (slice(0, 4), slice(2, 5)))
    assert counts.shape == (1, 1, 4)
    assert WriteCounts.of(counts)[:3] == (2, 2, 0)
    np.testing.assert_array_equal(array[2:6, 3:6], block)
    assert np.count_nonzero(array[...]) == 12


def test_a_scalar():
    array = cm.create_array(MemoryStore(), "a", shape=(), dtype="i2")
    counts = task_on(array, start=())(np.array(5, "i2"), ())
    assert counts.shape == (4,)
    assert array[()] == 5


def test_integers_that_would_wrap_are_refused(array):
    with pytest.raises(ValueError, match="40000 does not fit int16"):
        task_on(array)(np.full((4, 3), 40000), (slice(0, 4), slice(0, 3)))
    assert not np.any(array[...])


def test_a_recorded_block_is_not_written_again(array):
    journal = Journal(array.store, "a", "a job", "mark")
    journal.begin({})
    task, region = task_on(array, journal), (slice(4, 8), slice(0, 3))
    with journal.running():
        first = task(np.ones((4, 3), "i2"), region)
        again = task(np.full((4, 3), 2, "i2"), region)
    assert (first == again).all()
    assert (array[4:, :3] == 1).all()
    assert block_number(array, region) == 2


def test_another_process_is_checked_once_per_block(array, monkeypatch):
    checked = []
    monkeypatch.setattr("chunkmill.dask_arrays.write_task.check_process", checked.append)
    block, region = np.ones((4, 3), "i2"), (slice(0, 4), slice(0, 3))
    task_on(array, needs=b"here")(block, region)
    task_on(array, needs=b"elsewhere", client_process=os.getpid() + 1)(block, region)
    assert checked == [b"elsewhere"]


def test_a_write_that_was_given_up_writes_nothing(array):
    from chunkmill.runtime import cancellation

    class Graph:
        layers = ("write-a-2",)

    class Counts:
        dask = Graph()

    with pytest.raises(RuntimeError, match="failed"), cancellation.abandon_on_error([Counts()]):
        raise RuntimeError("failed")
    with pytest.raises(JobError):
        task_on(array, name="write-a-2")(np.ones((4, 3), "i2"), (slice(0, 4), slice(0, 3)))
    assert not np.any(array[...])


def test_tasks_pickle(tmp_path):
    array = cm.create_array(tmp_path, "a", shape=(4,), dtype="i2", chunks=(4,))
    task = pickle.loads(cloudpickle.dumps(task_on(array, start=(0,))))
    task(np.array([1, 2, 3, 4], "i2"), (slice(0, 4),))
    np.testing.assert_array_equal(array[...], [1, 2, 3, 4])
