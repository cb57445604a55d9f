"""A check decodes every chunk, names what is wrong with it, and repairs what can be derived."""

import numpy as np
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.checks.check import CheckReport
from chunkmill.checks.inventory import Problem
from chunkmill.errors import StoreError
from chunkmill.stores.memory import MemoryStore


def make(store, **more):
    array = cm.create_array(store, "a", **{"shape": (8,), "dtype": "i4", "chunks": (2,), "codecs": "zstd"} | more)
    array[...] = np.arange(8)
    return array


def found(store, **options):
    return [(p.kind, p.key, p.coords) for p in cm.check(store, progress=False, **options).problems]


@cases(
    ("value", "kind"),
    [
        (b"", "short"),
        (b"torn", "corrupt"),
        (lambda value: value[:-2], "short"),
        (lambda value: value + b"x", "corrupt"),
    ],
)
def test_a_damaged_chunk(value, kind):
    store = MemoryStore()
    make(store)
    store.set("a/c/1", value(store.get("a/c/1")) if callable(value) else value)
    assert found(store) == [(kind, "a/c/1", (1,))]


def test_a_chunk_in_a_shard_is_named():
    store = MemoryStore()
    make(store, shards=(4,))
    value = bytearray(store.get("a/c/0"))
    value[2] ^= 0xFF
    store.set("a/c/0", bytes(value))
    ((_, key, coords),) = found(store)
    assert (key, coords) == ("a/c/0", (0,))


def test_a_shard_without_its_index_is_torn():
    store = MemoryStore()
    make(store, shards=(4,))
    store.set("a/c/1", store.get("a/c/1")[:-3])
    ((kind, key, coords),) = found(store)
    assert (kind, key, coords) == ("torn", "a/c/1", (1,))


class BadSector(RecordingStore):
    def _before(self, method, key, byte_range=None):
        if key == "a/c/2":
            raise StoreError(url=self.url, key=key, reason="a bad sector")


def test_a_key_that_cannot_be_read_is_a_problem_of_its_own():
    store = MemoryStore()
    make(store)
    assert found(BadSector(store)) == [("failed", "a/c/2", (2,))]


def test_numbers():
    store = MemoryStore()
    array = make(store)
    report = cm.check(store, progress=False)
    assert report.ok
    assert (report.n_arrays, report.n_groups, report.n_keys) == (1, 1, 4)
    assert report.bytes_read == sum(len(store.get(key)) for key in store.list_prefix(f"{array.path}/c/"))
    assert 1 <= report.n_tasks <= report.n_keys


def test_repairs_are_marked_and_everything_else_stays():
    store = MemoryStore()
    make(store)
    cm.consolidate(store)
    for key in list(store.list_prefix("a/")):
        store.set(key.replace("a/", "new/", 1), store.get(key))
    store.set(".chunkmill-job-0/0/1-x", b"{}")
    store.set("orphan", b"")
    store.set("a/c/0", b"torn")
    report = cm.check(store, repair=True, progress=False)
    assert {p.kind: p.repaired for p in report.problems} == {
        "orphan": False, "corrupt": False, "leftover": True, "stale": True,
    }  # fmt: skip
    assert not report.ok
    assert found(store) == [("orphan", "orphan", None), ("corrupt", "a/c/0", (0,))]
    assert "new" in cm.open_group(store, consolidated=True)


def test_a_report_as_text_and_as_plain_values():
    problem = Problem("stale", "", "zarr.json", "differs", None, repaired=True)
    report = CheckReport("memory://x", "g", (problem,), 1, 2, 3, 4, 5, 0.5)
    assert report.ok
    assert "memory://x/g" in str(report)
    assert "1 of them repaired" in str(report)
    assert report.to_dict()["problems"][0]["key"] == "zarr.json"
    assert str(problem) == "stale: zarr.json: differs (repaired)"


@cases(
    ("fmt", "codecs"),
    [
        ("zarr3", "raw"),
        ("zarr3", "zstd"),
        ("zarr3", "gzip"),
        ("zarr3", "blosc"),
        ("zarr2", [{"name": "numcodecs.bz2", "configuration": {}}]),
        ("n5", "raw"),
        ("n5", "gzip"),
        ("n5", [{"name": "n5_lz4", "configuration": {}}]),
    ],
)
def test_a_value_that_ends_early_is_short_whatever_its_codec_says(fmt, codecs):
    """Codecs tell it in messages of their own: one that is reworded must still be understood."""
    store = MemoryStore()
    array = cm.create_array(store, "a", shape=(400,), dtype="i4", chunks=(400,), codecs=codecs, format=fmt)
    array[...] = np.random.default_rng(0).integers(0, 1000, 400)
    (key,) = (key for key in store.list_prefix("a/") if array.write_layout.locator.key((0,)) == key)
    store.set(key, store.get(key)[: 2 * store.size(key) // 3])
    assert found(store) == [("short", key, (0,))]
