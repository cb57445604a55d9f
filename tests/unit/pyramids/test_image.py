"""The array that a pyramid is made from: axes, voxels, and what its group says."""

from support.cases import cases

import chunkmill as cm
from chunkmill.nodes.documents import format_of_store
from chunkmill.pyramids.image import LevelTarget, describe_base, describe_levels
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


def test_scale_and_units_by_dimension():
    base = describe_base(make().stored, {"y": 3}, {"x": "nm"})
    assert base.level.scale == (3.0, 1.0)
    assert [axis.unit for axis in base.axes] == [None, "nanometer"]
    assert base.is_scaled


def test_an_array_beside_others_keeps_to_itself():
    """The attributes of a group that describes no image are not the image's."""
    array = make()
    cm.open_group(array.store, "scan", mode="r+").update_attributes({"mine": 1})
    base = describe_base(array.stored, None, None)
    assert base.attributes == {}
    assert base.name is None


def describe(name, convention, source="zarr3", **options):
    attributes = {"mine": 1, "pixelResolution": [1, 1]}
    array = cm.create_array(MemoryStore(), "a", shape=(64, 64), dtype="u1", chunks=(16, 16), format=source,
                            codecs="gzip", attributes=attributes, fill_value=0)  # fmt: skip
    store = MemoryStore()
    target = LevelTarget(store, "p", format_of_store(store, name), convention, "s")
    layout = {"chunks": "keep", "shards": "keep", "codecs": "keep"} | options
    return describe_levels(describe_base(array.stored, 2, "nm"), target, factors=2, levels=3, method="stride", **layout)


@cases(("name", "convention"), [("zarr2", "0.4"), ("zarr3", "0.5"), ("n5", "n5-viewer"), ("zarr3", None)])
def test_levels(name, convention):
    described = describe(name, convention)
    assert [array.path for array in described.arrays] == ["p/s0", "p/s1", "p/s2"]
    assert [array.shape for array in described.arrays] == [(64, 64), (32, 32), (16, 16)]
    first, second, _ = described.arrays
    assert first.attributes["mine"] == 1
    assert "mine" not in second.attributes
    assert ("pixelResolution" in first.attributes) == (convention == "n5-viewer")
    assert first.metadata.chunk_keys.separator == "/"  # as OME-Zarr 0.4 wants them, and the default elsewhere


def test_the_first_element_of_a_cell_stays_where_it_is():
    (image,) = describe("zarr3", "0.5").group.attributes["ome"]["multiscales"]
    transformations = image["datasets"][2]["coordinateTransformations"]
    assert transformations[0]["scale"] == [8, 8]
    assert transformations[1]["translation"] == [0, 0]
    assert image["type"] == "stride"
