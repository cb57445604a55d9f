from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from chunkmill.errors import StoreError
from chunkmill.stores import obstore_clients
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.stores.zip import ZipStore

CASES = [
    ("/data/x.zarr", LocalStore, "file:///data/x.zarr"),
    ("/data/x.zarr/", LocalStore, "file:///data/x.zarr"),
    (Path("/data/x.zarr"), LocalStore, "file:///data/x.zarr"),
    ("file:///data/x y#.n5", LocalStore, "file:///data/x y#.n5"),
    ("local:///data/x", LocalStore, "file:///data/x"),
    ("/data/a::b", LocalStore, "file:///data/a::b"),
    ("/data/x.zip", ZipStore, "zip://::file:///data/x.zip"),
    ("file:///data/x.ZIP", ZipStore, "zip://::file:///data/x.ZIP"),
    ("zip://::/data/x.zip", ZipStore, "zip://::file:///data/x.zip"),
    ("zip://in/side::file:///data/x.zip", ZipStore, "zip://in/side::file:///data/x.zip"),
    ("zip://::memory://x.zip", FsspecStore, "zip://::memory://x.zip"),
    ("memory://x/", FsspecStore, "memory://x"),
    ("memory:///x", FsspecStore, "memory://x"),
    ("s3://bucket/x.zarr/", FsspecStore, "s3://bucket/x.zarr"),
    ("s3a://bucket/x.zarr", FsspecStore, "s3://bucket/x.zarr"),
    ("https://me:secret@host:80/x?token=secret", FsspecStore, "https://host:80/x"),
    ("simplecache::https://host/x", FsspecStore, "simplecache::https://host/x"),
]


@pytest.mark.parametrize(("url", "kind", "canonical"), CASES, ids=[str(case[0]) for case in CASES])
def test_urls(url, kind, canonical):
    store = open_store(url)
    assert type(store) is kind
    assert store.url == canonical
    assert "secret" not in repr(store)


def test_a_directory_named_zip(tmp_path):
    (tmp_path / "x.zip").mkdir()
    assert type(open_store(tmp_path / "x.zip")) is LocalStore


def test_relative_and_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert open_store("x").url == f"file://{tmp_path}/x"
    assert open_store("~/x.zip").url == "zip://::file:///home/someone/x.zip"
    assert open_store("file://~/x").url == "file:///home/someone/x"


def test_a_store_is_itself():
    store = MemoryStore()
    assert open_store(store) is store


def test_what_is_none():
    with pytest.raises(TypeError, match="not by int"):
        open_store(3)
    with pytest.raises(StoreError, match="empty"):
        open_store("")


def test_unknown_protocol():
    with pytest.raises(StoreError, match=r"unknown protocol 'nosuch'.*register_implementation"):
        open_store("nosuch://x/y")
    with pytest.raises(StoreError, match="unknown protocol 'nosuch'"):
        open_store("zip://::nosuch://x/y.zip")


@pytest.mark.parametrize(
    ("url", "hint"),
    [("gs://b/x", r"pip install 'chunkmill\[obstore\]'"), ("s3://b/x", r"pip install 'chunkmill\[s3\]'")],
)
def test_missing_package(url, hint, monkeypatch):
    def missing(protocol):
        raise ImportError(f"Please install a package for {protocol}")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    monkeypatch.setattr(obstore_clients, "find_spec", lambda name: None)
    with pytest.raises(StoreError, match=hint):
        open_store(url)


def test_a_local_store_imports_no_client():
    """fsspec takes 50 ms to import, and each client of a service more."""
    code = "import sys; from chunkmill.stores.open import open_store; open_store('x.zarr').get('zarr.json'); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"fsspec", "aiohttp", "obstore", "pyarrow", "s3fs", "zarr", "icechunk", "asyncio"}.intersection(found)
