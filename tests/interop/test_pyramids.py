"""Pyramids are read by others: OME-Zarr's libraries, zarr-python, TensorStore, z5py; and theirs by us.

``make test-all`` installs yaozarrs, ome-zarr-py, ngff-zarr and napari's reader; without them their tests are skipped.
"""

import json

import numpy as np
import pytest
import tensorstore as ts
import z5py
import zarr
from interop.environments import HERE, interpreter, run
from ome_zarr_models import open_ome_zarr
from support.datasets import ome_zarr_0_6

import chunkmill as cm

FACTORS = [(1, 2, 2), (2, 2, 2)]


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(0).integers(0, 255, (20, 40, 30), dtype="u1")


@pytest.fixture
def source(values, tmp_path):
    url = str(tmp_path / "source.zarr")
    cm.create_array(url, "a", shape=values.shape, dtype="u1", chunks=(8, 8, 8), codecs="gzip")[...] = values
    return url, "a"


def expected_levels(values):
    levels = [values]
    for factors in FACTORS:
        levels.append(ts.downsample(ts.array(levels[-1]), factors, "mean").read().result())
    return levels


@pytest.mark.parametrize(("name", "version", "shards"), [
    ("zarr2", "0.4", None), ("zarr3", "0.5", None), ("zarr3", "0.5", (16, 16, 16)),
])  # fmt: skip
def test_ome_zarr(  # noqa: PLR0917
    source, values, tmp_path, name, version, shards
):
    url = str(tmp_path / "image.zarr")
    cm.pyramid(source, url, format=name, factors=FACTORS, scale=(4, 1, 1), units="micrometer", shards=shards)
    image = open_ome_zarr(zarr.open_group(url, mode="r"))
    assert type(image).__name__ == "Image"
    datasets = (
        image.attributes.multiscales[0].datasets if version == "0.4" else image.ome_attributes.multiscales[0].datasets
    )
    assert [each.path for each in datasets] == ["0", "1", "2"]
    assert datasets[2].coordinateTransformations[0].scale == [8, 4, 4]
    driver = "zarr" if name == "zarr2" else "zarr3"
    for number, level in enumerate(expected_levels(values)):
        np.testing.assert_array_equal(zarr.open_group(url, mode="r")[str(number)][...], level)
        spec = {"driver": driver, "kvstore": f"file://{url}/{number}/"}
        np.testing.assert_array_equal(ts.open(spec, read=True).result().read().result(), level)


def test_n5(source, values, tmp_path):
    url = str(tmp_path / "image.n5")
    cm.pyramid(source, url, format="n5", factors=FACTORS, scale=(4, 1, 1), units="um", codecs="gzip")
    with z5py.File(url, "r") as file:
        for number, level in enumerate(expected_levels(values)):
            np.testing.assert_array_equal(file[f"s{number}"][...], level)
        assert file["s2"].attrs["downsamplingFactors"] == [4, 4, 2]
    for number, level in enumerate(expected_levels(values)):
        read = ts.open({"driver": "n5", "kvstore": f"file://{url}/s{number}/"}, read=True).result()
        np.testing.assert_array_equal(read.read().result().T, level)


def test_levels_that_z5py_wrote(tmp_path, values):
    """The layout of BigDataViewer and of N5-viewer, from another writer, to OME-Zarr."""
    url = str(tmp_path / "bdv.n5")
    with z5py.File(url, "w") as file:
        group = file.create_group("setup0/timepoint0")
        for number, level in enumerate(expected_levels(values)):
            group.create_dataset(f"s{number}", data=level, chunks=(8, 8, 8), compression="gzip")
        group["s1"].attrs["downsamplingFactors"] = [2, 2, 1]
        group["s2"].attrs["downsamplingFactors"] = [4, 4, 2]
        group.attrs["resolution"] = [1.0, 1.0, 4.0]
        group.attrs["multiScale"] = True
    (image,) = cm.open_group(url, "setup0/timepoint0").multiscales
    assert [level.scale for level in image] == [(4, 1, 1), (4, 2, 2), (8, 4, 4)]
    for level, expected in zip(image, expected_levels(values), strict=True):
        np.testing.assert_array_equal(level.array[...], expected)


def libraries(*arguments):
    """Run OME-Zarr's libraries in their own environment; return the last line that they print."""
    python = interpreter("ome", demanded=True, way="`make test-all` makes it")
    return (run(python, HERE / "images_of_ome_zarr.py", *arguments).splitlines() or [""])[-1]


