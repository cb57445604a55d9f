"""Variables of datasets, transformed with their labels: read again by xarray through both engines."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.ndimage import gaussian_filter

import chunkmill as cm
from chunkmill.errors import DatasetError, TransformError


@pytest.fixture
def ds():
    rng = np.random.default_rng(0)
    values = {name: (("time", "y", "x"), rng.normal(size=(10, 20, 30)).astype("f4"), {"units": "m/s"}) for name in "uv"}
    values["u"][1][2, 3, 4] = np.nan
    values["v"][1][5, 6, 7] = 0
    coords = {"time": pd.date_range("2026-01-01", periods=10), "y": np.arange(20), "lon": ("x", np.arange(30.0))}
    return xr.Dataset(values, coords=coords, attrs={"made": "here"})


@pytest.mark.parametrize("format_", ["zarr3", "zarr2", "n5"])
def test_labels_are_kept_and_every_reader_sees_the_same(ds, format_, tmp_path):
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    cm.write_dataset(ds, source, encoding={name: {"chunks": (5, 10, 30)} for name in "uv"})
    stored = xr.open_dataset(source, engine="chunkmill", chunks={})
    stored.chunkmill.transform(np.hypot, target, variables=["u", "v"], names=["speed"], format=format_)
    found = xr.open_dataset(target, engine="chunkmill")
    expected = np.hypot(ds.u, ds.v).drop_attrs().rename("speed")
    xr.testing.assert_equal(found.speed, expected)
    assert found.attrs == ds.attrs
    assert cm.open_array(target, "speed").chunks == (5, 10, 30)
    if format_ != "n5":
        xr.testing.assert_equal(xr.open_dataset(target, engine="zarr", consolidated=False).speed, expected)


def test_one_variable_keeps_its_name_and_attributes_and_resumes(ds, tmp_path):
    target, calls = str(tmp_path / "target"), []

    def smooth(block):
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("first")
        return gaussian_filter(block, 1, axes=(1, 2))

    def run():
        return ds.chunkmill.transform(
            smooth, target, variables=["v"], halo={"y": 4, "x": 4}, dtype="f4", fingerprint="smooth"
        )

    with pytest.raises(TransformError, match="first"):
        run()
    assert sorted(xr.open_dataset(target, engine="chunkmill").coords) == ["lon", "time", "y"]
    run()
    found = xr.open_dataset(target, engine="chunkmill").v
    np.testing.assert_array_equal(found, gaussian_filter(ds.v.to_numpy(), 1, axes=(1, 2)))
    assert found.attrs == {"units": "m/s"}


def test_what_does_not_go_together_is_refused(ds, tmp_path):
    target = str(tmp_path / "target")
    with pytest.raises(DatasetError, match=r"nothing says what its results are called; give names="):
        ds.chunkmill.transform(np.hypot, target)
    ds.chunkmill.transform(np.negative, target, variables=["u"])
    with pytest.raises(DatasetError, match=r"variable 'y' in .*: other coordinates are stored there"):
        ds.assign_coords(y=np.arange(20) + 1).chunkmill.transform(np.negative, target, variables=["v"])
    ds.chunkmill.transform(np.negative, target, variables=["v"])
    assert sorted(xr.open_dataset(target, engine="chunkmill").data_vars) == ["u", "v"]


@pytest.mark.parametrize(
    ("function", "options", "coords"),
    [
        (lambda u: u.mean(axis=0), {"dimension_names": ("y", "x")}, ["lon", "y"]),
        (lambda u: u.max(axis=(0, 1)), {"dimension_names": ["x"]}, ["lon"]),
        (lambda u: u[..., None], {"dimension_names": ("time", "y", "x", "band"), "shape": (10, 20, 30, 1)},
         ["lon", "time", "y"]),
    ],
    ids=["without time", "one dimension", "another dimension"],
)  # fmt: skip
def test_coordinates_of_dimensions_that_go_are_left_out(ds, function, options, coords, tmp_path):
    ds.chunkmill.transform(function, str(tmp_path / "t"), variables="u", **options)
    found = xr.open_dataset(str(tmp_path / "t"), engine="chunkmill")
    assert sorted(found.coords) == coords
    np.testing.assert_array_equal(found.u, function(ds.u.to_numpy()))


def test_results_of_several_dimensions_keep_the_coordinates_of_each(ds, tmp_path):
    ds.chunkmill.transform(
        lambda u: (u.mean(axis=(1, 2)), u.mean(axis=(0, 2))), str(tmp_path / "t"),
        variables=["u"], names=["series", "profile"], dimension_names=[("time",), ("y",)],
    )  # fmt: skip
    found = xr.open_dataset(str(tmp_path / "t"), engine="chunkmill")
    assert (found.series.dims, found.profile.dims, sorted(found.coords)) == (("time",), ("y",), ["time", "y"])


def test_a_dimension_with_coordinates_keeps_its_length(ds, tmp_path):
    def every_second(region):
        time, *others = region
        return (slice(2 * time.start, 2 * time.stop), *others)

    def run(data):
        options = {"variables": ["u"], "source_region": every_second, "shape": (5, 20, 30)}
        return data.chunkmill.transform(lambda u: u[::2], str(tmp_path / "t"), **options)

    with pytest.raises(
        DatasetError, match=r"variable 'time' .*: it would have 5 elements, and its coordinates have 10"
    ):
        run(ds)
    assert not (tmp_path / "t").exists()
    run(ds.drop_vars("time"))
    np.testing.assert_array_equal(xr.open_dataset(str(tmp_path / "t"), engine="chunkmill").u, ds.u[::2])


def test_one_name_may_be_a_text(ds, tmp_path):
    ds.chunkmill.transform(np.hypot, str(tmp_path / "t"), names="speed")
    ds.rename(u="wind").chunkmill.transform(np.negative, str(tmp_path / "t"), variables="wind")
    assert sorted(xr.open_dataset(str(tmp_path / "t"), engine="chunkmill").data_vars) == ["speed", "wind"]


def test_other_words_and_whole_datasets_are_explained(ds, tmp_path):
    with pytest.raises(TypeError, match="did you mean halo=2"):
        ds.chunkmill.transform(np.negative, str(tmp_path / "t"), variables=["u"], depth=2)
    with pytest.raises(TypeError, match=r"a source is a Dataset: give a variable"):
        cm.plan_transform(np.negative, ds, str(tmp_path / "b"))
