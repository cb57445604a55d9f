"""The array that a pyramid is made from: axes, voxels, blocks that are computed; windows of its channels."""

import dask.array as da
import numpy as np
from support.cases import cases

import chunkmill as cm
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import Axis, Multiscale
from chunkmill.pyramids.computed import open_image_source
from chunkmill.pyramids.image import describe_base
from chunkmill.pyramids.labels import with_windows
from chunkmill.stores.memory import MemoryStore


def make(shape=(4, 4), path="scan/s0", **options):
    return cm.create_array(MemoryStore(), path, shape=shape, dtype="u1", chunks=shape, **options)


@cases(("shape", "names"), [
    ((2,), "x"), ((2, 2), "y x"), ((2,) * 3, "z y x"), ((2,) * 5, "t c z y x"), ((1,) * 6, "d0 d1 d2 d3 d4 d5"),
])  # fmt: skip
def test_names_by_rank(shape, names):
    base = describe_base(make(shape).stored, None, None)
    assert [axis.name for axis in base.axes] == names.split()
    assert not base.is_scaled
    assert base.level.scale == (1.0,) * len(shape)


def test_types_follow_names():
    base = describe_base(make((1, 1, 2, 2), dimension_names=["Time", "channel", "lat", "lon"]).stored, None, None)
    assert [axis.type for axis in base.axes] == ["time", "channel", "space", "space"]


def test_the_first_element_of_a_cell_stays_where_it_is():
    cm.pyramid(make((64, 64), attributes={"mine": 1}), store := MemoryStore(), levels=3, method="stride")
    (image,) = cm.open_group(store).multiscales
    assert (image.method, image[2].scale, image[2].translation) == ("stride", (4, 4), (0, 0))
    assert [dict(each.array.attributes) for each in image] == [{"mine": 1}, {}, {}]


IMAGE = Multiscale((Axis("c", "channel"), Axis("y", "space"), Axis("x", "space")), (), "0.5")


def level(values):
    array = cm.create_array(MemoryStore(), "0", shape=values.shape, dtype=values.dtype, chunks=values.shape)
    array[...] = values
    return array


def test_each_channel_has_the_window_of_its_values():
    values = np.stack([np.full((4, 4), 7.5), np.arange(16.0).reshape(4, 4)])
    group = with_windows(GroupMetadata({"omero": {"channels": [{}, {"label": "b"}]}}), IMAGE, level(values).stored)
    first, second = group.attributes["omero"]["channels"]
    assert first == {"window": {"min": 7.5, "max": 7.5, "start": 7.5, "end": 7.5}}
    assert second["label"] == "b"
    assert (second["window"]["min"], second["window"]["max"]) == (0, 15)


@cases("omero", [3, {}, {"channels": "x"}, {"channels": [{"window": {"start": 1}}]}])
def test_what_needs_no_window_is_left(omero):
    group = GroupMetadata({"omero": omero})
    assert with_windows(group, IMAGE, level(np.ones((2, 2, 2))).stored) is group


def test_values_that_are_not_finite_have_no_window():
    group = with_windows(
        GroupMetadata({"ome": {"omero": {"channels": [{}]}}}), IMAGE, level(np.full((1, 2, 2), np.nan)).stored
    )
    assert group.attributes["ome"]["omero"]["channels"] == [{}]


def test_of_a_large_level_some_chunks_are_read(monkeypatch):
    monkeypatch.setattr("chunkmill.pyramids.labels._MOST_VALUES", 200)
    values = np.arange(2 * 40 * 10, dtype="u2").reshape(2, 40, 10)
    store = MemoryStore()
    cm.to_store(values, store, chunks=(1, 10, 10))
    for key in ("c/0/1/0", "c/0/3/0", "c/1/1/0", "c/1/3/0"):
        store.set(key, b"never read")
    shown = with_windows(GroupMetadata({"omero": {"channels": [{}, {}]}}), IMAGE, cm.open_array(store))
    first, second = (each["window"] for each in shown.attributes["omero"]["channels"])
    assert (first["min"], first["max"]) == (0, 299)
    assert (second["min"], second["max"]) == (400, 699)


def test_a_stack_follows_time():
    parts = [cm.create_array(MemoryStore(), "a", shape=(2, 3, 3), dtype="u1", chunks=(1, 3, 3),
                             dimension_names=("t", "y", "x")) for _ in range(4)]  # fmt: skip
    stacked = open_image_source(parts, None)
    assert (stacked.shape, stacked.dimension_names) == ((2, 4, 3, 3), ("t", "c", "y", "x"))


@cases("key", ["c/3/0", "c/0", "c/0/x", "d/0/0"])
def test_other_keys_than_those_of_blocks_are_absent(key):
    store = open_image_source(da.zeros((5, 7), chunks=(2, 3)), None).store
    assert store.size("c/2/2") == 2 * 3 * 8  # padded at the end
    assert [store.get(key), store.size(key), store.version(key)] == [None] * 3
