"""Nodes of a source chosen by patterns, and other names for them: planned, journalled, converted."""

import pickle

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.options import chosen_paths, names_by_array
from chunkmill.errors import RegionError, StoreError, UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "n5"]


def make(kind="zarr3"):
    top = cm.create_group(MemoryStore(), format=kind, attributes={"title": "x"})
    for path, shape in {"a": (4,), "level1/v": (4, 3), "level1/mask": (4, 3), "level2/v": (4, 3)}.items():
        array = top.create_array(path, shape=shape, chunks=(2,) * len(shape), dtype="f4", attributes={"n": 1})
        array[:2] = 7
    return top


def paths(store):
    return [node.path for node in cm.nodes.opening.walk(cm.open(store).stored) if isinstance(node, StoredArray)]


@cases("kind", FORMATS)
@cases(
    ("choice", "expected"),
    [
        ({"include": "a"}, ["a"]),
        ({"include": ["level1", "a"]}, ["a", "level1/mask", "level1/v"]),
        ({"include": "*/v"}, ["level1/v", "level2/v"]),
        ({"include": "/level1*/"}, ["level1/mask", "level1/v"]),
        ({}, ["a", "level1/mask", "level1/v", "level2/v"]),
    ],
)
def test_nodes_are_chosen_with_groups_and_attributes(kind, choice, expected):
    source, target = make(kind), MemoryStore()
    cm.convert(source, target, format=kind, **choice)
    assert paths(target) == expected
    group = cm.open_group(target)
    assert dict(group.attributes) == {"title": "x"}
    for path in expected:
        assert dict(group[path].attributes) == {"n": 1}
        np.testing.assert_array_equal(group[path][...], source[path][...])
    if expected == ["a"]:
        assert list(group) == ["a"]


def test_patterns_that_match_nothing():
    with pytest.raises(ValueError, match=r"'b' matches none of the nodes \['a', 'level1'"):
        cm.plan_convert(make(), MemoryStore(), format="zarr3", include="b")
    with pytest.raises(TypeError, match="include= chooses nodes of a group, and the source is the array 'a'"):
        cm.plan_convert(make()["a"], MemoryStore(), format="zarr3", include="a")
    assert chosen_paths(make().stored, None) is None


def test_names_of_axes():
    source, target = make(), MemoryStore()
    cm.convert(source, target, format="zarr2", dimension_names=("y", "x"), chunks={"y": -1})
    found = cm.open_group(target)
    assert [(found[p].dimension_names, found[p].chunks) for p in ("a", "level1/v")] == [
        (None, (2,)),
        (("y", "x"), (4, 2)),
    ]
    cm.convert(source, target := MemoryStore(), format="zarr3", dimension_names={"a": ["t"]})
    assert cm.open_array(target, "a").dimension_names == ("t",)
    assert cm.open_array(target, "level2/v").dimension_names is None
    with pytest.raises(RegionError, match="3 names, where the arrays have"):
        names_by_array(("a", "b", "c"), source.stored)
    with pytest.raises(RegionError, match="'a': dimension_names="):
        cm.plan_convert(source, MemoryStore(), format="zarr3", dimension_names={"a": ["t", "u"]})
    with pytest.raises(ValueError, match=r"dimension_names= names \['b'\]"):
        names_by_array({"b": ["t"]}, source.stored)


def test_another_choice_is_another_plan():
    source = make()
    marks = {
        cm.plan_convert(source, "memory://choice", format="zarr3", **options).job.fingerprint
        for options in (
            {},
            {"include": "a"},
            {"include": "level1"},
            {"dimension_names": ("t",)},
            {"chunk_key_encoding": "."},
        )
    }
    assert len(marks) == 5


