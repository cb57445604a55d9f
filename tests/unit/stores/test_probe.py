"""Servers whose conditional writes do not work are found out in the first second, and written to by lock alone."""

import warnings

import pytest
from support.cases import cases
from support.servers import WARNINGS, s3_server, serve_flaky  # noqa: F401

from chunkmill.errors import StoreError
from chunkmill.stores import conflicts
from chunkmill.stores.open import open_store

pytestmark = WARNINGS

STRANGE = {
    "weak ETags": {"weakens": True},
    "501": {"conditions": (501, "NotImplemented")},
    "ignored": {"ignored": ("if-match", "if-none-match")},
}


@pytest.fixture
def open_at(s3_server):  # noqa: F811
    def store_at(endpoint_url):
        options = s3_server.storage_options
        options |= {"client_kwargs": options["client_kwargs"] | {"endpoint_url": endpoint_url}}
        url = s3_server.new_bucket() + "/x"
        return open_store(url, options)

    return store_at


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_server_is_written_to_by_lock_alone(open_at, s3_server, kind):  # noqa: F811
    """With weak ETags nothing ever returned; with 501 nothing was written, after 101 requests and 47 s."""
    with serve_flaky(s3_server.endpoint_url, every=1 << 60, **STRANGE[kind]) as proxy:
        store = open_at(proxy.url)
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


def test_a_conflict_of_conditions_is_tried_again(open_at, s3_server):  # noqa: F811
    """One answer of 409 was taken for an array that others had made."""
    with serve_flaky(
        s3_server.endpoint_url, every=1 << 60, conditions=(409, "ConditionalRequestConflict"), n_conditional=0
    ) as proxy:
        store = open_at(proxy.url)
        assert store.compares_versions
        for n_refused in (1, 3):
            proxy.n_conditional = n_refused
            assert store.set_if(f"k{n_refused}", b"1", None)
            assert proxy.n_conditional == 0
        assert not store.set_if("k1", b"2", None)  # others' is there


def test_a_create_that_is_refused_for_ever_ends(store):
    with pytest.raises(StoreError, match="refused for 0 s to create this key, and there is no such key"):
        conflicts.create_again(store, "k", lambda: False, 0.1)


@cases(
    ("text", "expected"),
    [
        ("403 Forbidden <Code>AccessDenied</Code>", True), ("The provided token has expired.", False),
        ("403 <Code>InvalidAccessKeyId</Code>", False), ("The request signature we calculated does not match", False),
    ],
)  # fmt: skip
def test_an_answer_of_expired_credentials_is_not_that_of_an_absent_key(text, expected):
    error = StoreError(url="s3://b", key="k", reason=text)
    error.__cause__ = PermissionError(text)
    assert conflicts.is_forbidden(error) is expected
