"""Images as microscopists have them: axes, units in each convention, crops, names, channels and their windows."""

import json
import zipfile

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import ChunkmillError, JobError, RegionError, UnsupportedFeature
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import Axis, Multiscale
from chunkmill.pyramids.computed import _place, open_image_source
from chunkmill.pyramids.image import describe_base
from chunkmill.pyramids.labels import with_windows
from chunkmill.stores.memory import MemoryStore

VALUES = np.random.default_rng(4).integers(0, 4000, (2, 12, 20, 24)).astype("u2")
DIMS = ("c", "z", "y", "x")


@pytest.fixture
def source(tmp_path):
    url = tmp_path / "a.zarr"
    cm.to_store(VALUES, url, "a", chunks=(1, 12, 10, 12), dimension_names=DIMS)
    return url, "a"


def stored_units(url):
    """Return units as stored: of OME-Zarr's axes, or of N5's attributes."""
    attributes = cm.open_group(url).attributes
    if "pixelResolution" in attributes:
        transform = cm.open_array(url, "s0").attributes["transform"]
        return [attributes["pixelResolution"]["unit"], *transform["units"]]
    image = attributes.get("ome", attributes)["multiscales"][0]
    return [axis.get("unit") for axis in image["axes"]]


@cases(("unit", "name"), [("um", "zarr2"), ("micron", "n5")])
def test_each_convention_gets_its_own_units(source, tmp_path, unit, name):
    cm.pyramid(source, tmp_path / "first", format=name, units=unit, scale=0.5, levels=1)
    expected = {"n5": ["um", "", "um", "um", "um"]}
    assert stored_units(tmp_path / "first") == expected.get(name, [None, *["micrometer"] * 3])
    for other in ("zarr2", "zarr3", "n5"):
        cm.pyramid(tmp_path / "first", tmp_path / f"then-{other}", format=other, levels=1)
        assert stored_units(tmp_path / f"then-{other}") == expected.get(other, [None, *["micrometer"] * 3])


def test_axes_of_different_units_have_one_in_n5(tmp_path):
    """N5-viewer's attribute has a single one; TensorStore and Neuroglancer have one for each axis."""
    cm.pyramid(VALUES[0], tmp_path / "a.n5", format="n5", scale=(2, 500, 0.5), units={"z": "um", "y": "nm", "x": "um"})
    attributes = cm.open_group(tmp_path / "a.n5").attributes
    assert attributes["pixelResolution"] == {"dimensions": [0.5, 0.5, 2], "unit": "um"}
    assert (attributes["units"], attributes["resolution"]) == (["um", "nm", "um"], [0.5, 500, 2])
    (image,) = cm.open_group(tmp_path / "a.n5").multiscales
    assert image[0].scale == (2, 500, 0.5)
    assert [axis.unit for axis in image.axes] == ["micrometer", "nanometer", "micrometer"]


@cases(
    ("name", "region"),
    [("zarr3", {"y": (3, 20), "x": slice(5, None)}), ("n5", (slice(None), slice(None), slice(3, 20), slice(5, None)))],
)
def test_a_crop_keeps_voxels_and_moves_the_place(source, tmp_path, name, region):
    cm.pyramid(source, tmp_path / "whole", format=name, scale={"z": 2, "y": 0.5, "x": 0.25}, translation=1)
    cm.pyramid(tmp_path / "whole", tmp_path / "crop", region=region, levels=2)
    image = cm.open_group(tmp_path / "crop").multiscales[0]
    np.testing.assert_array_equal(image[0].array[...], VALUES[:, :, 3:20, 5:])
    assert image[0].scale == (1, 2, 0.5, 0.25)
    assert image[0].translation == (0, 1, 2.5, 2.25)
    cut = VALUES[:, :, 3:19, 5:23].reshape(2, 6, 2, 8, 2, 9, 2).mean((2, 4, 6))
    np.testing.assert_array_equal(image[1].array[:, :, :8, :9], np.rint(cut))


