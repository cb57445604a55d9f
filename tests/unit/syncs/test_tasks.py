"""Tasks of a sync that is interrupted, and meets what others have written."""

import dask
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.syncs import tasks


def made(folder, shape=(40, 36), chunks=(10, 6), **options):
    a = cm.create_array(folder / "a.zarr", "x", shape=shape, dtype="i4", chunks=chunks, **options)
    a[...] = np.arange(a.size).reshape(shape)
    return a


def equal(folder):
    return cm.verify(folder / "a.zarr", folder / "b").equal


def test_an_interrupted_sync_is_repeated(tmp_path, monkeypatch):
    """The store keys that it had written are not taken for others' changes."""
    a = made(tmp_path)
    cm.rechunk(tmp_path / "a.zarr", tmp_path / "b", chunks=(8, 9), lineage=True)
    a[...] = 5
    written = []

    def failing(*arguments):
        if len(written) == 7:
            raise KeyboardInterrupt
        written.append(arguments)
        return write(*arguments)

    write = tasks.write_region
    monkeypatch.setattr(tasks, "write_region", failing)
    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        cm.sync(tmp_path / "a.zarr", tmp_path / "b")
    monkeypatch.undo()
    a[3, 3] = 6
    cm.sync(tmp_path / "a.zarr", tmp_path / "b")
    assert equal(tmp_path)
    assert cm.plan_sync(tmp_path / "a.zarr", tmp_path / "b").n_keys == 0
