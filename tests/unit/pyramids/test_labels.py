"""Labels below their image; channels of an image, and the windows that they are shown in."""

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.images import VALUES

import chunkmill as cm
from chunkmill.errors import UnsupportedFeature
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import Axis, Multiscale
from chunkmill.pyramids.labels import with_windows

pytestmark = pytest.mark.usefixtures("one_thread")


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
        start, end = map(pytest.approx, np.percentile(values, (0.1, 99.9)))
        assert channel["window"] == {"min": values.min(), "max": values.max(), "start": start, "end": end}
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


def test_labels_are_as_their_image(source, tmp_path):
    cm.pyramid(source, tmp_path / "image", scale=0.5)
    cm.to_store((VALUES[0] > 9).astype("u1"), tmp_path / "cells.zarr", "0", chunks=(4, 8, 8))
    for options in ({"format": "zarr2"}, {"ome": "0.4"}):
        with pytest.raises(ValueError, match="labels are as their image, zarr3 and OME-Zarr"):
            cm.plan_pyramid((tmp_path / "cells.zarr", "0"), label_of=tmp_path / "image", **options)
    cm.pyramid((tmp_path / "cells.zarr", "0"), label_of=tmp_path / "image")  # named by what is no number
    assert cm.open_group(tmp_path / "image", "labels").attributes["ome"]["labels"] == ["cells"]


IMAGE = Multiscale((Axis("c", "channel"), Axis("y", "space"), Axis("x", "space")), (), "0.5")


@cases("omero", [3, {}, {"channels": "x"}, {"channels": [{"window": {"start": 1}}]}])
def test_what_needs_no_window_is_left(omero):
    group = GroupMetadata({"omero": omero})
    assert with_windows(group, IMAGE, filled(np.ones((2, 2, 2))).stored) is group


def test_values_that_are_not_finite_have_no_window():
    group = GroupMetadata({"ome": {"omero": {"channels": [{}]}}})
    group = with_windows(group, IMAGE, filled(np.full((1, 2, 2), np.nan)).stored)
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
