from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import fsspec
import pytest
from support.scripts import run_script
from support.servers import WARNINGS, s3_server  # noqa: F401

from chunkmill.errors import StoreError
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.local import LocalStore
from chunkmill.stores.open import open_store
from chunkmill.stores.zip import ZipStore

pytest.importorskip("obstore")
from support.cases import cases

from chunkmill.stores import obstore_clients
from chunkmill.stores.obstore import ObstoreStore

pytestmark = WARNINGS

CASES = [
    ("/data/x.zarr", LocalStore, "file:///data/x.zarr"), ("/data/x.zarr/", LocalStore, "file:///data/x.zarr"),
    (Path("/data/x.zarr"), LocalStore, "file:///data/x.zarr"),
    ("file:///data/x y#.n5", LocalStore, "file:///data/x y#.n5"), ("local:///data/x", LocalStore, "file:///data/x"),
    ("/data/a::b", LocalStore, "file:///data/a::b"), ("/data/x.zip", ZipStore, "zip://::file:///data/x.zip"),
    ("file:///data/x.ZIP", ZipStore, "zip://::file:///data/x.ZIP"),
    ("zip://::/data/x.zip", ZipStore, "zip://::file:///data/x.zip"),
    ("zip://in/side::file:///data/x.zip", ZipStore, "zip://in/side::file:///data/x.zip"),
    ("/data/x|zip:in", ZipStore, "zip://in::file:///data/x"),
    ("zip://::memory://x.zip", FsspecStore, "zip://::memory://x.zip"), ("memory://x/", FsspecStore, "memory://x"),
    ("memory:///x", FsspecStore, "memory://x"), ("s3://bucket/x.zarr/", ObstoreStore, "s3://bucket/x.zarr"),
    ("s3a://bucket/x.zarr", ObstoreStore, "s3://bucket/x.zarr"),
    ("https://me:secret@host:80/x?token=secret", ObstoreStore, "https://host:80/x"),
    ("simplecache::https://host/x", FsspecStore, "simplecache::https://host/x"),
    ("zip://a::sftp://me:secret@h/x/", FsspecStore, "zip://a::sftp://h/x"),
    ("sftp://me:secret@host/x@y?z/", FsspecStore, "sftp://host/x@y?z"),
]  # fmt: skip


@cases(("url", "kind", "canonical"), CASES)
def test_urls(url, kind, canonical):
    store = open_store(url)
    assert type(store) is kind
    assert store.url == canonical
    assert "secret" not in repr(store)


def test_a_directory_named_zip(tmp_path):
    (tmp_path / "x.zip").mkdir()
    assert type(open_store(tmp_path / "x.zip")) is LocalStore


def test_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert open_store("~/x.zip").url == "zip://::file:///home/someone/x.zip"
    assert open_store("file://~/x").url == "file:///home/someone/x"


def test_a_store_is_itself(store):
    assert open_store(store) is store


def test_what_is_none():
    with pytest.raises(TypeError, match="not by int"):
        open_store(3)
    with pytest.raises(StoreError, match="empty"):
        open_store("")
    with pytest.raises(ValueError, match="a store object has its options already"):
        open_store(ZipStore("x.zip"), {"anon": True})


def test_unknown_protocol():
    with pytest.raises(StoreError, match=r"unknown protocol 'nosuch'.*register_implementation"):
        open_store("nosuch://x/y")
    with pytest.raises(StoreError, match="unknown protocol 'nosuch'"):
        open_store("zip://::nosuch://x/y.zip")


@cases("url", ["gs://b/x", "https://host/x", "zip://::s3://b/x.zip"])
def test_missing_package(url, monkeypatch):
    missing = Mock(side_effect=ImportError("Please install a package for it"))
    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    monkeypatch.setattr(obstore_clients, "find_spec", lambda name: None)
    obstore_clients._warn.cache_clear()
    said = nullcontext() if "::" in url else pytest.warns(UserWarning, match=r"pip install 'chunkmill\[cloud\]'")
    with said, pytest.raises(StoreError, match="Please install a package for"):
        open_store(url)


ENDPOINT = {"client_kwargs": {"endpoint_url": "{url}", "region_name": "us-east-1"}}
KEYS = {"key": "testing", "secret": "testing"}
PROFILE = "[work]\naws_access_key_id = testing\naws_secret_access_key = testing\n"


@cases(
    "case",
    [
        (KEYS | {"endpoint_url": "{url}", "token": "t", "requester_pays": True}, {}),
        (ENDPOINT, {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}),
        ({"client_kwargs": {"aws_access_key_id": "a", "aws_secret_access_key": "b", "endpoint_url": "{url}"}}, {}),
        (KEYS | {"client_kwargs": {"region_name": "us-east-1"}}, {"AWS_ENDPOINT_URL": "{url}"}),
        # what boto3 finds
        (ENDPOINT | {"profile": "work"}, {"AWS_SHARED_CREDENTIALS_FILE": "{folder}/credentials"}),
        (ENDPOINT, {"AWS_PROFILE": "work", "AWS_SHARED_CREDENTIALS_FILE": "{folder}/credentials"}),
        (KEYS | ENDPOINT | {"use_ssl": False, "max_concurrency": 2, "default_block_size": 2**20}, {}),
        ({}, {"AWS_PROFILE": "server", "AWS_CONFIG_FILE": "{folder}/config"}),
    ],
)
def test_options_of_s3_keep_conditional_writes(s3_server, case, tmp_path, monkeypatch):  # noqa: F811
    options, environment = case

    def filled(value):
        if isinstance(value, dict):
            return {name: filled(below) for name, below in value.items()}
        return value.format(url=s3_server.endpoint_url, folder=tmp_path) if isinstance(value, str) else value

    (tmp_path / "credentials").write_text(PROFILE)
    keys = PROFILE.partition("\n")[2]
    (tmp_path / "config").write_text(f"[profile server]\nendpoint_url = {s3_server.endpoint_url}\n{keys}")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, filled(value))
    store = open_store(s3_server.new_bucket() + "/root", filled(options))
    assert store.compares_versions
    assert store.set_if("k", b"1", None)
    assert not store.set_if("k", b"2", None)


def test_a_local_store_imports_no_client():
    """fsspec takes 50 ms to import, and each client of a service more."""
    code = "import sys; from chunkmill.stores.open import open_store; open_store('x.zarr').get('zarr.json'); print(*sys.modules)"
    clients = {"fsspec", "aiohttp", "obstore", "pyarrow", "s3fs", "zarr", "icechunk", "asyncio"}
    assert not clients.intersection(run_script(code).split())
