"""Repositories of Icechunk, opened by url."""

import sys
from pathlib import Path
from unittest.mock import Mock, call

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.icechunk import _s3_options, _storage
from chunkmill.stores.open import open_store

pytest.importorskip("icechunk")


@pytest.fixture
def place(tmp_path):
    cm.to_store(np.ones(4), f"{tmp_path}/r|icechunk:", "a")
    return f"{tmp_path}/r"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("{place}|icechunk:@tag.v9", "tag 'v9'"), ("{place}/nothing|icechunk:", "cannot be opened"),
        ("ftp://host/x|icechunk:", "no storage for ftp://"), ("{place}|icechunk:a", "names the node 'a'"),
        (__file__ + "|icechunk:", "there is a file"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_one_error(place, url, reason):
    with pytest.raises(StoreError, match=reason):
        open_store(url.format(place=place))


def test_a_repository_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "other").write_bytes(b"1")
    store = open_store(f"{tmp_path}/r|icechunk:", creates=True)
    assert store.list_dir("") == []
    with pytest.raises(StoreError, match="clean prefixes"):
        store.set("zarr.json", b"{}")


def test_a_snapshot_that_cannot_be_read_is_not_an_absent_node(place):
    for snapshot in Path(place, "snapshots").iterdir():
        snapshot.write_bytes(b"garbage")
    store = open_store(f"{place}|icechunk:")
    with pytest.raises(StoreError):
        store.get("a/zarr.json")


KEYS, ANONYMOUS = {"access_key_id": "k", "secret_access_key": "s"}, {"region": None, "anonymous": True}
SERVER = {"endpoint_url": "http://localhost:1"}


@cases(
    ("options", "expected"),
    [
        ({}, {"region": None, "from_env": True}),
        ({"anon": True}, ANONYMOUS),
        ({"key": "k", "secret": "s", "client_kwargs": {"region_name": "eu-west-1"}}, KEYS | {"region": "eu-west-1"}),
        ({"anon": True} | SERVER, ANONYMOUS | SERVER | {"allow_http": True, "force_path_style": True}),
        (KEYS, KEYS | {"region": None}),
    ],
)
def test_options_of_s3fs_are_translated(options, expected):
    assert _s3_options(options) == expected


B, C = {"bucket": "b", "prefix": "x"}, {"container": "c", "prefix": "x"}


@cases(
    ("url", "options", "expected"),
    [
        ("s3://b/x/", {"anon": True}, call.s3_storage(**B, **ANONYMOUS)),
        ("s3://b", {"anon": True}, call.s3_storage(bucket="b", prefix=None, **ANONYMOUS)),
        ("gs://b/x", {}, call.gcs_storage(**B, from_env=True)),
        ("gcs://b/x", {"anonymous": True}, call.gcs_storage(**B, anonymous=True)),
        ("az://c/x", {"account": "a"}, call.azure_storage(**C, account="a")),
        ("file:///data/x", {}, call.local_filesystem_storage("/data/x")),
    ],
)
def test_which_storage_a_url_names(url, options, expected):
    icechunk = Mock()
    assert _storage(icechunk, url, options) is not None
    assert icechunk.mock_calls == [expected]


def test_without_the_package_the_way_out_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "icechunk", None)
    with pytest.raises(StoreError, match=r"pip install 'chunkmill\[icechunk\]'"):
        open_store("s3://b/x|icechunk:")
