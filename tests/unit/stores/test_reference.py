"""References as a store: bytes of many targets, and never None for a target that is not there."""

import json
import pickle
from collections import OrderedDict
from unittest.mock import Mock

import fsspec
import numpy as np
import pytest
from contracts.store_contract import KEYS, ReadContract
from support import servers
from support.cases import cases
from support.servers import http_server, s3_server  # noqa: F401

import chunkmill as cm
from chunkmill.errors import ChunkmillError, MetadataError, NodeNotFound, StoreError
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.nodes.reference_sets import is_reference_set, open_reference_store
from chunkmill.stores.base import ByteSpan
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.stores.reference import ReferenceStore, Targets, split_url

pytestmark = servers.WARNINGS

DATA = bytes(range(256)) * 4


def store_of(entries, url="/data/refs.json", **options):
    references = parse_reference_json(json.dumps(entries).encode(), source=url)
    return ReferenceStore(references, Targets(url, **options), url=url)


def cut(split, url, words):
    """Return root and key of a url, or None if it is refused with those words."""
    try:
        return split(url)
    except StoreError as error:
        assert words in str(error)  # noqa: PT017


def fetch(store, key, how):
    return store.get(key) if how == "get" else list(store.get_many([ByteSpan(key)]))


class TestReferences(ReadContract):
    @pytest.fixture(params=["inline", "ranges of one file", "whole files"])
    def filled(self, request, tmp_path):
        entries, offset = {}, len(b"before")
        (tmp_path / "all.bin").write_bytes(b"before" + b"".join(KEYS.values()) + b"after")
        for i, (key, value) in enumerate(KEYS.items()):
            (tmp_path / f"{i}.bin").write_bytes(value)
            of_range = [str(tmp_path / "all.bin"), offset, len(value)]
            kinds = {"inline": value.decode(), "ranges of one file": of_range}
            entries[key] = kinds.get(request.param, [f"file://{tmp_path}/{i}.bin"])
            offset += len(value)
        return store_of(entries)


# --- what goes wrong


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target.bin"
    path.write_bytes(DATA)
    return path


@cases("how", ["get", "get_many"])
@cases(
    ("entry", "words"),
    [
        (["{path}", 1000, 100], ["100 bytes", "offset 1000", "{path}"]),  # runs past the end
        (["{path}", 5000, 1], ["1 bytes", "offset 5000", "{path}"]),  # begins past the end
        (["{path}.gone", 10, 5], ["5 bytes", "offset 10", "{path}.gone", "no such target"]),
        (["{path}.gone"], ["all bytes", "{path}.gone"]), (["{path}/below", 10, 5], ["{path}/below"]),
        (["nosuch://x/y", 10, 5], ["nosuch"]), ([None, 10, 5], ["target="]), (["relative.bin", 10, 5], ["base="]),
        (["/", 10, 5], ["no file"]), (["s3://bucket", 10, 5], []), (["memory://a/../b", 10, 5], ["offset 10"]),
    ],
)  # fmt: skip
def test_a_target_that_fails_raises_and_says_where(target, entry, words, how):
    entry = [e.replace("{path}", str(target)) if isinstance(e, str) else e for e in entry]
    store = store_of({"x/0": entry})
    with pytest.raises(StoreError) as caught:
        fetch(store, "x/0", how)
    message = str(caught.value)
    assert caught.value.key == "x/0"
    assert all(word.replace("{path}", str(target)) in message for word in ["/data/refs.json", *words])
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), StoreError)


def test_a_target_of_which_fewer_bytes_come_is_an_error(target, monkeypatch):
    monkeypatch.setattr(Targets, "store", lambda *_: Mock(get_many=lambda spans: iter([b"123"])))
    with pytest.raises(StoreError, match=r"cannot read 5 bytes at offset 0 of .*: got 3 bytes"):
        store_of({"x/0": [str(target), 0, 5]}).get("x/0")


def test_sizes(target):
    refs = {"a": "text", "b": [str(target), 3, 7], "c": [str(target)], "d": [f"{target}.gone"], "e": ["nosuch://x/y"]}
    store = store_of(refs)
    assert [store.size(key) for key in "abc"] == [4, 7, len(DATA)]
    for key, words in (("d", "there is no such target"), ("e", "nosuch://x/y': .*unknown protocol")):
        with pytest.raises(StoreError, match=f"'{key}': cannot read all bytes at offset 0 of .*{words}"):
            store.size(key)


