"""Objects with the methods of obspec as stores."""

import numpy as np
import pytest
from contracts.store_contract import ContractOfSlowStores

pytest.importorskip("obstore")

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange
from chunkmill.stores.obstore import ObspecStore
from chunkmill.stores.open import is_store, open_store


class Result:
    def __init__(self, value, begin, end):
        self.value = value[begin:end]
        self.meta = {"path": "", "size": len(value), "e_tag": None, "version": None, "last_modified": None}

    def buffer(self):
        return memoryview(self.value)


class Readable:
    """The fewest methods that are taken."""

    def __init__(self, values=None):
        self.values = {} if values is None else values

    def get(self, path, *, options=None):
        if path not in self.values:
            raise FileNotFoundError(path)
        begin, end = (options or {}).get("range", (0, None))
        return Result(self.values[path], begin, end)

    def list(self, prefix=None, *, offset=None):
        assert prefix is None or not prefix.startswith("/")
        for path in sorted(self.values):
            yield []
            yield [{"path": path, "size": len(self.values[path])}]


class Writable(Readable):
    def put(self, path, file, *, mode=None, chunk_size=None):
        self.values[path] = bytes(file)

    def delete(self, paths):
        for path in [paths] if isinstance(paths, str) else paths:
            self.values.pop(path, None)


class TestFewMethods(ContractOfSlowStores):
    @pytest.fixture
    def store(self):
        return open_store(Writable())


class TestObstoreByItsMethods(ContractOfSlowStores):
    """With ``head``, ``list_with_delimiter`` and errors of its own."""

    test_pickle = test_listings_are_fresh = None  # memory of obstore does not pickle

    @pytest.fixture
    def store(self):
        obstore = pytest.importorskip("obstore.store")
        return ObspecStore(obstore.MemoryStore())


def test_a_wrapper_is_read_through():
    obstore = pytest.importorskip("obstore.store")
    wrappers = pytest.importorskip("obspec_utils.wrappers")
    below = obstore.MemoryStore()
    cm.to_store(np.arange(100), below, chunks=(10,), shards=(50,))
    cached = wrappers.CachingReadableStore(below)
    assert cm.open_array(cached)[...].tolist() == list(range(100))
    assert cm.from_store(cached).sum().compute() == 4950
    assert cached.cached_paths


def test_written_by_dask_and_read_back():
    place = Writable()
    report = cm.to_store(np.arange(24).reshape(4, 6), place, chunks=(2, 3))
    assert "lock" in repr(report)
    cm.convert(place, target := Writable(), format="n5")
    assert cm.verify(place, target).equal


def test_what_lacks_methods_is_told_which():
    class Half:
        def get(self, path):
            raise AssertionError

    assert not is_store(Half())
    with pytest.raises(TypeError, match="Half, which lacks list"):
        cm.open(Half())
    with pytest.raises(TypeError, match="type, which lacks"):
        open_store(type)
    with pytest.raises(StoreError, match=r"Readable.*has no attribute 'put'"):
        cm.create_array(Readable(), shape=4, dtype="i4")


def test_a_range_of_another_length_is_never_taken():
    class Lying(Readable):
        def get(self, path, *, options=None):
            return super().get(path)

    store = open_store(Lying({"a": b"0123456789"}))
    for wanted in (ByteRange(2, 3), ByteRange(8, 3), ByteRange(-3), ByteRange(11), ByteRange(9)):
        with pytest.raises(StoreError, match="truncated"):
            store.get("a", wanted)


def test_errors_of_the_object_name_the_key():
    class Failing(Readable):
        def get(self, path, *, options=None):
            raise RuntimeError("no route")

    with pytest.raises(StoreError, match=r"key .*RuntimeError: no route"):
        cm.open(Failing())
