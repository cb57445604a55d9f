"""Records of the tasks of a job that are done."""

import json
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from support.cases import cases
from support.memory import peak_below
from support.recording import FailingStore, RecordingStore

import chunkmill as cm
from chunkmill.journal.records import Listings, Record, Records, StoreKeys, digest_now
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import Meter, MeteredStore


@cases(
    "value",
    [None, b"", b"{", b"x", b'{"written":' + b"[" * 100_000, b'{"counts": {}}', Record({}, {"a": 1}).pack()[:-4]],
)
def test_damaged_bytes_are_no_record(value):
    assert Record.unpack(value) is None


def test_sizes_are_compared():
    store = MemoryStore()
    for i in range(50):
        store.set(f"a/c/{i}", bytes(i + 1))
    record = Record({}, {f"a/c/{i}": i + 1 for i in range(50)})
    assert record.holds(store)
    store.set("a/c/7", b"")
    assert list(record.differences(store)) == [("a/c/7", "0 bytes, where 8 bytes were written")]
    store.delete("a/c/9")
    assert list(record.differences(store))[1] == ("a/c/9", "absent, where 10 bytes were written")
    assert not record.holds(store)
    assert record.holds(FailingStore(store, 1)) is False


def test_of_a_remote_store_a_sample_is_looked_at_first(store, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.records._N_SAMPLED", 2)
    records = Records(store, "job/", "r1")
    for task in range(6):
        store.set(f"a/c/{task}", b"x")
        records.put(0, task, Record({}, {f"a/c/{task}": 1}))
    store.is_remote = True
    store.delete("a/c/1")
    assert records.forget_false(0, range(6)) == {*range(6)}
    store.delete("a/c/3")
    assert records.forget_false(0, range(6)) == {0, 2, 4, 5}
    assert records.forget_false(0, [2, 4, 5]) == {2, 4, 5}


def test_records_of_another_run_stay():
    store = MemoryStore()
    records = Records(store, "job/", "r1")
    for run, task in (("r1", 6), ("r1", 7), ("r2", 7)):
        Records(store, "job/", run).put(0, task, Record({}, {}))
    assert sorted(task for _, task, _ in records.names()) == [6, 7]
    assert len(Records(store, "job/", "").names()) == 3
    records.delete()
    assert [key for *_, key in Records(store, "job/", "").names()] == ["job/0/7-r2"]


def test_long_records_are_compressed():
    record = Record({"n_keys": 9999}, {f"a/c/{n}": n for n in range(9999)}, 7, elsewhere=True)
    assert len(record.pack()) < 60_000
    assert Record.unpack(record.pack()) == record


@pytest.mark.parametrize("value", [
    pytest.param(zlib.compress(bytes(1 << 25)), id="too long"),
    pytest.param(zlib.compress(b"{}" * 9999)[:-9], id="truncated"),
])  # fmt: skip
def test_records_of_others_are_damaged(value, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.records._MOST_BYTES", 1 << 22)
    with peak_below(1 << 24):
        assert Record.unpack(value) is None


@cases(
    "damage",
    [
        {"written": [["a", 3]]},
        {"written": {"../a": 3}},
        {"written": {".": 3}},
        {"written": {"a": "many"}},
        {"counts": {"n_keys": "one"}},
        {"counts": [1]},
    ],
)
def test_a_record_is_damaged_whose_members_are_not_what_they_must_be(damage):
    known = json.loads(Record({"n_keys": 1}, {"a/c/0": 3}).pack())
    assert Record.unpack(json.dumps(known).encode()) is not None
    assert Record.unpack(json.dumps(known | damage).encode()) is None


# --------------------------------------------------------------------------------------------------------------------
# Marks of what tasks would read now: the same, asked for key by key and listed


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


def test_listings_that_are_empty_or_too_long_to_hold(store, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.records._MOST_LISTED", 4)
    assert Listings().digest(*inputs(store, 2)) is None
    assert digest_now(inputs, store, [2], Listings()) == digest_now(inputs, store, [2]) != 0
    assert digest_now(inputs, Listing(MemoryStore()), [2], Listings()) == 0


def test_of_an_array_that_was_listed_those_chunks_are_read_that_are_there():
    array = cm.create_array({}, "a", shape=(4, 4), dtype="i1", chunks=(2, 2)).stored
    assert [*StoreKeys.of(array, (slice(0, 2), slice(0, 4))).keys] == ["a/c/0/0", "a/c/0/1"]
    assert [*StoreKeys.of(array, (slice(0, 4), slice(0, 4)), np.array([1, 2])).keys] == ["a/c/0/1", "a/c/1/0"]


def test_of_a_store_without_versions_nothing_is_known(store):
    store.below = SimpleNamespace(has_versions=False)
    assert digest_now(inputs, store, [0]) is None
    assert digest_now(inputs, store, []) == 0
