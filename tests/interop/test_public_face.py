"""What `create_array`, `create_group`, `consolidate` and `to_store` write is read exactly by the peers."""

import dask.array as da
import numpy as np
import pytest
from golden.cases import same
from interop.matrix import ARRAYS, write
from interop.peers import WARNINGS
from interop.verdict import complaints

import chunkmill as cm

pytestmark = WARNINGS


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3", "n5"])
def test_arrays(fmt, tmp_path, subtests):
    for made in (each for each in ARRAYS if each.format == fmt):
        with subtests.test(made.id):
            store = tmp_path / made.id
            write(made, store)
            expected = made.expected()
            assert same(np.asarray(cm.open_array(store, "a")[...]), expected.expected())
            assert not complaints(store, fmt, made.key, expected)


TREE = {"a": {"units": "m"}, "sub/b": {}, "sub/deeper/c": {"n": 2**60 + 1}}
GROUPS = {"": {"title": "root", "日本": [1, None]}, "sub": {"level": [1]}, "none": {}}


def make_tree(store, fmt):
    for path, attributes in GROUPS.items():
        cm.create_group(store, path, format=fmt, attributes=attributes)
    for n, (path, attributes) in enumerate(TREE.items()):
        cm.to_store(da.full((4, 3), n + 1, chunks=(2, 3)), store, path, format=fmt, attributes=attributes)


@pytest.mark.parametrize("consolidated", [False, True], ids=["plain", "consolidated"])
@pytest.mark.parametrize("suffix", ["", ".zip"], ids=["folder", "zip"])
@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_tree_in_zarr_python(tmp_path, fmt, suffix, consolidated):
    import zarr

    store = tmp_path / f"store{suffix}"
    make_tree(store, fmt)
    if consolidated:
        cm.consolidate(store)
    kind = zarr.storage.ZipStore if suffix else zarr.storage.LocalStore
    opened = kind(store, read_only=True)
    root = zarr.open_group(opened, mode="r", zarr_format=int(fmt[-1]), use_consolidated=consolidated)
    found = dict(root.members(max_depth=None))
    assert set(found) == {*TREE, "sub", "sub/deeper", "none"}
    assert dict(root.attrs) == GROUPS[""]
    for path, attributes in {**TREE, "sub": GROUPS["sub"], "none": {}, "sub/deeper": {}}.items():
        assert dict(found[path].attrs) == attributes
    for n, path in enumerate(TREE):
        np.testing.assert_array_equal(found[path][...], np.full((4, 3), n + 1))
    opened.close()


def test_consolidated_metadata_is_kept_up_to_date(tmp_path):
    """An array made after consolidation is seen by peers that look nowhere else."""
    import zarr

    for fmt in ("zarr2", "zarr3"):
        store = tmp_path / fmt
        make_tree(store, fmt)
        cm.consolidate(store)
        cm.create_array(store, "new/late", shape=(3,), dtype="i2", chunks=(2,), format=fmt, attributes={"late": True})
        root = zarr.open_consolidated(store, mode="r", zarr_format=int(fmt[-1]))
        assert dict(root["new/late"].attrs) == {"late": True}
        assert set(root) == {"a", "sub", "none", "new"}