def test_the_name_of_an_image_is_that_of_its_place(source, tmp_path):
    def name(url, path="", **options):
        cm.pyramid(source, (url, path), **options)
        return cm.open_group(url, path).multiscales[0].name

    assert name(tmp_path / "brain.ome.zarr") == "brain"
    assert name(tmp_path / "plate.zarr", "A/cells") == "cells"
    assert name(tmp_path / "x.zarr", name="mine") == "mine"
    cm.pyramid(tmp_path / "x.zarr", tmp_path / "y.zarr")
    assert cm.open_group(tmp_path / "y.zarr").multiscales[0].name == "mine"


@cases("kind", ["zarr2", "zarr3"])
def test_channels_have_names_colours_and_windows(source, tmp_path, kind):
    cm.pyramid(source, tmp_path / "image", channels=["dapi", "gfp"], format=kind, method="stride", overwrite=True)
    group = cm.open_group(tmp_path / "image")
    omero = group.attributes.get("ome", group.attributes)["omero"]
    first, second = omero["channels"]
    assert (first["label"], first["color"], second["label"], second["color"]) == ("dapi", "FF0000", "gfp", "00FF00")
    assert omero["rdefs"] == {"model": "color"}
    coarsest = group.multiscales[0][-1].array[...]
    for number, channel in enumerate((first, second)):
        values = coarsest[number]
        start, end = np.percentile(values, (0.1, 99.9))
        assert channel["window"] == {
            "min": values.min(), "max": values.max(), "start": pytest.approx(start), "end": pytest.approx(end)
        }  # fmt: skip
    cm.pyramid(tmp_path / "image", tmp_path / "copy")  # a copy keeps them
    copied = cm.open_group(tmp_path / "copy").attributes
    assert copied.get("ome", copied)["omero"] == omero


def test_a_window_that_is_given_is_kept_also_where_a_target_is_replaced(source, tmp_path):
    given = {"channels": [{"label": "a", "window": {"start": 1, "end": 9, "min": 0, "max": 10}}, {"label": "b"}]}
    for _ in range(2):
        cm.pyramid(source, tmp_path / "image", channels=given, overwrite=True)
        a, b = cm.open_group(tmp_path / "image").attributes["ome"]["omero"]["channels"]
        assert a == given["channels"][0]
        assert b.keys() == {"label", "window"}
    cm.pyramid(VALUES[0], tmp_path / "one", channels=True)
    omero = cm.open_group(tmp_path / "one").attributes["ome"]["omero"]
    assert (omero["channels"][0]["label"], omero["rdefs"]) == ("0", {"model": "greyscale"})
    with pytest.raises(ValueError, match="channels= describes a new image: give a target"):
        cm.pyramid(tmp_path / "one", channels=True)


@cases(
    ("name", "region", "how"),
    [("zarr2", None, "convert"), ("n5", {"y": (4, 9)}, "convert"), ("zarr3", {"y": (4, 9)}, "rechunk")],
)
def test_a_level_that_is_copied_alone_keeps_voxels_and_place(source, tmp_path, name, region, how):
    cm.pyramid(source, tmp_path / "image", format=name, scale={"z": 2, "y": 0.5}, units="um", levels=2)
    level = "s1" if name == "n5" else "1"
    job, options = {"convert": (cm.convert, {"format": "zarr3"}), "rechunk": (cm.rechunk, {"chunks": (2, 6, 5, 5)})}[
        how
    ]
    job((tmp_path / "image", level), tmp_path / "one", region=region, **options)
    cm.pyramid(tmp_path / "one", tmp_path / "again", levels=1)
    image = cm.open_group(tmp_path / "again").multiscales[0]
    assert image[0].scale == (1, 4, 1, 2)
    assert image[0].translation == (0, 1, 0.25 if region is None else 4.25, 0.5)
    assert [axis.unit for axis in image.axes] == [None, *["micrometer"] * 3]


