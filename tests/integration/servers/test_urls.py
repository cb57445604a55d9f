"""The public functions over HTTP: whole hierarchies, caches, and failures that are no absence; S3 is told of a bucket."""

import numpy as np
import pytest
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.errors import NodeNotFound, StoreError

pytestmark = WARNINGS


VALUES = np.arange(1, 36, dtype="i4").reshape(7, 5)


def fill(folder, fmt):
    for path in ("top", "g/a", "g/h/b"):
        cm.to_store(VALUES, folder, path, format=fmt, chunks=(3, 2))
    cm.create_group(folder, "none", format=fmt)


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3", "n5"])
def test_http_without_listing(http_server, fmt):
    """Arrays are found all the same; that a group cannot be listed is said, and is no empty group."""
    fill(http_server.folder / fmt, fmt)
    http_server.listing = False
    group = cm.open_group(f"{http_server.url}/{fmt}")
    np.testing.assert_array_equal(group["g/a"][...], VALUES)
    with pytest.raises(StoreError):
        list(group)
    if fmt != "n5":  # which has no consolidated metadata
        cm.consolidate(http_server.folder / fmt)
        group = cm.open_group(f"{http_server.url}/{fmt}")
        assert list(group) == ["g", "none", "top"]
        assert list(group["g"]) == ["a", "h"]
        np.testing.assert_array_equal(group["g/h/b"][...], VALUES)


@pytest.mark.parametrize(("fmt", "document"), [("zarr3", "top/zarr.json"), ("zarr3-draft", "meta/top.array.json")])
def test_a_failing_server_is_no_missing_node(http_server, fmt, document):
    fill(http_server.folder, fmt)
    http_server.status[document] = 403
    with pytest.raises(StoreError, match="403"):
        cm.open(http_server.url, "top")


@pytest.mark.parametrize(
    ("cache", "chain"),
    [
        ("simplecache", "{cache}::{url}/x"),
        ("filecache", "zip://::{cache}::{url}/x.zip"),
        ("blockcache", "{cache}::file://{folder}/x"),
    ],
)
def test_chains_with_caches(http_server, tmp_path, cache, chain):
    for name in ("x", "x.zip"):
        cm.to_store(VALUES, http_server.folder / name, "a", chunks=(3, 2), shards=(6, 4))
    url = chain.format(cache=cache, url=http_server.url, folder=http_server.folder)
    options = {"storage_options": {cache: {"cache_storage": str(tmp_path / "kept")}}}
    for _ in range(2):
        np.testing.assert_array_equal(cm.open_array(url, "a", **options)[...], VALUES)
        np.testing.assert_array_equal(cm.from_store(url, "a", **options).compute(), VALUES)
    assert list(cm.open_group(url, **options)) == ["a"]
    with pytest.raises(NodeNotFound):
        cm.open(url, "b", **options)
