"""Manifests of jobs: every store key of a chunk, with size and crc32c, whatever way the job went."""

import dask
import google_crc32c
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.conversion import target_writer
from chunkmill.conversion.manifest import Manifest
from chunkmill.errors import StoreError
from chunkmill.nodes.opening import open_stored


def made(folder):
    a = cm.create_array(folder / "a.zarr", "g/x", shape=(40, 36), dtype="i4", chunks=(10, 6))
    a[:30] = np.arange(30 * 36).reshape(30, 36)
    return a


def stored(url, path):
    """Size and crc32c of every store key of an array, read from its store."""
    array = open_stored(cm.open(url).store, path)
    keys = [key for key in array.store.list_prefix(array.prefix) if array.is_chunk(key)]
    values = {key: array.store.get(key) for key in keys}
    return {key: (len(value), google_crc32c.value(value)) for key, value in values.items()}


WAYS = {
    "convert": (cm.convert, {"format": "zarr3"}),
    "to n5": (cm.convert, {"format": "n5"}),
    "direct": (cm.rechunk, {"chunks": (-1, 4), "strategy": "direct"}),
    "spill": (cm.rechunk, {"chunks": (-1, 4), "strategy": "spill"}),
    "replace": (cm.rechunk, {"chunks": (8, 8), "overwrite": True}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", ["x", ""])
def test_what_was_written_is_named(tmp_path, way, path):
    a, target, file = made(tmp_path), tmp_path / "b", str(tmp_path / "m.parquet")
    function, options = WAYS[way]
    if way == "replace":
        cm.convert(a, (target, path), format="zarr3")
    with dask.config.set(scheduler="sync"):
        function(a, (target, path), **options, manifest=file)
    rows = {row.key: (row.size, row.crc32c) for row in Manifest(file).rows()}
    assert rows == stored(target, path)
    assert len(rows) > 4
    assert not list(target.rglob(".chunkmill*"))


def test_a_job_that_was_begun_without_one(tmp_path, monkeypatch):
    """Its records have one checksum of several values: those are read."""
    a = cm.create_array(tmp_path / "a.zarr", shape=(4000,), dtype="u1", chunks=(1,))
    a[...] = 1 + np.arange(4000) % 200

    def failing(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(target_writer.TargetWriter, "publish", failing)
    plan = cm.plan_convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr2")
    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        plan.run()
    monkeypatch.undo()
    file = str(tmp_path / "m.parquet")
    report = cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr2", manifest=file)
    assert report.n_resumed > 0
    assert {row.key: (row.size, row.crc32c) for row in Manifest(file).rows()} == stored(tmp_path / "b", "")


def test_what_is_no_manifest(tmp_path):
    (tmp_path / "m.parquet").write_bytes(b"PAR1" + bytes(100))
    for name in ("m.parquet", "absent.parquet"):
        with pytest.raises(StoreError, match="this is not a manifest of a job"):
            list(Manifest(str(tmp_path / name)).rows())


def test_where_it_cannot_be_written_is_named(tmp_path):
    """When the chunks are there: the same call, with another place, goes on from there."""
    cm.create_array(tmp_path / "a.zarr", "x", shape=(8,), dtype="i4", chunks=(2,))[...] = 1
    with pytest.raises(StoreError, match="the manifest cannot be written"):
        cm.convert(
            tmp_path / "a.zarr", tmp_path / "b", format="zarr2", manifest=str(tmp_path / "a.zarr" / "zarr.json" / "m")
        )
    report = cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr2", manifest=str(tmp_path / "m"))
    assert report.n_resumed == report.n_tasks
    assert len([*Manifest(str(tmp_path / "m")).rows()]) == 4
