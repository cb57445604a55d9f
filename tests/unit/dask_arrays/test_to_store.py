"""What reading and writing take, and what they return: urls, pairs, arrays, groups, stores; values written read again."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import JobError, NodeNotFound, StoreError
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
VALUES = np.arange(12, dtype="i4").reshape(4, 3)


def make(store, kind="zarr3", path="g/a"):
    array = cm.create_array(store, path, shape=(4, 3), chunks=(2, 3), dtype="i4", format=kind)
    array[...] = VALUES
    return array


@cases("kind", FORMATS)
def test_an_array_is_read_by_any_name(kind):
    store = MemoryStore()
    array = make(store, kind)
    group = cm.open_group(store)
    for place in (
        (store, "g/a"),
        ((store, "g/a"), ""),
        ((store, "g"), "a"),
        (array,),
        (group, "g/a"),
        (group["g"], "a"),
    ):
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
    for n, place in enumerate(
        (((store, "g/0"), ""), ((store, "g"), "1"), (group, "g/2"), (group.create_group("h"), "3"))
    ):
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
        with pytest.raises(TypeError, match=r"where a url, \(url, path\), a store, an Array or a Group is expected"):
            cm.store(VALUES, target)
        with pytest.raises(TypeError, match=r"where a url, \(url, path\), a store, an Array or a Group is expected"):
            cm.to_store(VALUES, target)
    with pytest.raises(ValueError, match="1 sources, 2 targets and 2 regions do not match: give a list"):
        cm.store(VALUES, [make(MemoryStore()), make(MemoryStore())])


def test_a_deleted_target_is_an_error_when_it_is_read_again():
    store = MemoryStore()
    (stored,) = cm.store(VALUES, make(store, path="a"), return_stored=True)
    cm.delete(store, "a")
    with pytest.raises(StoreError, match="it has been deleted"):
        stored.compute()
    with pytest.raises(JobError, match="which the data are read from"):
        cm.to_store(cm.from_store(make(store)), store, "g/a", mode="w")


def test_values_without_blocks_get_chunks_of_the_default_size():
    values = np.arange(3 << 20, dtype="f4").reshape(2048, 1536)
    for x in (values, xr.DataArray(values, dims=("y", "x"))):
        cm.to_store(x, store := MemoryStore())
        made = cm.open_array(store)
        assert made.chunks == cm.create_array(MemoryStore(), like=values).chunks == (1024, 768)
        np.testing.assert_array_equal(made[...], values)
    cm.to_store(values, store := MemoryStore(), chunks={"y": 16}, dimension_names=("y", "x"))
    assert cm.open_array(store).chunks == (16, 1536)
    cm.to_store(da.from_array(values, chunks=(2048, 768)), store := MemoryStore())
    assert cm.open_array(store).chunks == (2048, 768)