KEYS = [("zarr2", "/", "0/1"), ("zarr2", ".", "0.1"), ("zarr2", {"name": "v2", "separator": "/"}, "0/1"),
    ("zarr3", "/", "c/0/1"), ("zarr3", ".", "c.0.1"), ("zarr3", {"name": "v2"}, "0.1"),
    ("zarr3", {"name": "v2", "configuration": {"separator": "/"}}, "0/1"),
    ("zarr3", {"name": "default", "configuration": {"separator": "."}}, "c.0.1"), ("zarr3-draft", ".", "c0.1"),
    ("n5", "/", "1/0")]  # fmt: skip


@cases(
    ("kind", "encoding", "key", "way"),
    [
        *((*each, "create") for each in KEYS),
        *((*KEYS[i], way) for i in (0, 4, 8) for way in ("to_store", "convert", "group")),
    ],
)
def test_chunk_keys(kind, encoding, key, way):
    store, options = MemoryStore(), {"format": kind, "chunk_key_encoding": encoding}
    values = np.arange(1, 13, dtype="i4").reshape(4, 3)
    shaped = {"shape": (4, 3), "chunks": (2, 2), "dtype": "i4"}
    if way == "create":
        cm.create_array(store, "a", **shaped, **options)[...] = values
    elif way == "group":
        cm.create_group(store, format=kind).create_array("a", **shaped, chunk_key_encoding=encoding)[...] = values
    elif way == "to_store":
        cm.to_store(values, store, "a", chunks=(2, 2), **options)
    else:
        cm.create_array(source := MemoryStore(), "a", format="zarr2", **shaped)[...] = values
        cm.convert(source, store, codecs="gzip", **options)
    array = cm.open_array(store, "a")
    assert f"{array.stored.prefix}{key}" in set(store.list_prefix(""))
    np.testing.assert_array_equal(array[...], values)


@cases(
    ("kind", "encoding", "error", "message"),
    [
        ("n5", ".", UnsupportedFeature, "leave out chunk_key_encoding="),
        ("zarr2", {"name": "default"}, UnsupportedFeature, "'c/0/0'"),
        ("zarr3", "_", ValueError, "expected '/', '.', or"),
        ("zarr3", {"name": "v3"}, ValueError, "expected '/', '.', or"),
        ("zarr3", {"name": "v2", "separator": "-"}, ValueError, "expected '/', '.', or"),
    ],
)
def test_chunk_keys_that_there_are_not(kind, encoding, error, message):
    with pytest.raises(error, match=message):
        cm.create_array(MemoryStore(), shape=(4, 3), dtype="i4", format=kind, chunk_key_encoding=encoding)


def test_nested_keys_are_kept():
    cm.create_array(source := MemoryStore(), "a", shape=(4, 3), dtype="i4", format="zarr2", chunk_key_encoding="/")
    cm.convert(source, target := MemoryStore(), format="zarr2")
    assert cm.open_array(target, "a").metadata.chunk_keys.separator == "/"


@cases("kind", ["zarr2", "zarr3", "sharded", "n5"])
def test_another_fill_value_for_reading(kind):
    options = {"format": "zarr3", "shards": (4, 2)} if kind == "sharded" else {"format": kind}
    stored = cm.create_array(store := MemoryStore(), "a", shape=(4, 4), chunks=(2, 2), dtype="f4", **options)
    stored[:2, :2] = 7
    array = cm.open_array(store, "a").with_fill_value(-1)
    expected = np.full((4, 4), -1, "f4")
    expected[:2, :2] = 7
    for found in (array, pickle.loads(pickle.dumps(array)), array.to_dask().compute(scheduler="sync"), array[...]):
        np.testing.assert_array_equal(found, expected)
    assert cm.open_array(store, "a").to_dask().name != array.to_dask().name
    cm.convert(array, target := MemoryStore(), format="zarr3")
    assert cm.open_array(target).fill_value == -1
    np.testing.assert_array_equal(cm.open_array(target)[...], expected)
    with pytest.raises(StoreError, match="reading only"):
        array[0] = 1
    cm.delete(store, "a")
    with pytest.raises(StoreError, match="deleted"):
        array.to_dask().compute(scheduler="sync")
