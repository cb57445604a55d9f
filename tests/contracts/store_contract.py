"""What every store must do. A subclass per implementation defines the fixture `store`."""

from __future__ import annotations

import os
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan

VALUE = b"0123456789"
KEYS = {
    "a/zarr.json": b"{}", "a/c/0/0": VALUE, "a/c/0/1": b"", "a/c/10": b"ten", "ab/zarr.json": b"{ }",
    "zarr.json": b"root",
}  # fmt: skip
AWKWARD_KEYS = [
    "sp ace/c#0", "per%cent/%41", "question?mark/0", "plus+and&/=0", "ünï-日本/0", "[0-9]*/c", ".zarray", "a..b/0",
    "~t/x,y;z",
]  # fmt: skip

RANGES = {
    "head": (ByteRange(0, 3), b"012"), "middle": (ByteRange(3, 4), b"3456"), "all": (ByteRange(0, 10), VALUE),
    "open end": (ByteRange(7), b"789"), "suffix": (ByteRange(-4), b"6789"),
    "part of a suffix": (ByteRange(-4, 2), b"67"), "longer suffix: all": (ByteRange(-99), VALUE),
    "nothing": (ByteRange(4, 0), b""), "nothing at the end": (ByteRange(10), b""),
}  # fmt: skip
OUTSIDE = {
    "runs past the end": ByteRange(0, 11), "runs past the end from inside": ByteRange(8, 3),
    "begins past the end": ByteRange(11), "begins and ends past the end": ByteRange(11, 4),
    "suffix that runs past the end": ByteRange(-4, 5),
}  # fmt: skip


def at_once(functions):
    """Call each function in a thread of its own; raise what it raises."""
    with ThreadPoolExecutor(len(functions)) as pool:
        for each in [pool.submit(function) for function in functions]:
            each.result()


def count_up(store, key, n):
    """Add 1 to a number so many times, whatever others add."""
    for _ in range(n):
        done = False
        while not done:
            value, version = store.get_versioned(key)
            done = store.set_if(key, b"%0*d" % (len(value), int(value) + 1), version)


def _facts(store):
    return store.is_remote, store.compares_versions, store.replaces_atomically


class ReadContract:
    """Of a store that holds `KEYS`: the fixture `filled`."""

    n_reads = 20

    def test_get(self, filled):
        assert {key: filled.get(key) for key in KEYS} == KEYS

    def test_absent_is_none(self, filled, subtests):
        for key in ("b", "a/c/0/2", "a/c/0/0/0", "zarr", "a/c/1"):
            with subtests.test(key):
                assert filled.get(key) is None
                assert filled.get(key, ByteRange(0, 4)) is None
                assert filled.get(key, ByteRange(-4)) is None
                assert filled.get(key, ByteRange(0, 0)) is None
                assert filled.size(key) is None
                assert filled.get_versioned(key) == (None, None)

    def test_ranges(self, filled, subtests):
        for name, (byte_range, expected) in RANGES.items():
            with subtests.test(name):
                assert filled.get("a/c/0/0", byte_range) == expected
                assert list(filled.get_many([ByteSpan("a/c/0/0", byte_range)])) == [expected]

    def test_ranges_outside_raise(self, filled, subtests):
        for name, byte_range in OUTSIDE.items():
            with subtests.test(name):
                with pytest.raises(StoreError, match="a/c/0/0"):
                    filled.get("a/c/0/0", byte_range)
                with pytest.raises(StoreError, match="a/c/0/0"):
                    list(filled.get_many([ByteSpan("a/c/0/0", byte_range)]))

    def test_suffix_of_an_empty_value(self, filled):
        assert filled.get("a/c/0/1", ByteRange(-4)) == b""

    def test_get_many_keeps_order_and_gaps(self, filled):
        spans = [
            ByteSpan("zarr.json"), None, ByteSpan("absent"), ByteSpan("a/c/0/0", ByteRange(8, 2)),
            ByteSpan("a/c/0/0", ByteRange(0, 2)), ByteSpan("absent", ByteRange(4, 4)), ByteSpan("a/c/0/1"),
            ByteSpan("a/c/0/0", ByteRange(1, 5)), ByteSpan("zarr.json"), ByteSpan("a/c/0/0", ByteRange(-1)),
        ]  # fmt: skip
        expected = [b"root", None, None, b"89", b"01", None, b"", b"12345", b"root", b"9"]
        assert list(filled.get_many(spans)) == expected
        assert list(filled.get_many([])) == []

    def test_get_many_is_lazy(self, filled):
        taken = []

        def spans():
            for i in range(10_000):
                taken.append(i)
                yield ByteSpan("zarr.json") if i % 3 < 2 else None

        values = filled.get_many(spans())
        assert next(values) == b"root"
        assert len(taken) < 1000
        values.close()

    def test_size(self, filled):
        assert {key: filled.size(key) for key in KEYS} == {key: len(value) for key, value in KEYS.items()}

    def test_versioned(self, filled):
        value, version = filled.get_versioned("a/c/0/0")
        assert value == VALUE
        assert isinstance(version, str)
        assert filled.get_versioned("a/c/0/0") == (value, version)

    def test_no_key_leads_out(self, filled, subtests):
        requests = (filled.get, filled.size, filled.get_versioned, filled.delete)
        requests += (lambda k: filled.set(k, b""), lambda k: list(filled.get_many([ByteSpan(k)])))
        for key, request in product(["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a\0b"], requests):
            with subtests.test(key, request=request.__name__), pytest.raises(ValueError, match="not a store key"):
                request(key)

    def test_no_prefix_leads_out(self, filled, subtests):
        requests = (filled.list_dir, filled.delete_prefix, lambda p: list(filled.list_prefix(p)))
        for prefix, request in product(["a", "/", "../", "a/../b/"], requests):
            with subtests.test(prefix, request=request.__name__), pytest.raises(ValueError, match=r"prefix|key"):
                request(prefix)

    def test_list_dir(self, filled):
        assert filled.list_dir("") == ["a/", "ab/", "zarr.json"]
        assert filled.list_dir("a/") == ["c/", "zarr.json"]
        assert filled.list_dir("a/c/") == ["0/", "10"]

    def test_list_prefix(self, filled):
        assert sorted(filled.list_prefix("")) == sorted(KEYS)
        assert sorted(filled.list_prefix("a/")) == ["a/c/0/0", "a/c/0/1", "a/c/10", "a/zarr.json"]

    def test_pickle(self, filled):
        other = pickle.loads(pickle.dumps(filled))
        assert other.get("a/c/0/0") == VALUE
        assert other.url == filled.url
        assert _facts(other) == _facts(filled)

    def test_many_threads(self, filled):
        def read():
            for _ in range(self.n_reads):
                assert {key: filled.get(key) for key in KEYS} == KEYS

        at_once([read] * 6)


