"""Marks of what tasks would read now: the same, asked for key by key and listed."""

from types import SimpleNamespace

import pytest
from support.recording import RecordingStore

from chunkmill.journal.records import Listings, StoreKeys, digest_now
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import Meter, MeteredStore


class Listing(RecordingStore):
    def list_versions(self, prefix):
        self._before("list_versions", prefix)
        return ((key, self.below.version(key)) for key in self.below.list_prefix(prefix))


@pytest.fixture
def store():
    store = Listing(MemoryStore())
    for i in range(0, 10, 2):
        store.set(f"a/{i}", b"%d" % i)
    store.clear()
    return store


def inputs(store, spec):
    yield StoreKeys(store, "a/", [f"a/{i}" for i in (spec, spec + 1, spec)])


@pytest.mark.parametrize("specs", [[0], [1, 2], range(12)])
def test_the_mark_is_that_of_what_is_read(store, specs):
    total = 0
    for spec in specs:
        read = Meter()
        for i in (spec, spec + 1):
            MeteredStore(store, read, is_source=True).get(f"a/{i}")
        total += read.digest()
    assert digest_now(inputs, store, specs) == total % 2**64
    store.clear()
    listings = Listings()
    assert [digest_now(inputs, store, specs, listings) for _ in range(2)] == [total % 2**64] * 2
    assert store.keys() == ["a/"]


def test_of_a_store_without_versions_nothing_is_known(store):
    store.below = SimpleNamespace(has_versions=False)
    assert digest_now(inputs, store, [0]) is None
    assert digest_now(inputs, store, []) == 0
