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
    late = {}
    if consolidated:  # an array made after that is seen by peers that look nowhere else
        cm.consolidate(store)
        late = {"new": {}, "new/late": {"late": True}}
        cm.create_array(store, "new/late", shape=(3,), dtype="i2", format=fmt, attributes=late["new/late"])
    kind = zarr.storage.ZipStore if suffix else zarr.storage.LocalStore
    opened = kind(store, read_only=True)
    root = zarr.open_group(opened, mode="r", zarr_format=int(fmt[-1]), use_consolidated=consolidated)
    found = dict(root.members(max_depth=None))
    assert set(found) == {*TREE, "sub", "sub/deeper", "none", *late}
    assert dict(root.attrs) == GROUPS[""]
    for path, attributes in {**TREE, "sub": GROUPS["sub"], "none": {}, "sub/deeper": {}, **late}.items():
        assert dict(found[path].attrs) == attributes
    for n, path in enumerate(TREE):
        np.testing.assert_array_equal(found[path][...], np.full((4, 3), n + 1))
    opened.close()
