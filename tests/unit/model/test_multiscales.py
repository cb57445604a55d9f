"""Metadata of multiscale images: in the conventions of N5, those of OME-Zarr, and wrong ones of all."""

from dataclasses import asdict, replace

import pytest
from support.cases import cases

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.multiscales import (
    Axis,
    Level,
    Multiscale,
    canonical_unit,
    emit_n5_levels,
    length_in,
    parse_level,
    reduced_level,
    unit_symbol,
    without_level,
)
from chunkmill.model.ome_zarr import emit_ome, parse_multiscales

ZYX = (Axis("z", "space", "micrometer"), Axis("y", "space", "micrometer"), Axis("x", "space", "micrometer"))
BASE = Level("0", (4.0, 0.5, 0.5), (0.0, 0.0, 0.0))
IMAGE = Multiscale(ZYX, (BASE, reduced_level(BASE, "1", (1, 2, 2), averages=True)), "0.5", "brain", "mean")


def none(_):
    raise AssertionError("the children need not be opened")


AXES_5 = (Axis("t", "time", "second"), Axis("c", "channel"), Axis("z", "space", "nanometer"), *ZYX[1:])
LEVELS_5 = (
    Level("a", (2.0, 1.0, 40.0, 0.5, 0.25), (7.0, 0.0, 1.0, 2.0, 3.0)),
    Level("b", (2.0, 1.0, 80.0, 1.5, 1.0), (7.0, 0.0, 21.0, 2.5, 3.5)),
)
IMAGE_5 = Multiscale(AXES_5, LEVELS_5, "0.6", "brain", "mean")


def test_n5_is_read_as_written():
    units = ["s", "", "nm", "um", "um"]
    size = {"dimensions": [0.25, 0.5, 0.04, 1.0, 2.0], "unit": "um"}  # in the unit of x
    places = {
        level.path: {"axes": [*"tczyx"], "units": units, "scale": [*level.scale], "translate": [*level.translation]}
        for level in LEVELS_5
    }
    factors = {"a": [1, 1, 1, 1, 1], "b": [4, 3, 2, 1, 1]}  # fastest axis first
    group, below = emit_n5_levels(IMAGE_5)
    datasets = [{"path": path, "transform": place} for path, place in places.items()]
    described = {"multiscales": [{"name": "brain", "datasets": datasets}], "scales": [*factors.values()]}
    of_axes = {"axes": [*"xyzct"], "units": units[::-1], "resolution": [0.25, 0.5, 40.0, 1.0, 2.0]}
    assert group == described | {"pixelResolution": size} | of_axes
    assert below == {
        path: {"downsamplingFactors": factors[path], "pixelResolution": size, "transform": places[path]}
        for path in "ab"
    }
    assert parse_multiscales(group, none) == (replace(IMAGE_5, version="cosem", method=None),)
    of_one_unit = emit_n5_levels(IMAGE)[0]  # and of axes of space alone
    assert of_one_unit.keys() == {"multiscales", "scales", "pixelResolution"}


def test_ome_zarr_0_6_is_written_whole():
    steps = [
        [{"type": "scale", "scale": [*level.scale]}, {"type": "translation", "translation": [*level.translation]}]
        for level in LEVELS_5
    ]
    ends = [{"input": {"path": level.path}, "output": {"name": "physical"}} for level in LEVELS_5]
    axes = [{name: value for name, value in asdict(axis).items() if value} for axis in AXES_5]
    datasets = [
        {"path": path, "coordinateTransformations": [{"type": "sequence", "transformations": step, **end}]}
        for path, step, end in zip("ab", steps, ends, strict=True)
    ]
    image = {"coordinateSystems": [{"name": "physical", "axes": axes}], "datasets": datasets}
    about = {"version": "0.6", "multiscales": [image | {"name": "brain", "type": "mean"}], "scene": {"a": 1}}
    assert emit_ome([IMAGE_5], "0.6", {"scene": {"a": 1}, "b": 2}) == {"b": 2, "ome": about}
    first, _ = emit_ome([IMAGE], "0.6", {})["ome"]["multiscales"][0]["datasets"]
    assert [step["type"] for step in first["coordinateTransformations"]] == ["scale"]
    for version in ("0.4", "0.5"):
        said = f"OME-Zarr {version} does not support a scene, which places images in coordinate systems"
        with pytest.raises(UnsupportedFeature, match=said):
            emit_ome([], version, {"scene": {}, "b": 2})
        assert emit_ome([], version, {"scene": {}, "b": 2}, allow=["coordinate_systems"]) == {"b": 2}


