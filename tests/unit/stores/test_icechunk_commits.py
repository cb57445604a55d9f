"""Repositories of Icechunk as targets of every writer: one job is one commit, and nothing is visible before."""

import threading

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.open import open_store

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")
X = np.arange(70.0).reshape(7, 10)


class Place:
    """A repository on disk, and what Icechunk and zarr-python themselves find in it."""

    def __init__(self, folder):
        self.folder = folder
        self.storage = icechunk.local_filesystem_storage(str(folder / "repository"))
        self.url = f"{folder}/repository|icechunk:"

    @property
    def repository(self):
        return icechunk.Repository.open(self.storage)

    def messages(self):
        """Messages of the commits, the newest first, without that of the empty repository."""
        return [commit.message for commit in self.repository.ancestry(branch="main")][:-1]

    def group(self):
        return zarr.open_group(self.repository.readonly_session("main").store, mode="r")

    def values(self, path):
        return self.group()[path][...]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_every_writer_makes_one_commit(place, tmp_path):
    written = da.from_array(X, chunks=(2, 5))  # no boundary is one of the chunks (3, 4)
    expected, n = X.copy(), 0

    def one_more(path="a"):
        nonlocal n
        n += 1
        assert len(place.messages()) == n, place.messages()
        assert np.array_equal(place.values(path), expected)
        assert np.array_equal(cm.open_array(place.url, path)[...], expected)

    cm.to_store(written, place.url, "a", chunks=(3, 4))
    one_more()
    array = cm.open_array(place.url, "a", mode="r+")
    array[1:3, 2] = expected[1:3, 2] = 9
    one_more()
    array.oindex[[0, 5], [1, 7]] = 3
    expected[np.ix_([0, 5], [1, 7])] = 3
    one_more()
    cm.to_store(da.full((2, 3), 5.0, chunks=1), place.url, "a", region=(slice(1, 3), slice(1, 4)))
    expected[1:3, 1:4] = 5
    one_more()
    array.append(X)
    expected = np.concatenate([expected, X])
    one_more()
    array.append(written)
    expected = np.concatenate([expected, X])
    one_more()
    array.resize((8, 10))
    expected = expected[:8]
    one_more()
    array.resize((14, 10))
    expected = np.concatenate([expected, np.zeros((6, 10))])
    one_more()
    array.update_attributes({"units": "K"})
    one_more()
    assert place.group()["a"].attrs["units"] == "K"
    cm.to_store(written, place.url, "a", mode="w")
    expected = X
    one_more()
    cm.convert((place.url, "a"), tmp_path / "x.n5", format="n5")
    cm.convert(tmp_path / "x.n5", (place.url, "b"), format="zarr3")
    one_more("b")
    cm.rechunk((place.url, "a"), (place.url, "c"), chunks=(7, 2))
    one_more("c")
    assert cm.open_array(place.url, "c").chunks == (7, 2)
    cm.store([da.zeros((7, 10), chunks=3), written], [(place.url, "c"), (place.url, "b")])
    one_more("b")
    assert not place.values("c").any()
    cm.create_arrays(place.url, {"d": {"shape": (2,), "dtype": "i2"}, "e/f": {"shape": (2,), "dtype": "i2"}})
    one_more()
    cm.delete(place.url, "e")
    one_more()
    assert sorted(place.group()) == ["a", "b", "c", "d"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["repository", "x.n5"]


def test_datasets(place):
    ds = xr.Dataset({"t": (("x", "y"), da.from_array(X, chunks=(2, 5)))}, coords={"x": np.arange(7)})
    cm.write_dataset(ds, place.url, "g", encoding={"t": {"chunks": (3, 4)}})
    cm.write_dataset(ds.assign_coords(x=ds.x + 7), place.url, "g", append_dim="x")
    cm.write_dataset(2 * ds.isel(x=slice(2, 5)).drop_vars("x"), place.url, "g", region={"x": slice(2, 5)})
    expected = np.concatenate([X, X])
    expected[2:5] *= 2
    session = place.repository.readonly_session("main")
    with xr.open_zarr(session.store, group="g", consolidated=False) as there:
        assert np.array_equal(there.t, expected)
        assert np.array_equal(there.x, np.arange(14))
    assert np.array_equal(xr.open_dataset(place.url, group="g", engine="chunkmill").t, expected)
    assert len(place.messages()) == 3


def test_repositories_are_targets_too(place):
    repository = icechunk.Repository.create(place.storage)
    cm.to_store(X, repository, "a", storage_options={"commit_message": "the first"})
    assert place.messages() == ["the first"]
    assert open_store(repository).url == f"file://{place.folder}/repository|icechunk://branch.main/"
    in_memory = icechunk.Repository.create(icechunk.in_memory_storage())
    assert open_store(in_memory).url == f"icechunk:repository-{id(in_memory):x}|icechunk://branch.main/"
    assert np.array_equal(cm.open_array(repository, "a")[...], X)
    repository.create_branch("other", repository.lookup_branch("main"))
    cm.to_store(X, f"{place.url}@branch.other", "b")
    assert sorted(place.group()) == ["a"]
    assert sorted(cm.open_group(f"{place.url}@branch.other")) == ["a", "b"]
    repository.create_tag("v1", repository.lookup_branch("main"))
    cm.to_store(-X, repository, "a", mode="w")
    assert np.array_equal(cm.open_array(f"{place.url}@tag.v1", "a")[...], X)
    with pytest.raises(StoreError, match="a tag of a repository of Icechunk never changes"):
        cm.to_store(X, f"{place.url}@tag.v1", "b")


def test_snapshots_are_read_as_they_were(place):
    cm.to_store(X, place.url, "a")
    old = cm.from_store(place.url, "a")
    first = place.repository.lookup_branch("main")
    cm.open_array(place.url, "a", mode="r+")[...] = 0
    new = cm.from_store(place.url, "a")
    assert old.name != new.name  # else dask would take one for the other
    assert np.array_equal((old - new).compute(), X)
    assert np.array_equal(cm.open_array(f"{place.url}@{first}", "a")[...], X)


def test_others_commit_at_the_same_time(place):
    cm.to_store(X, place.url, "a", chunks=(7, 5))
    array = cm.open_array(place.url, "a", mode="r+")

    def write_while(columns):
        """Write the first five columns, while another client commits others."""

        def commits(block):
            with lock:
                if not done:
                    done.append(True)
                    session = place.repository.writable_session("main")
                    zarr.open_array(session.store, path="a")[:, columns] = -1
                    session.commit("another client")
            return block

        lock, done = threading.Lock(), []
        values = da.ones((7, 5), chunks=(7, 5)).map_blocks(commits, dtype="f8", meta=np.empty((0, 0)))
        cm.to_store(values, array, region=(slice(0, 7), slice(0, 5)))

    write_while(slice(5, 10))
    assert (place.values("a") == [1] * 5 + [-1] * 5).all()
    before = place.messages()
    with pytest.raises(StoreError, match=r"others have changed 'a' \(chunk double update, chunks \[\[0, 0\]\]\)"):
        write_while(slice(0, 2))
    assert len(place.messages()) == len(before) + 1  # that of the other client
    assert (place.values("a")[:, :5] == [-1, -1, 1, 1, 1]).all()


def test_later_computation(place):
    cm.create_group(place.url)
    with pytest.raises(ValueError, match="compute=False"):
        cm.to_store(da.ones(4, chunks=2), place.url, "a", compute=False)
    with pytest.raises(ValueError, match="compute=False"):
        cm.store(da.ones(4, chunks=2), cm.create_array(place.url, "b", shape=(4,), dtype="f8"), compute=False)
    session = place.repository.writable_session("main")
    cm.to_store(da.ones(4, chunks=2), session, "a", compute=False).compute()
    session.commit("later")
    assert (place.values("a") == 1).all()