def test_it_is_read_only():
    store = store_of({"a": "text"})
    for request, *given in (("set", "a", b""), ("set_if", "a", b"", None), ("delete", "a"), ("delete_prefix", "")):
        with pytest.raises(StoreError, match="read-only"):
            getattr(store, request)(*given)
    assert store.get_versioned("a") == (b"text", store.references.fingerprint)
    assert store.get_versioned("b") == (None, None)


def test_no_request_for_nothing(tmp_path):
    store = store_of({"x/0": [str(tmp_path / "gone"), 5, 0]})
    assert (store.get("x/0"), list(store.get_many([ByteSpan("x/0")]))) == (b"", [b""])


def test_equal_sets_have_equal_tokens(target):
    one, two = (store_of({"x/0": [str(target), 0, 4]}) for _ in range(2))
    other = store_of({"x/0": [str(target), 0, 5]})
    assert one == two
    assert one.__dask_tokenize__() == two.__dask_tokenize__() == pickle.loads(pickle.dumps(one)).__dask_tokenize__()
    assert one.__dask_tokenize__() != other.__dask_tokenize__()
    assert one != other
    assert len({one, two}) == 1


# --- policy


REMOTE = "https://host/refs.json"
POLICY = [
    ("/data/refs.json", None, "/etc/passwd", True), ("file:///data/refs.json", None, "s3://b/x", True),
    ("memory://refs.json", None, "/etc/passwd", True), (REMOTE, None, "/etc/passwd", False),
    (REMOTE, None, "file:///etc/passwd", False), (REMOTE, None, "local:///etc/passwd", False),
    (REMOTE, None, "FILE:///etc/passwd", False), (REMOTE, None, "simplecache::file:///etc/passwd", False),
    (REMOTE, None, "simplecache::/etc/passwd", False), (REMOTE, None, "zip://x::/data/x.zip", False),
    (REMOTE, None, "zip://x::file:///data/x.zip", False), (REMOTE, None, "zip://x::simplecache::s3://b/x.zip", True),
    (REMOTE, None, "memory://x", False), (REMOTE, None, "sftp://host/x", False), (REMOTE, None, "dask://x", False),
    (REMOTE, None, "reference://x", False), (REMOTE, None, "asynclocal:///etc/passwd", False),
    (REMOTE, None, "dir::file:///etc/passwd", False), (REMOTE, None, "http://other/x", True),
    (REMOTE, None, "s3a://b/x", True), ("sftp://host/refs.json", None, "sftp://host/x", True),  # its own protocol
    ("sftp://host/refs.json", None, "/etc/passwd", False),
    ("zip://refs.json::s3://b/x.zip", None, "/etc/passwd", False),
    ("simplecache::https://host/refs.json", None, "file:///etc/passwd", False),
    (REMOTE, ["file"], "/etc/passwd", True), (REMOTE, ["local"], "file:///etc/passwd", True),
    (REMOTE, ["file"], "s3://b/x", False),  # replaces the default
    (REMOTE, "file", "/etc/passwd", True), (REMOTE, "*", "/etc/passwd", True),
    ("/data/refs.json", ["s3"], "/etc/passwd", False), ("/data/refs.json", ["s3"], "s3a://b/x", True),
    ("/data/refs.json", [], "/data/x", False),
]  # fmt: skip


@cases(("source", "allowed", "url", "expected"), POLICY)
def test_which_protocols_a_set_may_name(source, allowed, url, expected):
    found = cut(Targets(source, allowed_protocols=allowed).split, url, "allowed_protocols")
    assert (found is not None) == expected


def test_a_fetched_set_does_not_read_local_files(http_server, tmp_path):  # noqa: F811
    pytest.importorskip("obstore")
    (tmp_path / "secret").write_bytes(b"secret")
    document = json.dumps({".zgroup": {}, "x/0": [f"{tmp_path}/secret", 0, 6]}).encode()
    (http_server.folder / "refs.json").write_bytes(document)
    url = f"{http_server.url}/refs.json"
    with pytest.raises(StoreError, match="may not point to protocol 'file'"):
        open_reference_store(url).get("x/0")
    allowed = open_reference_store(url, {"allowed_protocols": ["http", "file"]})
    assert allowed.get("x/0") == b"secret"


