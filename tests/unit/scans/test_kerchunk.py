"""FITS and GRIB: what is refused before kerchunk reads it."""

import numpy as np
import pytest

from chunkmill.errors import ScanError
from chunkmill.scans.kerchunk import parse_fits, parse_grib


def test_grib_of_edition_1_is_refused(tmp_path):
    pytest.importorskip("cfgrib")
    pytest.importorskip("kerchunk.grib2")
    (tmp_path / "x.grib").write_bytes(b"GRIB\0\0\0\x01" + bytes(60))
    with pytest.raises(ScanError, match="edition 1"):
        parse_grib(str(tmp_path / "x.grib"))


def test_the_scale_of_an_image_is_an_attribute(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    pytest.importorskip("kerchunk.fits")
    fits.PrimaryHDU(np.arange(6, dtype="u2").reshape(2, 3)).writeto(tmp_path / "x.fits")
    found = parse_fits(str(tmp_path / "x.fits"))
    assert b'"filters": null' in found.locate("PRIMARY/.zarray").data
    assert b'"add_offset": 32768' in found.locate("PRIMARY/.zattrs").data
    assert (found.locate("PRIMARY/0.0").offset, found.locate("PRIMARY/0.0").length) == (2880, 12)


def test_a_file_without_data_is_refused(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    pytest.importorskip("kerchunk.fits")
    fits.PrimaryHDU().writeto(tmp_path / "x.fits")
    with pytest.raises(ScanError, match="no extension has data"):
        parse_fits(str(tmp_path / "x.fits"))