N5_LEVELS = {
    "s0": (3, {}),
    "s1": (3, {"downsamplingFactors": [2, 2, 1]}),
    "s10": (3, {"downsamplingFactors": [4, 4, 2]}),
}


@cases(("attributes", "below", "version", "unit"), [
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


@cases("attributes", [
    {"multiscales": 3}, {"multiscales": [{}]}, {"multiscales": [{"axes": ["x"], "datasets": [{"path": 3.5}]}]},
    {"multiscales": [{"axes": [3], "datasets": [{"path": "0"}]}]},
    {"ome": {"multiscales": [{"axes": ["x"], "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 2]}]}]}]}},
    {"multiscales": [{"axes": ["x"], "datasets": [{"path": "0", "coordinateTransformations": [{"type": "affine"}]}]}]},
    {"multiscales": [{"datasets": [{"path": "s0", "transform": {"scale": "big"}}]}]},
    {"multiscales": [{"datasets": [{"path": "s0", "transform": {"scale": [1]}}, {"path": 1, "transform": {"scale": [1]}}]}]},
    {"scales": [[1, 1]]}, {"pixelResolution": ["a", "b", "c"]},
])  # fmt: skip
def test_wrong_metadata_are_one_error(attributes):
    with pytest.raises(
        MetadataError, match=r"in 'attributes', (multiscales|axes|coordin\w+|scale|downsamp\w+|pixelR\w+): got "
    ):
        parse_multiscales(attributes, lambda _: N5_LEVELS)


TENSORSTORE = {"resolution": [4.0, 4.0, 0.04], "units": ["nm", "nm", "um"]}  # as its driver for N5 wrote them


def test_resolution_and_units_of_tensorstore_are_of_each_axis():
    read = parse_level(TENSORSTORE, 3)
    assert [(axis.name, axis.unit) for axis in read.axes] == [
        ("z", "micrometer"),
        ("y", "nanometer"),
        ("x", "nanometer"),
    ]
    assert read.levels == (Level("", (0.04, 4.0, 4.0), (0.0, 0.0, 0.0)),)
    assert [axis.name for axis in parse_level(TENSORSTORE, 3, ("depth", None, "x")).axes] == ["depth", "y", "x"]
    assert not without_level(TENSORSTORE)


def test_units_of_values_are_not_those_of_axes():
    assert {axis.unit for axis in parse_level(TENSORSTORE | {"units": "K"}, 3).axes} == {None}


@cases(
    ("attributes", "is_n5"),
    [
        ({"resolution": [4, 4]}, True), ({"resolution": [4, 4, 0]}, True),
        ({"resolution": [4, 4, 4], "units": ["nm"] * 3}, False),
        ({"offset": [1, 2, 3]}, False), ({"downsamplingFactors": [2, 2, 2]}, False),
        ({"affineTransform": [[2, 0, 0, 1], [0, 2, 0, 1], [0, 0, 2, 1]]}, True),
        ({"transform": [0.2, 0, 0, 0, 0, 0.2, 0, 0, 0, 0, 0.4, 0]}, True),
        ({"spatialTransform": {"transform": {"type": "scale", "scale": [2, 2, 2]}}}, True),
    ],
)  # fmt: skip
def test_what_has_the_form_of_a_place_and_is_not_understood_is_named(attributes, is_n5):
    with pytest.warns(UserWarning, match=f"'{next(iter(attributes))}' of 'v/raw' may give the place of an image"):
        assert parse_level(attributes, 3, path="v/raw", is_n5=is_n5) is None


@pytest.mark.parametrize("attributes", [{"units": ["a", "b", "c"]}, {"resolution": 3, "offset": 5, "transform": "no"}])
def test_other_attributes_are_the_users(attributes):
    assert parse_level(attributes, 3) is None


@cases(("attributes", "scale", "start"), [  # as n5-universe reads them, in the order of numpy
    pytest.param({"resolution": [1, 2, 3], "offset": [7, 8, 9]}, (3, 2, 1), (9, 8, 7), id="Paintera"),
    pytest.param({"resolution": [1, 2, 3], "unit": "nm"}, (3, 2, 1), (0, 0, 0), id="resolution"),
    pytest.param({"offset": [7, 8, 9]}, (1, 1, 1), (9, 8, 7), id="offset"),
    pytest.param({"downsamplingFactors": [4, 2, 1]}, (1, 2, 4), (0, 0.5, 1.5), id="factors"),
    pytest.param({"resolution": [1, 2, 3], "downsamplingFactors": [2, 2, 2]}, (6, 4, 2), (1.5, 1, 0.5), id="reduced"),
    pytest.param({"resolution": [1, 2, 3], "downsamplingFactors": [2, 2, 2], "offset": [7, 8, 9]}, (6, 4, 2), (9, 8, 7),
                 id="reduced with its own offset"),
    pytest.param({"pixelResolution": [1, 2, 3], "downsamplingFactors": [2, 2, 2]}, (6, 4, 2), (1.5, 1, 0.5), id="n5-viewer"),
    pytest.param({"pixelResolution": [1, 2, 3], "resolution": [5, 5, 5]}, (3, 2, 1), (0, 0, 0), id="pixelResolution first"),
    pytest.param({"transform": {"axes": ["x", "y", "z"], "scale": [1, 2, 3], "translate": [7, 8, 9], "ordering": "F"}},
                 (3, 2, 1), (9, 8, 7), id="ordering of n5-universe"),
    pytest.param({"transform": {"axes": ["x", "y", "z"], "scale": [1, 2, 3], "translate": [7, 8, 9], "order": "F"}},
                 (3, 2, 1), (9, 8, 7), id="order of fibsem-tools"),
    pytest.param({"transform": {"axes": ["z", "y", "x"], "scale": [3, 2, 1], "ordering": "C"}, "pixelResolution": [5, 5, 5],
                  "downsamplingFactors": [2, 2, 2]}, (3, 2, 1), (0, 0, 0), id="COSEM first"),
])  # fmt: skip
def test_a_dataset_of_n5_by_itself(attributes, scale, start):
    read = parse_level(attributes, 3)
    assert read.levels == (Level("", scale, start),)
    assert [axis.name for axis in read.axes] == ["z", "y", "x"]


def test_the_name_of_a_level_tells_factors_that_nothing_else_does():
    assert parse_level({"pixelResolution": [1, 2, 3]}, 3, path="c0/s1").levels[0].scale == (6, 4, 2)
    assert parse_level({"pixelResolution": [1, 2, 3]}, 3, path="c0/s100").levels[0].scale == (3, 2, 1)


def test_an_offset_next_to_a_resolution_of_n5_viewer_is_named():
    with pytest.warns(UserWarning, match="'offset'"):
        assert parse_level({"pixelResolution": [1, 2, 3], "offset": [7, 8, 9]}, 3).levels[0].translation == (0, 0, 0)


def test_a_matrix_of_n5_viewer_is_named():
    attributes = {"pixelResolution": [1, 1, 1], "affineTransform": [[1, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]}
    with pytest.warns(UserWarning, match="'affineTransform'"):
        parse_multiscales(attributes, lambda _: N5_LEVELS)
    with pytest.warns(UserWarning, match="'affineTransform' of 's1'"):
        parse_multiscales({"pixelResolution": [1, 1, 1]}, lambda _: N5_LEVELS | {"s1": (3, attributes)})


@cases(("attributes", "below", "levels"), [
    pytest.param({"multiScale": True, "resolution": [1, 2, 3], "offset": [7, 8, 9]},
                 {"s0": (3, {"offset": [1, 1, 1]}), "s1": (3, {"downsamplingFactors": [2, 2, 2], "resolution": [5, 5, 5]})},
                 [((3, 2, 1), (9, 8, 7)), ((6, 4, 2), (10.5, 9, 7.5))], id="Paintera: the group alone counts"),
    pytest.param({}, {"s0": (3, {"resolution": [1, 2, 3], "offset": [7, 8, 9]}), "s1": (3, {"downsamplingFactors": [2, 2, 2]})},
                 [((3, 2, 1), (9, 8, 7)), ((6, 4, 2), (10.5, 9, 7.5))], id="the first level"),
    pytest.param({}, {"s0": (3, {"pixelResolution": [1, 2, 3], "downsamplingFactors": [1, 1, 1]}),
                      "s1": (3, {"pixelResolution": [2, 4, 6], "downsamplingFactors": [1, 1, 1]})},
                 [((3, 2, 1), (0, 0, 0)), ((6, 4, 2), (0, 0, 0))], id="n5-ij, of samples: lengths of each level"),
    pytest.param({"pixelResolution": [1, 2, 3]}, {"s0": (3, {}), "s1": (3, {})},
                 [((3, 2, 1), (0, 0, 0)), ((6, 4, 2), (1.5, 1, 0.5))], id="factors by name"),
    pytest.param({"pixelResolution": [1, 2, 3]}, {"s0": (4, {}), "s1": (4, {"downsamplingFactors": [2, 2, 1]})},
                 [((1, 3, 2, 1), (0, 0, 0, 0)), ((1, 3, 4, 2), (0, 0, 1, 0.5))], id="numbers of space alone"),
    pytest.param({"multiScale": True, "resolution": [1, 2, 3], "offset": [7, 8, 9]}, {"s0": (4, {})},
                 [((1, 3, 2, 1), (0, 9, 8, 7))], id="an offset of space alone"),
])  # fmt: skip
def test_groups_of_levels_of_n5(attributes, below, levels):
    (read,) = parse_multiscales(attributes, lambda _: below)
    assert [(level.scale, level.translation) for level in read.levels] == levels


def test_units_of_cf_stay_at_a_level_that_is_described_again():
    assert without_level({"units": "K", "resolution": 3, "a": 1}) == {"units": "K", "a": 1}


# --------------------------------------------------------------------------------------------------------------------
# OME-Zarr, as it is read and written


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_ome_is_read_as_written(version):
    written = emit_ome([IMAGE], version, {"mine": 1, "omero": {"channels": []}})
    (read,) = parse_multiscales(written, none)
    assert replace(read, own=(), stored={}) == replace(IMAGE, version=version)
    assert emit_ome([read], version, written) == written


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
    steps = [{"type": "scale", "scale": [2, 2]}, {"type": "translation", "translation": [1, 0]}]
    dataset = {"path": "a", "coordinateTransformations": steps}
    image = {"axes": ["y", "x"], "datasets": [dataset, {"path": "b"}], "coordinateTransformations": [
        {"type": "scale", "scale": [10, 1]}, {"type": "identity"}, {"type": "translation", "translation": [0, 5]},
    ]}  # fmt: skip
    (read,) = parse_multiscales({"multiscales": [image]}, none)
    assert read.levels == (Level("a", (20, 2), (10, 5)), Level("b", (10, 1), (0, 5)))
    assert read.version == "0.4"
    assert read.axes[0] == Axis("y", "space")


def test_ome_before_axes_takes_the_last_of_five():
    stored = {"version": "0.1", "datasets": [{"path": "0"}]}
    (read,) = parse_multiscales({"multiscales": [stored]}, lambda _: {"0": (4, {})})
    assert [axis.name for axis in read.axes] == ["c", "z", "y", "x"]
    assert [axis.type for axis in read.axes] == ["channel", "space", "space", "space"]


@cases("types", [("space",), ("space",) * 4, ("space", "time", "space"), ("channel", "time", "space", "space")])  # fmt: skip
def test_axes_that_ome_does_not_have(types):
    axes = tuple(Axis(f"a{i}", each) for i, each in enumerate(types))
    level = Level("0", (1.0,) * len(axes), (0.0,) * len(axes))
    with pytest.raises(UnsupportedFeature, match="at most one axis of time"):
        emit_ome([Multiscale(axes, (level,), "0.5")], "0.5", {})


def test_coordinate_systems_of_ome_zarr_0_6_are_axes():
    """Laid out by hand, from the examples of its specification."""
    axes = [{"name": "y", "type": "space", "unit": "micrometer"}, {"name": "x", "type": "space"}]
    level = {"type": "scale", "scale": [0.5, 0.25], "input": "s0", "output": "intrinsic"}
    image = {"type": "scale", "scale": [10, 10], "input": "intrinsic", "output": {"name": "world"}}
    stored = {
        "coordinateSystems": [{"name": "world", "axes": [{"name": "a"}]}, {"name": "intrinsic", "axes": axes}],
        "datasets": [{"path": "s0", "coordinateTransformations": [level]}],
        "coordinateTransformations": [image],
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
    with pytest.raises(MetadataError, match=r"in 'attributes', datasets: got .*of a level to one coordinate system"):
        parse_multiscales({"ome": {"version": "0.6", "multiscales": [stored]}}, none)


def test_transformations_of_all_levels_are_no_alternatives_to_those_to_other_systems():
    stored = {
        "axes": AXES,
        "datasets": [{"path": "0", "coordinateTransformations": [scaled(0.5)]}],
        "coordinateTransformations": [scaled(2), {"type": "scale", "scale": [5, 5], "input": "own", "output": "stage"}],
    }
    (image,) = parse_multiscales({"ome": {"version": "0.5", "multiscales": [stored]}}, none)
    assert (image.own[0], image.systems["stage"]) == (((1, 1), (0, 0)), (((5, 5), (0, 0)),))


@cases("step", [{"type": "mapAxis", "mapAxis": [1, 0]}, {"type": "rotation", "rotation": [[0, 1], [1, 0]]}])
def test_a_system_whose_axes_are_exchanged_is_reached_by_no_scale(step):
    stored = {"axes": AXES, "datasets": [{"path": "0", "coordinateTransformations": [scaled(0.5)]}]}
    to_stage = {"transformations": [step, step], "input": "own", "output": "stage"}
    with pytest.warns(UserWarning, match="an image are stage.*reach: none"):
        parse_multiscales({"multiscales": [{**stored, "coordinateTransformations": [to_stage | step]}]}, none)
    stored["coordinateTransformations"] = [{"type": "sequence", **to_stage}]
    (image,) = parse_multiscales({"multiscales": [stored]}, none)
    assert image.systems["stage"] == (((0.5, 0.5), (0, 0)),)


@cases(("scale", "expected"), [([0, 2], {}), ([1, 2], {"stage": (((0.5, 0.25), (0, 0)),)})])
def test_a_system_from_which_the_levels_are_reached_by_a_scale_without_zeros(scale, expected):
    stored = {"datasets": [{"path": "0", "coordinateTransformations": [scaled(0.5, "own")]}]}
    stored["coordinateSystems"] = [{"name": name, "axes": AXES} for name in ("own", "stage")]
    ends = {"input": {"name": "stage"}, "output": {"name": "own"}}
    stored["coordinateTransformations"] = [{"type": "scale", "scale": scale, **ends}]
    (image,) = parse_multiscales({"ome": {"version": "0.6", "multiscales": [stored]}}, none)
    assert image.systems == expected


# --------------------------------------------------------------------------------------------------------------------
# Units: one name for each, and the symbol that N5's viewers parse


@cases(("stored", "name", "symbol"), [
    ("um", "micrometer", "um"), ("µm", "micrometer", "um"), ("\N{GREEK SMALL LETTER MU}m", "micrometer", "um"),
    ("micron", "micrometer", "um"), ("Microns", "micrometer", "um"),
    ("micrometre", "micrometer", "um"), ("nm", "nanometer", "nm"), ("nanometers", "nanometer", "nm"),
    ("mm", "millimeter", "mm"), ("Mm", "megameter", "Mm"), ("m", "meter", "m"),
    ("min", "minute", "min"), ("ms", "millisecond", "ms"), ("sec", "second", "s"), ("Å", "angstrom", "Å"),
    ("\N{ANGSTROM SIGN}", "angstrom", "Å"), ("inch", "inch", "in"), (" um ", "micrometer", "um"),
])  # fmt: skip
def test_units_have_one_name_and_one_symbol(stored, name, symbol):
    assert canonical_unit(stored) == name
    assert unit_symbol(stored) == unit_symbol(name) == symbol


def test_other_units_are_kept():
    assert canonical_unit("pixel") == unit_symbol("pixel") == "pixel"
    assert length_in("um", "pixel") == length_in("pixel", "um") == 1
    assert canonical_unit("") is None
    assert canonical_unit(None) is None
    assert unit_symbol(None) == ""
