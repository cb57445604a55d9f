"""Requests of a scan: one file costs no more than VirtualiZarr's; of many files, several are under way at once."""

import dask
import fsspec
import numpy as np
import pytest
import xarray as xr
from support.servers import WARNINGS, http_server, s3_server  # noqa: F401

import chunkmill as cm

pytestmark = WARNINGS


def write(path, number, *, side=9, engine="h5netcdf"):
    values = np.random.default_rng(number).random((2, side, side))
    coords = {"time": np.arange(2.0) + 2 * number, "lat": np.linspace(-80, 80, side), "lon": np.arange(float(side))}
    encoding = {"v": {"chunksizes": (1, side, side)}} if engine == "h5netcdf" else {}
    xr.Dataset({"v": (("time", "lat", "lon"), values)}, coords).to_netcdf(path, engine=engine, encoding=encoding)


@pytest.fixture(params=["http", "s3"])
def server(request, http_server, tmp_path):  # noqa: F811
    """Put a file there; return its url, the options to read it, the log of requests, and how many open it."""
    if request.param == "http":
        return http_server.folder / "x.nc", f"{http_server.url}/x.nc", {}, http_server.log, 2
    pytest.importorskip("s3fs")
    s3 = request.getfixturevalue("s3_server")
    options = {"storage_options": s3.storage_options, "target_storage_options": {}}
    return tmp_path / "x.nc", f"{s3.new_bucket()}/x.nc", options, s3.log, 3


# one block, and chunks of more than that, of which one has values of coordinates
@pytest.mark.parametrize(("side", "n_more"), [(9, 0), (400, 1)])
def test_a_file_costs_no_more_requests_than_by_virtualizarr(server, tmp_path, side, n_more):
    """Its parser, and kerchunk, make 2 of a web server; `open_virtual_dataset`, with values, 5 of both."""
    path, url, options, log, n_to_open = server
    write(path, 0, side=side)
    if "s3" in url:
        fsspec.filesystem("s3", **options["storage_options"]).put(str(path), url)
    log.clear()
    cm.scan([url], tmp_path / "0.json", **options)
    assert len(log) <= n_to_open, log
    log.clear()
    cm.scan([url], tmp_path / "1.json", concat_dim="time", **options)
    assert len(log) <= n_to_open + n_more, log
    log.clear()
    assert cm.scan([url], tmp_path / "1.json", concat_dim="time", overwrite=True, **options).n_parsed == 0
    assert len(log) == 1, log  # its version


def test_many_files_wait_for_their_server_together(http_server, tmp_path):  # noqa: F811
    n_files = 64
    for number in range(n_files):
        write(http_server.folder / f"{number:03}.nc", number)
    urls = [f"{http_server.url}/{number:03}.nc" for number in range(n_files)]
    http_server.latency = 0.25
    with dask.config.set(scheduler="threads", num_workers=2):
        report = cm.scan(urls, tmp_path / "all.json", concat_dim="time")
    assert report.n_parsed == n_files
    assert len(http_server.log) == 2 * n_files
    assert http_server.most_at_once >= 12  # by 2 threads: each has 8 files
