"""Sources that are computed: arrays in memory, of Dask and of xarray, whose coordinates say the place, and stacks."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.images import DIMS, VALUES

import chunkmill as cm
from chunkmill.pyramids.computed import _place, open_image_source
from chunkmill.stores.memory import MemoryStore


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
    axes = [(axis.name, axis.type, axis.unit) for axis in image.axes]
    assert axes == [("c", "channel", None), *((each, "space", "micrometer") for each in "zyx")]
    assert image[0].scale == (1, 2, 0.5, 0.5)
    cm.pyramid([xr.DataArray(values, dims=("z", "y", "x")) for values in VALUES], tmp_path / "labelled")
    np.testing.assert_array_equal(cm.open_array(tmp_path / "labelled", "0")[...], VALUES)


def make(shape=(4, 4), path="scan/s0", **options):
    return cm.create_array(MemoryStore(), path, shape=shape, dtype="u1", chunks=shape, **options)


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
