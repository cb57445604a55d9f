"""netCDF3, FITS and GRIB: what kerchunk would say wrongly is mended, or refused."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import ScanError
from chunkmill.scans.kerchunk import parse_fits, parse_grib


def test_a_file_without_data_is_refused(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    pytest.importorskip("kerchunk.fits")
    fits.PrimaryHDU().writeto(tmp_path / "x.fits")
    with pytest.raises(ScanError, match="no extension has data"):
        parse_fits(str(tmp_path / "x.fits"), {}, ())


def test_a_file_without_messages_is_refused(tmp_path, monkeypatch):
    for name in ("eccodes", "cfgrib", "kerchunk.grib2"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(scan_grib=lambda *_, **__: []))
    (tmp_path / "x.grib2").write_bytes(b"GRIB\0\0\0\2")
    with pytest.raises(ScanError, match="it has no messages"):
        parse_grib(str(tmp_path / "x.grib2"), {})


@pytest.mark.filterwarnings("ignore:variable 'v' has multiple fill values")  # of xarray
def test_attributes_and_fill_values_of_netcdf3(tmp_path):
    netcdf = pytest.importorskip("scipy.io").netcdf_file
    with netcdf(tmp_path / "x.nc", "w") as made:
        made.place = "caf\u00e9".encode("latin-1")
        made.createDimension("t", None)
        made.createDimension("x", 3)
        values = {"v": np.array([[1, -1, -2]], "i2"), "c": np.array([[b"a", b"b", b"c"]]), "f": np.full((1, 3), np.nan)}
        for name, each in values.items():
            made.createVariable(name, each.dtype, ("t", "x"))[:] = each
        made.createVariable("scalar", "f8", ())[...] = 5
        v, c, f = (made.variables[name] for name in values)
        v._FillValue, v.missing_value, v.valid_range = np.int16(-1), np.int16(-2), np.array([0, 9], "i2")
        v.scale_factor, v.units = np.float64(0.5), ""
        c._FillValue, f._FillValue = b"b", np.nan
    cm.scan(tmp_path / "x.nc", tmp_path / "x.json")
    group = cm.open_group(tmp_path / "x.json")
    assert group.attributes == {"place": "caf\u00e9"}
    expected_attributes = {"missing_value": -2, "valid_range": [0, 9], "scale_factor": 0.5, "units": ""}
    assert {name: group["v"].attributes[name] for name in expected_attributes} == expected_attributes
    assert group["scalar"][...] == 5
    expected = xr.load_dataset(tmp_path / "x.nc", engine="scipy")
    found = xr.load_dataset(tmp_path / "x.json", engine="chunkmill")
    xr.testing.assert_equal(found, expected)
    assert np.isnan(found.v.values).tolist() == [[False, True, True]]
    for target in ("zarr2", "zarr3"):
        cm.convert(tmp_path / "x.nc", tmp_path / target, format=target)
        converted = xr.load_dataset(tmp_path / target, engine="zarr", consolidated=False)
        xr.testing.assert_equal(converted[["v", "f", "scalar"]], expected[["v", "f", "scalar"]])


def write_netcdf3(path, dtype, fill_value):
    """Write v, with a fill value, and w."""
    with pytest.importorskip("scipy.io").netcdf_file(path, "w") as made:
        made.createDimension("x", 3)
        for name in ("v", "w"):
            made.createVariable(name, dtype, ("x",))[:] = np.array([0, 1, -32767]).astype(dtype)
        made.variables["v"]._FillValue = fill_value


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of scipy, which writes the file
@pytest.mark.filterwarnings("ignore:variable 'v' has non-conforming '_FillValue'")  # of xarray
@cases(
    ("dtype", "value", "fill", "attribute"),
    [
        (">i2", np.float64(-32767), -32767, None),  # xarray's eraint_uvz.nc
        (">i2", np.float64(1.5), None, 1.5),
        ("i1", np.float64("nan"), None, None),
        ("i1", np.int32(300), None, 300),
        (">f4", np.float64(-1), -1.0, None),
    ],
)
def test_fill_values_of_another_type_in_netcdf3(tmp_path, dtype, value, fill, attribute):
    write_netcdf3(tmp_path / "x.nc", dtype, value)
    cm.scan(tmp_path / "x.nc", tmp_path / "x.json")
    array = cm.open_array(tmp_path / "x.json", "v")
    assert (array.fill_value, array.attributes.get("_FillValue")) == (fill, attribute)
    expected = xr.load_dataset(tmp_path / "x.nc", engine="scipy").v.values
    found = xr.load_dataset(tmp_path / "x.json", engine="chunkmill").v.values
    assert np.array_equal(found, expected, equal_nan=True)


@cases(("dtype", "value"), [("i2", np.array([0, 1], "i2")), ("S1", np.int32(3)), ("S1", b"ab")])
def test_fill_values_that_are_refused_in_netcdf3_can_be_left_out(tmp_path, dtype, value):
    write_netcdf3(tmp_path / "x.nc", dtype, value)
    with pytest.raises(ScanError, match=r"'v' cannot be referenced.*drop_variables=\['v'\]"):
        cm.scan(tmp_path / "x.nc", tmp_path / "x.json")
    cm.scan(tmp_path / "x.nc", tmp_path / "x.json", drop_variables=["v"])
    assert list(cm.open_group(tmp_path / "x.json")) == ["w"]
