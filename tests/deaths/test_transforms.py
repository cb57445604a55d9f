"""A transform to several targets that dies at any write: repeated, or over what is there, each target is whole."""

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.recording import Died, DyingStore

import chunkmill as cm
from chunkmill.errors import NodeExists
from chunkmill.journal import heartbeat
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)  # those who died
    monkeypatch.setattr("chunkmill.journal.journal.CHECK_SECONDS", 0)  # and none of their tasks is at work
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def source():
    values = np.arange(240, dtype="i4").reshape(24, 10)
    return filled(values, path="a", chunks=(4, 5)), values


def read(store, path):
    return cm.open_array(store, path, consolidated=False)[...]


def left_over(*stores):
    return [key for store in stores for key in store.list_prefix("") if "chunkmill" in key]


def both(block):
    return block + 1, (block % 2).astype("u1")


def make_both(array, store, **options):
    places = [(store, "x"), (store, "y")]
    return cm.transform(both, array, places, chunks=[(4, 10), (8, 5)], dtype=["i4", "u1"], block=(8, 10), **options)


def test_several_targets_are_resumed_together(source):
    array, values = source
    n = 0
    while n < 200:
        n += 1
        store = MemoryStore()
        try:
            make_both(array, DyingStore(store, n, error=Died))
        except Died:
            make_both(array, store)
        else:
            break
        finally:
            np.testing.assert_array_equal(read(store, "x"), values + 1)
            np.testing.assert_array_equal(read(store, "y"), values % 2)
            assert not left_over(store)
    assert 5 < n < 200


def test_targets_of_one_store_replace_what_is_there_each_whole(source):
    array, values = source
    store = MemoryStore()

    def run(function, target=store, resume=True, **options):
        places = [(target, "x"), (target, "y")]
        return cm.plan_transform(function, array, places, dtype="i4", block=(24, 10), **options).run(resume=resume)

    run(lambda block: (block, -block))
    with pytest.raises(NodeExists):
        run(lambda block: (block + 1, -block - 1))
    n = 0
    while True:
        n += 1
        try:
            run(lambda block: (block + 1, -block - 1), target=DyingStore(store, n, error=Died), overwrite=True)
        except Died:
            pass
        else:
            break
        cm.check(store, repair=True)
        (x,) = (i for i in (0, 1) if np.array_equal(read(store, "x"), values + i))
        (y,) = (i for i in (0, 1) if np.array_equal(read(store, "y"), -values - i))
        assert x <= y  # the first, which the journal is named after, comes last
        run(lambda block: (block, -block), overwrite=True, resume=False)
    np.testing.assert_array_equal(read(store, "y"), -values - 1)
    assert not left_over(store)
