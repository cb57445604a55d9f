"""Files of web servers and object stores as reference sets, which clients of fsspec read."""

import fsspec
import pytest
import xarray as xr
from support.netcdf_files import opened_by_xarray, write_part, write_parts
from support.servers import WARNINGS

import chunkmill as cm

pytestmark = [*WARNINGS, pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")]
pytest.importorskip("virtualizarr", reason="of the extra `scan`")


def test_files_of_a_web_server(http_server, tmp_path):
    _, expected = write_parts(http_server.folder, 2)
    urls = [f"{http_server.url}/{number}.nc" for number in range(2)]
    cm.scan(urls, tmp_path / "all.json", concat_dim="time")
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "all.json", engine="chunkmill"), expected)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_files_of_an_object_store(s3_server, tmp_path, engine):
    pytest.importorskip("s3fs")
    root, options = s3_server.new_bucket(), s3_server.storage_options
    for number in range(2):
        write_part(tmp_path / f"{number}.nc", number, engine=engine)
        with fsspec.open(f"{root}/{number}.nc", "wb", **options) as file:
            file.write((tmp_path / f"{number}.nc").read_bytes())
    expected = opened_by_xarray([tmp_path / "0.nc", tmp_path / "1.nc"], engine)
    about = {"concat_dim": "time", "storage_options": options}
    report = cm.scan(f"{root}/*.nc", f"{root}/all.parquet", **about)
    assert (report.n_files, report.records) == (2, f"{root}/all.parquet.scan")
    of_targets = {"remote_protocol": "s3", "remote_options": options}
    found = xr.load_dataset(f"{root}/all.parquet", engine="chunkmill", storage_options=options | of_targets)
    xr.testing.assert_identical(found, expected)
    cm.convert(f"{root}/*.nc", f"{root}/all.zarr", format="zarr3", **about)
    converted = xr.load_dataset(f"{root}/all.zarr", engine="chunkmill", storage_options=options)
    xr.testing.assert_equal(converted, expected)
