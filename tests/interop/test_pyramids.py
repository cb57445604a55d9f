"""Pyramids are read by others: OME-Zarr's validators, zarr-python, TensorStore, z5py; and theirs by us."""

import json

import numpy as np
import pytest
import tensorstore as ts
import z5py
import zarr
from ome_zarr_models import open_ome_zarr

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
    target = str(tmp_path / "image.zarr")
    cm.pyramid((url, "setup0/timepoint0"), target, format="zarr3", factors=FACTORS)
    stored = json.loads((tmp_path / "image.zarr" / "zarr.json").read_text())["attributes"]["ome"]["multiscales"][0]
    assert stored["datasets"][1]["coordinateTransformations"][0]["scale"] == [4, 2, 2]
