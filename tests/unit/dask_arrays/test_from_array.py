"""Dask's own `from_array` over stores with latency: requests as of `from_store`, settings of dask as before."""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import SerializableLock
from support.recording import FarStore

import chunkmill as cm
from chunkmill.dask_arrays.from_array import read_from_arrays_in_runs

VALUES = np.arange(48 * 40 * 4).reshape(48, 40, 4)  # in 12 x 10 x 2 chunks
CHUNKS = (4, 4, 2)


@pytest.fixture
def store():
    store = FarStore()
    cm.to_store(da.from_array(VALUES, chunks=CHUNKS), store.below)
    return store


@pytest.fixture
def array(store):
    return cm.open_array(store)


@pytest.mark.parametrize(
    "options",
    [{}, {"inline_array": True}, {"name": "own"}, {"name": False}, {"fancy": False}, {"chunks": (8, 4, 4)}],
    ids=["plain", "inline", "named", "unique", "nofancy", "larger"],
)
def test_many_requests_are_under_way_and_each_is_made_once(store, array, options):
    x = da.from_array(array, **{"chunks": CHUNKS, **options})
    assert x.chunks == da.from_array(VALUES, **{"chunks": CHUNKS, **options}).chunks
    store.clear()
    store.seconds = 0.01
    np.testing.assert_array_equal(x.compute(scheduler="threads", num_workers=2), VALUES)
    assert store.most_at_once >= 16
    assert len(store.chunks("get")) == 240
    assert set(store.chunks("get").values()) == {1}


@pytest.mark.parametrize(
    "make",
    [
        lambda store: da.from_array(cm.open_array(store.below), chunks=CHUNKS),
        lambda store: da.from_array(cm.open_array(store), chunks=(6, 4, 2)),
        lambda store: da.from_array(cm.open_array(store), chunks=CHUNKS, lock=SerializableLock()),
        lambda store: da.from_array(cm.open_array(store), chunks=CHUNKS, getitem=lambda a, b: a[b]),
    ],
    ids=["without latency", "keys in two blocks", "lock", "getitem"],
)
def test_dask_reads_by_itself_where_runs_are_of_no_use(store, make):
    x = make(store)
    assert f"original-{x.name}" in x.dask.layers
    np.testing.assert_array_equal(x.compute(scheduler="threads"), VALUES)


def test_plugins_of_the_user_are_called_too(store):
    seen = []
    with dask.config.set(array_plugins=[seen.append]):
        x = da.from_array(cm.open_array(store), chunks=CHUNKS)
        assert {each.name for each in seen} == {x.name}  # as Dask made it, and as it is replaced
        assert f"begun-{x.name}" in x.dask.layers
    array = cm.open_array(store)
    with dask.config.set(array_plugins=[lambda x: x.compute(scheduler="sync")]):
        np.testing.assert_array_equal(da.from_array(array, chunks=CHUNKS), VALUES)
    with dask.config.set(array_plugins=[]):
        assert f"begun-{x.name}" in da.from_array(array, chunks=CHUNKS).dask.layers
    assert f"begun-{x.name}" in da.from_array(array, chunks=CHUNKS, name=x.name).dask.layers


def test_the_setting_is_sent_to_workers_as_it_was():
    """As JSON to those of `SSHCluster`, merged and pickled to those of `LocalCluster`."""
    with dask.config.set(array_plugins=[]):
        read_from_arrays_in_runs()
        assert len(list(dask.config.get("array_plugins"))) == 1
        sent = dask.config.deserialize(dask.config.serialize(dask.config.global_config))
        merged = dask.config.merge(dask.config.global_config, {})
        for settings in (sent, merged, pickle.loads(pickle.dumps(dask.config.global_config))):
            assert list(settings["array_plugins"]) == []
