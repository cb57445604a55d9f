"""Trees of images: a node a level, with coordinates by their scales."""

import numpy as np
import xarray as xr
from support.arrays import filled
from support.cases import cases

import chunkmill as cm


@cases("name", ["zarr2", "zarr3", "n5"])
@cases("group", [None, "images/one"])
def test_a_node_a_level(store, name, group):
    values = np.arange(256, dtype="u1").reshape(4, 8, 8)
    source = filled(values, store, "scan", chunks=(4, 4, 4), format=name, codecs="gzip")
    cm.create_array(store, "images/other", shape=(3,), dtype="i4", chunks=(3,), format=name, dimension_names=["q"])
    cm.pyramid(source, (store, "images/one"), scale=(5, 1, 1), units="nm", factors=(1, 2, 2), levels=2)
    tree = xr.open_datatree(store, engine="chunkmill", group=group)
    image = tree if group else tree["images/one"]
    first, second = (image[each] for each in ("s0 s1" if name == "n5" else "0 1").split())
    assert first["image"].dims == ("z", "y", "x")
    np.testing.assert_array_equal(first["image"], values)
    assert second["x"].values.tolist() == [0.5, 2.5, 4.5, 6.5]
    assert second["z"].values.tolist() == [0, 5, 10, 15]
    assert second["x"].attrs == {"units": "nanometer"}
    assert not image.data_vars
    if group is None:
        assert tree["images"]["other"].dims == ("q",)


def test_channels_have_no_coordinates(store):
    source = cm.create_array(store, "a", shape=(2, 8, 8), dtype="u1", chunks=(1, 8, 8), dimension_names=["c", "y", "x"])
    cm.pyramid(source, (store, "p"), levels=2)
    level = xr.open_datatree(store, engine="chunkmill", group="p", chunks={})["1"]
    assert set(level.coords) == {"y", "x"}
    assert level["image"].shape == (2, 4, 4)


def test_wrong_metadata_are_a_group_like_any_other(store):
    cm.create_group(store, attributes={"multiscales": [{"datasets": [{"path": "missing"}]}]})
    cm.create_array(store, "a", shape=(3,), dtype="i4", chunks=(3,))
    assert list(xr.open_datatree(store, engine="chunkmill").data_vars) == ["a"]
