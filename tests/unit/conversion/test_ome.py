"""Conversions that describe images as OME-Zarr."""

from pathlib import Path

import numpy as np
import pytest
from support.arrays import filled
from support.datasets import ome_zarr_0_6

import chunkmill as cm
from chunkmill.errors import UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")

VALUES = np.arange(8 * 16 * 16, dtype="u2").reshape(8, 16, 16)


@pytest.fixture
def scan(tmp_path):
    """Levels as N5 tools leave them, two images in one tree."""
    url = str(tmp_path / "scan.n5")
    for image in ("a", "b"):
        for number, step in enumerate(((1, 1, 1), (1, 2, 2))):
            level = VALUES[tuple(slice(None, None, n) for n in step)]
            about = {"chunks": (4, 8, 8), "codecs": "gzip", "attributes": {"downsamplingFactors": list(step)[::-1]}}
            filled(level, url, f"{image}/s{number}", format="n5", **about)
        group = cm.open_group(url, image, mode="r+")
        group.update_attributes({"pixelResolution": {"dimensions": [1, 1, 4], "unit": "nanometer"}, "mine": image})
    return url


def test_refused(scan):
    with pytest.raises(UnsupportedFeature, match=r"n5 does not support OME-Zarr 0.5.*0.4 is for Zarr v2"):
        cm.plan_convert(scan, MemoryStore(), format="n5", ome="0.5")
    with pytest.raises(UnsupportedFeature, match=r"zarr3 does not support OME-Zarr 0\.4"):
        cm.plan_pyramid((scan, "a"), MemoryStore(), format="zarr3", ome="0.4")
    with pytest.raises(ValueError, match=r"ome='0\.7': expected one of '0\.4', '0\.5', '0\.6', or None"):
        cm.plan_convert(scan, MemoryStore(), format="zarr3", ome="0.7")
    plain = MemoryStore()
    cm.create_array(plain, "x", shape=(4,), dtype="i4", chunks=(2,))
    with pytest.raises(ValueError, match="no group of the source describes a multiscale image"):
        cm.plan_convert(plain, MemoryStore(), format="zarr3", ome="0.5")


def model_of(url, path=""):
    """Return the name of the class of ome-zarr-models that holds a group."""
    ome_zarr_models, zarr = pytest.importorskip("ome_zarr_models"), pytest.importorskip("zarr")
    return type(ome_zarr_models.open_ome_zarr(zarr.open_group(str(url), path=path, mode="r"))).__name__


def test_plates_and_labels(tmp_path):
    old, new = str(tmp_path / "old.zarr"), str(tmp_path / "new.zarr")
    wells = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]
    plate = {"version": "0.4", "columns": [{"name": "1"}], "rows": [{"name": "A"}], "wells": wells}
    cm.create_group(old, attributes={"plate": plate}, format="zarr2")
    cm.create_group(old, "A", format="zarr2")
    cm.create_group(old, "A/1", attributes={"well": {"version": "0.4", "images": [{"path": "0"}]}}, format="zarr2")
    source = filled(np.full((32, 32), 7, "u1"), chunks=(16, 16), format="zarr2")
    cm.pyramid(source, (old, "A/1/0"), scale=0.5, units="micrometer")
    cm.pyramid(source, (old, "A/1/0/labels/cells"), scale=0.5, method="mode")
    cm.open_group(old, "A/1/0/labels", mode="r+").update_attributes({"labels": ["cells"]})
    cells = cm.open_group(old, "A/1/0/labels/cells", mode="r+")
    cells.update_attributes({"image-label": {"version": "0.4", "source": {"image": "../../"}}})
    cm.convert(old, new, format="zarr3", ome="0.5")
    kinds = {"": "HCS", "A/1": "Well", "A/1/0": "Image", "A/1/0/labels": "Labels", "A/1/0/labels/cells": "ImageLabel"}
    for url in (old, new):
        assert {path: model_of(url, path) for path in kinds} == kinds


@pytest.fixture
def atlas(tmp_path):
    url = str(tmp_path / "atlas.zarr")
    cm.create_group(url, attributes=ome_zarr_0_6())
    filled(VALUES[0], url, "s0", chunks=(8, 8), dimension_names=("y", "x"))
    return url


