"""Rechunking through stores, codecs and schedulers: values, presence, cost; targets; intermediate files that are lost."""

from functools import partial
from itertools import product
from pathlib import Path

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.rechunks import check, keys, make, planned_tightly
from support.recording import DyingStore, FailingStore, FarStore, Meanwhile, RecordingStore
from support.systems import NEEDS_POSIX_NAMES

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.convert import plan_rechunk, rechunk
from chunkmill.errors import AlignmentError, ChunkError, JobError, RegionError, StoreError, UnsupportedFeature
from chunkmill.nodes.opening import walk
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


# --------------------------------------------------------------------------------------------------------------------
# Values


@cases(
    ("source", "target"),
    [
        ({"chunks": (20, 3, 4)}, {"chunks": (1, -1, -1)}),
        ({"chunks": (2, 5, 5), "shards": (4, 10, 10)}, {"chunks": (4, 3, 2), "shards": (8, 9, 10)}),
        ({"chunks": ((5, 8, 7), 30, 4)}, {"chunks": (4, (1, 9, 20), 10)}),
        ({"format": "zarr2", "codecs": "blosc"}, {"chunks": (20, 7, 4)}),
        ({"format": "n5", "codecs": "gzip"}, {"chunks": (7, 7, 4)}),
        ({"format": "n5"}, {"chunks": (7, 7, 4), "format": "zarr3"}),
        ({}, {"chunks": (7, 7, 4), "codecs": "gzip"}),
        ({"shape": (50,), "chunks": (7,), "dtype": ">f8"}, {"chunks": (11,)}),
        ({"shape": (9, 5), "chunks": (2, 5), "dtype": "T"}, {"chunks": (9, 2)}),
        ({"shape": (3, 4, 3, 2, 3, 4), "chunks": (1, 2) * 3}, {"chunks": (2, 3, 2, 2, 3, 1)}),
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


def test_intermediate_files_elsewhere_go_with_the_next_run_and_the_job():
    store, temp, left = MemoryStore(), MemoryStore(), []
    array, values = make(MemoryStore(), shape=(40, 40), chunks=(1, 40))
    options = {"chunks": (40, 1), "strategy": "spill", "temp": temp}
    for _ in range(2):
        failing = FailingStore(store, every=9, methods=["set", "set_if"], times=1)
        with pytest.raises((StoreError, ChunkError)):
            plan_rechunk(array, failing, **options).run(resume=False)
        left.append(set(temp.list_prefix("")))
    assert left[0].isdisjoint(left[1])
    assert all(left)
    assert not any("intermediate" in key for key in store.list_prefix(""))
    assert rechunk(array, store, **options).n_resumed
    check(store, values, "")
    assert not list(temp.list_prefix(""))


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
    with pytest.raises(TypeError, match="'b' has its keys already"):
        plan_rechunk(array, target, chunks=None, chunk_key_encoding="/")
    with pytest.raises(TypeError, match=r"'b' is written into as an Array; give \(url, path\)"):
        plan_rechunk(array, target, chunks=None, overwrite=True)


def test_absent_chunks_that_a_copy_writes_out_are_reported_as_encoded():
    array, values = make(store := MemoryStore(), absent=[(0, 0, 0)], fill_value=5)
    cm.create_array(store, "b", shape=array.shape, dtype="i4", chunks=array.chunks, fill_value=6)
    report = rechunk(array, cm.open_array(store, "b", mode="r+"), chunks=None)
    check(store, values)
    assert report.actions == {"copy": 6, "recode": 1}


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


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_arrays_are_added_to_a_group_that_is_there(tmp_path, strategy):
    """As rechunker's users do; what is in the group stays, and no name is taken twice."""
    source = cm.create_group(tmp_path / "a")
    for path in ("t", "deep/u"):
        filled(np.arange(48).reshape(8, 6), tmp_path / "a", path, chunks=(2, 6))
    there = cm.create_group(tmp_path / "b", attributes={"kept": 1})
    filled(np.full(4, 7), tmp_path / "b", "old")
    cm.consolidate(tmp_path / "b")
    rechunk(source, there, chunks=(8, 2), strategy=strategy)
    rechunk(source["t"], there["deep"], chunks=(8, 2), strategy=strategy)
    for consolidated in (True, False):
        found = cm.open_group(tmp_path / "b", consolidated=consolidated)
        paths = [each.path for each in walk(found.stored) if isinstance(each, StoredArray)]
        assert sorted(paths) == ["deep/t", "deep/u", "old", "t"]
        assert found.attributes == {"kept": 1}
    for path in ("t", "deep/u", "deep/t"):
        assert found[path].chunks == (8, 2)
        np.testing.assert_array_equal(found[path][...], np.arange(48).reshape(8, 6))
    assert (found["old"][...] == 7).all()
    assert cm.check(tmp_path / "b").ok
    with pytest.raises(cm.errors.NodeExists, match="'deep'"):
        rechunk(source, there, chunks=(8, 2), include="deep")
    with pytest.raises(cm.errors.NodeExists, match="deep/t"):
        cm.convert(source["t"], cm.open_group(tmp_path / "b", "deep", mode="r+"), format="zarr3")
    with pytest.raises(JobError, match="a group without nodes"):
        rechunk(cm.create_group(tmp_path / "c"), there, chunks=(8, 2))
    with pytest.raises(TypeError, match="no name in its store"):
        rechunk(cm.create_array(tmp_path / "d", shape=(4,), dtype="i4"), there, chunks=(2,))


@pytest.mark.parametrize(
    ("resume", "n"), [(lambda again, _: again(), 4), (lambda _, target: cm.resume(target), 8)], ids=["again", "url"]
)
def test_adding_to_a_group_resumes_and_takes_no_name_of_others(tmp_path, resume, n):
    source = cm.create_group(tmp_path / "a")
    for path in ("t", "u"):
        filled(np.arange(48).reshape(8, 6), tmp_path / "a", path, chunks=(2, 6))
    cm.create_group(tmp_path / "b", attributes={"kept": 1})
    dying = DyingStore(LocalStore(tmp_path / "b"), n + 5, ["set", "set_if"])
    with dask.config.set(scheduler="sync"), pytest.raises(Exception, match="injected"):
        rechunk(source, cm.open_group(dying, mode="r+"), chunks=(8, 1))
    assert sorted(cm.open_group(tmp_path / "b")) in ([], ["t"], ["t", "u"])
    if cm.jobs(tmp_path / "b"):
        resume(lambda: rechunk(source, cm.open_group(tmp_path / "b", mode="r+"), chunks=(8, 1)), tmp_path / "b")
    found = cm.open_group(tmp_path / "b")
    assert (sorted(found), found.attributes) == (["t", "u"], {"kept": 1})
    for path in ("t", "u"):
        np.testing.assert_array_equal(found[path][...], np.arange(48).reshape(8, 6))
    assert cm.check(tmp_path / "b").ok


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


@cases(
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
@NEEDS_POSIX_NAMES
def test_a_source_is_not_overwritten_by_whatever_name(tmp_path, monkeypatch, source, target, *, overwrite, message):
    monkeypatch.chdir(tmp_path)
    make("g.zarr")
    Path("link").symlink_to("g.zarr")
    for planner, options in ((plan_rechunk, {"chunks": 5}), (cm.plan_convert, {"format": "zarr3"})):
        with pytest.raises(JobError, match=message):
            planner(source, target, overwrite=overwrite, **options)
        assert planner(("g.zarr", "a"), ("g.zarr", "ab"), **options)  # a name that only begins alike


def test_a_temporary_file_that_was_lost_is_not_taken_for_absent_chunks(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40), absent=[(0, 0)])
    store = LocalStore(tmp_path / "b.zarr")
    arguments = {"chunks": (40, 1), "strategy": "spill"}

    def lose(_):
        store.delete(next(k for k in store.list_prefix("") if "/intermediate/" in k and not k.endswith(".absent")))

    losing = Meanwhile(store, lambda method, key: method == "set_if" and "/c/" in f"/{key}", lose)
    with pytest.raises(StoreError, match="intermediate file was written and is gone; run the job again"):
        planned_tightly(array, losing, **arguments).run()
    planned_tightly(array, store, **arguments).run()
    check(store, values, "")


@cases("kind", ["separate", "memory", "far"])
@cases("damage", [lambda _: b"", lambda value: value[: len(value) // 2]])
def test_intermediate_files_that_are_not_as_on_record_are_written_again(tmp_path, kind, damage):
    """Files of another size than is on record failed at every resume."""
    array, values = make(str(tmp_path / "a.zarr"), shape=(20, 20), chunks=(1, 20), absent=[(0, 0)])
    store = LocalStore(tmp_path / "b.zarr") if kind == "separate" else MemoryStore()
    store = FarStore(store) if kind == "far" else store
    arguments = {"chunks": (20, 1), "strategy": "spill"} | ({"temp": tmp_path / "temp"} if kind == "separate" else {})
    planned = partial(plan_rechunk, max_mem="18 MiB") if kind == "far" else planned_tightly
    files = LocalStore(tmp_path / "temp") if kind == "separate" else store

    class Failing(RecordingStore):
        def set_if(self, key, value, version):
            if "/c/" in f"/{key}":
                raise StoreError(url="x", key=key, reason="broken")
            return super().set_if(key, value, version)

    with pytest.raises((StoreError, ChunkError), match="broken"):
        planned(array, Failing(store), **arguments).run()
    own = [key for key in files.list_prefix("") if "intermediate/" in key and files.get(key)]
    assert own
    for key in own:
        files.set(key, damage(files.get(key)))
    report = planned(array, store, **arguments).run()
    assert report.n_resumed == (0 if kind == "far" else 1)  # the file of the absent chunk, which is an empty one
    check(store, values, "")