SPLITS = [
    ("s3://bucket/a/b.nc", ("s3://bucket", "a/b.nc")), ("s3a://bucket/a/b.nc", ("s3://bucket", "a/b.nc")),
    ("s3://bucket/a//b/c.nc", ("s3://bucket/a//b", "c.nc")),  # an empty segment is part of the name there
    ("s3://bucket/50%25/x?y.nc", ("s3://bucket", "50%25/x?y.nc")), ("gs://bucket/a", ("gs://bucket", "a")),
    ("https://host/a/b.nc", ("https://host", "a/b.nc")),
    ("https://host:80/a%20b.nc?t=1&u=2", ("https://host:80?t=1&u=2", "a b.nc")),
    ("https://host/a%2Fb/c.nc", ("https://host/a%2Fb", "c.nc")),  # no slash of ours
    ("https://host/a//b.nc", None), ("memory://x.nc", ("memory://", "x.nc")),
    ("memory:///a/x.nc", ("memory://", "a/x.nc")), ("memory://a/x.nc", ("memory://a", "x.nc")),
    ("/data/../data/x.nc", ("file:///", "data/x.nc")), ("local:///data/x.nc", ("file:///", "data/x.nc")),
    ("zip://a/b.nc::s3://bucket/x.zip", ("zip://::s3://bucket/x.zip", "a/b.nc")),
    ("simplecache::s3://bucket/a/b.nc", ("simplecache::s3://bucket", "a/b.nc")),
    ("simplecache::zip://a.nc::/x.zip", ("simplecache::zip://::/x.zip", "a.nc")), ("s3://bucket/", None),
    ("s3://bucket/a/", None), ("https://host/..", None), ("zip://../x::/x.zip", None),
]  # fmt: skip


@cases(("url", "expected"), SPLITS)
def test_urls_are_cut_into_root_and_key(url, expected):
    assert cut(split_url, url, "") == expected


BASES = [
    ("/data", "a/b.nc", ("file:///", "data/a/b.nc")), ("/data/", "./a.nc", ("file:///", "data/a.nc")),
    ("file:///data", "a.nc", ("file:///", "data/a.nc")), ("s3://bucket/dir", "a.nc", ("s3://bucket", "dir/a.nc")),
    ("s3://bucket", "a.nc", ("s3://bucket", "a.nc")), ("/data/a?b", "c.nc", ("file:///", "data/a?b/c.nc")),
    ("https://host/dir?t=1", "a.nc", ("https://host?t=1", "dir/a.nc")), ("/data", "../etc/passwd", None),
    ("/data", "a/../../data2/x", None), ("s3://bucket", "../other/x", None), ("s3://bucket/dir", "../x", None),
    # beside the set
    ("s3://bucket/x/refs.json", "a.nc", ("s3://bucket", "x/a.nc")), ("s3://bucket/refs.json", "../a.nc", None),
    ("s3://bucket/x/refs.json", "../y/a.nc", ("s3://bucket", "y/a.nc")),
    ("https://host/x/refs.json?token=1", "a.nc", ("https://host", "x/a.nc")),
]  # fmt: skip


@cases(("base", "url", "expected"), BASES)
def test_relative_paths(base, url, expected):
    targets = Targets(base) if "refs.json" in base else Targets("/x/refs.json", base=base)
    assert cut(targets.split, url, "leads out of base") == expected


def test_an_error_names_what_a_relative_path_stands_for(tmp_path):
    refs = {"x/0": ["a.nc", 0, 4], "x/1": [None, 0, 4]}
    store = open_reference_store("reference://", {"fo": refs, "base": tmp_path, "target": "/nowhere/b.nc"})
    with pytest.raises(StoreError, match=f"'a.nc', here '{tmp_path}/a.nc': there is no such target"):
        store.get("x/0")
    with pytest.raises(StoreError, match=r"None, here '/nowhere/b\.nc'"):
        store.get("x/1")


def test_a_base_does_not_allow_what_the_policy_forbids():
    with pytest.raises(StoreError, match="allowed_protocols"):
        Targets(REMOTE, base="/data").split("a.nc")


def test_remote_protocol_is_of_urls_that_name_none():
    assert Targets("/r.json", remote_protocol="s3").split("bucket/a.nc") == ("s3://bucket", "a.nc")
    assert Targets("/r.json", remote_protocol="s3").split("/bucket/a.nc") == ("s3://bucket", "a.nc")
    assert Targets("/r.json", remote_protocol="s3").split("gs://bucket/a.nc") == ("gs://bucket", "a.nc")
    assert Targets("/r.json", remote_protocol="file", base="/b").split("a.nc") == ("file:///", "b/a.nc")
    assert Targets("/r.json", target="s3://bucket/t.nc").split(None) == ("s3://bucket", "t.nc")


