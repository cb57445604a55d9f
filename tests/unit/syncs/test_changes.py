"""Which store keys of a target are written when its source has changed."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.conversion.lineage import TracedArray, key_versions
from chunkmill.errors import JobError
from chunkmill.syncs.changes import changed_keys, with_shapes


def made(folder, shape=(40, 36), chunks=(10, 6), **options):
    a = cm.create_array(folder / "a.zarr", "x", shape=shape, dtype="i4", chunks=chunks, **options)
    a[...] = np.arange(a.size).reshape(shape)
    return a


def test_keys_that_meet_changes_and_old_ends(tmp_path):
    """A source of chunks of 10 that grows from 25 to 40 elements; a target of chunks of 15."""
    source = cm.create_array(tmp_path / "a.zarr", shape=(25,), dtype="i4", chunks=(10,))
    stored = cm.create_array(tmp_path / "b.zarr", shape=(25,), dtype="i4", chunks=(15,))
    source[:10] = 1
    was = key_versions(source.stored)
    traced = TracedArray("", "", (25,), "", was, key_versions(stored.stored))
    target = stored.stored
    numbers, n = changed_keys(traced, was, source.stored, target, target)
    assert (numbers.tolist(), n) == ([], 0)
    source[12] = 2
    numbers, n = changed_keys(traced, key_versions(source.stored), source.stored, target, target)
    assert (numbers.tolist(), n) == ([0, 1], 1)
    longer = cm.open_array(tmp_path / "b.zarr", mode="r+").resize((40,)).stored
    source.resize((40,))
    now = key_versions(source.stored)
    traced = with_shapes(traced, source.stored, longer)
    assert (traced.source.shape, traced.target.shape) == ((4,), (3,))
    unchanged = TracedArray("", "", (40,), "", now, traced.target)
    numbers, n = changed_keys(unchanged, now, source.stored, longer, target)
    assert (numbers.tolist(), n) == ([1], 0)  # 25 was inside the second one


def test_what_others_have_changed_in_the_target_is_named(tmp_path):
    a = made(tmp_path)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr3", lineage=True)
    b = cm.open_array(tmp_path / "b", "x", mode="r+")
    b[0, 0], b[39, 35] = 77, 78
    a[1, 1] = -1
    with pytest.raises(JobError, match=r"others have changed 'x/c/0/0' in .* since it was made"):
        cm.sync(tmp_path / "a.zarr", tmp_path / "b")
    assert b[1, 1] != -1
    cm.sync(tmp_path / "a.zarr", tmp_path / "b", overwrite=True)
    assert (b[0, 0], b[1, 1], b[39, 35]) == (a[0, 0], -1, 78)  # where the source is as it was, the change stays
