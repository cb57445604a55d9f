"""Rechunking through stores, codecs and schedulers: values, and which chunks are there."""

from itertools import product

import numpy as np
import pytest
from support.cases import cases
from support.rechunks import check, keys, make, planned_tightly

import chunkmill as cm
from chunkmill.conversion.convert import plan_rechunk, rechunk
from chunkmill.errors import ChunkError, JobError, RegionError, UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


# --------------------------------------------------------------------------------------------------------------------
# Values


@cases(
    ("source", "target"),
    [
        ({"chunks": (10, 3, 4)}, {"chunks": (1, -1, -1)}),
        ({"chunks": (2, 5, 5), "shards": (4, 10, 10)}, {"chunks": (4, 3, 2), "shards": (8, 9, 10)}),
        ({"chunks": ((5, 3, 2), 15, 4)}, {"chunks": (4, (1, 9, 5), 10)}),
        ({"format": "zarr2", "codecs": "blosc"}, {"chunks": (10, 7, 4)}),
        ({"format": "n5", "codecs": "gzip"}, {"chunks": (7, 7, 4)}),
        ({"format": "n5"}, {"chunks": (7, 7, 4), "format": "zarr3"}),
        ({}, {"chunks": (7, 7, 4), "codecs": "gzip"}),
        ({"shape": (50,), "chunks": (7,), "dtype": ">f8"}, {"chunks": (11,)}),
        ({"shape": (9, 5), "chunks": (2, 5), "dtype": np.dtypes.StringDType()}, {"chunks": (9, 2)}),
        ({"shape": (3, 4, 3, 2, 3, 4), "chunks": (1, 2) * 3}, {"chunks": (2, 3, 2, 2, 3, 1)}),
    ],
)
def test_values(source, target):
    """With as little memory as will do, and with much."""
    source = {"shape": (10, 15, 10), "chunks": (3, 15, 10)} | source
    for strategy, planner in product(("direct", "spill"), (planned_tightly, plan_rechunk)):
        array, values = make(store := MemoryStore(), **source)
        if array.dtype.kind == "T" and strategy == "spill":
            with pytest.raises(JobError, match="no place in intermediate files"):
                plan_rechunk(array, (store, "b"), strategy=strategy, **target)
            continue
        plan = planner(array, (store, "b"), strategy=strategy, **target)
        assert plan.strategy == strategy
        report = plan.run()
        got = check(store, values)
        assert report.n_keys == got.write_layout.grid.n_chunks == plan.n_keys
        assert report.n_tasks == plan.n_tasks


@pytest.mark.parametrize(("n_axes", "strategy"), [(33, "spill"), (64, "direct")])
def test_as_many_axes_as_numpy_has(n_axes, strategy):
    shape, chunks = (4, 8, *(1,) * (n_axes - 2)), (1, 8, *(1,) * (n_axes - 2))
    array, values = make(store := MemoryStore(), shape=shape, chunks=chunks)
    plan = planned_tightly(array, (store, "b"), chunks=(4, 4, *(1,) * (n_axes - 2)), strategy=strategy)
    plan.run()
    check(store, values)


@pytest.mark.parametrize("shards", [None, (10, 15, 10)], ids=["chunks", "shards"])
def test_arrays_keep_what_they_are(shards):
    store = MemoryStore()
    facts = {"attributes": {"units": "m"}, "dimension_names": ["t", "y", "x"], "fill_value": 7, "codecs": "gzip"}
    array, values = make(store, **facts)
    rechunk(array, (store, "b"), chunks=(5, 15, 5), shards=shards)
    got = check(store, values)
    assert (got.chunks, got.shards) == ((5, 15, 5), shards)
    assert (got.attributes, got.dimension_names, got.fill_value) == ({"units": "m"}, ("t", "y", "x"), 7)
    assert "gzip" in repr(got.codecs)


