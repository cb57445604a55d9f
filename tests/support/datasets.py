"""Datasets that several test modules write and read back."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from packaging.version import Version

from chunkmill.errors import DatasetError
from chunkmill.xarray.write import write_dataset

LAYOUTS = {name: {"format": name} for name in ("zarr2", "zarr3", "zarr3-draft", "n5")}


def needs_xarray(version, reason):
    """Skip the test where xarray is older, and why what it asks for is xarray's."""
    if Version(xr.__version__) < Version(version):
        pytest.skip(f"xarray {xr.__version__}: {reason}")


def read(url, **kwargs):
    return xr.open_dataset(url, engine="chunkmill", **kwargs)


def read_by_xarray(url, **kwargs):
    return xr.open_dataset(url, engine="zarr", **kwargs)


def refused(match, *args, error=DatasetError, **options):
    """`write_dataset` with these arguments is an error that says this."""
    with pytest.raises(error, match=match):
        write_dataset(*args, **options)


def series(n=5, start="2000-01-01", **encoding):
    """n days of a small field; values tell where they are."""
    time = pd.date_range(start, periods=n)
    first = (time[0] - pd.Timestamp("2000-01-01")).days
    values = (first + np.arange(n))[:, None] * 100.0 + np.arange(4) + 1
    ds = xr.Dataset(
        {"v": (("time", "x"), values.astype("f4"), {"units": "K"}), "mask": ("x", np.array([1, 2, 3, 4], "i2"))},
        coords={"time": time, "x": np.arange(4) * 10},
        attrs={"title": "a series"},
    )
    ds.time.encoding = {"units": "days since 2000-01-01", "dtype": "int64", **encoding}
    return ds


LATER = series(3, "2000-01-06")


def is_alive(store, *extents):
    """Every way to read must find one of these numbers of days, whole; return whether it is the first of them."""
    for consolidated in (None, False):
        found = read(store, consolidated=consolidated).load()
        assert found.sizes["time"] in extents
        xr.testing.assert_identical(found, series(found.sizes["time"]))
    return found.sizes["time"] == extents[0]


def tree():
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(coords={"x": [10, 20]}, attrs={"root": 1}),
            "/a": xr.Dataset({"v": ("x", [1.5, 2.5])}),
            "/a/deep": xr.Dataset({"w": ("t", pd.date_range("2000-01-01", periods=3))}),
            "/b": xr.Dataset(attrs={"empty": 1}),
        }
    )


def temperatures():
    rng = np.random.default_rng(3)
    return xr.Dataset(
        {
            "temperature": (("time", "y", "x"), rng.normal(280, 9, (7, 6, 5)).astype("f4"), {"units": "K"}),
            "count": (("y", "x"), rng.integers(0, 99, (6, 5)) * 2.0, {"valid_range": [0, 99]}),
            "label": ("y", np.array(["a", "bb", "", "dddd", "é", "日本"])),
            "text": ("y", np.array(["a", "bb", "", "dddd", "é", "日本"], object)),
            "flag": ("x", np.array([True, False, True, True, False])),
            "raw": ("x", np.array([b"ab", b"", b"c", b"dd", b"e"])),
            "z": ("x", np.array([1 + 2j, 0, 3j, -1, 2], "c8")),
            "unsigned": ("x", np.array([0, 1, 200, 255, 3], "u1")),
            "scalar": ((), 3.5, {"long_name": "one number"}),
        },
        coords={
            "time": pd.date_range("2001-02-03", periods=7, freq="6h"),
            "y": np.arange(6.0)[::-1],
            "height": ("y", np.arange(6)),
            "reference_time": pd.Timestamp("2001-01-01"),
        },
        attrs={"title": "made up", "n": 3},
    )


def write_temperatures(path, zarr_format):
    """Write `temperatures` by xarray's own engine, some of it packed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoding = {
            "temperature": {"chunks": (3, 6, 2)},
            "count": {"dtype": "i2", "_FillValue": -1, "scale_factor": 2.0},
        }
        temperatures().to_zarr(path, zarr_format=zarr_format, encoding=encoding)
    return path


def ome_zarr_0_6(version="0.6"):
    """An image with one coordinate system for each kind of transformation, laid out by hand from the specification."""
    own = [{"name": name, "type": "space", "unit": "micrometer", "discrete": False} for name in "yx"]
    plain = [{"name": name, "type": "space"} for name in "yx"]
    steps = [{"type": "scale", "scale": [2.0, 2.0]}, {"type": "rotation", "rotation": [[0.0, -1.0], [1.0, 0.0]]}]
    kinds = {
        "same": {"type": "identity"},
        "stage": {"type": "translation", "translation": [100.0, 200.0]},
        "atlas": {"type": "affine", "affine": [[2.0, 0.5, 3.0], [0.0, 1.0, 4.0]]},
        "turned": {"type": "rotation", "rotation": [[0.0, -1.0], [1.0, 0.0]]},
        "steps": {"type": "sequence", "transformations": steps},
        "field": {"type": "displacements", "path": "coordinateTransformations/field"},
    }
    between = [{**kind, "input": {"name": "micro"}, "output": {"name": name}} for name, kind in kinds.items()]
    between.append({"type": "scale", "scale": [0.5, 0.25], "input": {"name": "voxels"}, "output": {"name": "micro"}})
    path = {"name": "micro", "path": "labels/cells"}
    between.append({"type": "identity", "input": {"name": "micro"}, "output": path})
    to = {"input": {"path": "s0"}, "output": {"name": "micro"}}
    image = {
        "coordinateSystems": [{"name": "micro", "axes": own}]
        + [{"name": name, "axes": plain} for name in (*kinds, "voxels")],
        "datasets": [{"path": "s0", "coordinateTransformations": [{"type": "scale", "scale": [0.5, 0.25], **to}]}],
        "coordinateTransformations": between,
        "name": "brain",
        "metadata": {"method": "by hand"},
    }
    return {"ome": {"version": version, "multiscales": [image]}, "mine": 1}


def repository_of_virtual_chunks(folder):
    """Return a repository of Icechunk in `folder` that may read what is in its folder ``data``."""
    icechunk = pytest.importorskip("icechunk")
    prefix = f"file://{folder}/data/"
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(f"{folder}/data")
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    access = icechunk.containers_credentials({prefix: None})
    storage = icechunk.local_filesystem_storage(f"{folder}/repository")
    made = icechunk.Repository.create(storage, config=config, authorize_virtual_chunk_access=access)
    made.save_config()
    return made
