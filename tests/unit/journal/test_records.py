"""Records of the tasks of a job that are done."""

import json
import tracemalloc
import zlib

import numpy as np
import pytest

from chunkmill.journal.record_files import RecordFiles
from chunkmill.journal.records import Record, WrittenKeys, read_record
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.metered import Meter, MeteredStore


@pytest.fixture
def store():
    return MemoryStore()


def differences(store):
    return RecordFiles(store, "", "").differences("record", 0)


def damaged_record():
    return Record({}, (WrittenKeys(("a",), 1, 1),)).pack()[:-4]


@pytest.mark.parametrize(
    "value", [b"", b"{", b"x", b'{"written":' + b"[" * 100_000, b'{"counts": {}}', damaged_record()]
)
def test_damaged_bytes_are_no_record(value):
    assert read_record(value) is None


def grid_keys(prefix, shape, separator):
    return [prefix + separator.join(map(str, coords)) for coords in np.ndindex(*shape)]


@pytest.mark.parametrize(
    "keys",
    [
        grid_keys("a/c/", (7, 30), "/"),
        grid_keys("x1/", (3, 4, 20), "."),
        [f"a/{z}/{y}/5" for y in range(9) for z in range(8)],
        [f"a/c/{i}" for i in (*range(3, 40), *range(50, 99, 7), 10**9)],
        [f"a/c/{i:03}" for i in range(40)],
        ["b", "a/c", *grid_keys("", (20,), "")],
    ],
    ids=range(6),
)
def test_many_keys_are_named_by_runs(keys):
    writes = {key: (i, i * 7) for i, key in enumerate(reversed(keys))}
    (written,) = WrittenKeys.of(writes)
    assert sorted(written.keys()) == sorted(keys)
    assert written.n_bytes == sum(range(len(keys)))
    assert read_record(Record({}, [written]).pack()).written == (written,)


def test_keys_without_a_value_are_not_named():
    (written,) = WrittenKeys.of({f"a/{i}": (1, 1) if i % 3 else None for i in range(90)})
    assert list(written.keys()) == [f"a/{i}" for i in range(90) if i % 3]


def test_a_key_costs_less_than_a_byte():
    for keys in (grid_keys("group/array/c/", (2, 5000), "/"), grid_keys("g/a/c/", (5, 5, 20, 20), "/")):
        chance = np.random.default_rng(0)
        writes = {key: (int(chance.integers(10**6)), int(chance.integers(1 << 32))) for key in keys}
        n_bytes = len(Record({"n_keys": len(keys)}, list(WrittenKeys.of(writes))).pack())
        assert n_bytes < 0.25 * len(keys)


@pytest.fixture
def many(store):
    meter = Meter()
    metered = MeteredStore(store, meter)
    for i in range(50):
        metered.set(f"a/c/{i}", bytes(i + 1))
    store.set("record", Record({}, list(WrittenKeys.of(meter.writes))).pack())
    assert list(differences(store)) == []
    return store


def test_of_many_values_the_sizes_are_compared(many):
    many.set("a/c/7", b"")
    ((key, text),) = differences(many)
    assert (key, text) == ("a/c/0", "1267 bytes, where 1275 bytes under 50 keys up to 'a/c/49' were written")
    assert not read_record(many.get("record")).holds(many)
    many.delete("a/c/9")
    assert next(differences(many))[0] == "a/c/9"


def test_of_many_values_a_flipped_byte_is_found(many):
    many.set("a/c/7", b"\1" * 8)
    ((key, text),) = differences(many)
    assert (key, text) == (
        "a/c/0",
        "its bytes, or those of a key up to 'a/c/49', 50 in all, are not those that were written",
    )


@pytest.mark.parametrize("value", [
    pytest.param(zlib.compress(bytes(1 << 25)), id="too long"),
    pytest.param(zlib.compress(b"{}" * 9999)[:-9], id="truncated"),
    pytest.param(b'{"counts":{},"upto":null,"written":[[[["a/",0,1000000000000000,""]],1,1]]}', id="10^15 keys"),
    pytest.param(b'{"counts":{},"upto":null,"written":[[[["a/",0,"many",""]],1,1]]}', id="no number of keys"),
])  # fmt: skip
def test_records_of_others_are_damaged(value, monkeypatch):
    monkeypatch.setattr("chunkmill.journal.records._MOST_BYTES", 1 << 22)
    tracemalloc.start()
    assert read_record(value) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


@pytest.mark.parametrize(
    "damage",
    [
        {"written": [[["."], 3, 7]]},
        {"written": [[[["../", 0, 3, ""]], 3, 7]]},
        {"written": [[[["a/", 0.5, 3, ""]], 3, 7]]},
        {"written": [[[["a/", 0, 3, 4]], 3, 7]]},
        {"written": [[["a"], "x", 7]]},
        {"written": [[[], 3, 7]]},
        {"written": [[[["a/", 0, 0, ""]], 3, 7]]},
        {"counts": {"n_keys": "one"}},
        {"counts": [1]},
    ],
)
def test_a_record_is_damaged_whose_members_are_not_what_they_must_be(damage):
    known = json.loads(Record({"n_keys": 1}, (WrittenKeys(("a/c/0",), 3, 7),)).pack())
    assert read_record(json.dumps(known).encode()) is not None
    assert read_record(json.dumps(known | damage).encode()) is None