OF_N5 = [
    {"resolution": [1.0, 2.0, 3.0], "offset": [7.0, 8.0, 9.0], "unit": "nm"},
    {"transform": {"axes": ["x", "y", "z"], "units": ["nm"] * 3, "scale": [1, 2, 3], "translate": [7, 8, 9], "ordering": "F"}},
]  # fmt: skip


@cases(
    ("attributes", "how"),
    [*((OF_N5[0], how) for how in ("pyramid", "convert", "group", "region", "n5")), (OF_N5[1], "region")],
)
def test_a_dataset_of_n5_keeps_its_place(tmp_path, attributes, how):
    """The crops of COSEM's papers, and Paintera's datasets, lie where `offset` says."""
    filled(np.ones((8,) * 3, "u1"), tmp_path / "d.n5", "crop/all", chunks=4, format="n5", attributes=attributes)
    source, start = (tmp_path / "d.n5", "crop/all"), (9, 8, 7)
    if how == "convert":
        cm.convert(source, tmp_path / "copy", format="zarr3")
        assert cm.verify(source, tmp_path / "copy").equal
        source = tmp_path / "copy"
    elif how == "group":
        cm.convert(tmp_path / "d.n5", tmp_path / "copy", format="zarr3")
        assert cm.verify(tmp_path / "d.n5", tmp_path / "copy").equal
        source = tmp_path / "copy", "crop/all"
    elif how == "region":
        cm.rechunk(source, tmp_path / "copy.n5", chunks=(2, 2, 2), region=np.s_[2:6])
        source, start = tmp_path / "copy.n5", (15, 8, 7)
        assert "offset" not in cm.open_array(source).attributes
    elif how == "n5":
        cm.pyramid(source, tmp_path / "copy.n5", levels=1)
        source = tmp_path / "copy.n5"
    cm.pyramid(source, tmp_path / "image", format="zarr3", levels=2)
    image = cm.open_group(tmp_path / "image").multiscales[0]
    assert (image[0].scale, image[0].translation) == ((3, 2, 1), start)
    assert {axis.unit for axis in image.axes} == {"nanometer"}
    assert "offset" not in cm.open_array(tmp_path / "image", "0").attributes


@cases("more", [{}, {"unit": 3, "offset": "far"}])
def test_a_place_that_is_said_already_or_that_nothing_says(more):
    """A copy says no more of it than the array does."""
    attributes = OF_N5[1] | {"transform": OF_N5[1]["transform"] | more}
    for format_, codecs in (("n5", "gzip"), ("zarr2", "zstd")):
        source = filled(np.ones((8,) * 3, "u1"), chunks=4, attributes=attributes)
        cm.convert(source, target := MemoryStore(), format=format_, codecs=codecs)
        assert cm.open_array(target).attributes == attributes


@cases("said", [1, [{"axes": ["x"], "datasets": [{"path": "s0"}]}]])
def test_a_level_of_an_image_that_is_described_wrongly_has_no_place(said):
    cm.create_group(store := MemoryStore(), attributes={"ome": {"version": "0.5", "multiscales": said}})
    filled(np.ones((4, 4), "u1"), store, "s0", chunks=2)
    cm.convert((store, "s0"), target := MemoryStore(), format="zarr2", region=np.s_[2:])
    assert cm.open_array(target).attributes == {}
    cm.open_array(target, mode="r+").update_attributes({"transform": {"scale": [1, 1]}})
    assert "attribute 'transform' differs" in str(cm.verify((store, "s0"), target, region=np.s_[2:], progress=False))


