"""Rechunking through stores, codecs and schedulers: values, presence, cost."""

from itertools import product

import numpy as np
import pytest
from support.cases import cases
from support.rechunks import check, keys, make, planned_tightly

import chunkmill as cm
from chunkmill.conversion.convert import plan_rechunk, rechunk
from chunkmill.errors import ChunkError, JobError
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


# --------------------------------------------------------------------------------------------------------------------
# Values


@cases(
    ("source", "target"),
    [
        pytest.param({}, {"chunks": (20, 7, 4)}, id="images to series"),
        pytest.param({"chunks": (20, 3, 4)}, {"chunks": (1, -1, -1)}, id="series to images"),
        pytest.param({"chunks": (6, 9, 4)}, {"chunks": (4, 7, 3)}, id="borders that never meet"),
        pytest.param({"chunks": (50, 40, 20)}, {"chunks": (1, 1, 10)}, id="one chunk larger than the array"),
        pytest.param(
            {"chunks": (2, 5, 5), "shards": (4, 10, 10)}, {"chunks": (20, 6, 4), "shards": None}, id="out of shards"
        ),
        pytest.param({}, {"chunks": (5, 5, 5), "shards": (10, 15, 10)}, id="into shards"),
        pytest.param(
            {"chunks": (2, 5, 5), "shards": (4, 10, 10)}, {"chunks": (4, 3, 2), "shards": (8, 9, 10)}, id="both"
        ),
        pytest.param({"chunks": ((5, 8, 7), 30, 4)}, {"chunks": (4, (1, 9, 20), 10)}, id="rectilinear"),
        pytest.param({"format": "zarr2", "codecs": "blosc"}, {"chunks": (20, 7, 4)}, id="v2"),
        pytest.param({"format": "n5", "codecs": "gzip"}, {"chunks": (7, 7, 4)}, id="N5"),
        pytest.param({"format": "n5"}, {"chunks": (7, 7, 4), "format": "zarr3"}, id="N5 to v3"),
        pytest.param({}, {"chunks": (7, 7, 4), "codecs": "gzip"}, id="other codecs"),
        pytest.param({"shape": (50,), "chunks": (7,), "dtype": ">f8"}, {"chunks": (11,)}, id="big-endian"),
        pytest.param({"shape": (9, 5), "chunks": (2, 5), "dtype": "T"}, {"chunks": (9, 2)}, id="strings"),
        pytest.param({"shape": (3, 4, 3, 2, 3, 4), "chunks": (1, 2) * 3}, {"chunks": (2, 3, 2, 2, 3, 1)}, id="6-d"),
        pytest.param({"shape": (0, 5), "chunks": (1, 2)}, {"chunks": (1, 5)}, id="no elements"),
    ],
)
def test_values(source, target):
    """With as little memory as will do, and with much."""
    source = {**source, **({"dtype": np.dtypes.StringDType()} if source.get("dtype") == "T" else {})}
    for strategy, planner in product(("direct", "spill"), (planned_tightly, plan_rechunk)):
        array, values = make(store := MemoryStore(), **source)
        if array.dtype.kind == "T" and strategy == "spill":
            with pytest.raises(JobError, match="no place in intermediate files"):
                plan_rechunk(array, (store, "b"), strategy=strategy, **target)
            continue
        plan = planner(array, (store, "b"), strategy=strategy, **target)
        assert plan.strategy == strategy or array.size == 0
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
# Cost


@cases("strategy", ["direct", "spill"])
@cases("source", [{"chunks": (2, 5, 5), "shards": (4, 10, 10)}, {"chunks": (4, 30, 7)}])
def test_requests_and_bytes_are_those_of_the_plan(source, strategy):
    store = MemoryStore()
    array, _ = make(store, codecs="raw", **source)
    plan = planned_tightly(array, (store, "b"), chunks=(20, 7, 4), shards=None, strategy=strategy)
    report = plan.run()
    assert report.n_requests == plan.n_requests == sum(stage.n_requests for stage in plan.stages)
    assert report.bytes_temporary == plan.bytes_temporary
    index_bytes = 0 if array.shards is None else 2 * plan.n_requests * 8 * 20
    assert plan.bytes_read <= report.bytes_read <= plan.bytes_read + index_bytes
    assert report.bytes_written == plan.bytes_written
    assert report.actions == plan.actions
    assert report.read_amplification == pytest.approx(plan.read_amplification)
