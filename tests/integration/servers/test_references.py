"""Sets over stores on S3 and behind HTTP: urls that fsspec opens, and how many requests they cost."""

import json

import dask
import fsspec
import numpy as np
import pytest
from support import servers

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.references.concat import concat_references
from chunkmill.references.write import to_references

pytestmark = [*servers.WARNINGS, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.fixture(autouse=True)
def scheduler():
    with dask.config.set(scheduler="sync"):
        yield


def make(url, path="a b", storage_options=None, **options):
    options = {"shape": (8, 6), "chunks": (2, 3), "dtype": "i4", "codecs": "gzip"} | options
    name = options.get("format", "zarr3")
    cm.create_group(url, format=name, storage_options=storage_options)
    a = cm.create_array(url, path, storage_options=storage_options, **options)
    a[:6] = np.arange(36).reshape(6, 6)
    return a[...]


KINDS = {"zarr2": {"format": "zarr2"}, "sharded": {"shards": (4, 6)}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_does_not_list(kind, http_server, tmp_path):
    pytest.importorskip("aiohttp")
    values = make(http_server.folder / "x", **KINDS[kind])
    http_server.listing = False
    report = to_references((f"{http_server.url}/x", "a b"), (tmp_path / "refs.json", "a"))
    assert (report.n_references, report.n_absent) == (6, 2)
    refs = json.loads((tmp_path / "refs.json").read_text())["refs"]
    targets = {value[0] for value in refs.values() if isinstance(value, list)}
    assert all(target.startswith(f"{http_server.url}/x/a%20b/") for target in targets)
    opened = cm.open_array(tmp_path / "refs.json", "a")
    np.testing.assert_array_equal(opened[...], values)
    peer = fsspec.filesystem("reference", fo=str(tmp_path / "refs.json"), remote_protocol="http")
    assert peer.cat_file("a/0.0") == opened.store.get("a/0.0")


def test_a_key_costs_a_request_for_its_size(http_server, tmp_path):
    pytest.importorskip("aiohttp")
    make(http_server.folder / "x", format="zarr2")
    array = cm.open_array(f"{http_server.url}/x", "a b")
    http_server.log.clear()
    to_references(array, (tmp_path / "refs.json", "a"))
    assert sorted(path for _, path, _ in http_server.log) == [f"x/a b/{i}.{j}" for i in range(4) for j in range(2)]


def test_a_set_beside_its_source(s3_server):
    pytest.importorskip("s3fs")
    pytest.importorskip("pyarrow")
    bucket, options = s3_server.new_bucket(), s3_server.storage_options
    values = make(f"{bucket}/x.zarr", "a", shards=(4, 6), dimension_names=["y", "x"], storage_options=options)
    for target in (f"{bucket}/refs.json", f"{bucket}/refs.parquet"):
        to_references(f"{bucket}/x.zarr", target, storage_options=options)
        opened = cm.open_array(target, "a", storage_options=options)  # the credentials serve both
        np.testing.assert_array_equal(opened[...], values)
    both = concat_references(
        [f"{bucket}/refs.json"] * 2, dim="y", target=f"{bucket}/both.json", storage_options=options
    )
    np.testing.assert_array_equal(both["a"][...], np.concatenate([values, values]))


def test_a_set_is_not_written_into_where_a_file_and_a_folder_may_have_one_name(s3_server, tmp_path):
    pytest.importorskip("s3fs")
    bucket, options = s3_server.new_bucket(), {"storage_options": s3_server.storage_options}
    values, target = make(tmp_path / "x", "a", format="zarr2"), f"{bucket}/refs.json"
    to_references(tmp_path / "x", target, target_storage_options=options["storage_options"])
    for write in (
        lambda: cm.create_array(target, "n", shape=(2,), dtype="i4", **options),
        lambda: cm.to_store(values, target, "n", **options),
    ):
        with pytest.raises(StoreError, match="reference set, and those are read-only"):
            write()
    options["storage_options"] |= {"allowed_protocols": "*"}
    np.testing.assert_array_equal(cm.open_array(target, "a", **options)[...], values)
