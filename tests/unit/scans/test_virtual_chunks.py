"""Virtual chunks of a repository of Icechunk, from netCDF files: read by zarr-python and xarray's zarr engine.

By `chunkmill.stores.icechunk_store`.
"""

import pytest
import xarray as xr
from support.datasets import repository_of_virtual_chunks
from support.netcdf_files import write_tiles
from support.systems import NEEDS_POSIX_NAMES

import chunkmill as cm
from chunkmill.errors import MetadataError, NodeExists

pytest.importorskip("icechunk")
pytest.importorskip("virtualizarr", reason="of the extra `scan`")
pytestmark = [NEEDS_POSIX_NAMES, pytest.mark.filterwarnings("ignore")]  # zarr-python of numcodecs' filters


@pytest.fixture
def repository(tmp_path):
    return repository_of_virtual_chunks(tmp_path)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "data").mkdir()
    return write_tiles(tmp_path / "data")


def test_files_become_virtual_chunks(repository, files, tmp_path):
    urls, whole = files
    report = cm.scan(urls, repository, concat_dim=["time", "lat"])
    assert (report.n_files, report.records) == (9, None)
    assert report.n_references >= 12
    session = repository.readonly_session("main")
    xr.testing.assert_equal(xr.load_dataset(session.store, engine="zarr", consolidated=False), whole)
    xr.testing.assert_equal(xr.load_dataset(repository, engine="chunkmill"), whole)
    assert set(session.all_virtual_chunk_locations()) == {f"file://{url}" for url in urls}
    with pytest.raises(NodeExists, match="overwrite=True"):
        cm.plan_scan(urls, repository, concat_dim=["time", "lat"])
    named = {"records": tmp_path / "records", "overwrite": True}
    for n_parsed in (9, 0):
        assert cm.scan(urls, repository, concat_dim=["time", "lat"], **named).n_parsed == n_parsed
    xr.testing.assert_equal(xr.load_dataset(repository, engine="chunkmill"), whole)


def test_files_that_do_not_agree_commit_nothing(repository, files):
    urls, whole = files
    other = whole.isel(time=slice(4, 6), lat=slice(3, 5))
    other.to_netcdf(urls[0], engine="h5netcdf", encoding={"v": {"chunksizes": (2, 3, 1), "zlib": False}})
    with pytest.raises(MetadataError, match=r"'v' in "):
        cm.scan(urls, repository, concat_dim=["time", "lat"])
    assert len(list(repository.ancestry(branch="main"))) == 1


def test_the_attributes_of_a_file_come_to_an_empty_group(repository, files):
    import zarr

    session = repository.writable_session("main")
    zarr.open_group(session.store, mode="w")
    session.commit("a group")
    urls, whole = files
    whole.assign_attrs(title="a title").to_netcdf(urls[0], engine="h5netcdf")
    cm.scan(urls[0], repository)
    assert xr.open_dataset(repository, engine="chunkmill").attrs == {"title": "a title"}