class StoreContract(ReadContract):
    """Of a store that is empty and can be written: the fixture `store`."""

    n_listed = 1000
    n_threads, n_increments = 4, 12
    n_replaced = 30

    @pytest.fixture
    def filled(self, store):
        for key, value in KEYS.items():
            store.set(key, value)
        return store

    def test_list_nothing(self, store):
        assert store.list_dir("") == []
        assert store.list_dir("no/where/") == []
        assert list(store.list_prefix("no/")) == []

    def test_a_key_is_no_prefix(self, filled, subtests):
        for prefix in ("zarr.json/", "a/zarr.json/"):
            with subtests.test(prefix):
                assert filled.list_dir(prefix) == []
                assert list(filled.list_prefix(prefix)) == []
                filled.delete_prefix(prefix)
                assert filled.get(prefix[:-1]) is not None

    def test_a_prefix_is_no_key(self, filled, subtests):
        for key in ("a", "a/c", "a/c/0"):
            with subtests.test(key):
                assert filled.get(key) is None
                assert filled.size(key) is None
                assert filled.get_versioned(key) == (None, None)
                filled.delete(key)
                assert filled.get("a/c/0/0") == VALUE

    def test_set_replaces(self, store, subtests):
        for kind in (bytes, bytearray, memoryview):
            with subtests.test(kind.__name__):
                store.set("k/0", b"first, and longer")
                store.set("k/0", kind(b"second"))
                assert store.get("k/0") == b"second"
                assert store.size("k/0") == 6

    def test_set_takes_any_buffer(self, store):
        store.set("strided", memoryview(b"a-b-c-")[::2])
        store.set("wide", memoryview(bytearray(8)).cast("d"))
        assert (store.get("strided"), store.get("wide")) == (b"abc", bytes(8))

    def test_value_is_a_copy(self, store):
        value = bytearray(b"before")
        store.set("k", value)
        value[:] = b"after!"
        assert store.get("k") == b"before"

    def test_awkward_keys(self, store, subtests):
        for key in AWKWARD_KEYS:
            with subtests.test(key):
                self.check_awkward_key(store, key)
                store.delete_prefix("")

    def check_awkward_key(self, store, key):
        if os.name == "nt" and store.url.startswith("file:") and re.search(r"[?*]", key):
            with pytest.raises(ValueError, match="cannot be stored on Windows"):
                store.set(key, b"value")
            return
        store.set(key, b"value")
        store.set("other/0", b"")
        assert store.get(key, ByteRange(1, 2)) == b"al"
        assert sorted(store.list_prefix("")) == sorted([key, "other/0"])
        head, slash, name = key.partition("/")
        assert store.list_dir("") == sorted([head + slash, "other/"])
        if slash:
            assert store.list_dir(head + "/") == [name]
        store.delete(key)
        assert store.get(key) is None
        if slash:
            store.set(key, b"again")
            store.delete_prefix(head + "/")
            assert sorted(store.list_prefix("")) == ["other/0"]

    def test_delete(self, filled):
        filled.delete("a/c/0/0")
        filled.delete("a/c/0/0")
        filled.delete("never/was")
        assert filled.get("a/c/0/0") is None
        assert filled.get("a/c/0/1") == b""

    def test_delete_prefix(self, filled):
        filled.delete_prefix("a/c/")
        filled.delete_prefix("never/")
        assert sorted(filled.list_prefix("")) == ["a/zarr.json", "ab/zarr.json", "zarr.json"]
        filled.delete_prefix("a/")
        assert filled.list_dir("") == ["ab/", "zarr.json"]
        filled.delete_prefix("")
        assert list(filled.list_prefix("")) == []
        assert filled.list_dir("") == []

    def test_listings_are_fresh(self, store):
        assert store.list_dir("a/") == []
        store.set("a/0", b"")
        assert store.list_dir("a/") == ["0"]
        pickle.loads(pickle.dumps(store))
        store.set("a/1", b"")
        assert store.list_dir("a/") == ["0", "1"]
        store.delete("a/0")
        assert list(store.list_prefix("")) == ["a/1"]

    def test_set_if(self, store):
        assert store.set_if("k/0", b"1", None)
        assert not store.set_if("k/0", b"2", None)
        value, version = store.get_versioned("k/0")
        assert value == b"1"
        assert not store.set_if("k/0", b"2", version + "0")
        assert store.set_if("k/0", b"2", version)
        assert not store.set_if("k/0", b"3", version)
        assert store.get("k/0") == b"2"

    def test_set_if_of_nothing(self, store):
        assert store.set_if("k/0", None, None)
        assert not store.set_if("k/0", b"1", "no-such-version")
        store.set("k/0", b"1")
        assert not store.set_if("k/0", None, None)
        _, version = store.get_versioned("k/0")
        assert store.set_if("k/0", None, version)
        assert store.get("k/0") is None
        assert not store.set_if("k/0", None, version)
        assert store.set_if("k/0", None, None)

    def test_set_changes_the_version(self, store):
        store.set("k", b"1")
        _, version = store.get_versioned("k")
        store.set("k", b"2")
        assert store.get_versioned("k")[1] != version

    def test_readers_see_whole_values(self, store):
        """Old or new, while a value is replaced."""
        if not store.replaces_atomically:
            pytest.skip("not atomic, and says so")
        values = {bytes([i]) * n for i, n in ((1, 300_000), (2, 20), (3, 200_000))}
        store.set("k/0", next(iter(values)))
        done = threading.Event()

        def read():
            while not done.is_set():
                assert store.get("k/0") in values

        def write():
            try:
                for _ in range(self.n_replaced):
                    for value in values:
                        store.set("k/0", value)
            finally:
                done.set()

        at_once([read, read, write])
        assert list(store.list_prefix("")) == ["k/0"]

    def test_counter_loses_nothing(self, store):
        """Threads count up by read, compare and write."""
        store.set("counter", b"0")
        if not (store.compares_versions or type(store).__name__ == "ZipStore"):
            pytest.skip("not atomic, and says so")
        at_once([lambda: count_up(store, "counter", self.n_increments)] * self.n_threads)
        assert store.get("counter") == b"%d" % (self.n_threads * self.n_increments)

    def test_many_keys(self, store):
        keys = [f"a/c/{i // 10}/{i % 10}" for i in range(self.n_listed)]
        for key in keys:
            store.set(key, key.encode())
        assert sorted(store.list_prefix("a/c/")) == sorted(keys)
        assert len(store.list_dir("a/c/")) == self.n_listed // 10
        assert list(store.get_many(ByteSpan(key) for key in keys)) == [key.encode() for key in keys]
        store.delete_prefix("a/")
        assert list(store.list_prefix("")) == []


class ContractOfSlowStores(StoreContract):
    """The same with fewer requests."""

    n_listed = 100
    n_increments = n_replaced = 5
    n_reads = 4
