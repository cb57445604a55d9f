"""What writing takes, and what it returns: places by any name, alignment, modes, and that no value is lost (P1)."""

from zipfile import ZipFile

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.utils import SerializableLock
from support.arrays import filled
from support.cases import cases
from support.recording import FarStore

import chunkmill as cm
from chunkmill.errors import AlignmentError, JobError, NodeExists, NodeNotFound, StoreError
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
VALUES = np.arange(12, dtype="i4").reshape(4, 3)


def make(store, kind="zarr3", path="g/a"):
    return filled(VALUES, store, path, chunks=(2, 3), format=kind)


@cases("kind", FORMATS)
def test_an_array_is_read_by_any_name(kind):
    store = MemoryStore()
    array = make(store, kind)
    group = cm.open_group(store)
    places = [(store, "g/a"), ((store, "g/a"), ""), ((store, "g"), "a"), (array,), (group, "g/a"), (group["g"], "a")]
    for place in places:
        np.testing.assert_array_equal(cm.from_store(*place), VALUES)
    assert cm.from_store(array, name="mine").name == "mine"
    assert cm.from_store(array, region=slice(1, 3)).shape == (2, 3)
    assert cm.from_store(array).name == cm.from_store(store, "g/a").name
    store.delete(next(array.stored.stored_keys()))
    with pytest.raises(cm.errors.ChunkError, match="absent"):
        cm.from_store(array, read_missing="error").compute()


def test_what_is_not_read():
    store = MemoryStore()
    array = make(store)
    with pytest.raises(NodeNotFound, match="its arrays are 'a'; give one as path"):
        cm.from_store(cm.open_group(store, "g"))
    with pytest.raises(TypeError, match="path='x': the array 'g/a' has no nodes below it"):
        cm.from_store(array, "x")
    with pytest.raises(TypeError, match="the Array is open already"):
        cm.from_store(array, format="zarr2")
    for place in ({5}, 5, None):
        with pytest.raises(
            TypeError, match=r"got .*, where a url, \(url, path\), a store, an Array or a Group is expected"
        ):
            cm.from_store(place)


@cases("kind", FORMATS)
def test_a_place_to_write_by_any_name(kind):
    store = MemoryStore()
    group = cm.create_group(store, format=kind)
    places = [((store, "g/0"), ""), ((store, "g"), "1"), (group, "g/2"), (group.create_group("h"), "3")]
    for n, place in enumerate(places):
        cm.to_store(VALUES, *place, attributes={"n": n})
    found = cm.open_group(store)
    assert [found[path].format for path in ("g/0", "g/1", "g/2", "h/3")] == [kind] * 4
    array = found["g/0"]
    with pytest.raises(StoreError, match=r"mode='r\+'"):
        cm.to_store(VALUES, array)
    array = cm.open_array(store, "g/0", mode="r+")
    assert cm.to_store(VALUES + 1, array).n_keys == 1
    assert cm.to_store(VALUES[:2], array, region=slice(1, 3)).n_partial == 1
    np.testing.assert_array_equal(array[...], np.concatenate([VALUES[:1] + 1, VALUES[:2], VALUES[3:] + 1]))
    cm.to_store(VALUES[:1], array, mode="w")
    assert cm.open_array(store, "g/0").shape == (1, 3)


@cases("compute", [True, False])
@cases("region", [None, slice(0, 2)])
def test_what_was_written_is_read_again(region, compute):
    array = make(MemoryStore())
    x = da.from_array(VALUES if region is None else VALUES[region], chunks=2) + 5
    (stored,) = cm.store(x, array, regions=region, compute=compute, return_stored=True)
    assert isinstance(stored, da.Array)
    np.testing.assert_array_equal(stored.compute(), x.compute())
    np.testing.assert_array_equal(array[: len(x)], x)


@cases("source", [{"a": VALUES}, None, {1, 2}, xr.Dataset({"a": ("x", [1])}), cm.create_group(MemoryStore())])
def test_sources_that_are_none(source):
    array = make(MemoryStore())
    for write in (cm.store, cm.to_store):
        with pytest.raises(TypeError, match="where values of one array are expected: of dask, NumPy, xarray"):
            write(source, array)