def test_coordinate_systems_are_read(atlas):
    (image,) = cm.open_group(atlas).multiscales
    assert (image.system, image[0].scale, image.axes[0].unit) == (None, (0.5, 0.25), "micrometer")
    assert image.systems == {
        "same": (((0.5, 0.25), (0, 0)),), "stage": (((0.5, 0.25), (100, 200)),), "voxels": (((1, 1), (0, 0)),),
    }  # fmt: skip
    assert image.affines["atlas"] == ((2, 0.5, 3), (0, 1, 4))
    assert image.affines["turned"] == ((0, -1, 0), (1, 0, 0))
    assert image.affines["steps"] == ((0, -2, 0), (2, 0, 0))
    assert image.affines["voxels"] == ((2, 0, 0), (0, 4, 0))  # the inverse of what is stored
    assert "field" not in image.affines
    assert image.within("stage").within(None) == image


def test_coordinate_systems_are_kept_as_they_are(atlas, tmp_path):
    for target in (tmp_path / "copy.zarr", tmp_path / "described.zarr"):
        cm.convert(atlas, target, format="zarr3", ome="0.6" if target.stem == "described" else None)
        assert cm.open_group(target).attributes == ome_zarr_0_6()
    candidate = str(tmp_path / "rc.zarr")
    cm.create_group(candidate, attributes=ome_zarr_0_6("0.6rc0"))
    cm.create_array(candidate, "s0", shape=(16, 16), dtype="u2", dimension_names=("y", "x"))
    cm.convert(candidate, tmp_path / "released.zarr", format="zarr3", ome="0.6")
    assert cm.open_group(tmp_path / "released.zarr").attributes == ome_zarr_0_6()


@pytest.mark.parametrize(("format_", "version"), [("zarr2", "0.4"), ("zarr3", "0.5")])
def test_other_coordinate_systems_are_refused_before_0_6_or_left_out(atlas, tmp_path, format_, version):
    told = r"OME-Zarr 0\.[45] does not support the coordinate systems 'same', 'stage'"
    with pytest.raises(UnsupportedFeature, match=told):
        cm.plan_convert(atlas, tmp_path / "old.zarr", format=format_, ome=version)
    cm.convert(atlas, tmp_path / "old.zarr", format=format_, ome=version, allow=["coordinate_systems"])
    group = cm.open_group(tmp_path / "old.zarr")
    (image,) = group.multiscales
    assert (image.version, image.name, image[0].scale) == (version, "brain", (0.5, 0.25))
    assert image.stored["metadata"] == {"method": "by hand"}
    assert image.systems == {}
    assert "coordinateSystems" not in str(group.attributes)
    assert model_of(tmp_path / "old.zarr") == "Image"


def test_a_crop_keeps_coordinate_systems(atlas, tmp_path):
    for name, options in {"a": {}, "b": {"ome": "0.6"}}.items():
        cm.convert(atlas, tmp_path / name, format="zarr3", region={"y": (4, 12), "x": (8, 16)}, **options)
        (image,) = cm.open_group(tmp_path / name).multiscales
        assert (image[0].scale, image[0].translation) == ((0.5, 0.25), (2, 2))
        assert image.within("stage")[0].translation == (102, 202)
        assert image.affines["atlas"] == ((2, 0.5, 3), (0, 1, 4))


def test_a_pyramid_keeps_coordinate_systems(atlas, tmp_path):
    cm.pyramid(atlas, tmp_path / "new.zarr", levels=2)
    (image,) = cm.open_group(tmp_path / "new.zarr").multiscales
    assert (image.version, [level.scale for level in image]) == ("0.6", [(0.5, 0.25), (1, 0.5)])
    assert image.stored["datasets"][1]["coordinateTransformations"][0]["output"] == {"name": "micro"}
    for name in ("coordinateSystems", "coordinateTransformations"):
        assert image.stored[name] == ome_zarr_0_6()["ome"]["multiscales"][0][name]
    assert image.within("stage")[1].translation == (100.25, 200.125)
    for options in ({"ome": "0.5"}, {"format": "zarr2"}, {"format": "n5", "codecs": "gzip"}):
        with pytest.raises(UnsupportedFeature, match="the coordinate systems 'same'"):
            cm.plan_pyramid(atlas, tmp_path / "old", **options)
    cm.convert(atlas, tmp_path / "old", format="zarr3", ome="0.5", allow=["coordinate_systems"])
    assert cm.open_group(tmp_path / "old").multiscales[0].version == "0.5"
    cm.pyramid((atlas, "s0"), levels=2)  # next to the first level
    (image,) = cm.open_group(atlas).multiscales
    assert (image.version, len(image), image.affines["atlas"][0]) == ("0.6", 2, (2, 0.5, 3))


