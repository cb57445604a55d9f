"""Metadata of multiscale images, in every convention."""

import pytest

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.multiscales import (
    Axis,
    Level,
    Multiscale,
    emit_n5_levels,
    emit_ome,
    parse_multiscales,
    reduced_level,
)

ZYX = (Axis("z", "space", "micrometer"), Axis("y", "space", "micrometer"), Axis("x", "space", "micrometer"))
BASE = Level("0", (4.0, 0.5, 0.5), (0.0, 0.0, 0.0))
IMAGE = Multiscale(ZYX, (BASE, reduced_level(BASE, "1", (1, 2, 2), averages=True)), "0.5", "brain", "mean")


def none(_):
    raise AssertionError("the children need not be opened")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_ome_is_read_as_written(version):
    (read,) = parse_multiscales(emit_ome([IMAGE], version, {"mine": 1, "omero": {"channels": []}}), none)
    assert (read.axes, read.levels, read.version, read.name, read.method) == (
        ZYX,
        IMAGE.levels,
        version,
        "brain",
        "mean",
    )


def test_ome_keeps_what_it_does_not_replace():
    attributes = {"mine": 1, "omero": {"id": 3}, "downsamplingFactors": [[1, 1, 1]], "pixelResolution": [1, 1, 4]}
    old, new = emit_ome([IMAGE], "0.4", attributes), emit_ome([IMAGE], "0.5", attributes)
    assert old["mine"] == new["mine"] == 1
    assert old["omero"] == new["ome"]["omero"] == {"id": 3}
    assert old.keys() == {"mine", "omero", "multiscales"}
    assert new.keys() == {"mine", "ome"}
    assert emit_ome([IMAGE], "0.4", new)["omero"] == {"id": 3}


def test_labels_and_plates_move():
    old = {"labels": ["a"], "plate": {"version": "0.4", "rows": []}, "mine": 1, "image-label": {"version": "0.4"}}
    new = emit_ome([], "0.5", old)
    plate, label = {"version": "0.5", "rows": []}, {"version": "0.5"}
    assert new == {"mine": 1, "ome": {"version": "0.5", "labels": ["a"], "plate": plate, "image-label": label}}
    assert emit_ome([], "0.4", new) == old
    assert emit_ome([], "0.5", {"mine": 1}) == {"mine": 1}


def test_transformations_of_the_image_follow_those_of_a_level():
    dataset = {"path": "a", "coordinateTransformations": [
        {"type": "scale", "scale": [2, 2]}, {"type": "translation", "translation": [1, 0]},
    ]}  # fmt: skip
    image = {"axes": ["y", "x"], "datasets": [dataset, {"path": "b"}], "coordinateTransformations": [
        {"type": "scale", "scale": [10, 1]}, {"type": "identity"}, {"type": "translation", "translation": [0, 5]},
    ]}  # fmt: skip
    (read,) = parse_multiscales({"multiscales": [image]}, none)
    assert read.levels == (Level("a", (20, 2), (10, 5)), Level("b", (10, 1), (0, 5)))
    assert read.version == "0.4"
    assert read.axes[0] == Axis("y", "space")


def test_ome_before_axes_takes_the_last_of_five():
    (read,) = parse_multiscales(
        {"multiscales": [{"version": "0.1", "datasets": [{"path": "0"}]}]}, lambda _: {"0": (4, {})}
    )
    assert [(axis.name, axis.type) for axis in read.axes] == [
        ("c", "channel"), ("z", "space"), ("y", "space"), ("x", "space"),
    ]  # fmt: skip


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


@pytest.mark.parametrize("types", [
    ("space",), ("space",) * 4, ("space", "time", "space"), ("channel", "time", "space", "space"),
])  # fmt: skip
def test_axes_that_ome_does_not_have(types):
    axes = tuple(Axis(f"a{i}", each) for i, each in enumerate(types))
    level = Level("0", (1.0,) * len(axes), (0.0,) * len(axes))
    with pytest.raises(UnsupportedFeature, match="at most one axis of time"):
        emit_ome([Multiscale(axes, (level,), "0.5")], "0.5", {})


def test_coordinate_systems_of_ome_zarr_0_6_are_axes():
    """Laid out by hand, from the examples of its specification."""
    axes = [{"name": "y", "type": "space", "unit": "micrometer"}, {"name": "x", "type": "space"}]
    stored = {
        "coordinateSystems": [{"name": "world", "axes": [{"name": "a"}]}, {"name": "intrinsic", "axes": axes}],
        "datasets": [
            {
                "path": "s0",
                "coordinateTransformations": [
                    {"type": "scale", "scale": [0.5, 0.25], "input": "s0", "output": "intrinsic"}
                ],
            }
        ],
        "coordinateTransformations": [
            {"type": "scale", "scale": [10, 10], "input": "intrinsic", "output": {"name": "world"}}
        ],
    }
    (read,) = parse_multiscales({"ome": {"version": "0.6", "multiscales": [stored]}}, none)
    assert read.axes == (Axis("y", "space", "micrometer"), Axis("x", "space"))
    assert (read.levels, read.system) == ((Level("s0", (0.5, 0.25), (0.0, 0.0)),), None)
    assert read.systems == {"world": (((5.0, 2.5), (0.0, 0.0)),)}


def test_paths_that_are_numbers():
    """ez_zarr writes them so."""
    stored = {"axes": [{"name": "y"}, {"name": "x"}], "datasets": [{"path": 0}, {"path": 1}]}
    with pytest.warns(UserWarning, match="the path of a level is a number, read as text"):
        (read,) = parse_multiscales({"multiscales": [stored]}, none)
    assert [level.path for level in read.levels] == ["0", "1"]
