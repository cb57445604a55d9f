"""Processes killed at random moments while they write: what is read is whole, nothing is lost, done twice or left (P2, P3)."""

import itertools
import os
import random
import signal
import threading
import time
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
import pytest
from support.clusters import cluster_of, kill_worker, worker_pids
from support.recording import SlowStore
from support.servers import FORK_WARNING

import chunkmill as cm
from chunkmill.stores.local import LocalStore

pytestmark = [FORK_WARNING, pytest.mark.slow]

SHAPE, CHUNKS = (48, 40), (4, 5)
VALUES = np.random.default_rng(0).integers(1, 1000, SHAPE).astype("i4")


@pytest.fixture(scope="module")
def client():
    # a task is not to blame for the death of its worker here
    with cluster_of(2, 2, {"distributed.scheduler.allowed-failures": 100}) as client:
        yield client


@contextmanager
def killer_of(client, *moments):
    """Kill a worker, a new one each time, so many seconds after the one before."""
    killed = []

    def kill():
        for seconds in moments:
            time.sleep(seconds)
            killed.append(random.Random(3).choice(sorted({*worker_pids(client).values()} - {*killed})))
            kill_worker(killed[-1])

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join()
    assert len(killed) == len(moments)


def check(folder):
    """The array is whole, and nothing else is there but what the dead left half written, which is removed."""
    LocalStore(folder).sweep()
    np.testing.assert_array_equal(cm.open_array(folder, "a")[...], VALUES)
    assert cm.check(folder).ok
    assert not [p for p in folder.rglob("*") if "chunkmill" in p.name]


def test_partial_writes_of_killed_workers(client, tmp_path):
    """Each region cuts the chunks of its neighbours."""
    array = cm.create_array(tmp_path / "x", "a", shape=SHAPE, dtype="i4", chunks=(7, 9))
    slow = cm.open_array(SlowStore(array.store, 0.02, ["set_if"]), "a", mode="r+")
    regions = [(slice(i, i + 4), slice(j, j + 5)) for i in range(0, 48, 4) for j in range(0, 40, 5)]
    with killer_of(client, 0.6, 0.8):
        # each by itself: where one call is told of all, they share the tasks of their store keys
        dask.compute(
            *(cm.store([da.from_array(VALUES[r], chunks=-1)], [slow], regions=[r], compute=False) for r in regions)
        )
    check(tmp_path / "x")


def test_finished_blocks_are_not_computed_again(client, tmp_path):
    """Of those that were written, and whose counts are here, none; of the others those that their worker took."""
    (log := tmp_path / "log").mkdir()

    def block(block_info=None):
        time.sleep(0.1)
        where = block_info[None]["array-location"]
        (log / f"{where}-{time.time_ns()}").touch()
        return VALUES[tuple(slice(*cut) for cut in where)]

    chunks = tuple((n,) * (size // n) for size, n in zip(SHAPE, CHUNKS, strict=True))
    slow = da.map_blocks(block, chunks=chunks, dtype="i4", meta=np.empty((0, 0), "i4"), name="slow")
    with killer_of(client, 1.5):
        cm.to_store(slow, tmp_path / "x", "a", chunks=CHUNKS, resume=True)
    n_again = sum(1 for _ in log.iterdir()) - 96
    assert n_again <= 16  # two threads, and what they had ready: more on a busy machine; 50 were finished
    check(tmp_path / "x")


def test_a_value_of_a_killed_process_is_old_or_new(tmp_path):
    store = LocalStore(tmp_path)
    store.set("a/c/0", bytes(3_000_000))
    chance = random.Random(7)
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            for i in itertools.count():
                store.set("a/c/0", bytes([i % 251]) * 3_000_000)
        time.sleep(chance.uniform(0.02, 0.2))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        value = store.get("a/c/0")
        assert len(value) == 3_000_000
        assert len(set(value)) == 1
        assert set(store.list_prefix("")) == {"a/c/0"}
    store.sweep()
    assert [p.name for p in (tmp_path / "a/c").iterdir()] == ["0"]
