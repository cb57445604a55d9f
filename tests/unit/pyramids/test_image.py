"""The array that a pyramid is made from: axes, voxels, and what its group says."""

from support.cases import cases

import chunkmill as cm
from chunkmill.pyramids.image import describe_base
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