def test_targets_that_are_none():
    for target in (VALUES, {5}, 5):
        for write in (cm.store, cm.to_store):
            with pytest.raises(
                TypeError, match=r"where a url, \(url, path\), a store, an Array or a Group is expected"
            ):
                write(VALUES, target)
    with pytest.raises(cm.errors.RegionError, match="only write_dataset knows coordinates"):
        cm.to_store(VALUES, make(MemoryStore()), region="auto")
    with pytest.raises(ValueError, match="1 sources, 2 targets and 2 regions do not match: give a list"):
        cm.store(VALUES, [make(MemoryStore()), make(MemoryStore())])


def test_a_deleted_target_is_an_error_when_it_is_read_again():
    store = MemoryStore()
    (stored,) = cm.store(VALUES, (make(store, path="a").store, "a"), return_stored=True)
    cm.delete(store, "a")
    with pytest.raises(StoreError, match="it has been deleted"):
        stored.compute()
    with pytest.raises(JobError, match="which the data are read from"):
        cm.to_store(cm.from_store(make(store)), store, "g/a", mode="w")


def test_a_place_of_another_kind_is_named():
    group = cm.create_group({})
    with pytest.raises(NodeExists, match="there is a group already; give mode='w' to replace it"):
        cm.to_store(VALUES, group, mode="r+")
    with pytest.raises(TypeError, match="path='b': the array 'a' has no nodes below it"):
        cm.to_store(VALUES, group.create_array("a", like=VALUES), "b")


def test_values_without_blocks_get_chunks_of_the_default_size():
    values = np.arange(3 << 20, dtype="f4").reshape(2048, 1536)
    for x in (values, xr.DataArray(values, dims=("y", "x"))):
        cm.to_store(x, store := MemoryStore(), codecs="raw")
        made = cm.open_array(store)
        assert made.chunks == cm.create_array(MemoryStore(), like=values).chunks == (1024, 768)
        np.testing.assert_array_equal(made[...], values)
    cm.to_store(values, store := MemoryStore(), chunks={"y": 16}, dimension_names=("y", "x"), codecs="raw")
    assert cm.open_array(store).chunks == (16, 1536)
    cm.to_store(da.from_array(values, chunks=(2048, 768)), store := MemoryStore(), codecs="raw")
    assert cm.open_array(store).chunks == (2048, 768)


def values(shape, dtype="i4"):
    return (np.arange(np.prod(shape, dtype=int)) * 13 % 251 + 1).astype(dtype).reshape(shape)


def test_a_small_chunk_size_setting_never_cuts_a_shard():
    store = MemoryStore()
    with dask.config.set({"array.chunk-size": "1KiB"}):
        cm.to_store(da.from_array(values((64, 64)), chunks=(5, 64)), store, chunks=(8, 8), shards=(32, 32))
    np.testing.assert_array_equal(cm.open_array(store)[...], values((64, 64)))
    assert sorted(store.list_prefix("c/")) == [f"c/{i}/{j}" for i in (0, 1) for j in (0, 1)]


@pytest.mark.parametrize("lock", ["auto", None, False, SerializableLock()], ids=["auto", "none", "false", "given"])
def test_interleaved_partial_writes_lose_nothing(lock):
    """Each element is a job of its own, and all share one chunk."""
    array = cm.create_array(MemoryStore(), shape=(12,), dtype="i4", chunks=(12,))
    jobs = [
        cm.store(da.full(1, i + 1, dtype="i4"), array, regions=(slice(i, i + 1),), lock=lock, compute=False)
        for i in range(12)
    ]
    dask.compute(*jobs, scheduler="threads", num_workers=8)
    np.testing.assert_array_equal(array[...], np.arange(12) + 1)


