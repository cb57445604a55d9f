"""Requests of a scan: one file costs no more than VirtualiZarr's; of many files, several are under way at once."""

import dask
import fsspec
import numpy as np
import pytest
import xarray as xr
from support.servers import WARNINGS, http_server, s3_server  # noqa: F401

import chunkmill as cm

pytestmark = [*WARNINGS, pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")]
virtualizarr = pytest.importorskip("virtualizarr", reason="of the extra `scan`")


def write(path, number, *, side=9, engine="h5netcdf"):
    values = np.random.default_rng(number).random((2, side, side))
    coords = {"time": np.arange(2.0) + 2 * number, "lat": np.linspace(-80, 80, side), "lon": np.arange(float(side))}
    encoding = {"v": {"chunksizes": (1, side, side)}} if engine == "h5netcdf" else {}
    xr.Dataset({"v": (("time", "lat", "lon"), values)}, coords).to_netcdf(path, engine=engine, encoding=encoding)


@pytest.mark.parametrize("side", [9, 400])  # one block, and chunks of more than that
def test_a_file_costs_no_more_requests_than_by_virtualizarr(http_server, tmp_path, side):  # noqa: F811
    from kerchunk.hdf import SingleHdf5ToZarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtualizarr.parsers import HDFParser

    write(http_server.folder / "x.nc", 0, side=side)
    url = f"{http_server.url}/x.nc"
    store = HTTPStore.from_url(http_server.url, client_options={"allow_http": True})
    registry = ObjectStoreRegistry({http_server.url: store})
    http_server.log.clear()
    with fsspec.open(url) as file:
        SingleHdf5ToZarr(file, url).translate()
    n_by_kerchunk = len(http_server.log)
    http_server.log.clear()
    HDFParser()(url=url, registry=registry)
    n_parsed = len(http_server.log)
    http_server.log.clear()
    virtualizarr.open_virtual_dataset(url, registry=registry, parser=HDFParser())
    n_opened = len(http_server.log)
    for options in ({}, {"concat_dim": "time"}):  # with the values of the coordinates too
        http_server.log.clear()
        cm.scan([url], tmp_path / f"{len(options)}.json", **options)
        assert len(http_server.log) <= n_by_kerchunk + bool(options)
        assert len(http_server.log) <= n_opened
        assert len(http_server.log) <= n_parsed + 1
    http_server.log.clear()
    cm.scan([url], tmp_path / "1.json", concat_dim="time", overwrite=True)
    assert len(http_server.log) == 1  # its version


@pytest.mark.parametrize("side", [9, 400])
def test_a_file_on_s3_costs_no_more_requests_than_by_virtualizarr(s3_server, tmp_path, side):  # noqa: F811
    pytest.importorskip("s3fs")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import S3Store
    from virtualizarr.parsers import HDFParser

    root, options = s3_server.new_bucket(), s3_server.storage_options
    write(tmp_path / "x.nc", 0, side=side)
    with fsspec.open(f"{root}/x.nc", "wb", **options) as file:
        file.write((tmp_path / "x.nc").read_bytes())
    store = S3Store(
        root.removeprefix("s3://"),
        endpoint=s3_server.endpoint_url,
        access_key_id=options["key"],
        secret_access_key=options["secret"],
        region="us-east-1",
        client_options={"allow_http": True},
    )
    registry = ObjectStoreRegistry({root: store})
    s3_server.log.clear()
    virtualizarr.open_virtual_dataset(f"{root}/x.nc", registry=registry, parser=HDFParser())
    n_opened = len(s3_server.log)
    s3_server.log.clear()
    about = {"concat_dim": "time", "storage_options": options, "target_storage_options": {}}
    cm.scan([f"{root}/x.nc"], tmp_path / "x.json", **about)
    assert 0 < len(s3_server.log) <= n_opened, s3_server.log
    found = xr.load_dataset(
        tmp_path / "x.json", engine="chunkmill", storage_options={"remote_protocol": "s3", "remote_options": options}
    )
    xr.testing.assert_identical(found, xr.load_dataset(tmp_path / "x.nc", engine="h5netcdf"))
    s3_server.log.clear()
    assert cm.scan([f"{root}/x.nc"], tmp_path / "x.json", overwrite=True, **about).n_parsed == 0
    assert len(s3_server.log) == 1, s3_server.log  # its version


def test_many_files_wait_for_their_server_together(http_server, tmp_path):  # noqa: F811
    n_files, latency = 64, 0.25
    for number in range(n_files):
        write(http_server.folder / f"{number:03}.nc", number)
    urls = [f"{http_server.url}/{number:03}.nc" for number in range(n_files)]
    http_server.latency = latency
    with dask.config.set(scheduler="threads", num_workers=2):
        report = cm.scan(urls, tmp_path / "all.json", concat_dim="time")
    assert report.n_parsed == n_files
    assert len(http_server.log) == 2 * n_files
    assert http_server.most_at_once >= 12  # by 2 threads: each has 8 files
