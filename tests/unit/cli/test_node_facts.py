"""Facts of nodes, for programs and for people."""

import json

import numpy as np
import pytest
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.cli.node_facts import describe, facts_text, listing, set_text, stored
from chunkmill.display.report import plain
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def group():
    store = MemoryStore()
    sharded = cm.create_array(
        store, "sharded", shape=(8,), dtype="i4", chunks=(2,), shards=(4,), codecs="raw", attributes={"x": "\x1b"}
    )
    sharded[:2] = 1
    cm.create_array(store, "g/plain", shape=(5,), dtype="f8", chunks=(2,), codecs="raw", fill_value=np.nan)[3:] = 1
    return cm.open_group(store)


def test_an_array(group):
    facts = describe(group["g/plain"].stored)
    assert (facts["kind"], facts["path"], facts["n_chunks"], facts["chunk_bytes"]) == ("array", "g/plain", 3, 16)
    assert "n_store_keys" not in facts
    assert "stored_bytes" not in facts
    facts = describe(group["sharded"].stored)
    assert (facts["n_chunks"], facts["n_store_keys"], facts["store_key_bytes"]) == (4, 2, 16)


def test_a_group(group):
    facts = describe(group.stored, count=True)
    assert (facts["kind"], facts["children"], facts["n_arrays"]) == ("group", ["g", "sharded"], 2)
    assert facts["missing_chunks"] == 1 + 3
    assert facts["stored_bytes"] == sum(stored(group[path].stored)["stored_bytes"] for path in ("sharded", "g/plain"))


def test_what_is_stored_of_an_array(group):
    facts = stored(group["sharded"].stored)
    assert (facts["missing_store_keys"], facts["missing_chunks"]) == (1, 3)
    group.store.set("g/plain/c/99", b"of no chunk")
    facts = stored(group["g/plain"].stored)
    assert facts == {"missing_chunks": 1, "stored_bytes": 32, "compression_ratio": 1.25}
    store = RecordingStore(MemoryStore())
    large = cm.create_array(store, shape=(10**9,), dtype="u1", chunks=(1,), shards=(1000,), codecs="raw")
    large[500] = large[10**8] = large[10**8 + 7] = 1
    store.clear()
    facts = stored(large.stored)
    assert (facts["missing_store_keys"], facts["missing_chunks"]) == (10**6 - 2, 10**9 - 3)
    assert len(store.keys("get")) == 2  # an index of each shard that is there
    inner = {"chunk_shape": [2], "codecs": ["bytes"], "index_codecs": ["bytes"]}
    codecs = [{"name": "sharding_indexed", "configuration": inner}, "gzip"]
    whole = cm.create_array(MemoryStore(), shape=(8,), dtype="i4", chunks=(4,), codecs=codecs)
    assert (stored(whole.stored)["missing_store_keys"], stored(whole.stored)["missing_chunks"]) == (2, None)
    empty = cm.create_array(MemoryStore(), shape=(5,), dtype="f8", chunks=(2,))
    assert stored(empty.stored) == {"missing_chunks": 3, "stored_bytes": 0, "compression_ratio": None}


@cases(
    ("value", "expected"),
    [
        (np.float32("inf"), "Infinity"), (-np.inf, "-Infinity"), (np.datetime64("2020-01-01"), "2020-01-01"),
        (b"x", "b'x'"), (np.bool_(True), True), ({1: (None, [2.5])}, {"1": [None, [2.5]]}),
    ],
)  # fmt: skip
def test_plain_values(value, expected):
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_a_table_of_all_arrays(group):
    lines = listing(group.stored).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["path", "g/plain", "sharded"]
    assert "(4,)" in lines[3]
    assert listing(group["g/plain"].stored).splitlines()[2].split()[0] == "g/plain"


def test_arrays_below_folders_without_a_document_are_listed(group):
    group.store.delete("g/zarr.json")
    assert "g/plain" in listing(group.stored)
    assert describe(group.stored, count=True)["n_arrays"] == 2


def test_facts_as_text():
    facts = {"kind": "group", "url": "x:", "path": "g", "children": [*map(str, range(52))], "bytes": 1 << 10}
    lines = facts_text(facts | {"n_arrays": 1 << 10, "shape": (2, 3), "chunk_bytes": 512, "format": None}).splitlines()
    assert lines[0] == "group x:/g"
    assert lines[1].endswith(" 48, 49, … and 2 more")
    shown = ["bytes 1.00 kiB (1,024 B)", "n arrays 1,024", "shape (2, 3)", "chunk bytes 512 B"]
    assert [" ".join(line.split()) for line in lines[2:]] == shown


def test_targets_of_a_set_as_text():
    facts = dict.fromkeys(("n_references", "bytes_referenced", "n_inline", "bytes_inline"), 0)
    facts |= {"url": "x:", "layout": "json", "arrays": [], "targets": [*"abc"]}
    shown = [set_text(facts | {"n_targets": n}).splitlines()[4].split(maxsplit=1)[1] for n in (3, 4)]
    assert shown == ["3: a, b, c", "4: a, b, c, …"]
