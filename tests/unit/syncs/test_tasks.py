"""Tasks of a sync that is interrupted, and meets what others have written."""

import shutil

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


@pytest.mark.parametrize("kind", ["convert", "pyramid", "transform"])
def test_a_source_that_becomes_again_what_it_was_undoes_an_interrupted_sync(tmp_path, monkeypatch, kind):
    """Its versions are those of the lineage then, as are ETags of equal objects, and the target is another one."""
    a = made(tmp_path)
    options = {"function": np.negative} if kind == "transform" else {}
    if kind == "convert":
        cm.convert(a, tmp_path / "b", format="n5", lineage=True)
    elif kind == "pyramid":
        cm.pyramid(a, tmp_path / "b", levels=2, lineage=True)
    else:
        cm.transform(np.negative, a, tmp_path / "b", lineage=True)
    wanted = [cm.open_array(each)[...] for each in arrays_in(tmp_path / "b")]
    (tmp_path / "a.zarr").rename(tmp_path / "kept")  # the files keep inode and times
    shutil.copytree(tmp_path / "kept", tmp_path / "a.zarr")
    cm.open_array(tmp_path / "a.zarr", "x", mode="r+")[...] = 5
    monkeypatch.setattr(tasks.SyncWriter, "publish", interrupted)
    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        cm.sync((tmp_path / "a.zarr", "x"), tmp_path / "b", **options)
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "a.zarr")
    (tmp_path / "kept").rename(tmp_path / "a.zarr")
    cm.sync((tmp_path / "a.zarr", "x"), tmp_path / "b", **options)
    assert all(
        np.array_equal(cm.open_array(at)[...], old) for at, old in zip(arrays_in(tmp_path / "b"), wanted, strict=True)
    )
    assert cm.plan_sync((tmp_path / "a.zarr", "x"), tmp_path / "b", **options).n_keys == 0


def arrays_in(folder):
    node = cm.open(folder)
    return [folder] if isinstance(node, cm.Array) else [folder / name for name in node.arrays()]


def interrupted(*_):
    raise KeyboardInterrupt