def test_options_by_protocol(monkeypatch):
    import chunkmill.stores.reference as module

    monkeypatch.setattr(module, "open_store", lambda root, options: (root, options))
    plain = Targets("/r.json", remote_options={"s3": {"anon": True}, "http": {"headers": {}}, "gcs": {"token": "t"}})
    assert plain.store("s3://b") == ("s3://b", {"anon": True})
    assert plain.store("https://h") == ("https://h", {"headers": {}})
    assert plain.store("gs://b") == ("gs://b", {"token": "t"})
    assert plain.store("file:///") == ("file:///", None)
    assert plain.store("simplecache::s3://b") == ("simplecache::s3://b", {"s3": {"anon": True}})
    flat = Targets("/r.json", remote_protocol="s3", remote_options={"anon": True})
    assert flat.store("s3://b") == ("s3://b", {"anon": True})
    assert flat.store("https://h") == ("https://h", None)
    https = Targets("/r.json", remote_options={"https": {"headers": {"a": "secret"}}})
    assert https.store("http://h") == ("http://h", None)  # not in the clear
    own = Targets("s3://b/r.json", set_options={"anon": True})
    assert (own.store("s3://c"), own.store("gs://c")) == (("s3://c", {"anon": True}), ("gs://c", None))
    web = Targets("https://h/r.json", set_options={"headers": {"Authorization": "secret"}})
    assert web.store("https://evil") == ("https://evil", None)  # the set's own secret stays with its server
    with pytest.raises(StoreError, match="by protocol"):
        Targets("/r.json", remote_options={"anon": True})


def test_is_remote():
    assert not store_of({"x/0": ["/a", 0, 1], "y/0": ["memory://x", 0, 1]}).is_remote
    assert store_of({"x/0": ["/a", 0, 1], "y/0": ["s3://b/x", 0, 1]}).is_remote
    assert not store_of({"x/0": ["a", 0, 1]}, base="/data").is_remote
    assert store_of({"x/0": ["a", 0, 1]}, base="s3://b").is_remote
    assert store_of({"x/0": ["b/a", 0, 1]}, remote_protocol="s3").is_remote
    assert not store_of({"x/0": ["b/a", 0, 1]}, remote_protocol="file").is_remote
    assert store_of({"x/0": [None, 0, 1]}, target="s3://b/x").is_remote
    assert not store_of({"x/0": "inline"}).is_remote
    assert store_of({"x/0": ["a", 0, 1]}, "s3://bucket/refs.json").is_remote


# --- the network


def test_three_kinds_of_targets_in_one_set(http_server, s3_server, target):  # noqa: F811
    bucket = s3_server.new_bucket()
    options = s3_server.storage_options
    fsspec.filesystem("s3", **options).pipe_file(f"{bucket}/dir/a.nc", DATA)
    (http_server.folder / "a.nc").write_bytes(DATA)
    urls = [f"{bucket}/dir/a.nc", f"{http_server.url}/a.nc", str(target)]
    refs = {f"x/{i}": [urls[i % 3], i, 10] for i in range(30)} | {"y/0": "inline"}
    store = store_of(refs, remote_options={"s3": options})
    s3_server.log.clear()
    values = list(store.get_many([*(ByteSpan(f"x/{i}") for i in range(30)), ByteSpan("y/0"), ByteSpan("z/0")]))
    assert values == [*(DATA[i : i + 10] for i in range(30)), b"inline", None]
    assert len([method for method, _ in s3_server.log if method == "GET"]) == 1
    assert len(http_server.log) == 1
    with pytest.raises(StoreError, match=f"3 bytes at offset 4 of '{bucket}/gone.nc'"):
        store_of({"x/0": [f"{bucket}/gone.nc", 4, 3]}, remote_options={"s3": options}).get("x/0")


# --- opening


@pytest.fixture
def another_process(monkeypatch):
    """Unpickle as a process does that has no set yet, and count the sets that it parses."""
    parsed = []

    def parse(*args, **options):
        parsed.append(options)
        return parse_reference_json(*args, **options)

    monkeypatch.setattr("chunkmill.model.references._sets", OrderedDict())
    monkeypatch.setattr("chunkmill.nodes.reference_sets.parse_reference_json", parse)
    return parsed


def test_a_set_of_a_file_is_opened_by_its_url_once_in_a_process(tmp_path, target, another_process):
    refs = {f"x/{i}": [str(target), i % 100, 4] for i in range(10_000)}
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    sent = pickle.dumps(open_reference_store(tmp_path / "refs.json"))
    assert len(sent) < 2000
    another_process.clear()
    stores = [pickle.loads(sent) for _ in range(3)]
    assert all(store.get("x/7") == DATA[7:11] for store in stores)
    assert len(another_process) == 1
    assert len(pickle.dumps(stores[0])) < 2000


