"""Stored arrays given to Dask's from_array: their blocks begin their requests together, where that is of use."""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import SerializableLock
from support.arrays import filled
from support.recording import FarStore

import chunkmill as cm
from chunkmill.dask_arrays.from_array import read_from_arrays_in_runs

VALUES, CHUNKS = np.arange(32 * 40 * 4).reshape(32, 40, 4), (4, 4, 2)


@pytest.fixture
def store():
    far = FarStore()
    filled(VALUES, far.below, chunks=CHUNKS)
    return far


@pytest.mark.parametrize(
    "options",
    [{}, {"inline_array": True}, {"name": "own"}, {"name": False}, {"fancy": False}, {"chunks": (8, 4, 4)}],
    ids=["plain", "inline", "named", "unique", "nofancy", "larger"],
)
def test_many_requests_are_under_way_and_each_is_made_once(store, options):
    x = da.from_array(cm.open_array(store), **{"chunks": CHUNKS, **options})
    assert x.chunks == da.from_array(VALUES, **{"chunks": CHUNKS, **options}).chunks
    store.clear()
    store.seconds = 0.01
    np.testing.assert_array_equal(x.compute(scheduler="threads", num_workers=2), VALUES)
    assert store.most_at_once >= 16
    assert len(store.chunks("get")) == 160
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


def test_a_worker_without_chunkmill_is_told_what_it_lacks(store):
    x = da.from_array(cm.open_array(store.below), chunks=CHUNKS)
    assert b"give every worker" in pickle.dumps(x.dask.layers[f"original-{x.name}"])


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
