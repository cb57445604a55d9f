"""The array that a pyramid is made from: axes, voxels, and what its group says."""

import pytest

import chunkmill as cm
from chunkmill.pyramids.base_image import describe_base
from chunkmill.stores.memory import MemoryStore


def make(shape=(4, 4), path="scan/s0", **options):
    return cm.create_array(MemoryStore(), path, shape=shape, dtype="u1", chunks=shape, **options)


@pytest.mark.parametrize(("shape", "names"), [
    ((2,), "x"), ((2, 2), "y x"), ((2,) * 3, "z y x"), ((2,) * 5, "t c z y x"), ((1,) * 6, "d0 d1 d2 d3 d4 d5"),
])  # fmt: skip
def test_names_by_rank(shape, names):
    base = describe_base(make(shape), None, None)
    assert [axis.name for axis in base.axes] == names.split()
    assert not base.is_scaled
    assert base.level.scale == (1.0,) * len(shape)


def test_types_follow_names():
    base = describe_base(make((1, 1, 2, 2), dimension_names=["Time", "channel", "lat", "lon"]), None, None)
    assert [axis.type for axis in base.axes] == ["time", "channel", "space", "space"]


def test_scale_and_units_by_dimension():
    base = describe_base(make(), {"y": 3}, {"x": "nm"})
    assert base.level.scale == (3.0, 1.0)
    assert [axis.unit for axis in base.axes] == [None, "nm"]
    assert base.is_scaled


def test_an_array_at_the_root_has_no_group():
    base = describe_base(make(path=""), None, None)
    assert base.attributes == {}


def test_an_array_beside_others_keeps_to_itself():
    """The attributes of a group that describes no image are not the image's."""
    array = make()
    cm.open_group(array.store, "scan", mode="r+").update_attributes({"mine": 1})
    base = describe_base(array, None, None)
    assert base.attributes == {}
    assert base.name is None
