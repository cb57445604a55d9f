"""Plans of a sync: what is written again, what that costs, and who is too small for it."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import JobError


def made(folder, shape=(40, 36), chunks=(10, 6), **options):
    a = cm.create_array(folder / "a.zarr", "x", shape=shape, dtype="i4", chunks=chunks, **options)
    a[...] = np.arange(a.size).reshape(shape)
    return a


def test_a_plan_tells_what_it_will_do(tmp_path):
    a = made(tmp_path)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr3", lineage=True)
    a.append(np.ones((10, 36)))
    text = str(cm.plan_sync(tmp_path / "a.zarr", tmp_path / "b"))
    assert "6 of 30 store keys of the source were changed, came or went" in text
    assert "(40, 36) → (50, 36)" in text


def test_one_key_is_written_in_each_level(tmp_path):
    """A key of 100 of the source, and what is made of it; nothing else is read."""
    a = made(tmp_path, (80, 100), (8, 10), codecs="raw")
    cm.pyramid(a, tmp_path / "image", factors=2, levels=3, lineage=True)
    a[33, 44] = 1
    plan = cm.plan_sync(a, tmp_path / "image")
    assert (plan.n_changed, plan.n_keys, [stage.n_tasks for stage in plan.stages]) == (1, 3, [1, 1, 1])
    assert "1 of 100 store keys" in str(plan)
    report = plan.run()
    assert report.actions == {"recode": 1, "reduce": 2}
    assert report.bytes_read == 4 * 80 * (1 + 4 + 4)
    cm.pyramid(a, tmp_path / "anew", factors=2, levels=3)
    assert all(cm.verify((tmp_path / "anew", n), (tmp_path / "image", n)).equal for n in "012")


def test_a_worker_that_cannot_hold_a_store_key_is_refused(tmp_path):
    a = made(tmp_path)
    cm.rechunk(a, tmp_path / "b.zarr", chunks=(40, 36), lineage=True)
    a[0, 0] = 5
    with pytest.raises(JobError, match=r"100 bytes for a worker are too little: a store key takes 17,280"):
        cm.plan_sync(a, tmp_path / "b.zarr", max_mem=100)