CHANNELS = np.arange(3 * 8 * 32 * 32, dtype="u2").reshape(3, 8, 32, 32)
PLACES = [[1, 4, 0.5, 0.5], [0, 0, 10, 20]], [[1, 8, 1, 1], [0, 2, 10.25, 20.25]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each library reads in an image of three channels with labels, by version of OME-Zarr."""
    folder = tmp_path_factory.mktemp("ome")
    source = folder / "source.zarr"
    cm.to_store(CHANNELS, source, "a", chunks=(1, 8, 16, 16), dimension_names=("c", "z", "y", "x"))
    cm.to_store((CHANNELS[0] % 5).astype("u1"), source, "labels", chunks=(8, 16, 16), dimension_names=("z", "y", "x"))
    urls = {version: folder / f"image-{version}.zarr" for version in ("0.4", "0.5", "0.6")}
    for version, url in urls.items():
        cm.pyramid((source, "a"), url, format="zarr2" if version == "0.4" else "zarr3", ome=version, levels=2,
                   scale=(1, 4, 0.5, 0.5), translation=(0, 0, 10, 20), units="um", channels=["a", "b", "c"])  # fmt: skip
        cm.pyramid((source, "labels"), label_of=url, name="cells")
        cm.convert(url, folder / f"{version}.ozx", format="zarr3", ome="0.5" if version == "0.4" else version)
        urls[version] = url, folder / f"{version}.ozx"
    cm.create_group(folder / "atlas.zarr", attributes=ome_zarr_0_6())
    cm.to_store(CHANNELS[0, 0], folder / "atlas.zarr", "s0", dimension_names=("y", "x"))
    cm.pyramid(folder / "atlas.zarr", folder / "atlas-levels.zarr", levels=2)
    urls["systems"] = folder / "atlas.zarr", folder / "atlas-levels.zarr"
    found = json.loads(libraries("read", *(each for both in urls.values() for each in both)))
    return {version: [found[str(each)] for each in both] for version, both in urls.items()}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.4", "0.5", "0.6"])
def test_libraries_of_ome_zarr_read_images(answers, version):
    found, zipped = answers[version]
    for name in ("yaozarrs", "ome-zarr", "ngff-zarr"):
        if (name, version) == ("yaozarrs", "0.6"):
            assert "not implemented" in found[name]["error"]
            continue
        levels = [each for each in found[name] if "label" not in each]
        assert [[each["scale"], each["translation"]] for each in levels] == [*PLACES], name
        assert levels[0].get("sum", CHANNELS.sum()) == CHANNELS.sum()
    assert found["ome-zarr"][-1] == {"label": "cells"}
    units = [None, "micrometer", "micrometer", "micrometer"]
    assert all(each["units"] == units for each in found["ngff-zarr"])
    assert zipped["ngff-zarr"] == found["ngff-zarr"]
    image, labels = found["napari"]
    for each, kind in ((image, "image"), (labels, "labels")):
        assert (each["kind"], each["scale"], each["units"]) == (kind, [4, 0.5, 0.5], ["micrometer"] * 3)
        if version == "0.6":  # of older images it takes the first transformation alone
            assert each["translation"] == [0, 10, 20]
    assert image["names"] == [f"image-{version}: {each}" for each in "abc"]
    assert len(image["limits"]) == 3


@pytest.mark.slow
def test_libraries_read_images_with_coordinate_systems(answers):
    """ngff-zarr validates them by the schemas of the specification."""
    places = [([0.5, 0.25], [0, 0]), ([1, 0.5], [0.25, 0.125])]
    for n, found in enumerate(answers["systems"], 1):
        assert [(each["scale"], each["translation"]) for each in found["ngff-zarr"]] == places[:n]
        assert found["napari"][0]["scale"] == [0.5, 0.25]


@pytest.mark.slow
def test_images_of_libraries_of_ome_zarr_are_read(tmp_path):
    libraries("write", tmp_path)
    values = np.arange(8 * 32 * 32, dtype="u2").reshape(8, 32, 32)
    stores = sorted(path.name for path in tmp_path.iterdir())
    assert len(stores) == 6
    for store in stores:
        (image,) = cm.open_group(tmp_path / store).multiscales
        assert (image.version, image.name) == (store.split("-")[-1][:3], "cells")
        assert [(axis.name, axis.unit) for axis in image.axes] == [(name, "micrometer") for name in "zyx"]
        start = (0, 0) if store.startswith("ome-zarr") else (10, 20)  # its writer places the first voxel at 0
        places = [((4, 0.5, 0.5), (0, *start)), ((4, 1, 1), (0, start[0] + 0.25, start[1] + 0.25))]
        assert [(level.scale, level.translation) for level in image] == places[: len(image)]
        np.testing.assert_array_equal(image[0].array[...], values)
