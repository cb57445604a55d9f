"""Scans of files that packages ship with themselves, against the engines of xarray for netCDF3, netCDF4 and HDF5."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import chunkmill as cm

pytestmark = [pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")]
# of xarray: a variable of SciPy's has two values that stand for missing elements
pytestmark += [pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")]
pytest.importorskip("virtualizarr", reason="of the extra `scan`")


def files_of(package, below):
    found = importlib.util.find_spec(package)
    root = Path(found.submodule_search_locations[0]) if found is not None else Path("none")
    return sorted(path for path in (root / below).rglob("*") if path.suffix in {".nc", ".h5"})


FILES = [
    *files_of("iris_sample_data", "sample_data"),
    *files_of("scipy", "io/tests/data"),
    *files_of("xarray", "tests/data"),
    *files_of("h5py", "tests/data_files"),
]


def opened_by_xarray(path):
    if path.read_bytes()[:3] == b"CDF":
        return xr.load_dataset(path, engine="scipy", decode_timedelta=False)
    return xr.load_dataset(path, engine="h5netcdf", decode_timedelta=False, phony_dims="sort")


def plain(value):
    """An attribute as JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    found = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def plain_attributes(node):
    return {name: plain(value) for name, value in node.attrs.items()}


def assert_same(found, expected):
    assert list(found.attrs) == list(expected.attrs)
    assert plain_attributes(found) == plain_attributes(expected)
    assert set(found.variables) == set(expected.variables)
    assert set(found.coords) == set(expected.coords)
    for name, variable in expected.variables.items():
        other = found.variables[name]
        assert other.dims == variable.dims or "phony_dim_0" in variable.dims
        text = set("OTU")
        assert other.dtype.kind == variable.dtype.kind or {other.dtype.kind, variable.dtype.kind} <= text
        assert xr.Variable(variable.dims, other.values.astype(variable.dtype)).equals(variable), name
        # JSON has no complex numbers: they are texts
        has_complex = any(isinstance(value, np.complexfloating) for value in variable.attrs.values())
        assert has_complex or plain_attributes(other) == plain_attributes(variable)
        for key in ("_FillValue", "missing_value", "scale_factor", "add_offset"):
            np.testing.assert_equal(plain(other.encoding.get(key)), plain(variable.encoding.get(key)))


def test_there_are_files_of_both_kinds():
    pytest.importorskip("iris_sample_data")
    assert len({path.name for path in FILES}) >= 15
    assert {path.read_bytes()[:3] for path in FILES} == {b"CDF", b"\x89HD"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-4]}-{path.stem}")
def test_values_coordinates_and_attributes(path, tmp_path):
    expected = opened_by_xarray(path)
    for target in ("x.json", "x.parquet"):
        cm.scan(path, tmp_path / target)
        assert cm.open(tmp_path / target).format == "zarr2"  # which other readers of sets find the chunks of
        assert_same(xr.load_dataset(tmp_path / target, engine="chunkmill", decode_timedelta=False), expected)
    assert_same(xr.load_dataset(path, engine="chunkmill", decode_timedelta=False), expected)
    own = {"storage_options": {"fo": str(tmp_path / "x.json"), "remote_protocol": "file"}, "consolidated": False}
    by_fsspec = xr.load_dataset("reference://", engine="zarr", backend_kwargs=own, decode_timedelta=False)
    for name, variable in expected.variables.items():
        assert xr.Variable(variable.dims, by_fsspec[name].values.astype(variable.dtype)).equals(variable), name
    cm.convert(path, tmp_path / "x.zarr", format="zarr3")
    with xr.open_dataset(tmp_path / "x.zarr", engine="zarr", consolidated=False, decode_timedelta=False) as converted:
        for name, variable in expected.variables.items():
            if name != "var6_char":  # in Zarr v3, xarray knows no fill value of bytes
                np.testing.assert_array_equal(converted[name].values, variable.values, name)


def test_months_that_a_model_wrote_are_joined(tmp_path):
    files = [path for path in FILES if path.parent.name == "NEMO"]
    if not files:
        pytest.skip("iris-sample-data is not installed")
    cm.scan(files, tmp_path / "all.json", concat_dim="time_counter", order="names")
    found = xr.load_dataset(tmp_path / "all.json", engine="chunkmill", decode_timedelta=False)
    expected = xr.concat([opened_by_xarray(path) for path in files], "time_counter", data_vars="minimal")
    xr.testing.assert_equal(found, expected.transpose("time_counter", ...))
