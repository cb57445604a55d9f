"""Requests that the guards of plain writes cost."""

import dask
import dask.array as da
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.journal.names import JOB_PREFIX
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize(("mode", "most"), [("w-", 12), ("w", 10), ("r+", 6)])
def test_requests_for_jobs(mode, most):
    """Of these, those that look for jobs above are made at once."""
    store = RecordingStore(MemoryStore())
    x = da.ones(4, chunks=2)
    cm.create_group(store, "g")
    if mode != "w-":
        cm.to_store(x, store, "g/a")
    store.clear()
    with dask.config.set(scheduler="sync"):
        cm.to_store(x, store, "g/a", mode=mode)
    assert sum(key.startswith(JOB_PREFIX) for _, key, _ in store.log) <= most
