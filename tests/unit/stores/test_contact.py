"""Servers that cannot be reached, or that never answer."""

import logging
import time

import dask
import pytest
from support.servers import WARNINGS, http_server, s3_server, serve_flaky  # noqa: F401

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores import contact, obstore_clients
from chunkmill.stores.open import open_store

pytestmark = WARNINGS


def s3_at(url):
    return {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": url, "region_name": "us-east-1"}}


@pytest.mark.parametrize("host", ["127.0.0.1:9", "no-such-host.invalid"])
@pytest.mark.parametrize("client", ["obstore", "s3fs", "gs", "az", "https"])
def test_a_server_that_cannot_be_reached(client, host, monkeypatch):
    """In under 10 s, though outages of a server that has answered are bridged for 120 s."""
    assert contact._FIRST_SECONDS < 10
    monkeypatch.setattr(contact, "_FIRST_SECONDS", 1.0)
    if client == "s3fs":
        monkeypatch.setattr(obstore_clients, "find_spec", lambda name: None if name == "obstore" else True)
    url, options = {
        "gs": ("gs://b/x", {"token": "anon", "endpoint_url": f"http://{host}"}),
        "az": ("az://b/x", {"connection_string": f"AccountName=a;AccountKey=aaaa;BlobEndpoint=http://{host}/a"}),
        "https": (f"http://{host}/x", None),
    }.get(client, ("s3://b/x", s3_at(f"http://{host}")))
    begun = time.monotonic()
    with pytest.raises(StoreError, match=r"accepts no connection|has no address") as caught:
        cm.open_array(url, storage_options=options)
    assert time.monotonic() - begun < 9
    assert host in str(caught.value)
    assert client == "https" or "endpoint_url" in str(caught.value)


@pytest.mark.parametrize("client", ["obstore", "https"])
def test_a_store_that_only_repeats_says_so(client, s3_server, http_server, caplog, monkeypatch):  # noqa: F811
    monkeypatch.setattr(contact, "_SILENT_SECONDS", 0.6)
    monkeypatch.setattr(contact, "_WATCH", contact._Watch())
    (http_server.folder / "k").write_bytes(b"v")
    bucket = s3_server.new_bucket()
    open_store(bucket, s3_server.storage_options).set("k", b"v")
    with serve_flaky(s3_server.endpoint_url, every=1, methods=("GET", "HEAD")) as proxy:
        store = open_store(bucket, s3_at(proxy.url)) if client == "obstore" else open_store(http_server.url)
        http_server.status["k"] = 503
        caplog.set_level(logging.WARNING, "chunkmill")
        with dask.config.set({"chunkmill.retry-seconds": 2.5}), pytest.raises(StoreError):
            store.get("k")
    text = next(record.getMessage() for record in caplog.records if "answers none of 1 requests" in record.getMessage())
    assert "'k'" in text
    assert "2.5 s are over (chunkmill.retry-seconds)" in text


def test_a_web_server_that_is_busy_is_asked_again(http_server):  # noqa: F811
    (http_server.folder / "k").write_bytes(b"value")
    http_server.fail_every = 2
    store = open_store(http_server.url)
    assert [store.get("k") for _ in range(3)] == [b"value"] * 3
    with dask.config.set({"chunkmill.retry-seconds": 0}), pytest.raises(StoreError, match="503"):
        [store.get("k") for _ in range(3)]
