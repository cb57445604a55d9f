"""Images as microscopists have them: axes, units in each convention, names, files of one image."""

import json
import zipfile

import numpy as np
import pytest
from support.cases import cases
from support.images import VALUES

import chunkmill as cm
from chunkmill.errors import ChunkmillError, JobError, RegionError, UnsupportedFeature
from chunkmill.pyramids.image import describe_base
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


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
    assert {level.fill_value for level in cm.open_group(tmp_path / "first").arrays().values()} == {0}
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


def test_the_name_of_an_image_is_that_of_its_place(source, tmp_path):
    def name(url, path="", **options):
        cm.pyramid(source, (url, path), **options)
        return cm.open_group(url, path).multiscales[0].name

    assert name(tmp_path / "brain.ome.zarr") == "brain"
    assert name(tmp_path / "plate.zarr", "A/cells") == "cells"
    assert name(tmp_path / "x.zarr", name="mine") == "mine"
    cm.pyramid(tmp_path / "x.zarr", tmp_path / "y.zarr")
    assert cm.open_group(tmp_path / "y.zarr").multiscales[0].name == "mine"


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
