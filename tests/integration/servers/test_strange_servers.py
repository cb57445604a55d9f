"""Servers that do not say what is absent."""

import numpy as np
import pytest
from support.servers import WARNINGS, serve_flaky

import chunkmill as cm
from chunkmill.errors import MetadataError, StoreError

pytestmark = WARNINGS

VALUES = np.arange(16.0).reshape(4, 4)


@pytest.mark.parametrize("absent", [403, 200], ids=["forbidden", "a page"])
def test_a_web_server_that_does_not_say_what_is_absent(absent, http_server):
    """The document of one format is there: what is answered for the others' does not matter."""
    for fmt, path in (("zarr2", ""), ("zarr3", "a"), ("n5", "a")):
        cm.to_store(VALUES, http_server.folder / fmt, path, chunks=(2, 2), format=fmt, attributes={"k": 1})
        http_server.absent = absent
        opened = cm.open_array(f"{http_server.url}/{fmt}", path)
        np.testing.assert_array_equal(opened[...], VALUES)
        assert (opened.format, opened.attrs["k"]) == (fmt, 1)


def test_a_bucket_that_must_not_be_listed(s3_server):
    fmt = "zarr2"
    url, options = s3_server.new_bucket() + "/x", s3_server.storage_options
    cm.to_store(VALUES, url, "a", chunks=(2, 2), format=fmt, attributes={"k": 1}, storage_options=options)
    with serve_flaky(s3_server.endpoint_url, forbids=True) as proxy:
        options = options | {"client_kwargs": options["client_kwargs"] | {"endpoint_url": proxy.url}}
        opened = cm.open_array(url, "a", storage_options=options)
        np.testing.assert_array_equal(opened[...], VALUES)
        with pytest.raises(StoreError, match="format="):
            cm.open_array(url, "b", storage_options=options)


def test_documents_of_its_own_that_a_node_may_have(http_server):
    """Attributes that are forbidden may be there: a node is not opened without them."""
    cm.create_array(http_server.folder / "x", "a", shape=4, dtype="i4", format="zarr2")
    (http_server.folder / "x/a/.zattrs").unlink(missing_ok=True)
    http_server.absent = 403
    with pytest.raises(StoreError, match=r"key 'a/.zattrs'.*403.*format="):
        cm.open_array(f"{http_server.url}/x", "a")


@pytest.mark.parametrize(
    ("absent", "error", "met"),
    [(403, StoreError, "403 Forbidden.*format="), (200, MetadataError, "a web page.*format=")],
)
def test_nothing_is_there(absent, error, met, http_server):
    http_server.absent = absent
    with pytest.raises(error, match=met):
        cm.open_array(f"{http_server.url}/x")
