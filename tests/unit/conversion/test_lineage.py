"""Versions that stay when a job has ended: what they are, where they are kept, and what damage does to them."""

import fsspec
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.conversion import lineage
from chunkmill.errors import StoreError


def made(folder, shape=(40, 36), chunks=(10, 6), **options):
    a = cm.create_array(folder / "a.zarr", "x", shape=shape, dtype="i4", chunks=chunks, **options)
    a[...] = np.arange(a.size).reshape(shape)
    return a


def equal(folder):
    return cm.verify(folder / "a.zarr", folder / "b").equal


@pytest.mark.parametrize("damage", [b"", b"{}\n", b'{"version":2}\n', b"\xff\xfe", b"[" * 10000])
def test_a_damaged_lineage_is_one_error(tmp_path, damage):
    made(tmp_path)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr3", lineage=True)
    (kept,) = (tmp_path / "b.lineage").iterdir()
    for value in (damage, kept.read_bytes()[:-1], kept.read_bytes().replace(b'"version":2', b'"version":7')):
        kept.write_bytes(value)
        with pytest.raises(StoreError, match="the lineage is damaged"):
            cm.plan_sync(tmp_path / "a.zarr", tmp_path / "b")


def test_lineage_is_eight_bytes_a_key(tmp_path):
    a = cm.create_array(tmp_path / "a.zarr", shape=(1000,), dtype="u1", chunks=(1,))
    a[:500] = 1
    cm.rechunk(tmp_path / "a.zarr", tmp_path / "b", chunks=(10,), lineage=str(tmp_path / "kept"))
    (kept,) = (tmp_path / "kept").iterdir()
    assert 8 * 1100 < kept.stat().st_size < 8 * 1100 + 2000
    assert lineage.key_versions(a.stored).astype(bool).sum() == 500
    a[0] = 2
    assert cm.sync(tmp_path / "a.zarr", tmp_path / "b", lineage=str(tmp_path / "kept")).n_keys == 1


def test_what_changes_during_a_job_is_synced_later(tmp_path, monkeypatch):
    from chunkmill.conversion import plan

    a = made(tmp_path)
    run = plan.run_job

    def then_edited(*arguments, **options):
        result = run(*arguments, **options)
        a[0, 0] = -5
        return result

    monkeypatch.setattr(plan, "run_job", then_edited)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr2", lineage=True)
    monkeypatch.undo()
    assert not equal(tmp_path)
    assert cm.sync(tmp_path / "a.zarr", tmp_path / "b").n_keys == 1
    assert equal(tmp_path)


def test_stores_without_versions_keep_no_lineage(tmp_path):
    mapper = fsspec.filesystem("memory").get_mapper("/sync-without-versions.zarr")
    a = cm.create_array(mapper, shape=(4,), dtype="i4")
    a[...] = 1
    with pytest.raises(StoreError, match="tell no versions"):
        cm.convert(a, tmp_path / "b", format="zarr3", lineage=True)
    assert not (tmp_path / "b").exists()
