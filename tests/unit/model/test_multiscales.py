"""Metadata of multiscale images in the conventions of N5, and wrong ones of all."""

import pytest

from chunkmill.errors import MetadataError
from chunkmill.model.multiscales import (
    Axis,
    Level,
    Multiscale,
    emit_n5_levels,
    parse_level,
    reduced_level,
    without_level,
)
from chunkmill.model.ome_zarr import parse_multiscales

ZYX = (Axis("z", "space", "micrometer"), Axis("y", "space", "micrometer"), Axis("x", "space", "micrometer"))
BASE = Level("0", (4.0, 0.5, 0.5), (0.0, 0.0, 0.0))
IMAGE = Multiscale(ZYX, (BASE, reduced_level(BASE, "1", (1, 2, 2), averages=True)), "0.5", "brain", "mean")


def none(_):
    raise AssertionError("the children need not be opened")


def test_n5_is_read_as_written():
    group, below = emit_n5_levels(IMAGE)
    (cosem,) = parse_multiscales(group, none)
    assert (cosem.axes, cosem.levels, cosem.version) == (ZYX, IMAGE.levels, "cosem")
    assert group["scales"] == [[1, 1, 1], [2, 2, 1]]  # fastest axis first
    assert below["1"]["pixelResolution"] == {"dimensions": [0.5, 0.5, 4.0], "unit": "um"}


N5_LEVELS = {
    "s0": (3, {}),
    "s1": (3, {"downsamplingFactors": [2, 2, 1]}),
    "s10": (3, {"downsamplingFactors": [4, 4, 2]}),
}


@pytest.mark.parametrize(("attributes", "below", "version", "unit"), [
    pytest.param({"pixelResolution": {"dimensions": [0.5, 0.5, 4], "unit": "um"}}, N5_LEVELS, "n5-viewer", "micrometer", id="n5-viewer"),
    pytest.param({"scales": [[1, 1, 1], [2, 2, 1], [4, 4, 2]], "resolution": [0.5, 0.5, 4]},
                 dict.fromkeys(N5_LEVELS, (3, {})), "n5-viewer", None, id="scales of the group"),
    pytest.param({"downsamplingFactors": [[1, 1, 1], [2, 2, 1], [4, 4, 2]], "dataType": "uint16", "resolution": [0.5, 0.5, 4]},
                 dict.fromkeys(N5_LEVELS, (3, {})), "bdv", None, id="BigDataViewer"),
    pytest.param({}, {**N5_LEVELS, "s0": (3, {"pixelResolution": [0.5, 0.5, 4], "downsamplingFactors": [1, 1, 1]})},
                 "n5-viewer", None, id="in the arrays"),
])  # fmt: skip
def test_n5_tools(attributes, below, version, unit):
    (read,) = parse_multiscales(attributes, lambda _: below)
    assert read.version == version
    assert [level.path for level in read.levels] == ["s0", "s1", "s10"]
    assert [level.scale for level in read.levels] == [(4, 0.5, 0.5), (4, 1, 1), (8, 2, 2)]
    assert read.levels[1].translation == (0, 0.25, 0.25)
    assert {axis.unit for axis in read.axes} == {unit}


def test_cosem_in_the_order_of_n5():
    transform = {"axes": ["x", "y"], "order": "F", "scale": [1, 3], "translate": [0, 5], "units": ["nm", "nm"]}
    (read,) = parse_multiscales({"multiscales": [{"datasets": [{"path": "s0", "transform": transform}]}]}, none)
    assert read.axes == (Axis("y", "space", "nanometer"), Axis("x", "space", "nanometer"))
    assert read.levels == (Level("s0", (3, 1), (5, 0)),)


@pytest.mark.parametrize("attributes", [{}, {"units": "m"}])
def test_other_groups_have_none(attributes):
    assert parse_multiscales(attributes, lambda _: {"a": (3, {}), "s0": (3, {})}) == ()


@pytest.mark.parametrize("attributes", [
    {"multiscales": 3},
    {"multiscales": [{}]},
    {"multiscales": [{"axes": ["x"], "datasets": [{"path": 3.5}]}]},
    {"multiscales": [{"axes": [3], "datasets": [{"path": "0"}]}]},
    {"ome": {"multiscales": [{"axes": ["x"], "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 2]}]}]}]}},
    {"multiscales": [{"axes": ["x"], "datasets": [{"path": "0", "coordinateTransformations": [{"type": "affine"}]}]}]},
    {"multiscales": [{"datasets": [{"path": "s0", "transform": {"scale": "big"}}]}]},
    {"scales": [[1, 1]]},
    {"pixelResolution": ["a", "b", "c"]},
])  # fmt: skip
def test_wrong_metadata_are_one_error(attributes):
    with pytest.raises(MetadataError, match="expected"):
        parse_multiscales(attributes, lambda _: N5_LEVELS)


TENSORSTORE = {"resolution": [4.0, 4.0, 0.04], "units": ["nm", "nm", "um"]}  # as its driver for N5 wrote them


def test_resolution_and_units_of_tensorstore_are_of_each_axis():
    read = parse_level(TENSORSTORE, 3)
    assert read.axes == (
        Axis("z", "space", "micrometer"),
        Axis("y", "space", "nanometer"),
        Axis("x", "space", "nanometer"),
    )
    assert read.levels == (Level("", (0.04, 4.0, 4.0), (0.0, 0.0, 0.0)),)
    assert [axis.name for axis in parse_level(TENSORSTORE, 3, ("depth", None, "x")).axes] == ["depth", "y", "x"]
    assert not without_level(TENSORSTORE)


@pytest.mark.parametrize(
    "attributes",
    [
        TENSORSTORE | {"units": "nm"},
        TENSORSTORE | {"resolution": [4, 4]},
        TENSORSTORE | {"resolution": [4, 4, 0]},
        {"units": ["a", "b", "c"]},
    ],
)
def test_other_resolutions_and_units_are_the_users(attributes):
    assert parse_level(attributes, 3) is None


def test_units_of_cf_stay_at_a_level_that_is_described_again():
    assert without_level({"units": "K", "resolution": 3, "a": 1}) == {"units": "K", "a": 1}