@cases(("name", "job"), [("n5", "convert"), ("zarr3", "rechunk")])
def test_all_levels_of_an_image_are_cropped_alike(source, tmp_path, name, job):
    """By a region of the finest: the others are cut to what covers it."""
    cm.pyramid(source, tmp_path / "image", format=name, scale={"z": 2, "y": 0.5}, translation={"y": 7}, levels=3)
    cm.pyramid((VALUES[0] % 3).astype("u1"), label_of=tmp_path / "image", name="cells") if name != "n5" else None
    region = {"y": (5, 16), "x": (-7, None), "z": (4, 8)}
    if job == "convert":
        cm.convert(tmp_path / "image", tmp_path / "part", format=name, region=region)
    else:
        cm.rechunk(tmp_path / "image", tmp_path / "part", chunks={"y": 5}, region=region)
    before, (image,) = cm.open_group(tmp_path / "image").multiscales[0], cm.open_group(tmp_path / "part").multiscales
    cuts = [
        (slice(4, 8), slice(5, 16), slice(17, 24)),
        (slice(2, 4), slice(2, 8), slice(8, 12)),
        (slice(1, 2), slice(1, 4), slice(4, 6)),
    ]
    for old, new, cut in zip(before, image, cuts, strict=True):
        assert new.scale == old.scale
        starts = [0, *(each.start for each in cut)]
        assert new.translation == tuple(t + n * s for t, n, s in zip(old.translation, starts, old.scale, strict=True))
        np.testing.assert_array_equal(new.array[...], old.array[(slice(None), *cut)])
    assert cm.verify(tmp_path / "image", tmp_path / "part", region=region).n_arrays >= 3
    if name != "n5":
        (cells,) = cm.open_group(tmp_path / "part", "labels/cells").multiscales
        assert cells[0].array.shape == (4, 11, 7)
        assert cells[1].translation == image[1].translation[1:]


@cases("wrap", [
    lambda: da.from_array(VALUES, chunks=((1, 1), (5, 4, 3), 7, (20, 4))), lambda: VALUES,
    lambda: da.stack([da.from_array(each, chunks=(4, 8, 8)) for each in VALUES]),
])  # fmt: skip
def test_arrays_in_memory_and_of_dask_are_sources(tmp_path, wrap):
    cm.pyramid(wrap(), tmp_path / "image", scale=0.5, units="um")
    group = cm.open_group(tmp_path / "image")
    np.testing.assert_array_equal(group["0"][...], VALUES)
    assert group["0"].codecs[-1].name == "zstd"
    assert [axis.name for axis in group.multiscales[0].axes] == list(DIMS)


def labelled(**coords):
    """Return an array of xarray with coordinates of a microscope."""
    place = {
        "c": ["dapi", "gfp"],
        "z": ("z", 100 + 2.5 * np.arange(12), {"units": "um"}),
        "y": ("y", np.arange(20, dtype="f4") * np.float32(0.1) + np.float32(7), {"units": "micron"}),
        "x": ("x", np.arange(24) * 3, {"units": "nm"}),
    }
    return xr.DataArray(VALUES, dims=DIMS, coords=place | coords).chunk({"z": 4, "c": 1})


@cases("name", ["zarr3", "n5"])
def test_coordinates_of_xarray_give_voxels_places_and_units(tmp_path, name):
    cm.pyramid(labelled(), tmp_path / "image", format=name, factors=1, levels=1)
    group = cm.open_group(tmp_path / "image")
    image = group.multiscales[0]
    assert image[0].scale == (1, 2.5, 0.1, 3)
    assert image[0].translation == (0, 100, 7, 0)
    units = ["micrometer", "micrometer", "nanometer"]
    assert [axis.unit for axis in image.axes] == [None, *units]
    if name != "n5":
        described = group.attributes.get("ome", group.attributes)
        assert [each["label"] for each in described["omero"]["channels"]] == ["dapi", "gfp"]
        again = xr.open_datatree(tmp_path / "image", engine="chunkmill")["0"]
        np.testing.assert_allclose(again["y"], labelled()["y"], rtol=1e-6)
        assert again["z"].attrs["units"] == "micrometer"
    plane = xr.DataArray(VALUES[0, 0], dims=("y", "x"), coords={"x": np.arange(24) * 3})
    cm.pyramid(plane, tmp_path / "plane", format=name, levels=1)
    assert cm.open_group(tmp_path / "plane").multiscales[0][0].scale == (1, 3)


