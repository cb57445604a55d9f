"""Stores of zarr-python, Icechunk's and dictionaries wherever a url is taken."""

import icechunk
import numpy as np
import obstore.store
import pytest
import zarr
import zarr.storage

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.local import LocalStore
from chunkmill.stores.open import open_store

X = np.arange(70.0).reshape(7, 10)


def places(tmp_path):
    return {
        "local": zarr.storage.LocalStore(tmp_path / "x.zarr"),
        "memory": zarr.storage.MemoryStore(),
        "wrapper": zarr.storage.WrapperStore(zarr.storage.MemoryStore()),
        "dict": zarr.open_group({}, mode="w").store._store_dict,
        "objects": zarr.storage.ObjectStore(obstore.store.LocalStore(tmp_path, mkdir=True)),
    }


@pytest.fixture(params=["local", "memory", "wrapper", "dict", "objects"])
def place(request, tmp_path):
    return places(tmp_path)[request.param]


def test_what_is_written_is_read_by_zarr_python(place):
    cm.to_store(X, place, "a", chunks=(3, 4))
    assert np.array_equal(zarr.open_array(place, path="a", mode="r")[:], X)
    cm.open_array(place, "a", mode="r+")[2:4, 5] = 9
    assert (zarr.open_array(place, path="a", mode="r")[2:4, 5] == 9).all()


def test_what_zarr_python_writes_is_read(place):
    zarr.open_group(place, mode="a").create_array("a", data=X, chunks=(3, 4))
    assert np.array_equal(cm.from_store(place, "a").compute(), X)
    assert list(cm.open_group(place)) == ["a"]


def test_jobs(place):
    cm.to_store(X, place, "a", chunks=(3, 4))
    copy = {}
    cm.convert(place, copy, format="n5")
    assert cm.verify(place, copy).equal
    cm.rechunk((place, "a"), (place, "b"), chunks=(7, 2))
    assert cm.verify((place, "a"), (place, "b")).equal
    assert sorted(cm.open_group(place)) == ["a", "b"]


def test_a_folder_is_ours(tmp_path):
    assert isinstance(open_store(zarr.storage.LocalStore(tmp_path)), LocalStore)


def test_a_store_for_reading_is_not_written_to(tmp_path):
    cm.to_store(X, tmp_path / "x", "a")
    place = zarr.storage.LocalStore(tmp_path / "x", read_only=True)
    assert np.array_equal(cm.from_store(place, "a").compute(), X)
    with pytest.raises(StoreError, match="for reading only"):
        cm.to_store(X, place, "b")
    assert sorted(cm.open_group(tmp_path / "x")) == ["a"]


@pytest.fixture
def repository(tmp_path):
    made = icechunk.Repository.create(icechunk.in_memory_storage())
    session = made.writable_session("main")
    group = zarr.open_group(session.store, mode="a", attributes={"title": "t"})
    group.create_array("g/a", data=X, chunks=(3, 4))
    group.create_array("g/sparse", shape=(100,), chunks=(10,), dtype="i4", fill_value=7)[50:60] = 1
    session.commit("first")
    return made


def test_icechunk_is_read(repository, tmp_path):
    place = repository.readonly_session("main").store
    assert np.array_equal(cm.from_store(place, "g/a").compute(), X)
    assert list(cm.open_group(place, "g")) == ["a", "sparse"]
    cm.convert(place, tmp_path / "x.zarr", format="zarr2")
    assert cm.verify(place, tmp_path / "x.zarr").equal
    assert not cm.check(place).problems
    with pytest.raises(StoreError, match="Icechunk are read"):
        cm.to_store(X, place, "b")


def test_icechunk_tags_of_the_past(repository):
    session = repository.writable_session("main")
    repository.create_tag("v1", session.snapshot_id)
    zarr.open_array(session.store, path="g/a")[0, 0] = -1
    session.commit("second")
    old = cm.open_array(repository.readonly_session(tag="v1").store, "g/a")
    new = cm.open_array(repository.readonly_session("main").store, "g/a")
    assert (old[0, 0], new[0, 0]) == (0, -1)
