"""Arrays that other writers put below folders without a group document are copied and compared; `check` of them: unit/checks."""

import numpy as np
import pytest
import tensorstore as ts
import zarr

import chunkmill as cm

DRIVERS = {"zarr2": "zarr", "zarr3": "zarr3", "n5": "n5"}


@pytest.mark.parametrize("fmt", DRIVERS)
def test_tensorstore_two_levels_deep(fmt, tmp_path):
    if fmt != "n5":  # whose root needs no document either
        cm.create_group(tmp_path / "source", format=fmt)
    for path in ("a", "g/h/b"):
        kvstore = {"driver": "file", "path": str(tmp_path / "source" / path)}
        spec = {"driver": DRIVERS[fmt], "kvstore": kvstore}
        ts.open(spec, create=True, dtype=ts.int32, shape=[4]).result()[...] = np.arange(4, dtype="i4")
    cm.convert(tmp_path / "source", tmp_path / "target", format="zarr3")
    members = dict(zarr.open_group(tmp_path / "target", mode="r").members(max_depth=None))
    assert sorted(members) == ["a", "g", "g/h", "g/h/b"]
    np.testing.assert_array_equal(members["g/h/b"][...], np.arange(4))
    assert cm.verify(tmp_path / "source", tmp_path / "target").n_arrays == 2