def test_what_is_given_takes_the_place_of_coordinates(tmp_path):
    options = {"scale": {"z": 4}, "units": {"z": "mm"}, "translation": {"y": 1}, "channels": ["a", "b"]}
    cm.pyramid(labelled(c=[488, 561]), tmp_path / "image", region={"x": (2, 10)}, **options)
    group = cm.open_group(tmp_path / "image")
    image = group.multiscales[0]
    assert (image[0].scale, image[0].translation) == ((1, 4, 0.1, 3), (0, 100, 1, 6))
    assert image.axes[1].unit == "millimeter"
    assert group.attributes["ome"]["omero"]["channels"][0]["label"] == "a"


@cases(("axis", "values", "message"), [
    ("y", np.arange(20)[::-1], "'y' do not ascend"), ("y", np.arange(20) ** 2, "'y' are not evenly spaced"),
    ("z", [0] * 12, "'z' do not ascend"),
])  # fmt: skip
def test_coordinates_that_voxels_cannot_have_are_named(tmp_path, axis, values, message):
    with pytest.warns(UserWarning, match=message):
        cm.pyramid(labelled(**{axis: (axis, values, {"units": "mm"})}), tmp_path / "image")
    image = cm.open_group(tmp_path / "image").multiscales[0]
    at = DIMS.index(axis)
    assert (image[0].scale[at], image[0].translation[at], image.axes[at].unit) == (1, 0, "millimeter")


@cases(("times", "scale", "start"), [
    (np.arange(2) * np.timedelta64(500, "ms") + np.timedelta64(3, "s"), 0.5, 3),
    (np.array(["2024-01-01T00:00", "2024-01-01T00:05"], "M8[ns]"), 300, 0),
    (("t", [10, 12], {"units": "seconds since 2024-01-01"}), 2, 0),
])  # fmt: skip
def test_times(tmp_path, times, scale, start):
    values = labelled().rename(c="t").assign_coords(t=times)
    cm.pyramid(values, tmp_path / "image")
    image = cm.open_group(tmp_path / "image").multiscales[0]
    assert (image[0].scale[0], image[0].translation[0], image.axes[0].unit) == (scale, start, "second")


@cases(("values", "unit", "place"), [
    (["a", "b"], "mm", (1, 0, None)), ([3.0], "mm", (1, 3, "mm")), ([], "mm", (1, 0, "mm")),
    ([3], "days since 2000-01-01", (1, 0, "days")),
])  # fmt: skip
def test_coordinates_without_a_step(values, unit, place):
    assert _place("z", np.asarray(values), unit) == place


def test_a_dask_array_is_computed_once_and_one_length_is_that_of_space(tmp_path):
    n_computed = []

    def count(block):
        n_computed.append(1)
        return block

    lazy = da.from_array(VALUES, chunks=(1, 4, 8, 8)).map_blocks(count, dtype="u2", meta=np.empty((0,) * 4, "u2"))
    cm.pyramid(lazy, tmp_path / "image", scale=0.5, translation=3)
    assert len(n_computed) == 2 * 3 * 3 * 3
    first = cm.open_group(tmp_path / "image").multiscales[0][0]
    assert (first.scale, first.translation) == ((1, 0.5, 0.5, 0.5), (0, 3, 3, 3))