# --------------------------------------------------------------------------------------------------------------------
# Presence


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_absent_stays_absent(strategy):
    store = MemoryStore()
    array, values = make(store, shape=(12, 12), chunks=(2, 12), fill_value=-1, absent=[(0, 0), (1, 0), (3, 0), (4, 0)])
    plan = planned_tightly(array, (store, "b"), chunks=(4, 4), strategy=strategy)
    report = plan.run()
    got = check(store, values)
    # rows 0 to 3 have no source; 6 and 7, 8 and 9 share their chunks with rows that have one
    assert keys(got) == {(i, j) for i in (1, 2) for j in range(3)}
    assert report.actions == {"rechunk": 6, "absent": 3}


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_absent_chunks_are_an_error_where_the_source_says_so(strategy):
    store = MemoryStore()
    make(store, absent=[(1, 0, 0)])
    strict = cm.open_array(store, "a", read_missing="error")
    with pytest.raises(ChunkError, match="read_missing='error'"):
        rechunk(strict, (store, "b"), chunks=(20, 7, 4), strategy=strategy)


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_present_stays_present_though_it_is_fill_value(strategy):
    store = MemoryStore()
    array = cm.create_array(store, "a", shape=(12, 12), dtype="i4", chunks=(2, 12))
    from chunkmill.array.chunk_io import write_chunk

    for i in range(3):
        write_chunk(array.stored, (i, 0), np.zeros((2, 12), "i4"), write_empty=True)
    rechunk(array, (store, "b"), chunks=(3, 4), strategy=strategy)
    assert keys(check(store, np.zeros((12, 12), "i4"))) == {(i, j) for i in (0, 1) for j in range(3)}


# --------------------------------------------------------------------------------------------------------------------
# Groups


@pytest.fixture
def group():
    store = MemoryStore()
    cm.create_group(store, "g", attributes={"title": "all"})
    _, image = make(store, "g/image", shape=(12, 12), chunks=(1, 12))
    _, line = make(store, "g/sub/line", shape=(12,), chunks=(5,))
    return store, {"image": image, "sub/line": line}


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param((12, 4), {"image": (12, 4), "sub/line": (5,)}, id="a shape: arrays of that rank"),
        pytest.param({"sub/line": (3,)}, {"image": (1, 12), "sub/line": (3,)}, id="a dict"),
        pytest.param({"/image": (4, 4)}, {"image": (4, 4), "sub/line": (5,)}, id="a dict with slashes"),
        pytest.param(lambda a: (2,) * a.ndim, {"image": (2, 2), "sub/line": (2,)}, id="a callable"),
        pytest.param(lambda a: "keep" if a.ndim == 1 else (12, 1), {"image": (12, 1), "sub/line": (5,)}, id="keeps"),
    ],
)
def test_groups(group, chunks, expected):
    store, values = group
    report = rechunk((store, "g"), (store, "h"), chunks=chunks)
    got = cm.open_group(store, "h")
    assert got.attributes == {"title": "all"}
    for path, shape in expected.items():
        assert got[path].chunks == shape
        check(store, values[path], f"h/{path}")
    assert report.n_keys == sum(got[path].write_layout.grid.n_chunks for path in expected)


# --------------------------------------------------------------------------------------------------------------------
# What is refused


@cases(
    ("options", "error", "message"),
    [
        ({"chunks": (0, 5, 5)}, RegionError, r"'a': chunks=\(0, 5, 5\) for an array .* -1 or edges"),
        ({"chunks": (-2, 5, 5)}, RegionError, "chunk length -2 for an axis of 20"),
        ({"shards": (0, 5, 5)}, RegionError, r"'a': shards=\(0, 5, 5\)"),
        ({"chunks": {"a": (5, 5, 5)}}, TypeError, "a mapping to shapes is for the arrays of a group"),
        ({"shards": (10, 10, 10), "format": "zarr2"}, UnsupportedFeature, "shards=None, or"),
        ({"max_mem": "abc"}, ValueError, "max_mem='abc': expected a number of bytes"),
        ({"max_mem": -5}, ValueError, "max_mem=-5: expected a number of bytes above 0"),
        ({"max_mem": b"1"}, ValueError, "max_mem=b'1': expected"),
        ({"strategy": "fast"}, ValueError, "expected None, 'direct' or 'spill'"),
        ({"strategy": "direct", "temp": "memory://t"}, ValueError, "no intermediate files"),
        ({"region": {}}, ValueError, "names no dimension"),
        ({"region": (0, ...)}, RegionError, "an integer would drop its axis"),
    ],
)
def test_messages(options, error, message):
    store = MemoryStore()
    array, _ = make(store)
    with pytest.raises(error, match=message):
        plan_rechunk(array, (store, "b"), **{"chunks": (5, 5, 5)} | options)
    assert all(key.startswith("a/") or key == "zarr.json" for key in store.list_prefix(""))
