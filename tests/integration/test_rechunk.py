"""Rechunking through stores, codecs and schedulers: values, presence, cost, resuming, memory."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from math import prod
from pathlib import Path

import dask
import numpy as np
import pytest
from clusters import cluster_of, kill_worker, worker_pids
from recording import FailingStore, RecordingStore, SlowStore

import chunkmill as cm
from chunkmill.conversion.rechunk import plan_rechunk, rechunk
from chunkmill.errors import (
    AlignmentError,
    ChunkError,
    JobError,
    NodeExists,
    NodeNotFound,
    RegionError,
    StoreError,
    UnsupportedFeature,
)
from chunkmill.runtime.unfinished_jobs import unfinished_jobs
from chunkmill.runtime.worker import THREAD_OVERHEAD
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

MIB = 2**20


@pytest.fixture(autouse=True)
def two_threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def numbers(shape, dtype="i4"):
    values = np.arange(1, prod(shape) + 1).reshape(shape)
    if np.dtype(dtype).kind == "T":
        return np.array([f"number {n} " * (n % 3) for n in values.flat], dtype).reshape(shape)
    return values.astype(dtype)


def make(store, path="a", *, shape=(20, 30, 10), dtype="i4", chunks=(3, 30, 10), absent=(), **options):
    """An array of distinct numbers; store keys at the coords `absent` are not there."""
    array = cm.create_array(store, path, shape=shape, dtype=dtype, chunks=chunks, **options)
    values = numbers(shape, dtype)
    array[...] = values
    for coords in absent:
        array.store.delete(array.write_layout.locator.key(coords))
        values[array.write_layout.grid.region(coords)] = array.fill_value
    return array, values


def planned_tightly(*arguments, **options):
    """A plan with the least memory that will do."""
    with pytest.raises(JobError, match="smallest that works") as caught:
        plan_rechunk(*arguments, max_mem=1, **options)
    needed = int(str(caught.value).partition("give max_mem=")[2].split()[0])
    return plan_rechunk(*arguments, max_mem=needed, **options)


def check(target, values, path="b"):
    """The target is whole, and nothing else is left of the job."""
    array = cm.open_array(target, path)
    got = array[...]
    assert got.dtype.kind == values.dtype.kind
    np.testing.assert_array_equal(got, values)
    assert not [key for key in array.store.list_prefix("") if "chunkmill" in key]
    return array


def keys(array):
    """Coords of the store keys that are there."""
    there = set(array.store.list_prefix(array.prefix))
    return {
        coords for coords in array.write_layout.grid.all_coords() if array.write_layout.locator.key(coords) in there
    }


# --------------------------------------------------------------------------------------------------------------------
# Values


@pytest.mark.parametrize("strategy", ["direct", "spill"])
@pytest.mark.parametrize("planner", [planned_tightly, plan_rechunk], ids=["tight", "roomy"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param({}, {"chunks": (20, 7, 4)}, id="images to series"),
        pytest.param({"chunks": (20, 3, 4)}, {"chunks": (1, -1, -1)}, id="series to images"),
        pytest.param({"chunks": (6, 9, 4)}, {"chunks": (4, 7, 3)}, id="borders that never meet"),
        pytest.param({"chunks": (50, 40, 20)}, {"chunks": (1, 1, 10)}, id="one chunk larger than the array"),
        pytest.param({"chunks": (2, 5, 5), "shards": (4, 10, 10)}, {"chunks": (20, 6, 4)}, id="out of shards"),
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
        pytest.param({"shape": (50,), "chunks": (7,), "dtype": "M8[s]"}, {"chunks": (11,)}, id="times"),
        pytest.param({"shape": (50,), "chunks": (7,), "dtype": "?"}, {"chunks": (11,)}, id="booleans"),
        pytest.param({"shape": (9, 5), "chunks": (2, 5), "dtype": "T"}, {"chunks": (9, 2)}, id="strings"),
        pytest.param({"shape": (3, 4, 3, 2, 3, 4), "chunks": (1, 2) * 3}, {"chunks": (2, 3, 2, 2, 3, 1)}, id="6-d"),
        pytest.param({"shape": (0, 5), "chunks": (1, 2)}, {"chunks": (1, 5)}, id="no elements"),
    ],
)
def test_values(source, target, planner, strategy):
    store = MemoryStore()
    source = {**source, **({"dtype": np.dtypes.StringDType()} if source.get("dtype") == "T" else {})}
    array, values = make(store, **source)
    plan = planner(array, (store, "b"), strategy=strategy, **target)
    assert plan.strategy == strategy or array.size == 0
    report = plan.run()
    got = check(store, values)
    assert report.n_keys == got.write_layout.grid.n_chunks == plan.n_keys
    assert report.n_tasks == plan.n_tasks


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


def test_zero_dimensions():
    store = MemoryStore()
    cm.create_array(store, "a", shape=(), dtype="f4", chunks=())[...] = 3
    rechunk((store, "a"), (store, "b"), chunks=())
    assert cm.open_array(store, "b")[()] == 3


@pytest.mark.parametrize("temp_codec", ["raw", "lz4"])
def test_temporary_files_elsewhere(tmp_path, temp_codec):
    array, values = make(str(tmp_path / "a.zarr"))
    temp = tmp_path / "scratch"
    seen = RecordingStore(LocalStore(temp))
    plan = plan_rechunk(
        array, str(tmp_path / "b.zarr"), chunks=(20, 7, 4), temp=seen, strategy="spill", temp_codec=temp_codec
    )
    plan.run()
    assert any(".chunkmill-job-" in str(entry) for entry in seen.log)
    assert not list(temp.iterdir())
    check(str(tmp_path / "b.zarr"), values, "")


def test_into_a_zip_file(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"))
    rechunk(array, str(tmp_path / "b.zip"), chunks=(20, 7, 4), strategy="spill")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "b.zip"]
    assert (tmp_path / "b.zip").stat().st_size < 2 * values.nbytes  # nothing spilled is left in it
    check(str(tmp_path / "b.zip"), values, "")


def test_two_jobs_share_a_scratch_folder(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40))
    store = LocalStore(tmp_path / "b.zarr")
    arguments = {"chunks": (40, 1), "strategy": "spill", "temp": str(tmp_path / "scratch")}
    with pytest.raises((StoreError, ChunkError)):
        planned_tightly(array, FailingStore(store, every=19, methods=["set", "set_if"], times=1), **arguments).run()
    planned_tightly(array, str(tmp_path / "c.zarr"), **arguments).run()
    assert planned_tightly(array, store, **arguments).run().n_resumed > 0
    check(store, values, "")
    assert not list((tmp_path / "scratch").iterdir())


def test_incompressible_pieces_and_compressible_ones():
    store = MemoryStore()
    array, values = make(store)
    report = planned_tightly(array, (store, "b"), chunks=(20, 7, 4), strategy="spill", temp_codec="lz4").run()
    check(store, values)
    assert 0 < report.bytes_temporary < values.nbytes * 2


# --------------------------------------------------------------------------------------------------------------------
# Presence


@pytest.mark.parametrize("strategy", ["direct", "spill"])
@pytest.mark.parametrize("temp_codec", ["raw", "lz4"])
def test_absent_stays_absent(strategy, temp_codec):
    store = MemoryStore()
    array, values = make(store, shape=(12, 12), chunks=(2, 12), fill_value=-1, absent=[(0, 0), (1, 0), (3, 0), (4, 0)])
    plan = planned_tightly(array, (store, "b"), chunks=(4, 4), strategy=strategy, temp_codec=temp_codec)
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
def test_a_wholly_absent_array_stays_so(strategy):
    store = MemoryStore()
    cm.create_array(store, "a", shape=(12, 12), dtype="f4", chunks=(2, 12), fill_value=np.nan)
    rechunk((store, "a"), (store, "b"), chunks=(4, 4), strategy=strategy)
    got = cm.open_array(store, "b")
    assert keys(got) == set()
    assert np.isnan(got[...]).all()


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_present_stays_present_though_it_is_fill_value(strategy):
    store = MemoryStore()
    array = cm.create_array(store, "a", shape=(12, 12), dtype="i4", chunks=(2, 12))
    from chunkmill.array.chunk_io import write_chunk

    for i in range(3):
        write_chunk(array, (i, 0), np.zeros((2, 12), "i4"), write_empty=True)
    rechunk(array, (store, "b"), chunks=(3, 4), strategy=strategy)
    assert keys(check(store, np.zeros((12, 12), "i4"))) == {(i, j) for i in (0, 1) for j in range(3)}


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_inner_chunks_of_shards_are_absent_one_by_one(strategy):
    store = MemoryStore()
    array = cm.create_array(store, "a", shape=(8, 8), dtype="i4", chunks=(2, 2), shards=(8, 8))
    array[:2, :2] = 1
    rechunk(array, (store, "b"), chunks=(4, 4), strategy=strategy)
    expected = np.zeros((8, 8), "i4")
    expected[:2, :2] = 1
    assert keys(check(store, expected)) == {(0, 0)}


# --------------------------------------------------------------------------------------------------------------------
# Targets


def test_an_existing_array_says_the_chunks():
    store = MemoryStore()
    array, values = make(store, absent=[(0, 0, 0)])
    target = cm.create_array(
        store, "b", shape=array.shape, dtype="i4", chunks=(20, 7, 4), codecs="gzip", attributes={"x": 1}
    )
    target[...] = 99  # where the source is absent, this must go
    rechunk(array, cm.open_array(store, "b", mode="r+"), chunks=None)
    got = check(store, values)
    assert (got.chunks, got.attributes) == ((20, 7, 4), {"x": 1})
    rechunk(array, cm.open_array(store, "b", mode="r+"), chunks=(20, 7, 4))


def test_an_existing_array_must_fit():
    store = MemoryStore()
    array, _ = make(store)
    target = cm.create_array(store, "b", shape=array.shape, dtype="i4", chunks=(20, 7, 4))
    with pytest.raises(AlignmentError, match="the target has its chunks already"):
        plan_rechunk(array, target, chunks=(5, 5, 5))
    with pytest.raises(AlignmentError, match="shape and dtype"):
        plan_rechunk(array, cm.create_array(store, "c", shape=(2, 2), dtype="i4", chunks=(1, 1)), chunks=None)
    with pytest.raises(StoreError, match="mode='r\\+'"):
        plan_rechunk(array, cm.open_array(store, "b"), chunks=None)
    with pytest.raises(TypeError, match="the source a group"):
        plan_rechunk(cm.open_group(store), target, chunks=None)


def test_a_fill_value_that_differs_is_written_out():
    store = MemoryStore()
    array, values = make(store, absent=[(0, 0, 0)], fill_value=5)
    cm.create_array(store, "b", shape=array.shape, dtype="i4", chunks=(20, 7, 4), fill_value=6)
    for strategy in ("direct", "spill"):
        rechunk(array, cm.open_array(store, "b", mode="r+"), chunks=None, strategy=strategy)
        check(store, values)


def test_a_node_is_in_the_way():
    store = MemoryStore()
    array, values = make(store)
    make(store, "b")
    with pytest.raises(NodeExists):
        rechunk(array, (store, "b"), chunks=(5, 5, 5))
    rechunk(array, (store, "b"), chunks=(5, 5, 5), overwrite=True)
    assert check(store, values).chunks == (5, 5, 5)
    with pytest.raises(JobError, match="same place"):
        rechunk(array, (store, "a"), chunks=(5, 5, 5), overwrite=True)


def test_nothing_is_seen_before_all_is_there(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40))
    target = LocalStore(tmp_path / "b.zarr")
    seen = []

    class Watching(RecordingStore):
        def set(self, key, value):
            with contextlib.suppress(NodeNotFound):
                node = cm.open(target)
                if b'"over": true' not in value:  # the journal's last word
                    seen.append(node)
            super().set(key, value)

    plan_rechunk(array, Watching(target), chunks=(40, 1), strategy="spill").run()
    assert not seen
    check(target, values, "")


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
        pytest.param(
            lambda a: "keep" if a.ndim == 1 else (12, 1), {"image": (12, 1), "sub/line": (5,)}, id="that keeps"
        ),
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


def test_a_path_that_is_none_is_refused(group):
    store, _ = group
    with pytest.raises(ValueError, match="names \\['imgae'\\]"):
        plan_rechunk((store, "g"), (store, "h"), chunks={"imgae": (1, 1)})


def test_a_plan_of_many_arrays_says_what_each_gets(group):
    store, _ = group
    plan = plan_rechunk((store, "g"), (store, "h"), chunks=(12, 4))
    assert {row["array"]: row["action"] for row in plan.arrays} == {"g/image": "direct", "g/sub/line": "copy"}
    assert plan.actions == {"rechunk": 3, "copy": 3}
    for text in (repr(plan), plan._repr_html_()):
        assert "g/sub/line" in text


# --------------------------------------------------------------------------------------------------------------------
# What is refused


def test_arguments():
    store = MemoryStore()
    array, _ = make(store)
    with pytest.raises(RegionError, match="2 lengths for 3 axes"):
        plan_rechunk(array, (store, "b"), chunks=(5, 5))
    with pytest.raises(ValueError, match="expected 'raw' or 'lz4'"):
        plan_rechunk(array, (store, "b"), chunks=(5, 5, 5), temp_codec="zip")
    with pytest.raises(TypeError, match="a target is"):
        plan_rechunk(array, 5, chunks=(5, 5, 5))
    with pytest.raises(AlignmentError, match="multiples of chunks"):
        plan_rechunk(array, (store, "b"), chunks=(5, 5, 5), shards=(7, 5, 5))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param(
            {"chunks": (0, 5, 5)}, RegionError, r"'a': chunks=\(0, 5, 5\) for an array .* -1 or edges", id="0"
        ),
        pytest.param({"chunks": (-2, 5, 5)}, RegionError, "chunk length -2 for an axis of 20", id="negative"),
        pytest.param({"shards": (0, 5, 5)}, RegionError, r"'a': shards=\(0, 5, 5\)", id="shards of 0"),
        pytest.param({"chunks": {"a": (5, 5, 5)}}, TypeError, "a dict is for the arrays of a group", id="dict"),
        pytest.param(
            {"shards": (10, 10, 10), "format": "zarr2"}, UnsupportedFeature, "shards=None, or", id="v2 shards"
        ),
        pytest.param({"max_mem": "abc"}, ValueError, "max_mem='abc': expected a number of bytes", id="max_mem text"),
        pytest.param({"max_mem": -5}, ValueError, "max_mem=-5: expected a number of bytes above 0", id="max_mem < 0"),
        pytest.param({"max_mem": b"1"}, ValueError, "max_mem=b'1': expected", id="max_mem of another type"),
    ],
)
def test_messages(options, error, message):
    store = MemoryStore()
    array, _ = make(store)
    with pytest.raises(error, match=message):
        plan_rechunk(array, (store, "b"), **{"chunks": (5, 5, 5)} | options)
    assert all(key.startswith("a/") or key == "zarr.json" for key in store.list_prefix(""))


@pytest.mark.parametrize("place", [("url",), ("url", "path", "more"), ("url", None)])
def test_places_that_are_none(place):
    array, _ = make(MemoryStore())
    with pytest.raises(TypeError, match=r"source=.*expected a url, \(url, path\)"):
        plan_rechunk(place, "b", chunks=5)
    with pytest.raises(TypeError, match=r"target=.*expected a url, \(url, path\)"):
        plan_rechunk(array, place, chunks=5)


@pytest.mark.parametrize(
    ("source", "target", "overwrite", "message"),
    [
        pytest.param(("g.zarr", "a"), "g.zarr/a", True, "same place", id="the path in the url"),
        pytest.param(("g.zarr", "a"), ("./g.zarr/../g.zarr", "a"), True, "same place", id="dots"),
        pytest.param(("g.zarr", "a"), ("link", "a"), True, "same place", id="a link"),
        pytest.param("link/a", "g.zarr/a", True, "same place", id="a link, and the path in the url"),
        pytest.param("g.zarr/a", "g.zarr", True, "source, .* is inside the target, .* deleted", id="the group above"),
        pytest.param("g.zarr/a", "g.zarr/a/b", False, "target, .* is inside the source", id="inside an array"),
        pytest.param("g.zarr", ("link", "sub"), False, "target, .* is inside the source", id="inside a group"),
    ],
)
@pytest.mark.parametrize("planner", [plan_rechunk, cm.plan_convert], ids=["rechunk", "convert"])
def test_a_source_is_not_overwritten_by_whatever_name(
    tmp_path, monkeypatch, planner, *, source, target, overwrite, message
):
    monkeypatch.chdir(tmp_path)
    make("g.zarr")
    Path("link").symlink_to("g.zarr")
    options = {"chunks": 5} if planner is plan_rechunk else {"format": "zarr3"}
    with pytest.raises(JobError, match=message):
        planner(source, target, overwrite=overwrite, **options)
    assert planner(("g.zarr", "a"), ("g.zarr", "ab"), **options)  # a name that only begins alike


def test_too_little_memory_says_how_much_would_do():
    store = MemoryStore()
    array, values = make(store, shape=(64, 512), chunks=(64, 8))
    with pytest.raises(JobError, match="smallest that works") as caught:
        plan_rechunk(array, (store, "b"), chunks=(1, 512), max_mem="1 MiB")
    needed = int(str(caught.value).partition("give max_mem=")[2].split()[0])
    rechunk(array, (store, "b"), chunks=(1, 512), max_mem=needed)
    check(store, values)


def test_max_mem_from_the_config():
    store = MemoryStore()
    array, _ = make(store)
    with (
        dask.config.set({"chunkmill.max-mem": "1 KiB"}),
        pytest.raises(JobError, match=r"1024 bytes .* are too little.* give max_mem="),
    ):
        plan_rechunk(array, (store, "b"), chunks=(5, 5, 5))


# --------------------------------------------------------------------------------------------------------------------
# Cost


@pytest.mark.parametrize("strategy", ["direct", "spill"])
@pytest.mark.parametrize(
    "source",
    [{}, {"chunks": (2, 5, 5), "shards": (4, 10, 10)}, {"chunks": (4, 30, 7)}],
    ids=["chunks", "shards", "edges"],
)
def test_requests_and_bytes_are_those_of_the_plan(source, strategy):
    store = MemoryStore()
    array, _ = make(store, codecs="raw", **source)
    plan = planned_tightly(array, (store, "b"), chunks=(20, 7, 4), strategy=strategy)
    report = plan.run()
    assert report.n_requests == plan.n_requests
    assert report.bytes_temporary == plan.bytes_temporary
    index_bytes = 0 if array.shards is None else 2 * plan.n_requests * 8 * 20
    assert plan.bytes_read <= report.bytes_read <= plan.bytes_read + index_bytes
    assert report.bytes_written == plan.bytes_written
    assert report.actions == plan.actions
    assert report.read_amplification == pytest.approx(plan.read_amplification)


def test_a_spill_reads_every_chunk_once_and_every_file_in_pieces(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), codecs="raw")
    store = RecordingStore(LocalStore(tmp_path / "b.zarr"))
    source = RecordingStore(array.store)
    node = cm.open_array(source, "a")
    source.log.clear()
    plan = planned_tightly(node, store, chunks=(20, 7, 4), strategy="spill")
    plan.run()
    reads = [entry[1] for entry in source.log if entry[0] == "get" and "/c/" in entry[1]]
    assert len(reads) == len(set(reads)) == array.nchunks
    pieces = [entry for entry in store.log if "intermediate" in entry[1]]
    n_files = len({entry[1] for entry in pieces if entry[0] == "set"})
    assert n_files == plan.stages[0].n_tasks
    assert all(entry[2] is not None for entry in pieces if entry[0] == "get")
    check(str(tmp_path / "b.zarr"), values, "")


def test_stores_with_latency_are_asked_for_many_things_at_once():
    below = MemoryStore()
    _, values = make(below, shape=(40, 40), chunks=(1, 40))
    batches = []

    class Remote(RecordingStore):
        def get_many(self, spans):
            asked = list(spans)
            batches.append(asked)
            return super().get_many(asked)

    remote = Remote(below)
    remote.is_remote = True
    plan = plan_rechunk(cm.open_array(remote, "a"), (remote, "b"), chunks=(40, 1), strategy="spill", max_mem="16 MiB")
    batches.clear()
    plan.run()
    check(below, values)
    batches = [batch for batch in batches if batch]
    sizes = [len(batch) for batch in batches if batch[0].key.startswith("a/c/")]
    assert sum(sizes) == 40
    assert max(sizes) > 10
    assert len([batch for batch in batches if "/intermediate/" in batch[0].key]) == plan.stages[1].n_tasks


# --------------------------------------------------------------------------------------------------------------------
# Failing and going on


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_goes_on_where_it_failed(tmp_path, strategy):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40), absent=[(3, 0)])
    store = LocalStore(tmp_path / "b.zarr")
    arguments = {"chunks": (40, 1), "strategy": strategy}
    n_tasks = planned_tightly(array, store, **arguments).n_tasks
    n_resumed = 0
    for _ in range(60):
        failing = FailingStore(store, every=17, methods=["set", "set_if"], times=1)
        try:
            report = planned_tightly(array, failing, **arguments).run()
        except (StoreError, ChunkError):
            with pytest.raises(NodeNotFound):
                cm.open_array(store)
            continue
        n_resumed = report.n_resumed
        break
    assert 0 < n_resumed <= n_tasks  # all, when what failed last was the publishing
    check(store, values, "")


@pytest.mark.parametrize("temp_codec", ["raw", "lz4"])
def test_a_temporary_file_that_was_lost_is_not_taken_for_absent_chunks(tmp_path, temp_codec):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40), absent=[(0, 0)])
    store = LocalStore(tmp_path / "b.zarr")
    arguments = {"chunks": (40, 1), "strategy": "spill", "temp_codec": temp_codec}

    class Losing(RecordingStore):
        def set(self, key, value):
            super().set(key, value)
            if "/c/" in f"/{key}":
                (lost, *_) = (k for k in store.list_prefix("") if "/intermediate/" in k and not k.endswith(".absent"))
                store.delete(lost)

    with pytest.raises(StoreError, match="intermediate file was written and is gone"):
        planned_tightly(array, Losing(store), **arguments).run()
    with pytest.raises(StoreError, match="resume=False"):
        planned_tightly(array, store, **arguments).run()
    planned_tightly(array, store, **arguments).run(resume=False)
    check(store, values, "")


def test_a_job_of_another_plan_is_not_gone_on_with(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40))
    store = LocalStore(tmp_path / "b.zarr")
    with pytest.raises((StoreError, ChunkError)):
        rechunk(
            array, FailingStore(store, every=9, methods=["set", "set_if"], times=1), chunks=(40, 1), strategy="spill"
        )
    assert unfinished_jobs(store)
    with pytest.raises(JobError, match="another plan"):
        rechunk(array, store, chunks=(10, 10))
    rechunk(array, store, chunks=(10, 10), resume=False)
    assert check(store, values, "").chunks == (10, 10)


# --------------------------------------------------------------------------------------------------------------------
# Clusters


@pytest.mark.slow
@pytest.mark.parametrize("temp_codec", ["raw", "lz4"])
def test_on_a_cluster(tmp_path, temp_codec):
    array, values = make(str(tmp_path / "a.zarr"), shape=(64, 64, 8), chunks=(1, 64, 8))
    with cluster_of():
        plan = plan_rechunk(
            array, str(tmp_path / "b.zarr"), chunks=(64, 5, 5), strategy="spill", max_mem="5 MiB", temp_codec=temp_codec
        )
        report = plan.run()
    check(str(tmp_path / "b.zarr"), values, "")
    assert report.n_tasks == plan.n_tasks


MANY_TASKS = {"chunks": (96, 4, 4), "strategy": "spill"}
"""Some 15 files and 30 boxes for (96, 96, 8), within:"""


def little_memory(n_threads):
    return n_threads * (THREAD_OVERHEAD + 30_000)


def wait_for(store, part, n_keys, process=None):
    """Wait until `n_keys` keys that contain `part` are there."""
    deadline = time.monotonic() + 60
    while sum(part in key for key in store.list_prefix("")) < n_keys:
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "n_keys"), [("/intermediate/", 3), ("c/", 3)], ids=["while spilling", "while writing"]
)
def test_a_killed_worker_costs_nothing_but_its_tasks(tmp_path, part, n_keys):
    array, values = make(str(tmp_path / "a.zarr"), shape=(96, 96, 8), chunks=(1, 96, 8))
    target = LocalStore(tmp_path / "b.zarr")
    with cluster_of() as client:
        pids = worker_pids(client)
        victim = next(iter(pids.values()))
        killer = threading.Thread(target=lambda: (wait_for(target, part, n_keys), kill_worker(victim)))
        killer.start()
        slow = SlowStore(target, 0.05, ["set", "set_if"])
        report = rechunk(array, slow, max_mem=little_memory(1), **MANY_TASKS)
        killer.join()
        client.wait_for_workers(2, timeout=60)
        assert victim not in worker_pids(client).values()
    check(target, values, "")
    assert report.n_tasks > 30


SCRIPT = """
import dask
from chunkmill.conversion.rechunk import rechunk
from chunkmill.stores.local import LocalStore
from recording import SlowStore