@pytest.mark.parametrize("now", [None, "{}"], ids=["gone", "another"])
def test_a_set_that_changed_before_a_worker_opens_it_is_an_error(tmp_path, target, another_process, now):
    path = tmp_path / "refs.json"
    path.write_text(json.dumps({"x/0": [str(target), 5, 5]}))
    sent = pickle.dumps(open_reference_store(path))
    path.unlink() if now is None else path.write_text(now)
    with pytest.raises(MetadataError, match=r"refs\.json.*no change since it was opened"):
        pickle.loads(sent)


@pytest.mark.usefixtures("another_process")
def test_a_set_in_memory_alone_travels(target):
    refs = {"x/0": [str(target), 5, 5]}
    fsspec.filesystem("memory").pipe("/travels/refs.json", json.dumps(refs).encode())
    stores = [store_of(refs), open_reference_store("reference://", {"fo": refs})]
    for store in (*stores, open_reference_store("memory://travels/refs.json")):
        sent = pickle.dumps(store)
        fsspec.filesystem("memory").store.clear()
        assert pickle.loads(sent).get("x/0") == DATA[5:10]
        fsspec.filesystem("memory").pipe("/travels/refs.json", json.dumps(refs).encode())


def test_what_is_no_reference_set(tmp_path):
    (tmp_path / "zarr").mkdir()
    (tmp_path / "zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / "zarr" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / ".zmetadata").write_text("nope")
    for name in ("zarr", "zarr/zarr.json", "broken", "gone", "gone.json"):
        assert not is_reference_set(tmp_path / name)
        with pytest.raises(ChunkmillError):
            open_reference_store(tmp_path / name)
    with pytest.raises(NodeNotFound, match="reference set"):
        open_reference_store(tmp_path / "gone.json")
    (tmp_path / "bad.json.gz").write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(MetadataError, match="gzip"):
        open_reference_store(tmp_path / "bad.json.gz")


def test_as_fsspec_spells_it(tmp_path, target):
    (tmp_path / "refs.json").write_text(json.dumps({"x/0": [str(target), 5, 5]}))
    assert open_reference_store("reference://", {"fo": str(tmp_path / "refs.json")}).get("x/0") == DATA[5:10]
    assert is_reference_set("reference://")
    with pytest.raises(NodeNotFound, match="no reference set"):
        cm.open("reference://", storage_options={"fo": str(tmp_path / "none.json")})


ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs", "wasbs": "wasb", "S3": "s3"}


@cases(("alias", "protocol"), ALIASES.items())
def test_other_names_of_a_protocol(alias, protocol):
    """What is allowed under one name is allowed, and found, under every other."""
    for source in ("https://host/refs.json", f"{alias}://bucket/refs.json"):
        root, key = Targets(source).split(f"{alias}://bucket/a.nc")
        assert (root, key) == (f"{protocol}://bucket", "a.nc")
    only = Targets("https://host/refs.json", allowed_protocols=alias)
    assert only.split(f"{protocol}://bucket/a.nc") == (f"{protocol}://bucket", "a.nc")
    with pytest.raises(StoreError):
        only.split("https://host/a.nc")


def test_relative_paths_are_by_default_beside_the_set(tmp_path, monkeypatch):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "beside.bin").write_bytes(b"beside")
    (tmp_path / "above.bin").write_bytes(b"above")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "working.bin").write_bytes(b"working")
    monkeypatch.chdir(tmp_path / "there")
    for name in ("beside", "../above", "working"):
        (tmp_path / "sets" / "refs.json").write_text(json.dumps({"x/0": [f"{name}.bin"]}))
        store = open_reference_store(tmp_path / "sets" / "refs.json")
        assert store.get("x/0") == name.removeprefix("../").encode()
        monkeypatch.chdir(tmp_path)  # as in another process: what was found at first stays
        assert pickle.loads(pickle.dumps(store)).get("x/0") == name.removeprefix("../").encode()
        monkeypatch.chdir(tmp_path / "there")
    assert open_reference_store("reference://", {"fo": {"x/0": ["working.bin"]}}).get("x/0") == b"working"


