"""Variables of xarray in chunks, over stores with latency: many requests under way, each made once."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.recording import FarStore
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

pytestmark = WARNINGS

SHAPE, CHUNKS = (48, 40), (4, 4)  # 120 keys
RAW = np.arange(48 * 40, dtype="i2").reshape(SHAPE)
PACKED = {"scale_factor": 0.5, "add_offset": 10, "_FillValue": 7}


@pytest.fixture
def store():
    far = FarStore()
    raw = xr.Dataset({"v": (("y", "x"), RAW, PACKED), "y": np.arange(48)})
    cm.write_dataset(raw, far.below, encoding={"v": {"chunks": CHUNKS}})
    return far


def plain(store):
    return xr.open_dataset(store.below, engine="chunkmill").load()


@pytest.mark.parametrize(
    ("select", "n_keys"),
    [
        (lambda ds: ds.isel(y=slice(8, 44)).chunk(y=4, x=4), 90),
        (lambda ds: ds.isel(y=slice(4, None)).isel(x=slice(8, None)).chunk(y=8, x=4).isel(y=slice(0, 8)), 16),
        (lambda ds: ds.chunk(y=8, x=8).isel(x=3), 24),
        (lambda ds: ds.chunk(y=4, x=4).isel(y=-1, x=slice(None, None, -3)), 10),
    ],
    ids=["sliced before", "sliced twice", "larger", "sliced after"],
)
def test_what_was_selected_is_requested_and_nothing_else(store, select, n_keys):
    opened = select(xr.open_dataset(store, engine="chunkmill"))
    store.clear()
    xr.testing.assert_identical(opened.compute(scheduler="threads"), select(plain(store)).compute())
    assert len(store.chunks("get")) == n_keys
    assert set(store.chunks("get").values()) == {1}


def test_joined_characters(store):
    """Their array has one axis more than the variable."""
    cm.to_store(
        da.from_array(np.full((40, 3), b"x"), chunks=(4, 3)), store.below, "c", dimension_names=["n", "string3"]
    )
    opened = xr.open_dataset(store, engine="chunkmill", chunks={}).c
    assert opened.shape == (40,)
    assert set(opened.to_numpy()) == {b"xxx"}


@cases("name", ["zarr2", "zarr3", "n5"])
@cases("group", [None, "images/one"])
def test_a_node_a_level(name, group):
    store = MemoryStore()
    source = cm.create_array(store, "scan", shape=(4, 8, 8), dtype="u1", chunks=(4, 4, 4), format=name, codecs="gzip")
    source[...] = np.arange(256).reshape(4, 8, 8)
    cm.create_array(store, "images/other", shape=(3,), dtype="i4", chunks=(3,), format=name, dimension_names=["q"])
    cm.pyramid(source, (store, "images/one"), scale=(5, 1, 1), units="nm", factors=(1, 2, 2), levels=2)
    tree = xr.open_datatree(store, engine="chunkmill", group=group)
    image = tree if group else tree["images/one"]
    first, second = (image[each] for each in ("s0 s1" if name == "n5" else "0 1").split())
    assert first["image"].dims == ("z", "y", "x")
    np.testing.assert_array_equal(first["image"], source[...])
    assert second["x"].values.tolist() == [0.5, 2.5, 4.5, 6.5]
    assert second["z"].values.tolist() == [0, 5, 10, 15]
    assert second["x"].attrs == {"units": "nanometer"}
    assert not image.data_vars
    if group is None:
        assert tree["images"]["other"].dims == ("q",)


def test_channels_have_no_coordinates():
    store = MemoryStore()
    source = cm.create_array(store, "a", shape=(2, 8, 8), dtype="u1", chunks=(1, 8, 8), dimension_names=["c", "y", "x"])
    cm.pyramid(source, (store, "p"), levels=2)
    level = xr.open_datatree(store, engine="chunkmill", group="p", chunks={})["1"]
    assert set(level.coords) == {"y", "x"}
    assert level["image"].shape == (2, 4, 4)


def test_wrong_metadata_are_a_group_like_any_other():
    store = MemoryStore()
    cm.create_group(store, attributes={"multiscales": [{"datasets": [{"path": "missing"}]}]})
    cm.create_array(store, "a", shape=(3,), dtype="i4", chunks=(3,))
    assert list(xr.open_datatree(store, engine="chunkmill").data_vars) == ["a"]
