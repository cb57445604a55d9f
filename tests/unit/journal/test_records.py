"""Records of the tasks of a job that are done."""

import json
import tracemalloc
import zlib

import pytest
from support.cases import cases

from chunkmill.journal.records import Record, Records
from chunkmill.stores.memory import MemoryStore


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


def test_records_of_another_run_stay():
    store = MemoryStore()
    records = Records(store, "job/", "r1")
    for run, task in (("r1", 6), ("r1", 7), ("r2", 7)):
        Records(store, "job/", run).put(0, task, Record({}, {}))
    assert sorted(task for _, task, _ in records.names()) == [6, 7]
    assert len(Records(store, "job/", "").names()) == 3
    records.delete()
    assert [key for *_, key in Records(store, "job/", "").names()] == ["job/0/7-r2"]


@pytest.mark.parametrize("value", [
    pytest.param(zlib.compress(bytes(1 << 25)), id="too long"),
    pytest.param(zlib.compress(b"{}" * 9999)[:-9], id="truncated"),
])  # fmt: skip
def test_records_of_others_are_damaged(value, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.records._MOST_BYTES", 1 << 22)
    tracemalloc.start()
    assert Record.unpack(value) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


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
