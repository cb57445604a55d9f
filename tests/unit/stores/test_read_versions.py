"""Versions that come with values are those that are asked for later."""

import pytest

from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.obstore import ObstoreStore
from chunkmill.stores.read_versions import ReadVersions, digest_of, has_versions, list_versions, noting, version_now
from chunkmill.stores.zip import ZipStore


def obstore_memory(_):
    from obstore.store import MemoryStore as Memory

    return ObstoreStore(Memory())


STORES = {
    "memory": lambda _: MemoryStore(),
    "files": LocalStore,
    "zip": lambda path: ZipStore(path / "a.zip"),
    "obstore": obstore_memory,
}


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    store = STORES[request.param](tmp_path)
    for key in ("a/0", "a/1"):
        store.set(key, b"0123456789")
    return store


def test_versions_of_whole_values_and_ranges(store):
    assert has_versions(store)
    read = ReadVersions()
    noted = noting(store, read.record)
    assert (noted.get("a/0"), noted.get("a/2")) == (b"0123456789", None)
    spans = [ByteSpan("a/1", ByteRange(-3)), None, ByteSpan("a/1", ByteRange(1, 2))]
    assert list(noted.get_many(spans)) == [b"789", None, b"12"]
    now = {key: version_now(store, key) for key in ("a/0", "a/1")}
    assert read.digest() == digest_of(now)
    assert version_now(store, "a/2") is None
    listed = list_versions(store, "a/")
    assert listed is None or dict(listed) == now


def test_a_value_that_is_replaced_has_another_version(store):
    read = ReadVersions()
    noted = noting(store, read.record)
    noted.get("a/0")
    store.set("a/0", b"0123456789")
    assert read.digest() != digest_of({"a/0": version_now(store, "a/0")})
    noted.get("a/0")  # read twice, of two values
    assert read.digest() != digest_of({"a/0": version_now(store, "a/0")})


def test_a_store_with_a_get_of_its_own_has_no_versions():
    class Mine(MemoryStore):
        def get(self, key, byte_range=None):
            return super().get(key, byte_range)

    class Named(MemoryStore):
        pass

    assert not has_versions(Mine())
    assert has_versions(Named())