def test_a_list_of_channels_is_one_image(tmp_path):
    url = tmp_path / "channels"
    for number, values in enumerate(VALUES):
        attributes = {"pixelResolution": {"dimensions": [0.5, 0.5, 2], "unit": "um"}}
        cm.to_store(values, url, f"ch{number}", format="n5", chunks=(4, 8, 8), attributes=attributes)
    channels = [(url, f"ch{number}") for number in range(2)]
    cm.pyramid(channels, tmp_path / "image", format="zarr3", channels=["dapi", "gfp"])
    group = cm.open_group(tmp_path / "image")
    image = group.multiscales[0]
    np.testing.assert_array_equal(group["0"][...], VALUES)
    assert [(axis.name, axis.type, axis.unit) for axis in image.axes] == [
        ("c", "channel", None), *((each, "space", "micrometer") for each in "zyx"),
    ]  # fmt: skip
    assert image[0].scale == (1, 2, 0.5, 0.5)
    cm.pyramid([xr.DataArray(values, dims=("z", "y", "x")) for values in VALUES], tmp_path / "labelled")
    np.testing.assert_array_equal(cm.open_array(tmp_path / "labelled", "0")[...], VALUES)


@cases("name", ["zarr2", "zarr3"])
def test_labels_are_written_below_their_image(source, tmp_path, name):
    cm.pyramid(source, tmp_path / "image", format=name, scale={"z": 2, "y": 0.5, "x": 0.5}, units="um")
    cells = (VALUES[0] > 2000).astype("u4")
    for label in ("cells", "nuclei", "cells"):
        cm.pyramid(cells, label_of=tmp_path / "image", name=label, overwrite=True)
    attributes = cm.open_group(tmp_path / "image", "labels").attributes
    assert attributes.get("ome", attributes)["labels"] == ["cells", "nuclei"]
    group = cm.open_group(tmp_path / "image", "labels/cells")
    described = group.attributes.get("ome", group.attributes)
    assert described["image-label"]["source"] == {"image": "../../"}
    image = group.multiscales[0]
    assert (image.name, image.method) == ("cells", "mode")
    assert image[0].scale == (2, 0.5, 0.5)
    assert [axis.unit for axis in image.axes] == ["micrometer"] * 3
    np.testing.assert_array_equal(image[0].array[...], cells)
    assert len(image) == len(cm.open_group(tmp_path / "image").multiscales[0])
    by_voxels = cm.plan_pyramid(cells, label_of=tmp_path / "image", name="third", factors="isotropic", levels=2)
    assert [each["factors"] for each in by_voxels.arrays[1:]] == [(1, 2, 2)]


def test_labels_without_an_image_or_its_shape_are_refused(source, tmp_path):
    with pytest.raises(ValueError, match="describes no multiscale image"):
        cm.plan_pyramid(VALUES[0], label_of=source[0])
    cm.pyramid(source, tmp_path / "image", scale=0.5)
    with pytest.raises(ValueError, match="no level of the image has the shape"):
        cm.plan_pyramid(VALUES[0, :, 3:], label_of=tmp_path / "image")
    assert cm.plan_pyramid(VALUES[0, :1], label_of=tmp_path / "image").arrays[0]["shape"] == (1, 20, 24)
    cm.pyramid(VALUES[:, :1], tmp_path / "thin", scale=0.5, levels=1)
    with pytest.raises(ValueError, match=r"has the shape \(12, 20, 24\) of the labels along z, y, x: give scale="):
        cm.plan_pyramid(VALUES[0], label_of=tmp_path / "thin")
    with pytest.raises(ValueError, match="leave the target out"):
        cm.plan_pyramid(VALUES[0], tmp_path / "labels", label_of=tmp_path / "image")
    cm.pyramid(source, tmp_path / "image.n5", format="n5")
    with pytest.raises(UnsupportedFeature, match="labels"):
        cm.plan_pyramid(VALUES[0], label_of=tmp_path / "image.n5")


