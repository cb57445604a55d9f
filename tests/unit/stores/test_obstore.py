"""obstore's requests: what they are, and what becomes of trouble on the way."""

import os
import pickle
import textwrap
import warnings
from contextlib import nullcontext
from unittest.mock import Mock
from urllib.error import HTTPError

import dask
import fsspec
import numpy as np
import pytest
from support.cases import cases
from support.scripts import run_script
from support.servers import WARNINGS, http_server, s3_server, serve_flaky  # noqa: F401
from support.systems import NEEDS_FORK

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.open import open_store

obstore = pytest.importorskip("obstore")
from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, MemoryStore, S3Store  # noqa: E402

from chunkmill.stores import conflicts, local, obstore_clients  # noqa: E402
from chunkmill.stores.obstore import PIECE, ObstoreStore  # noqa: E402
from chunkmill.stores.obstore_clients import location_of, reason_of  # noqa: E402

pytestmark = WARNINGS

VALUES = np.arange(24, dtype="i4").reshape(6, 4)


@pytest.fixture(autouse=True)
def without_settings_of_aws(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def url(s3_server):  # noqa: F811
    return s3_server.new_bucket() + "/some/root"


@pytest.fixture
def store(s3_server, url):  # noqa: F811
    return open_store(url, s3_server.storage_options)


def options_at(s3_server, endpoint_url):  # noqa: F811
    options = s3_server.storage_options
    return options | {"client_kwargs": options["client_kwargs"] | {"endpoint_url": endpoint_url}}


# --------------------------------------------------------------------------------------------------------------------
# Which urls and objects come here


@cases(
    ("url", "options", "config"),
    [
        ("s3://b/x", {"key": "k", "secret": "s", "token": "t", "client_kwargs": {"region_name": "eu-west-1"}},
         {"access_key_id": "k", "secret_access_key": "s", "session_token": "t", "region": "eu-west-1"}),
        ("s3a://b/x/", {"anon": True, "endpoint_url": "http://host:1", "use_listings_cache": False},
         {"skip_signature": True, "endpoint": "http://host:1", "region": "us-east-1"}),
        ("s3://b/x", {"endpoint_url": "http://host:1", "client_kwargs": {"region_name": "eu-west-1"}},
         {"endpoint": "http://host:1", "region": "eu-west-1"}),
        ("s3://b/x", {"access_key_id": "k", "endpoint": "http://host:1"},  # its own names
         {"access_key_id": "k", "endpoint": "http://host:1", "region": "us-east-1"}),
        ("s3://b/x", {"anon": True, "requester_pays": True, "client_kwargs": {"region_name": "us-west-2"}},
         {"skip_signature": True, "request_payer": True, "region": "us-west-2"}),
        ("gs://b/x", {"token": "anon", "project": "p"}, {"skip_signature": True}),
        ("gcs://b/x", {"token": "/key.json"}, {"application_credentials": "/key.json"}),
        ("gs://b/x", {}, {}), ("gs://b/x", {"token": "google_default"}, {}),
        ("gs://b/x", {"token": {"type": "service_account"}}, {"service_account_key": '{"type": "service_account"}'}),
        ("az://b/x", {"account_name": "a", "account_key": "k"}, {"account_name": "a", "account_key": "k"}),
        ("abfs://b@a.dfs.core.windows.net/x", {"anon": True}, {"account_name": "a", "skip_signature": True}),
        ("abfs://b/x", {"connection_string": "AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:1/a"},
         {"account_name": "a", "account_key": "k==", "endpoint": "http://127.0.0.1:1/a"}),
    ],
)  # fmt: skip
def test_options_that_both_know(url, options, config):
    location = location_of(url, options)
    assert dict(location.config) == config
    assert (location.bucket, location.prefix) == ("b", "x")


@cases(
    ("url", "options", "words"),
    [
        ("s3://b/x", {"anon": True, "endpoint_ulr": "http://h"},
         "no option 'endpoint_ulr'; did you mean 'endpoint_url'"),
        ("s3://b/x", {"anon": True, "config_kwargs": {"max_pool_connections": 3}}, "no option 'config_kwargs'"),
        ("s3://b/x", {"anon": True, "client_kwargs": {"verify": False}}, "no option 'verify'"),
        ("gs://b/x", {"token": "browser"}, "token= of Google"),
        ("az://b/x", {"account_name": "a", "credential": object()}, "no option 'credential'"),
        ("az://b/x", {"connection_string": "Accountkex=1"}, "'Accountkex'"),
        ("https://host/x", {"header": {}}, "did you mean 'headers'"),
    ],
)  # fmt: skip
def test_an_option_that_obstore_has_not_is_an_error(url, options, words):
    with pytest.raises(ValueError, match=words):
        open_store(url, options)


def test_without_credentials_the_way_out_is_said(monkeypatch, s3_server):  # noqa: F811
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = open_store(s3_server.new_bucket(), {"endpoint_url": s3_server.endpoint_url})
    with pytest.raises(StoreError, match=r"'anon': True.*key= and secret=.*AWS_ACCESS_KEY_ID"):
        store.get("k")


def test_without_obstore_fsspec_opens_it_with_a_warning(s3_server, url, monkeypatch):  # noqa: F811
    monkeypatch.setattr(obstore_clients, "find_spec", lambda name: None if name == "obstore" else True)
    obstore_clients._warn.cache_clear()
    with pytest.warns(UserWarning, match=r"chunkmill\[cloud\]"):
        store = open_store(url, s3_server.storage_options)
    assert isinstance(store, FsspecStore)
    assert open_store(url, s3_server.storage_options) == store  # and warns no more
    store.set("k", bytes(range(100)))
    assert (store.get("k", ByteRange(10, 2)), store.get("no"), store.compares_versions) == (b"\x0a\x0b", None, False)
    with pytest.warns(UserWarning, match="lock alone"):
        assert store.set_if("new", b"1", None)


def test_its_objects_are_stores(tmp_path):
    assert open_store(S3Store("b", prefix="p/q", region="r", skip_signature=True)).url == "s3://b/p/q"
    assert open_store(GCSStore("b", skip_signature=True)).url == "gs://b"
    assert open_store(AzureStore("c", account_name="a", skip_signature=True)).url == "az://c"
    assert open_store(HTTPStore("https://host/x?token=1")).url == "https://host/x"
    assert open_store(LocalStore(tmp_path)) == local.LocalStore(tmp_path)
    memory = open_store(MemoryStore())
    assert not memory.is_remote
    assert memory.compares_versions


def test_a_store_pickles_with_its_options(store):
    store.set("k", b"v")
    assert pickle.loads(pickle.dumps(store)).get("k") == b"v"
    assert pickle.loads(pickle.dumps(store)) == store
    assert "testing" not in repr(store)


@pytest.mark.parametrize("used", [True, False])
@NEEDS_FORK
def test_a_forked_process_is_told_to_be_spawned(store, used):
    """obstore's threads are not in it: it would wait without end."""
    code = textwrap.dedent("""
        import os, pickle, sys
        from chunkmill.stores.base import ByteSpan
        store, used = pickle.loads(bytes.fromhex(sys.argv[1]))
        if used:
            store.set("k", b"v")
        if os.fork():
            sys.exit(os.wait()[1])
        for ask in (lambda: store.get("k"), lambda: [*store.get_many([ByteSpan("k")] * 3)], lambda: store.set("c", b"")):
            try:
                print(ask())
            except Exception as error:
                print(error)
    """)
    store.set("k", b"v")
    found = run_script(code, pickle.dumps((store, used)).hex()).splitlines()
    if used:
        assert len([each for each in found if "was forked" in each and "spawn" in each]) == 3
    else:
        assert found == ["b'v'", str([b"v"] * 3), "None"]


# --------------------------------------------------------------------------------------------------------------------
# Requests


def gets(s3_server):  # noqa: F811
    return [path for method, path in s3_server.log if method == "GET"]


def test_one_request_a_value(store, s3_server):  # noqa: F811
    store.set("k", bytes(range(100)))
    s3_server.log.clear()
    assert store.get("k") == bytes(range(100))
    assert (store.get("k", ByteRange(7, 3)), store.get("k", ByteRange(-2))) == (b"\x07\x08\x09", b"bc")
    assert store.get("absent") is None
    assert store.get_versioned("k")[0] == bytes(range(100))
    assert len(s3_server.log) == 5


def test_large_values_by_many_requests(store, s3_server):  # noqa: F811
    value = np.random.default_rng(0).bytes(5 * PIECE // 2)
    s3_server.log.clear()
    store.set("k", value)
    assert len([path for method, path in s3_server.log if method == "PUT" and "partNumber" in path]) == 3
    s3_server.log.clear()
    assert store.get("k") == value
    assert len(gets(s3_server)) == 3
    assert store.get("k", ByteRange(10, 2 * PIECE)) == value[10 : 10 + 2 * PIECE]
    assert len(gets(s3_server)) == 3 + 2
    assert list(store.get_many([ByteSpan("k"), ByteSpan("k", ByteRange(5, 5))])) == [value, value[5:10]]
    with pytest.raises(StoreError, match="expected 41943040 bytes from 1, got a value of 20971520 bytes"):
        store.get("k", ByteRange(1, 5 * PIECE))


def test_a_large_value_that_is_replaced_while_it_is_read(store, monkeypatch):
    """All of it is of one version."""
    old, new = bytes(2 * PIECE), b"\1" * (2 * PIECE)
    store.set("k", old)
    get, asked = obstore.get, []

    def replacing(place, *args, **kwargs):
        asked.append(args)
        if len(asked) == 2:
            obstore.put(place, "k", new)
        return get(place, *args, **kwargs)

    monkeypatch.setattr(obstore, "get", replacing)
    assert store.get("k") == new


def test_a_value_is_sent_from_where_it_is(store, monkeypatch):
    """A copy of 256 KiB takes a tenth of storing it."""
    value, sent = np.arange(64, dtype="u1"), []
    monkeypatch.setattr(obstore, "put", lambda _, __, data, **___: sent.append(data) or {})
    store.set("k", value)
    assert np.shares_memory(np.frombuffer(sent[0], "u1"), value)


def test_stores_of_one_place_share_connections(url, s3_server, monkeypatch):  # noqa: F811
    first, second = (open_store(url, s3_server.storage_options) for _ in range(2))
    assert first._open() is second._open() is pickle.loads(pickle.dumps(first))._open()
    assert open_store(url + "/below", s3_server.storage_options)._open() is not first._open()
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another")
    assert open_store(url, s3_server.storage_options)._open() is not first._open()


# --------------------------------------------------------------------------------------------------------------------
# Guards


def test_a_chunk_that_becomes_empty_is_written(store, s3_server):  # noqa: F811
    """Deleting has no condition: what another writes at the same time would be lost."""
    array = cm.create_array(store, shape=(4,), dtype="i4", chunks=(4,))
    array[:] = 1
    array[:2] = 0
    array[2:] = 0
    assert store.get("c/0") is not None
    assert list(array[...]) == [0] * 4
    array[:] = 0  # whole: nothing of others is in it
    assert store.get("c/0") is None


def test_the_server_is_asked_once(s3_server):  # noqa: F811
    a = open_store(s3_server.new_bucket() + "/a", s3_server.storage_options)
    assert a.compares_versions
    s3_server.log.clear()
    assert a.compares_versions
    assert open_store(a.url.replace("/a", "/b"), s3_server.storage_options).compares_versions
    assert s3_server.log == []
    assert list(a.list_prefix("")) == []


STRANGE = [{"weakens": True}, {"conditions": (501, "NotImplemented")}, {"ignored": ("if-match", "if-none-match")}]


@pytest.mark.parametrize("knobs", STRANGE)
def test_a_strange_server_is_written_to_by_lock_alone(s3_server, knobs):  # noqa: F811
    """With weak ETags nothing ever returned; with 501 nothing was written, after 101 requests and 47 s."""
    with serve_flaky(s3_server.endpoint_url, **knobs) as proxy:
        store = open_store(s3_server.new_bucket() + "/x", options_at(s3_server, proxy.url))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            assert not store.compares_versions
            assert store.set_if("k", b"1", None)
            assert not store.set_if("k", b"2", None)
            _, version = store.get_versioned("k")
            assert store.set_if("k", b"3", version)
            assert not store.set_if("k", b"4", version)
            assert store.get("k") == b"3"
            assert store.set_if("k", None, store.get_versioned("k")[1])
            assert store.get("k") is None
        assert len([each for each in warned if "lock alone" in str(each.message)]) == 1
        assert proxy.n_requests < 60  # 101 for one, once


def test_a_conflict_of_conditions_is_tried_again(s3_server):  # noqa: F811
    """One answer of 409 was taken for an array that others had made."""
    with serve_flaky(s3_server.endpoint_url, conditions=(409, "ConditionalRequestConflict"), n_conditional=0) as proxy:
        store = open_store(s3_server.new_bucket() + "/x", options_at(s3_server, proxy.url))
        assert store.compares_versions
        for n_refused in (1, 3):
            proxy.n_conditional = n_refused
            assert store.set_if(f"k{n_refused}", b"1", None)
            assert proxy.n_conditional == 0
        assert not store.set_if("k1", b"2", None)  # others' is there


def refuse_to(method, error, monkeypatch):
    monkeypatch.setattr(obstore, method, Mock(side_effect=error))


def test_credentials_that_may_not_write_lose_nothing(monkeypatch):
    store = ObstoreStore(MemoryStore())
    assert conflicts.compares_versions(store, "all conditions hold")
    for kind, text in (("PermissionDenied", "403 Forbidden"), ("Unauthenticated", "401 Unauthorized")):
        refuse_to("put", getattr(obstore.exceptions, f"{kind}Error")(text), monkeypatch)
        assert conflicts.compares_versions(store, text)
    with pytest.raises(StoreError, match="the credentials are missing or wrong"):
        store.set_if("k", b"", None)
    refuse_to("put", OSError("500"), monkeypatch)
    with pytest.raises(StoreError, match="500"):  # of what may pass nothing is known
        conflicts.compares_versions(store, "500")


def test_what_others_delete_at_the_same_time_hinders_no_deletion(monkeypatch):
    delete = Mock(side_effect=[None, FileNotFoundError, None, FileNotFoundError, None])
    monkeypatch.setattr(obstore, "delete", delete)
    monkeypatch.setattr("chunkmill.stores.obstore._PAGE", 2)
    ObstoreStore(MemoryStore()).delete_many(["k", "l", "a", "b", "z"])
    assert [call.args[1] for call in delete.mock_calls] == [["k", "l"], ["a", "b"], "a", "b", ["z"]]


# --------------------------------------------------------------------------------------------------------------------
# Trouble on the way


def test_a_value_that_others_replace_again_and_again_is_an_error(monkeypatch):
    refuse_to("get", obstore.exceptions.PreconditionError("412"), monkeypatch)
    with pytest.raises(StoreError, match=r"'k'.*replaced 10 times while it was read"):
        ObstoreStore(MemoryStore()).get("k")


def test_a_place_that_is_not_there_is_not_written_and_has_no_names(monkeypatch):
    for name in ("put", "list_with_delimiter"):
        refuse_to(name, FileNotFoundError("404"), monkeypatch)
    assert ObstoreStore(MemoryStore()).list_dir("a/") == []
    with pytest.raises(StoreError, match=r"'k'.*cannot write: the place does not exist"):
        ObstoreStore(MemoryStore()).set("k", b"1")


@cases(
    ("answer", "region"), [({"x-amz-bucket-region": "eu-west-1"}, "eu-west-1"), ({}, "us-east-1"), (None, "us-east-1")]
)
@cases("is_public", [True, False])
def test_the_region_of_a_bucket_is_asked_for(answer, region, is_public, monkeypatch):
    def urlopen(request, **_):
        if is_public and answer is not None:
            return nullcontext(Mock(headers=answer))
        raise OSError if answer is None else HTTPError(request.full_url, 301, "moved", answer, None)

    monkeypatch.setattr(obstore_clients.urllib.request, "urlopen", urlopen)
    assert obstore_clients._region_of("b") == region
    monkeypatch.setattr(obstore_clients, "_check_reachable", Mock())
    assert obstore_clients._new_client(location_of("s3://b/x", {"anon": True}), 0).config["region"] == region


def test_which_server_is_asked_without_an_endpoint():
    servers = {"s3": "s3.amazonaws.com", "gs": "storage.googleapis.com", "az": "a.blob.core.windows.net"}
    for kind, server in servers.items():
        assert obstore_clients.Location(kind, "b", "", {"account_name": "a"}).server == f"https://{server}"


def test_profiles_that_cannot_be_read(monkeypatch):
    store = open_store("s3://b/x", {"profile": "no-such"})
    with pytest.raises(StoreError, match="boto3 finds no credentials: ProfileNotFound"):
        store.get("k")
    monkeypatch.setattr(obstore_clients, "find_spec", lambda _: None)
    with pytest.raises(StoreError, match="profiles of AWS need boto3"):
        store.get("k")
    assert obstore_clients._credentials(store._place, None) == {}


def test_no_retries_when_users_want_none(s3_server):  # noqa: F811
    with serve_flaky(s3_server.endpoint_url, every=1) as proxy, dask.config.set({"chunkmill.retry-seconds": 0}):
        store = open_store(s3_server.new_bucket() + "/x", options_at(s3_server, proxy.url))
        with pytest.raises(StoreError, match=r"'k'.*503"):
            store.get("k")
        assert proxy.n_requests == 1


def test_a_missing_bucket_is_no_absent_key(s3_server):  # noqa: F811
    store = open_store("s3://no-such-bucket/x", s3_server.storage_options)
    for request in (
        lambda: store.get("k"), lambda: store.set("k", b""), lambda: store.set_if("k", b"", None),
        lambda: store.list_dir(""), lambda: list(store.list_prefix("")),
        lambda: list(store.get_many([ByteSpan("k")])),
    ):  # fmt: skip
        with pytest.raises(StoreError, match="no such bucket or container: create it"):
            request()


@cases(
    ("text", "hint"),
    [
        ("400 <Code>ExpiredToken</Code>", "have expired"),
        ("403 <Code>InvalidAccessKeyId</Code>", "missing or wrong"),
        ("400 <Code>AuthorizationHeaderMalformed</Code>", "another region"),
        ("Received redirect without LOCATION", "another region"),
        ("403 Forbidden <Code>AccessDenied</Code>", "requester_pays"),
        ("GET http://169.254.169.254/latest/api/token", "anon"),
        ("ContainerNotFound", "no such bucket"),
    ],
)
def test_reasons_name_the_way_out(text, hint):
    reason = reason_of(OSError(f"Generic error: {text}\n\nDebug source:\nGeneric {{ noise }}"))
    assert hint in reason
    assert "noise" not in reason


@cases("host", ["127.0.0.1:9", "no-such-host.invalid"])
@cases("kind", ["s3", "gs", "az", "http"])
def test_a_server_that_cannot_be_reached(kind, host, monkeypatch):
    """In seconds, though outages of a server that has answered are bridged for 120 s."""
    assert obstore_clients._CONNECT_SECONDS < 5
    monkeypatch.setattr(obstore_clients, "_CONNECT_SECONDS", 0.5)
    url, options = {
        "s3": ("s3://b/x", {"key": "k", "secret": "s", "endpoint_url": f"http://{host}"}),
        "gs": ("gs://b/x", {"token": "anon", "endpoint_url": f"http://{host}"}),
        "az": ("az://b/x", {"connection_string": f"AccountName=a;AccountKey=aaaa;BlobEndpoint=http://{host}/a"}),
        "http": (f"http://{host}/x", None),
    }[kind]
    with pytest.raises(StoreError, match=r"accepts no connection|has no address") as caught:
        cm.open_array(url, storage_options=options)
    assert f"http://{host if ':' in host else host + ':80'} " in str(caught.value)
    assert kind == "http" or "endpoint_url" in str(caught.value)


@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_web_servers_are_read_only_and_not_listed(http_server, client):  # noqa: F811
    url = http_server.url
    place = url if client == "obstore" else fsspec.filesystem("http").get_mapper(url)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for names in ((), ("k",)):  # the page of an empty folder has no links
            for name in names:
                (http_server.folder / name).write_bytes(b"")
            for write in (lambda: cm.to_store(VALUES, place, "a"), lambda: cm.create_group(place)):
                with pytest.raises(StoreError, match="read only"):
                    write()
        with pytest.raises(StoreError, match="list nothing"):  # a page of links says for certain of no key
            list(open_store(place).list_prefix(""))