def test_relative_paths_that_are_nowhere_are_said_when_the_set_is_opened(tmp_path):
    (tmp_path / "refs.json").write_text(json.dumps({".zgroup": {"zarr_format": 2}, "x/0": ["gone.bin", 0, 4]}))
    with pytest.warns(
        UserWarning, match=r"'gone.bin': the path is relative, and there is none in .* say to what by base="
    ):
        store = open_reference_store(tmp_path / "refs.json")
    assert store.get(".zgroup")
    with pytest.raises(StoreError, match="say to what by base="):
        store.get("x/0")


def test_other_bases_make_other_tokens(tmp_path):
    from dask.base import tokenize

    refs = {"fo": {"x/0": ["a.nc"]}}
    stores = [open_reference_store("reference://", {**refs, "base": tmp_path / name}) for name in "aab"]
    first, again, other = map(tokenize, stores)
    assert first == again != other


# --- sets in memory

ARRAY = {
    ".zgroup": '{"zarr_format": 2}',
    "x/.zarray": json.dumps(
        {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2", "compressor": None, "fill_value": 0}
        | {"filters": None, "order": "C"}
    ),
    "x/0": "base64:AQACAA==",
}
AS_DICTS = {
    "version 0": ARRAY,
    "version 1": {"version": 1, "refs": ARRAY},
    "bytes inline": ARRAY | {"x/0": b"\x01\x00\x02\x00"},
    "documents as objects": {key: json.loads(value) if ".z" in key else value for key, value in ARRAY.items()},
    "numbers of numpy": ARRAY | {"x/1": ["{target}", np.int64(2), np.uint32(4)]},
}


@cases("name", AS_DICTS)
def test_a_set_as_a_dict_is_opened_like_its_file(name, target):
    refs = dict(AS_DICTS[name])
    if "x/1" in refs:
        refs["x/1"] = [str(target), *refs["x/1"][1:]]
    before = dict(refs)
    expected = [1, 2, 0x0302, 0x0504] if "x/1" in refs else [1, 2, 0, 0]
    assert cm.open(refs)["x"][...].tolist() == expected
    assert pickle.loads(pickle.dumps(cm.from_store(refs, "x"))).compute().tolist() == expected
    with pytest.raises(StoreError, match="read-only"):
        cm.create_array(refs, "y", shape=4, dtype="i4")
    with pytest.raises(StoreError, match="read-only"):
        cm.to_store(np.zeros(4), refs, "y")
    assert refs == before


def test_a_dict_of_bytes_is_no_set():
    for values in ({}, {"zarr.json": b"{}", "version": b"1"}, {"refs": bytearray(b"x")}):
        assert type(open_store(values)) is MemoryStore


def test_a_dict_that_is_no_set_is_named(subtests):
    circle = {"version": 1}
    circle["refs"] = circle
    for name, refs in {
        "circle": circle, "object": ARRAY | {"x/1": [object()]}, "version": {"version": 7, "refs": {}},
        "refs": {"version": 1, "refs": "x"}, "deep": ARRAY | {"x/1": json.loads("[" * 900 + "]" * 900)},
    }.items():  # fmt: skip
        with subtests.test(name), pytest.raises(MetadataError, match="references"):
            cm.open(refs)


def test_options_of_a_set_as_a_dict(target):
    refs = ARRAY | {"x/0": [target.name, 2, 4]}
    assert cm.open(refs, base=target.parent)["x"][:2].tolist() == [0x0302, 0x0504]


def test_sets_as_dicts_are_joined():
    refs = ARRAY | {"x/.zattrs": '{"_ARRAY_DIMENSIONS": ["t"]}', "x/1": "base64:AwAEAA=="}
    joined = cm.concat_references([refs, {"version": 1, "refs": refs}], dim="t")
    assert joined["x"][...].tolist() == [1, 2, 3, 4, 1, 2, 3, 4]


def test_a_lazy_mapper_is_opened_where_it_is_stored(tmp_path):
    pytest.importorskip("pyarrow")
    reference = pytest.importorskip("fsspec.implementations.reference")
    cm.to_references(ARRAY, tmp_path / "set", format="parquet")
    assert len(pickle.dumps(open_reference_store(tmp_path / "set"))) < 2000
    lazy = reference.LazyReferenceMapper(str(tmp_path / "set"), engine="pyarrow")
    assert "x/0" in lazy
    assert cm.open(lazy)["x"][...].tolist() == [1, 2, 0, 0]
    assert open_reference_store("reference://", {"fo": lazy}).get("x/0") == b"\x01\x00\x02\x00"
    lazy["x/1"] = b"ab"
    with pytest.raises(StoreError, match="flush"):
        cm.open(lazy)