def test_an_ozx_is_one_file_with_its_documents_first(source, tmp_path):
    """As OME-Zarr's RFC-9 has it; by `chunkmill.stores.zip`."""
    url = tmp_path / "image.ozx"
    cm.pyramid(source, url, scale=0.5, units="um", channels=["dapi", "gfp"])
    with zipfile.ZipFile(url) as archive:
        comment, members = json.loads(archive.comment), archive.infolist()
    assert comment == {"ome": {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": True}}}}
    names = [member.filename for member in members]
    documents = [name for name in names if name.endswith("zarr.json")]
    assert names[: len(documents)] == documents
    assert documents[0] == "zarr.json"
    assert {member.compress_type for member in members} == {zipfile.ZIP_STORED}
    image = cm.open_group(url).multiscales[0]
    np.testing.assert_array_equal(image[0].array[...], VALUES)
    assert image.name == "image"
    cm.convert(url, tmp_path / "again.zarr", format="zarr3")
    assert cm.verify(url, tmp_path / "again.zarr").equal
    cm.convert(tmp_path / "again.zarr", tmp_path / "copy.ozx", format="zarr3")
    with zipfile.ZipFile(tmp_path / "copy.ozx") as archive:
        assert archive.namelist()[0] == "zarr.json"
    cm.open_group(tmp_path / "copy.ozx", mode="r+").update_attributes({"mine": 1})  # of members that are there
    cm.convert(tmp_path / "copy.ozx", tmp_path / "newest.ozx", format="zarr3", ome="0.6")
    with zipfile.ZipFile(tmp_path / "newest.ozx") as archive:
        assert archive.testzip() is None
        assert json.loads(archive.comment)["ome"]["version"] == "0.6"
    np.testing.assert_array_equal(cm.open_array(tmp_path / "newest.ozx", "0")[...], VALUES)


def test_an_ozx_holds_zarr_v3_alone(source, tmp_path):
    for make in (
        lambda url: cm.pyramid(source, url, format="n5"),
        lambda url: cm.convert(source, url, format="n5"),
        lambda url: cm.create_array(url, shape=4, dtype="u1", format="n5"),
        lambda url: cm.create_group(url, format="n5"),
        lambda url: cm.to_store(VALUES[0], url, format="n5"),
    ):
        with pytest.raises(UnsupportedFeature, match=r"an \.ozx file holds Zarr v3 alone; give format='zarr3'"):
            make(tmp_path / "x.ozx")
    assert not (tmp_path / "x.ozx").exists()


@cases(("options", "error", "message"), [
    ({"shards": (64, 64, 64)}, RegionError, "3 lengths for 4 axes"),
    ({"chunks": (4, 4, 4)}, RegionError, "3 lengths for 4 axes"), ({"chunks": {"q": 3}}, ValueError, "unknown|names"),
    ({"factors": (2, 2)}, ValueError, "2"), ({"scale": (2, 2)}, ValueError, "2"),
    ({"scale": -1}, ValueError, "not a length above 0"), ({"units": {"q": "m"}}, ValueError, "unknown dimensions"),
    ({"units": {"y": 5}}, ValueError, "5 is not a unit"),
    ({"scale": {"y": np.inf}}, ValueError, "inf is not a finite number"),
    ({"chunks": (1, (5, 7), 8, 8)}, ChunkmillError, "chunks of one shape"),
    ({"max_mem": 1 << 20}, JobError, r"the smallest that works is \d+.*max_mem="),
    ({"target": None, "region": np.s_[:1]}, ValueError, "need a target"),
    ({"ome": "0.7"}, ValueError, "expected one of '0.4', '0.5', '0.6'"),
    ({"name": "x", "format": "zarr3", "ome": "0.4"}, UnsupportedFeature, "0.4 is for Zarr v2"),
    ({"channels": ["one"]}, ValueError, "has 2 channels"),
    ({"channels": ["a", "b"], "format": "n5"}, UnsupportedFeature, "only OME-Zarr describes channels"),
    ({"source": [VALUES[0], VALUES[0, 1:]]}, ValueError, "give arrays of one shape and dtype"),
    ({"source": []}, ValueError, "give arrays of one shape"),
])  # fmt: skip
def test_an_option_that_cannot_be_used_is_an_error(source, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        cm.plan_pyramid(**{"source": source, "target": tmp_path / "image", **options})


def test_labels_are_as_their_image(source, tmp_path):
    cm.pyramid(source, tmp_path / "image", scale=0.5)
    cm.to_store((VALUES[0] > 9).astype("u1"), tmp_path / "cells.zarr", "0", chunks=(4, 8, 8))
    for options in ({"format": "zarr2"}, {"ome": "0.4"}):
        with pytest.raises(ValueError, match="labels are as their image, zarr3 and OME-Zarr"):
            cm.plan_pyramid((tmp_path / "cells.zarr", "0"), label_of=tmp_path / "image", **options)
    cm.pyramid((tmp_path / "cells.zarr", "0"), label_of=tmp_path / "image")  # named by what is no number
    assert cm.open_group(tmp_path / "image", "labels").attributes["ome"]["labels"] == ["cells"]


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
    assert {each.array.dimension_names for each in image} == {("y", "x")}


IMAGE = Multiscale((Axis("c", "channel"), Axis("y", "space"), Axis("x", "space")), (), "0.5")


@cases("omero", [3, {}, {"channels": "x"}, {"channels": [{"window": {"start": 1}}]}])
def test_what_needs_no_window_is_left(omero):
    group = GroupMetadata({"omero": omero})
    assert with_windows(group, IMAGE, filled(np.ones((2, 2, 2))).stored) is group


def test_values_that_are_not_finite_have_no_window():
    group = with_windows(
        GroupMetadata({"ome": {"omero": {"channels": [{}]}}}), IMAGE, filled(np.full((1, 2, 2), np.nan)).stored
    )
    assert group.attributes["ome"]["omero"]["channels"] == [{}]


def test_of_a_large_level_some_chunks_are_read(monkeypatch):
    monkeypatch.setattr("chunkmill.pyramids.labels._MOST_VALUES", 200)
    values = np.arange(2 * 40 * 10, dtype="u2").reshape(2, 40, 10)
    array = filled(values, chunks=(1, 10, 10))
    for key in ("c/0/1/0", "c/0/3/0", "c/1/1/0", "c/1/3/0"):
        array.store.set(key, b"never read")
    shown = with_windows(GroupMetadata({"omero": {"channels": [{}, {}]}}), IMAGE, array.stored)
    first, second = (each["window"] for each in shown.attributes["omero"]["channels"])
    assert (first["min"], first["max"]) == (0, 299)
    assert (second["min"], second["max"]) == (400, 699)


def test_a_stack_follows_time():
    parts = [cm.create_array(MemoryStore(), "a", shape=(2, 3, 3), dtype="u1", chunks=(1, 3, 3),
                             dimension_names=("t", "y", "x")) for _ in range(4)]  # fmt: skip
    stacked = open_image_source(parts, None)
    assert (stacked.shape, stacked.dimension_names) == ((2, 4, 3, 3), ("t", "c", "y", "x"))


@cases(("rank", "names"), [(3, "c z y x"), (4, "c d0 d1 d2 d3")])
def test_a_stack_of_arrays_without_names(rank, names):
    assert open_image_source([make((2,) * rank)] * 3, None).dimension_names == tuple(names.split())


@cases("key", ["c/3/0", "c/0", "c/0/x", "d/0/0"])
def test_other_keys_than_those_of_blocks_are_absent(key):
    store = open_image_source(da.zeros((5, 7), chunks=(2, 3)), None).store
    assert store.size("c/2/2") == 2 * 3 * 8  # padded at the end
    noted = {}
    assert store.get_noting("c/2/2", None, noted.__setitem__) == bytes(2 * 3 * 8)
    assert (store.get_noting(key, None, noted.__setitem__), noted) == (None, {"c/2/2": "0"})
    assert [store.get(key), store.size(key), store.version(key)] == [None] * 3