def test_fill_is_not_stored_and_an_old_chunk_is_deleted():
    store = MemoryStore()
    x = da.from_array(np.array([5, 5, 0, 0]), chunks=2)
    report = cm.to_store(x, store)
    assert (report.n_keys, report.n_empty) == (2, 1)
    assert list(store.list_prefix("c/")) == ["c/0"]
    cm.to_store(da.zeros(4, dtype=x.dtype), store, mode="r+")
    assert list(store.list_prefix("c/")) == []
    cm.store([da.zeros(4, dtype=x.dtype)], [store], write_empty_chunks=True)
    assert sorted(store.list_prefix("c/")) == ["c/0", "c/1"]


@pytest.fixture
def store():
    return filled(np.ones(4), path="a").store


@cases(
    ("n", "path", "options", "refused"),
    [
        (4, "a", {}, pytest.raises(NodeExists, match="mode='w'")),
        (4, "missing", {"mode": "r+"}, pytest.raises(NodeNotFound, match="missing")),
        (4, "a", {"mode": "r"}, pytest.raises(ValueError, match="mode='r'")),
        (5, "a", {"mode": "r+"}, pytest.raises(AlignmentError, match=r"shape \(5,\)")),
        (5, "a", {"region": (slice(0, 5),)}, pytest.raises(AlignmentError, match=r"shape \(5,\)")),
    ],
)
def test_where_nothing_can_be_written(store, n, path, options, refused):
    with refused:
        cm.to_store(da.zeros(n), store, path, **options)
    np.testing.assert_array_equal(cm.open_array(store, "a"), np.ones(4))


@pytest.mark.parametrize(("mode", "path"), [("a", "a"), ("r+", "a"), ("a", "b")])
def test_into_what_is_there_or_not(store, mode, path):
    cm.to_store(da.full(4, 3.0), store, path, mode=mode)
    np.testing.assert_array_equal(cm.open_array(store, path), np.full(4, 3.0))


def test_unknown_chunks_are_refused_before_anything_is_written():
    x = da.arange(10, chunks=5)
    store = MemoryStore()
    with pytest.raises(AlignmentError, match="compute_chunk_sizes"):
        cm.to_store(x[x > 3], store)
    with pytest.raises(AlignmentError, match="got 64, expected a dask array of at most 63 axes"):
        cm.to_store(da.ones((1,) * 64), store)
    assert not list(store.list_prefix(""))
    frames = pytest.importorskip("dask.dataframe")
    with pytest.raises(AlignmentError, match="compute_chunk_sizes"):
        cm.to_store(frames.from_pandas(pd.DataFrame([[1, 2], [3, 4]]), npartitions=1), store)


@pytest.mark.parametrize("store", [MemoryStore(), FarStore()], ids=["near", "far"])
def test_what_others_make_before_a_graph_is_computed_survives(store):
    """None of 64 elements of theirs survived, and the error said that they had."""
    theirs = np.arange(64.0).reshape(8, 8)
    for path, make in (
        ("x", lambda: cm.to_store(da.from_array(theirs, chunks=4), store, "x")),
        ("y", lambda: cm.create_group(store, "y")),
    ):
        later = cm.to_store(da.ones((8, 8), chunks=4), store, path, compute=False)
        make()
        before = {key: store.get(key) for key in store.list_prefix("")}
        with pytest.raises(NodeExists, match="it was made after this write was planned"):
            later.compute()
        assert {key: store.get(key) for key in store.list_prefix("")} == before
    np.testing.assert_array_equal(cm.open_array(store, "x")[...], theirs)


@pytest.mark.parametrize("write", [cm.to_store, cm.store])
def test_what_is_written_is_in_a_zip_file_at_once(tmp_path, write):
    """While the array is open here."""
    cm.create_array(tmp_path / "x.zip", shape=VALUES.shape, dtype="i4", chunks=VALUES.shape)
    array = cm.open_array(tmp_path / "x.zip", mode="r+")
    write(VALUES, array)
    with ZipFile(tmp_path / "x.zip") as file:
        assert "c/0/0" in file.namelist()
