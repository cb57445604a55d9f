"""The place of an image: of crops, of levels that are copied alone, of datasets of N5."""

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.images import VALUES

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


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


@cases(
    ("name", "region", "how"),
    [("zarr2", None, "convert"), ("n5", {"y": (4, 9)}, "convert"), ("zarr3", {"y": (4, 9)}, "rechunk")],
)
def test_a_level_that_is_copied_alone_keeps_voxels_and_place(source, tmp_path, name, region, how):
    cm.pyramid(source, tmp_path / "image", format=name, scale={"z": 2, "y": 0.5}, units="um", levels=2)
    level = "s1" if name == "n5" else "1"
    options = {"format": "zarr3"} if how == "convert" else {"chunks": (2, 6, 5, 5)}
    getattr(cm, how)((tmp_path / "image", level), tmp_path / "one", region=region, **options)
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
    options = {"format": name} if job == "convert" else {"chunks": {"y": 5}}
    getattr(cm, job)(tmp_path / "image", tmp_path / "part", region=region, **options)
    before, (image,) = cm.open_group(tmp_path / "image").multiscales[0], cm.open_group(tmp_path / "part").multiscales
    cuts = [np.s_[4:8, 5:16, 17:24], np.s_[2:4, 2:8, 8:12], np.s_[1:2, 1:4, 4:6]]
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