def test_scenes_are_kept_by_0_6_alone(tmp_path):
    scene = {"coordinateTransformations": [{"type": "identity", "input": {"name": "a"}, "output": {"name": "b"}}]}
    url = str(tmp_path / "scene.zarr")
    cm.create_group(url, attributes={"ome": {"version": "0.6", "scene": scene}})
    cm.pyramid(VALUES[0], (url, "image"), ome="0.6")
    cm.convert(url, tmp_path / "copy.zarr", format="zarr3", ome="0.6")
    assert cm.open_group(tmp_path / "copy.zarr").attributes["ome"]["scene"] == scene
    with pytest.raises(UnsupportedFeature, match="a scene, which places images"):
        cm.plan_convert(url, tmp_path / "old.zarr", format="zarr3", ome="0.5")


def test_all_three_versions_say_the_same(scan, tmp_path):
    """From 0.4 to 0.5, 0.6 and back: the documents are those of the beginning."""
    places = [tmp_path / f"{number}.zarr" for number in range(6)]
    assert cm.convert(scan, places[0], format="zarr2", ome="0.4").actions == {"reframe": 20}
    first = cm.open_group(places[0], "a")
    assert (first.attributes["mine"], [level.scale for level in first.multiscales[0]]) == ("a", [(4, 1, 1), (4, 2, 2)])
    assert not first["s1"].attributes.keys() & {"downsamplingFactors", "pixelResolution"}
    assert (first.multiscales[0].axes[0].unit, first["s1"].metadata.chunk_keys.separator) == ("nanometer", "/")
    np.testing.assert_array_equal(first["s0"][...], VALUES)
    cm.open_group(places[0], "a", mode="r+").update_attributes({"omero": {"id": 1}})
    for old, new, version in zip(places, places[1:], ["0.6", "0.5", "0.6", "0.4", "0.6"], strict=False):
        cm.convert(old, new, format="zarr2" if version == "0.4" else "zarr3", ome=version)
    documents = [cm.open_group(place, "a").attributes for place in places]
    assert documents[0] == documents[4]
    assert documents[1] == documents[3] == documents[5] != documents[2]
    assert documents[1]["ome"]["omero"] == documents[0]["omero"] == {"id": 1}
    assert documents[1]["ome"]["multiscales"][0]["datasets"][1]["coordinateTransformations"] == [{
        "type": "sequence", "input": {"path": "s1"}, "output": {"name": "physical"}, "transformations": [
            {"type": "scale", "scale": [4.0, 2.0, 2.0]}, {"type": "translation", "translation": [0.0, 0.5, 0.5]},
        ],
    }]  # fmt: skip
    assert cm.open_array(places[5], "a/s1").dimension_names == ("z", "y", "x")
    filled(VALUES, scan, "notes", chunks=8, format="n5", codecs="gzip", attributes={"by": "me"})
    cm.convert(scan, tmp_path / "part.zarr", format="zarr2", ome="0.4", include=["a/s1", "notes"])
    part = cm.open_group(tmp_path / "part.zarr")
    (level,) = part["a"].multiscales[0]  # the one that is taken
    assert (level.array.path, level.scale) == ("a/s1", (4, 2, 2))
    assert part["notes"].attributes == {"by": "me"}  # of no image


def test_alternatives_of_spatialdata_become_coordinate_systems(tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "other_writers" / "spatialdata-0.7.3.zarr"
    with pytest.raises(UnsupportedFeature, match=r"OME-Zarr 0\.5 does not support the coordinate systems 'aligned'"):
        cm.plan_convert((golden, "images/affine"), tmp_path / "old.zarr", format="zarr3", ome="0.5")
    cm.convert((golden, "images/affine"), tmp_path / "new.zarr", format="zarr3", ome="0.6")
    (image,) = cm.open_group(tmp_path / "new.zarr").multiscales
    assert [each["name"] for each in image.stored["coordinateSystems"]] == ["cyx", "aligned", "global"]
    assert [axis["name"] for axis in image.stored["coordinateSystems"][1]["axes"]] == ["c", "x", "y"]
    assert image[1].scale == (1, 2, 2)
    assert image.within("global")[1].scale == (1, 1, 0.5)
    assert image.affines["aligned"] == ((1, 0, 0, 0), (0, 0.2, 1, 3), (0, 1, 0, 4))
    assert all(each["input"] == {"name": "cyx"} for each in image.stored["coordinateTransformations"])
    cm.pyramid((golden, "images/affine"), tmp_path / "levels.zarr", ome="0.6", levels=1)
    (made,) = cm.open_group(tmp_path / "levels.zarr").multiscales
    assert (made[0].scale, made.systems["global"][0][0]) == ((1, 1, 1), (1, 0.5, 0.25))
