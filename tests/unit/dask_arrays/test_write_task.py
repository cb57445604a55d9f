"""The task that writes one block."""

import os
import pickle
import time

import dask.array as da
import numpy as np
import pytest
from support.recording import FarStore

import chunkmill as cm
from chunkmill.array.threads import PendingWrites, local_lock
from chunkmill.dask_arrays.write_task import UnfinishedWrite, WriteCounts, WriteTask, finished
from chunkmill.errors import ChunkError, StoreError
from chunkmill.stores.memory import MemoryStore


def task_on(array, start=(0, 0), **changed):
    arguments = {"client_process": os.getpid(), "needs": b"", "name": "write-a-1", "stored": None} | changed
    blocks = array.stored.chunk_grid
    return WriteTask(array.stored, start, blocks, local_lock, write_empty=False, **arguments)


@pytest.fixture
def array():
    return cm.create_array(MemoryStore(), "a", shape=(8, 6), dtype="i2", chunks=(4, 3))


def test_another_process_is_checked_once_per_block(array, monkeypatch):
    checked = []
    monkeypatch.setattr("chunkmill.dask_arrays.write_task.check_process", checked.append)
    block, region = np.ones((4, 3), "i2"), (slice(0, 4), slice(0, 3))
    task_on(array, needs=b"here")(block, region)
    task_on(array, needs=b"elsewhere", client_process=os.getpid() + 1)(block, region)
    assert checked == [b"elsewhere"]


VALUES = np.arange(1, 60 * 40 + 1).reshape(60, 40)


def blocks():
    return da.from_array(VALUES, chunks=(4, 4))


class Refusing(FarStore):
    def set(self, key, value):
        if key == "c/7/3":
            raise StoreError(url=self.url, key=key, reason="no space left")
        super().set(key, value)


def test_a_value_that_is_not_stored_fails_the_write_by_its_key():
    far = Refusing(seconds=0.001)
    with pytest.raises(ChunkError, match=r"c/7/3.*set.*no space left"):
        cm.to_store(blocks(), far)
    n = len(far.log)
    time.sleep(0.05)
    assert len(far.log) == n  # nothing is written after the error
    assert "zarr.json" not in list(far.below.list_prefix(""))


def test_an_unfinished_write_is_finished_when_it_is_pickled():
    writes, done = PendingWrites(), []
    writes.begin(lambda: (time.sleep(0.05), done.append(1)), 1)
    sent = pickle.loads(pickle.dumps(UnfinishedWrite(WriteCounts(1, 0, 0, 9).as_block(1), writes)))
    assert done == [1]
    assert WriteCounts.of(finished(sent)) == (1, 0, 0, 9, 0, 0)