if __name__ == "__main__":
    with dask.config.set(scheduler="threads", num_workers=2):
        slow = SlowStore(LocalStore({target!r}), 0.05, ["set", "set_if"])
        rechunk(({source!r}, "a"), slow, max_mem={max_mem}, **{arguments})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "n_keys"), [("/intermediate/", 3), ("c/", 10)], ids=["while spilling", "while writing"]
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_goes_on_where_a_killed_client_stopped(tmp_path, number, part, n_keys):
    _, values = make(str(tmp_path / "a.zarr"), shape=(96, 96, 8), chunks=(1, 96, 8))
    source, target = str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(source=source, target=target, max_mem=little_memory(2), arguments=MANY_TASKS))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.PIPE)
    try:
        wait_for(LocalStore(target), part, n_keys, process)
        process.send_signal(number)
    finally:
        process.communicate(timeout=60)
    assert process.returncode != 0
    with pytest.raises(NodeNotFound):
        cm.open_array(target)
    report = rechunk((source, "a"), target, max_mem=little_memory(2), **MANY_TASKS)
    assert 0 < report.n_resumed < report.n_tasks
    check(target, values, "")


def slow_down():
    """Make every file that this process writes take a while."""
    fast = LocalStore.set
    LocalStore.set = lambda store, key, value: (time.sleep(0.05), fast(store, key, value))[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "n_keys"), [("/intermediate/", 3), ("c/", 3)], ids=["while spilling", "while writing"]
)
def test_ctrl_c_on_a_cluster(tmp_path, part, n_keys):
    """The command line stops with its exit code; what is there is whole; the same command goes on and ends right."""
    _, values = make(str(tmp_path / "a.zarr"), shape=(96, 96, 8), chunks=(1, 96, 8))
    source, target = str(tmp_path / "a.zarr"), LocalStore(tmp_path / "b.zarr")
    with cluster_of() as client:
        client.run(slow_down)
        address = client.scheduler.address
        command = [
            *(str(Path(sys.executable).parent / "chunkmill"), "rechunk", source, str(tmp_path / "b.zarr"), "--path=a"),
            *(
                "--chunks=96,4,4",
                "--strategy=spill",
                f"--max-mem={little_memory(1)}",
                f"--scheduler={address}",
                "--json",
            ),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(target, part, n_keys, process)
            process.send_signal(signal.SIGINT)
        finally:
            printed, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert errors.strip().splitlines()[-1] == "interrupted; an unfinished job goes on when the command is run again"
        assert "Traceback" not in errors
        assert not printed
        wait_until(lambda: not any(client.run(n_running).values()))  # what was begun is done
        assert [job.job.partition(" ")[0] for job in unfinished_jobs(target)] == ["rechunk"]
        assert not target.sweep(remove=False)
        with pytest.raises(NodeNotFound):
            cm.open_array(target)
        written = [key for key in target.list_prefix("c/") if key]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert 0 < report["n_resumed"] < report["n_tasks"]
    assert set(written) <= set(target.list_prefix("c/"))
    check(target, values, "")


def n_running(dask_worker):
    return len(dask_worker.state.all_running_tasks)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --------------------------------------------------------------------------------------------------------------------
# Memory


def resident(name):
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:"))


def forget_peak():
    """Make what is resident now the most that ever was, and return it."""
    import chunkmill.conversion.rechunk  # noqa: F401 - what is imported is baseline

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


BIG = pytest.mark.skipif("CHUNKMILL_BIG" not in os.environ, reason="25 GB of disk, minutes: set CHUNKMILL_BIG=1")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while")
@pytest.mark.parametrize(
    ("n_images", "max_mem", "source", "target", "options"),
    [
        pytest.param(512, 256, (1, 1024, 1024), (-1, 32, 32), {}, id="256 MiB for 2 GiB, images to series"),
        pytest.param(2048, 1024, (1, 1024, 1024), (-1, 32, 32), {}, id="1 GiB for 8 GiB, images to series", marks=BIG),
        pytest.param(128, 64, (1, 1024, 1024), (-1, 32, 32), {"temp_codec": "lz4"}, id="64 MiB, lz4"),
        pytest.param(128, 64, (-1, 32, 32), (1, -1, -1), {}, id="64 MiB, series to images"),
        pytest.param(128, 64, (64, 64, 64), (128, 128, 16), {"strategy": "direct"}, id="64 MiB, regrid"),
    ],
)
def test_memory_of_a_worker_stays_within_its_limit(n_images, max_mem, *, source, target, options):
    """An array of eight times `max_mem`, of noise that does not compress: encoded chunks are as large as they get."""
    with tempfile.TemporaryDirectory() as folder:  # pytest would keep gigabytes
        check_memory(Path(folder), n_images, max_mem, source=source, target=target, options=options)


def check_memory(tmp_path, n_images, max_mem, *, source, target, options):
    shape = (n_images, 1024, 1024)
    array = cm.create_array(str(tmp_path / "a.zarr"), shape=shape, dtype="f4", chunks=source, codecs="zstd")
    axis = 0 if array.chunks[0] < n_images else 1
    length = array.chunks[axis]
    random = np.random.Generator(np.random.SFC64(0))
    part = (*shape[:axis], length, *shape[axis + 1 :])
    for start in range(0, shape[axis], length):  # any bits will do, and are made faster than normal numbers
        noise = random.integers(0, 2**64, prod(part) // 2, "u8", endpoint=False).view("f4").reshape(part)
        array[(slice(None),) * axis + (slice(start, start + length),)] = noise
    with cluster_of(1, 2) as client:
        plan = plan_rechunk(array, str(tmp_path / "b.zarr"), chunks=target, max_mem=f"{max_mem} MiB", **options)
        (baseline,) = client.run(forget_peak).values()
        plan.run()
        (peak,) = client.run(resident, "VmHWM").values()
        got = cm.open_array(str(tmp_path / "b.zarr"))
        corner = tuple(slice(0, 32) for _ in shape)
        assert got[corner].tobytes() == array[corner].tobytes()
    used = (peak - baseline) / MIB
    print(f"planned {plan.peak_memory_bytes / MIB:.0f} MiB, used {used:.0f} MiB of {max_mem}")
    assert used <= plan.peak_memory_bytes / MIB <= max_mem
