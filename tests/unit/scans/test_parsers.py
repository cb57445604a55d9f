"""Kinds of files besides netCDF, by the parsers of other packages: values as the format's own readers have them."""

import warnings

import numpy as np
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import ScanError

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
h5py = pytest.importorskip("h5py")
pytest.importorskip("virtualizarr", reason="of the extra `scan`")
RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 2000, (64, 96)).astype("u2")


def scanned(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cm.scan(path, f"{path}.json", **options)
    return cm.open_group(f"{path}.json")


# --------------------------------------------------------------------------------------------------------------------
# TIFF, judged by tifffile


TIFFS = {
    "big_endian": (IMAGE, {"byteorder": ">"}),
    "lzw_predictor": (IMAGE, {"tile": (32, 16), "compression": "lzw", "predictor": True}),
    "float_predictor": (IMAGE.astype("f4") / 3, {"tile": (32, 32), "compression": "zlib", "predictor": True}),
    "planes": (
        RNG.random((3, 64, 96)).astype("f4"),
        {"tile": (32, 32), "planarconfig": "separate", "photometric": "minisblack"},
    ),
    "pixels": (
        RNG.integers(0, 255, (64, 96, 3)).astype("u1"),
        {"tile": (32, 32), "photometric": "rgb", "compression": "zlib"},
    ),
}


@cases("kind", TIFFS)
def test_tiff(kind, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("virtual_tiff")
    values, options = TIFFS[kind]
    tifffile.imwrite(tmp_path / "x.tif", values, **options)
    expected = tifffile.imread(tmp_path / "x.tif")
    found = scanned(tmp_path / "x.tif")["0"]
    values = np.moveaxis(found[...], 0, -1) if kind == "pixels" else found[...]
    np.testing.assert_array_equal(values, expected)


# --------------------------------------------------------------------------------------------------------------------
# FITS, judged by astropy


@pytest.fixture
def fits():
    return pytest.importorskip("astropy.io.fits")


def test_all_images_and_tables_of_a_fits_file(fits, tmp_path):
    table = fits.BinTableHDU.from_columns(
        [fits.Column("t", "D", array=RNG.random(5)), fits.Column("n", "J", array=np.arange(5))], name="EVENTS"
    )
    scaled = fits.ImageHDU(np.arange(20, dtype="i2").reshape(4, 5), name="SCALED")
    hdus = [
        fits.PrimaryHDU(RNG.random((10, 12)).astype("f4")),
        fits.ImageHDU(IMAGE, name="UNSIGNED"),  # stored as signed, with an offset
        scaled,
        fits.ImageHDU(np.arange(6, dtype="i8"), name="LINE"),
        table,
    ]
    fits.HDUList(hdus).writeto(tmp_path / "x.fits")
    with fits.open(tmp_path / "x.fits", mode="update", do_not_scale_image_data=True) as opened:
        opened["SCALED"].header["BSCALE"] = 0.25
        opened["SCALED"].header["BZERO"] = 10.0
    group = scanned(tmp_path / "x.fits")
    with fits.open(tmp_path / "x.fits") as opened:
        for name in ("PRIMARY", "UNSIGNED", "SCALED", "LINE"):
            found = xr.load_dataset(tmp_path / "x.fits.json", engine="chunkmill", group=name)
            np.testing.assert_array_equal(found[name].values, opened[name].data)
        for name in ("t", "n"):
            np.testing.assert_array_equal(group["EVENTS"][...][name], opened["EVENTS"].data[name])


def odd_table(fits):
    flags = fits.Column("flags", "2L", array=[[True, False], [True, True]])
    lengths = fits.Column("lengths", "PJ()", array=np.array([[1], [2, 3]], object))
    scaled = fits.Column("scaled", "J", bzero=2**31, array=np.array([1, 2], "u4"))
    return fits.BinTableHDU.from_columns([flags, lengths, scaled, fits.Column("n", "J", array=[1, 2])], name="ODD")


def test_what_fits_stores_otherwise_is_refused_by_name(fits, tmp_path):
    odd = {
        "it is compressed": fits.CompImageHDU(IMAGE.astype("i4"), name="ODD"),
        r"its columns \['flags', 'lengths', 'scaled'\] are stored otherwise": odd_table(fits),
        "it is a table in text": fits.TableHDU.from_columns([fits.Column("n", "I5", array=[1, 2])], name="ODD"),
        "several extensions of that name": fits.ImageHDU(IMAGE, name="ODD"),
    }
    for number, (why, hdu) in enumerate(odd.items()):
        path = tmp_path / f"{number}.fits"
        more = [fits.ImageHDU(IMAGE, name="ODD")] if "several" in why else []
        fits.HDUList([fits.PrimaryHDU(IMAGE), hdu, *more]).writeto(path)
        with pytest.raises(ScanError, match=rf"'ODD' cannot be referenced: .*{why}.*drop_variables=\['ODD'\]"):
            scanned(path)
        assert list(scanned(path, drop_variables="ODD")) == ["PRIMARY"]


# --------------------------------------------------------------------------------------------------------------------
# GRIB, judged by cfgrib


def write_grib(path, *messages, sample="regular_ll_pl_grib2"):
    eccodes = pytest.importorskip("eccodes")
    with path.open("wb") as file:
        for keys in messages:
            handle = eccodes.codes_grib_new_from_samples(sample)
            for key, value in keys.items():
                eccodes.codes_set(handle, key, value)
            n = eccodes.codes_get(handle, "numberOfValues")
            eccodes.codes_set_values(handle, RNG.normal(280, 5, n))
            eccodes.codes_write(handle, file)
            eccodes.codes_release(handle)


def test_grib(tmp_path):
    pytest.importorskip("cfgrib")
    about = {"level": 850, "stepRange": 6, "dataDate": 20260101, "dataTime": 0}
    write_grib(tmp_path / "x.grib2", {"shortName": "t", **about}, {"shortName": "u", **about})
    scanned(tmp_path / "x.grib2")
    found = xr.load_dataset(tmp_path / "x.grib2.json", engine="chunkmill")
    expected = xr.load_dataset(tmp_path / "x.grib2", engine="cfgrib", backend_kwargs={"indexpath": ""})
    for name in ("t", "u", "latitude", "longitude", "isobaricInhPa", "time", "step", "valid_time"):
        np.testing.assert_allclose(found[name].values.astype("f8"), expected[name].values.astype("f8"), rtol=1e-6)
        assert found[name].attrs.get("units") == expected[name].attrs.get("units")
    assert found.t.attrs["GRIB_name"] == expected.t.attrs["GRIB_name"]


def test_messages_that_kerchunk_would_drop_or_cut_wrongly_are_refused(tmp_path):
    pytest.importorskip("cfgrib")
    write_grib(tmp_path / "levels.grib2", {"shortName": "t", "level": 850}, {"shortName": "t", "level": 500})
    with pytest.raises(ScanError, match=r"several messages are of the variable 't'.*kerchunk.grib2.scan_grib"):
        scanned(tmp_path / "levels.grib2")
    write_grib(tmp_path / "other.grib2", {"shortName": "t", "level": 850}, {"shortName": "u", "level": 500})
    with pytest.raises(ScanError, match="different values of 'isobaricInhPa'"):
        scanned(tmp_path / "other.grib2")
    write_grib(tmp_path / "old.grib", {}, sample="regular_ll_sfc_grib1")
    with pytest.raises(ScanError, match="it is GRIB of edition 1: kerchunk reads edition 2 alone"):
        scanned(tmp_path / "old.grib")


# --------------------------------------------------------------------------------------------------------------------
# Others


def test_a_zarr_store_is_no_file(tmp_path):
    cm.create_array(tmp_path / "x.zarr", "v", shape=(4,), dtype="i4")
    with pytest.raises(ScanError, match=r"it is a Zarr store, not a file to scan: `to_references` writes"):
        cm.scan(tmp_path / "x.zarr", tmp_path / "x.json")


def test_dmrpp(tmp_path):
    """Written here, by the places that h5py tells, as OPeNDAP's tool is not a package of Python."""
    values = np.arange(12, dtype="f4").reshape(3, 4)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        offset = file.create_dataset("v", data=values).id.get_offset()
    (tmp_path / "x.h5.dmrpp").write_text(
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" '
        'xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" dapVersion="4.0" dmrVersion="1.0" name="x.h5" '
        'dmrpp:href="OPeNDAP_DMRpp_DATA_ACCESS_URL" dmrpp:version="3.20.9">'
        '<Dimension name="y" size="3"/><Dimension name="x" size="4"/><Float32 name="v"><Dim name="/y"/><Dim name="/x"/>'
        '<Attribute name="units" type="String"><Value>m</Value></Attribute><dmrpp:chunks fillValue="0" byteOrder="LE">'
        f'<dmrpp:chunk offset="{offset}" nBytes="{values.nbytes}"/></dmrpp:chunks></Float32></Dataset>'
    )
    found = scanned(tmp_path / "x.h5.dmrpp")["v"]
    np.testing.assert_array_equal(found[...], values)
    assert found.attributes["units"] == "m"
    assert found.dimension_names == ("y", "x")


def test_hdf4_is_refused_by_name(tmp_path):
    (tmp_path / "x.hdf").write_bytes(b"\x0e\x03\x13\x01" + bytes(60))
    with pytest.raises(ScanError, match="it is HDF4: VirtualiZarr has no parser of it"):
        scanned(tmp_path / "x.hdf")


@cases(
    ("head", "module", "packages"),
    [
        (b"II*\0", "virtual_tiff", "virtual-tiff imagecodecs-numcodecs"),
        (b"SIMPLE  =", "astropy.io.fits", "astropy"),
        (b"GRIB\0\0\0\x02", "cfgrib", "cfgrib eccodes"),
    ],
)
def test_a_parser_that_is_not_installed_is_named(monkeypatch, tmp_path, head, module, packages):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    if module == "cfgrib":
        monkeypatch.setitem(__import__("sys").modules, "eccodes", __import__("types"))
    (tmp_path / "x.bin").write_bytes(head + bytes(60))
    with pytest.raises(ScanError, match=rf"needs the package {module}: pip install 'chunkmill\[scan\]' {packages}"):
        scanned(tmp_path / "x.bin")
