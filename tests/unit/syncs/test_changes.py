"""Which store keys of a target are written when its source has changed."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.conversion.lineage import TracedArray, key_versions, layouts_of
from chunkmill.errors import JobError
from chunkmill.syncs.changes import at_old_ends, changed_keys, check_layouts, touched_keys, with_shapes


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
    target = stored.stored
    layouts = layouts_of(source.stored, target, ((25,), (25,)))
    traced = TracedArray("", "", (25,), (25,), layouts, was, key_versions(target))
    assert changed_keys(was, was).tolist() == []
    source[12] = 2
    changed = changed_keys(was, key_versions(source.stored))
    assert changed.tolist() == [1]
    assert touched_keys(changed, source.stored, target).tolist() == [0, 1]
    longer = cm.open_array(tmp_path / "b.zarr", mode="r+").resize((40,)).stored
    source.resize((40,))
    traced = with_shapes(traced, source.stored, longer)
    assert (traced.source.shape, traced.target.shape) == ((4,), (3,))
    check_layouts("", source.stored, longer, traced)  # at lengths of now, too
    assert at_old_ends(longer, target).tolist() == [1]  # 25 was inside the second one


def test_keys_of_a_reduced_array(tmp_path):
    """Each element is made of 2 x 3; where the last was made of fewer, it is made again when the array grows."""
    above = cm.create_array(tmp_path / "a.zarr", shape=(20, 30), dtype="i4", chunks=(4, 5)).stored
    below = cm.create_array(tmp_path / "b.zarr", shape=(10, 10), dtype="i4", chunks=(5, 5)).stored
    assert touched_keys(np.array([0]), above, below, (2, 3)).tolist() == [0]
    assert touched_keys(np.array([2 * 6 + 2]), above, below, (2, 3)).tolist() == [0, 2]  # rows 8 to 12
    assert touched_keys(np.array([29]), above, below, (2, 3)).tolist() == [3]
    longer = cm.open_array(tmp_path / "b.zarr", mode="r+").resize((11, 10)).stored
    assert at_old_ends(longer, below).tolist() == []
    assert at_old_ends(longer, below, reduced=True).tolist() == [2, 3]


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
