"""OME-Zarr's metadata of multiscale images, as they are read and written."""

import pytest
from support.cases import cases

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.multiscales import Axis, Level, Multiscale, reduced_level
from chunkmill.model.ome_zarr import emit_ome, parse_multiscales

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


def test_attributes_of_n5_are_replaced_and_like_ones_of_others_stay():
    image = Multiscale(
        (Axis("y", "space", "micrometer"), Axis("x", "space", None)), (Level("0", (2, 1), (0, 0)),), "0.5"
    )
    of_n5 = {"scales": [[1, 1]], "resolution": [1, 2], "axes": ["x", "y"], "units": ["", "um"]}
    assert set(emit_ome([image], "0.5", {**of_n5, "mine": 1})) == {"mine", "ome"}
    others = {"axes": ["left", "right"], "units": "m"}
    assert emit_ome([image], "0.5", others).items() >= others.items()
    assert emit_ome([image], "0.5", {**of_n5, "units": "m"})["units"] == "m"


def test_labels_and_plates_move():
    old = {"labels": ["a"], "plate": {"version": "0.4", "rows": []}, "mine": 1, "image-label": {"version": "0.4"}}
    new = emit_ome([], "0.5", old)
    plate, label = {"version": "0.5", "rows": []}, {"version": "0.5"}
    assert new == {"mine": 1, "ome": {"version": "0.5", "labels": ["a"], "plate": plate, "image-label": label}}
    assert emit_ome([], "0.5", emit_ome([], "0.6", new)) == new
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


@cases("types", [
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


def scaled(factor, output=None):
    ends = {} if output is None else {"input": {"path": "0"}, "output": {"name": output}}
    return {"type": "scale", "scale": [factor, factor], **ends}


AXES = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]


def test_transformations_of_a_level_to_several_systems_are_refused():
    steps = [scaled(0.5, "physical"), scaled(5, "stage")]
    stored = {"axes": AXES, "datasets": [{"path": "0", "coordinateTransformations": steps}]}
    with pytest.raises(MetadataError, match="of a level to one coordinate system"):
        parse_multiscales({"ome": {"version": "0.6", "multiscales": [stored]}}, none)


def test_transformations_of_all_levels_are_no_alternatives_to_those_to_other_systems():
    stored = {
        "axes": AXES,
        "datasets": [{"path": "0", "coordinateTransformations": [scaled(0.5)]}],
        "coordinateTransformations": [scaled(2), {"type": "scale", "scale": [5, 5], "input": "own", "output": "stage"}],
    }
    (image,) = parse_multiscales({"ome": {"version": "0.5", "multiscales": [stored]}}, none)
    assert (image.own[0], image.systems["stage"]) == (((1, 1), (0, 0)), (((5, 5), (0, 0)),))
