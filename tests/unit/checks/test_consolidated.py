"""Consolidated metadata are stale when they differ from the documents, as JSON."""

import json

import pytest

import chunkmill as cm
from chunkmill.checks.inventory import staleness
from chunkmill.nodes import opening
from chunkmill.stores.memory import MemoryStore

KEYS = {"zarr2": ".zmetadata", "zarr3": "zarr.json"}


@pytest.fixture(params=list(KEYS))
def fmt(request):
    return request.param


@pytest.fixture
def store(fmt):
    store = MemoryStore()
    for path in ("g/a", "b"):
        cm.create_array(store, path, shape=(4,), dtype="i4", chunks=(2,), format=fmt, attributes={"path": path})
    cm.consolidate(store)
    return store


def reason(store, fmt):
    group = cm.open_group(store, consolidated=False)
    return staleness(group.stored, KEYS[fmt], opening.walk(group.stored))[0]


def test_fresh_ones(store, fmt):
    assert reason(store, fmt) is None


def test_without_any(fmt):
    store = MemoryStore()
    cm.create_array(store, "a", shape=(4,), dtype="i4", chunks=(2,), format=fmt)
    assert reason(store, fmt) is None


def test_layout_of_json_makes_no_difference(store, fmt):
    key = "b/zarr.json" if fmt == "zarr3" else "b/.zarray"
    store.set(key, json.dumps(json.loads(store.get(key)), indent=9, sort_keys=True).encode())
    assert reason(store, fmt) is None


def test_a_changed_document_is_named(store, fmt):
    key = "b/zarr.json" if fmt == "zarr3" else "b/.zarray"
    store.set(key, store.get(key).replace(b"4", b"6", 1))
    assert key in reason(store, fmt)


def test_a_node_that_is_gone_or_new_is_named(store, fmt):
    for key in list(store.list_prefix("g/a/")):
        store.set(key.replace("g/a", "g/new"), store.get(key))
        store.delete(key)
    told = reason(store, fmt)
    assert "'g/a/" in told
    assert "'g/new/" in told


def test_few_of_many_are_named(store, fmt):
    for n in range(20):
        for key in list(store.list_prefix("b/")):
            store.set(key.replace("b/", f"n{n:02}/", 1), store.get(key))
    assert reason(store, fmt).endswith(" more")
    assert len(reason(store, fmt)) < 200


def test_broken_ones(store, fmt):
    store.set(KEYS[fmt], store.get(KEYS[fmt]).replace(b'"metadata"', b'"metadatum"'))
    assert "expected" in reason(store, fmt)
