"""Arrays and attributes of levels."""

import pytest

import chunkmill as cm
from chunkmill.nodes.documents import format_of_store
from chunkmill.pyramids.base_image import describe_base
from chunkmill.pyramids.level_arrays import LevelTarget, describe_levels
from chunkmill.stores.memory import MemoryStore


def describe(name, convention, source="zarr3", **options):
    attributes = {"mine": 1, "pixelResolution": [1, 1]}
    array = cm.create_array(MemoryStore(), "a", shape=(64, 64), dtype="u1", chunks=(16, 16), format=source,
                            codecs="gzip", attributes=attributes, fill_value=0)  # fmt: skip
    store = MemoryStore()
    target = LevelTarget(store, "p", format_of_store(store, name), convention, "s")
    layout = {"chunks": "keep", "shards": "keep", "codecs": "keep"} | options
    return describe_levels(
        describe_base(array, 2, "nm"), target, factors=2, levels=3, method="stride", allow=(), **layout
    )


@pytest.mark.parametrize(
    ("name", "convention"), [("zarr2", "0.4"), ("zarr3", "0.5"), ("n5", "n5-viewer"), ("zarr3", None)]
)
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


def test_without_a_convention_nothing_is_said():
    described = describe("zarr3", None)
    assert described.group.attributes == {}
    assert described.arrays[0].dimension_names is None


def test_shards_of_every_level():
    described = describe("zarr3", "0.5", shards=(32, 32))
    assert {array.shards for array in described.arrays} == {(32, 32)}
    assert {array.chunks for array in described.arrays} == {(16, 16)}
