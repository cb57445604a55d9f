"""Stores of zarr-python, Icechunk's and dictionaries wherever a url is taken.

By `chunkmill.stores.zarr_python` and `chunkmill.stores.icechunk_store`.
"""

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.local import LocalStore
from chunkmill.stores.open import open_store

zarr = pytest.importorskip("zarr")
pytest.importorskip("zarr.storage")
pytest.importorskip("obstore.store")
obstore = pytest.importorskip("obstore")
icechunk = pytest.importorskip("icechunk")
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


def test_arrays_and_jobs(place):
    cm.to_store(X, place, "a", chunks=(3, 4))
    assert np.array_equal(zarr.open_array(place, path="a", mode="r")[:], X)
    copy = {}
    cm.convert(place, copy, format="n5")
    assert cm.verify(place, copy).equal
    cm.rechunk((place, "a"), (place, "b"), chunks=(7, 2))
    assert cm.verify((place, "a"), (place, "b")).equal
    cm.open_array(place, "a", mode="r+")[2:4, 5] = 9
    assert (zarr.open_array(place, path="a", mode="r")[2:4, 5] == 9).all()
    zarr.open_group(place, mode="a").create_array("c", data=X, chunks=(3, 4))
    assert np.array_equal(cm.from_store(place, "c").compute(), X)
    assert sorted(cm.open_group(place)) == ["a", "b", "c"]
    cm.to_store(np.array(7.5), place, "s")
    assert cm.from_store(zarr.open_array(place, path="s", mode="r")).compute() == 7.5
    if hasattr(place, "close"):
        place.close()
    assert np.array_equal(cm.open_array(place, "c")[...], X)  # opened again


def test_a_folder_is_ours(tmp_path):
    assert isinstance(open_store(zarr.storage.LocalStore(tmp_path)), LocalStore)


def test_a_store_of_icechunk_is_read():
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    zarr.open_group(session.store, mode="a").create_array("g/a", data=X, chunks=(3, 4))
    session.commit("first")
    place = repository.readonly_session("main").store
    assert np.array_equal(cm.from_store(place, "g/a").compute(), X)
    with pytest.raises(StoreError, match="Icechunk was opened for reading"):
        cm.to_store(X, place, "b")


@pytest.fixture(params=["local", "dict"])
def group(request, tmp_path):
    """Return a group of zarr-python with an array; of a dictionary, which zarr-python opens by its own values."""
    made = zarr.open_group(places(tmp_path)[request.param], mode="a")
    made.create_array("g/a", data=X, chunks=(3, 4))
    return made


def test_nodes_of_zarr_python_are_sources(group, tmp_path):
    assert np.array_equal(cm.from_store(group["g/a"]).compute(), X)
    assert np.array_equal(cm.from_store(group["g"], "a").compute(), X)
    assert np.array_equal(cm.open(group, "g/a")[...], X)
    assert cm.verify(group["g/a"], (group, "g/a")).equal
    assert cm.check(group["g"]).ok
    cm.convert(group["g"], tmp_path / "x.n5", format="n5")
    assert cm.verify(group["g"], tmp_path / "x.n5").equal
    ds = xr.Dataset({"v": (("y", "x"), X)})
    cm.write_dataset(ds, group["g"], "ds")
    xr.testing.assert_equal(xr.open_dataset(group, engine="chunkmill", group="g/ds").load(), ds)


def test_nodes_of_zarr_python_are_targets(group):
    a = group["g/a"]
    cm.to_store(X[:2, :3] * 2, a, region=(slice(1, 3), slice(1, 4)))
    assert np.array_equal(a[1:3, 1:4], X[:2, :3] * 2)
    cm.store(da.ones((7, 10), chunks=3), a)
    assert (a[:] == 1).all()
    cm.to_store(X, group["g"], "b", chunks=(3, 3))
    cm.rechunk(a, group.create_group("h"), chunks=(7, 1))
    cm.convert(group["g"], group.create_group("all"))
    cm.pyramid(a, (group["g"], "levels"), levels=2)
    cm.create_array(group["g"], "c", shape=(3,), dtype="i4")
    cm.delete(group["g"], "c")
    found = zarr.open_group(group.store, mode="r", use_consolidated=False)
    assert (found["h/a"].chunks, sorted(found["g"].array_keys())) == ((7, 1), ["a", "b"])
    assert sorted(found["all"].array_keys()) == ["a", "b"]
    assert found["g/levels"].attrs["ome"]["multiscales"]


def test_of_zarr_v2_a_group_stays_zarr_v2(tmp_path):
    group = zarr.open_group(tmp_path / "x", mode="w", zarr_format=2)
    source = {}
    cm.to_store(X, source, "a", format="n5")
    cm.convert((source, "a"), group)
    cm.to_store(X, group, "b")
    for name in "ab":
        assert zarr.open_array(tmp_path / "x", path=name, mode="r").metadata.zarr_format == 2


def test_a_zip_store_that_was_closed_is_a_file(tmp_path):
    place = zarr.storage.ZipStore(tmp_path / "x.zip", mode="w")
    zarr.create_array(place, name="a", data=X)
    with pytest.raises(StoreError, match="close a ZipStore"):
        cm.to_store(X, place, "b")
    place.close()
    assert np.array_equal(cm.open_array(place, "a")[...], X)
    cm.to_store(X, place, "b")
    assert cm.check(place).ok
    assert np.array_equal(zarr.open_array(zarr.storage.ZipStore(tmp_path / "x.zip"), path="b", mode="r")[:], X)
