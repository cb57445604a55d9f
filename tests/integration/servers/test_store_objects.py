"""Store objects of obstore and mappers of fsspec wherever a url is, as sources and as targets."""

import fsspec
import numpy as np
import obstore.store
import pytest
import xarray as xr
from support.servers import WARNINGS

import chunkmill as cm

pytestmark = WARNINGS

VALUES = np.arange(24, dtype="i4").reshape(6, 4)
DATASET = xr.Dataset({"v": (("y", "x"), VALUES)}, coords={"y": np.arange(6)})


CONFIG = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}
HTTP = {"allow_http": True}


def of_s3(request, tmp_path):
    server = request.getfixturevalue("s3_server")
    bucket, config = server.new_bucket().removeprefix("s3://"), CONFIG | {"endpoint": server.endpoint_url}
    return obstore.store.S3Store(bucket, client_options=HTTP, **config)


def mapper_of_obstore(request, tmp_path):
    server = request.getfixturevalue("s3_server")
    config = CONFIG | {"endpoint": server.endpoint_url, "virtual_hosted_style_request": "false"}
    made = pytest.importorskip("obstore.fsspec").FsspecStore("s3", config=config, client_options=HTTP)
    return fsspec.FSMap(f"{server.new_bucket().removeprefix('s3://')}/root", made)


def of_azure(request, tmp_path):
    server = request.getfixturevalue("azure_server")
    return obstore.store.AzureStore(
        server.new_container().removeprefix("az://"),
        account_name="devstoreaccount1",
        account_key=server.storage_options["connection_string"].partition("AccountKey=")[2].partition(";")[0],
        endpoint=f"{server.endpoint_url}/devstoreaccount1",
        client_options=HTTP,
    )


def of_memory(request, tmp_path):
    return obstore.store.MemoryStore()


def mapper_of_s3(request, tmp_path):
    server = request.getfixturevalue("s3_server")
    fs = fsspec.filesystem("s3", **server.storage_options)
    return fs.get_mapper(server.new_bucket() + "/some/root")


@pytest.fixture(params=[of_s3, of_azure, of_memory, mapper_of_s3, mapper_of_obstore], ids=lambda kind: kind.__name__)
def place(request, tmp_path):
    return request.param(request, tmp_path)


LOCK_ALONE = pytest.mark.filterwarnings("ignore:.* compares no versions:UserWarning")  # S3 by s3fs


@LOCK_ALONE
def test_everywhere(place, tmp_path):
    near = tmp_path / "near"
    cm.to_store(VALUES, place, "g/a", chunks=(2, 2))
    np.testing.assert_array_equal(cm.open_array(place, "g/a")[...], VALUES)
    np.testing.assert_array_equal(cm.from_store(place, "g/a").compute(), VALUES)
    assert list(cm.open_group(place)) == ["g"]
    cm.open_array(place, "g/a", mode="r+")[1, 1] = 5
    cm.convert((place, "g"), near, format="zarr2")
    cm.convert(near, (place, "copy"), format="n5")
    cm.rechunk((place, "copy/a"), (place, "rechunked"), chunks=(6, 1))
    assert cm.verify((place, "g/a"), (place, "rechunked")).equal
    assert cm.check(place).ok
    cm.write_dataset(DATASET, place, "ds")
    xr.testing.assert_identical(xr.open_dataset(place, engine="chunkmill", group="ds", chunks={}).compute(), DATASET)
    xr.testing.assert_identical(xr.open_datatree(place, engine="chunkmill")["ds"].to_dataset(), DATASET)
