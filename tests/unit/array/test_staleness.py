"""Dask graphs of arrays that were replaced since the graph was built: one clear error, no garbage (P14)."""

import json
import pickle
from functools import partial
from itertools import product

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.datasets import LAYOUTS, series
from support.recording import FarStore, Meanwhile, RecordingStore

import chunkmill as cm
from chunkmill.array import staleness
from chunkmill.array.chunk_io import write_region
from chunkmill.array.scattered import read_outer, read_points
from chunkmill.array.selection import full_region
from chunkmill.array.staleness import written_to
from chunkmill.errors import ChunkError, MetadataError, StoreError
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.xarray import write as write_module

REPLACED = r"array 'a' is not as it was when it was opened: it has been replaced: .*; open it again"


def create(store, shape=(4, 4), chunks=(4, 1), value=None, path="a", **kwargs):
    array = cm.create_array(store, path, shape=shape, chunks=chunks, **({"dtype": "i4", "codecs": None} | kwargs))
    array[...] = np.arange(16, dtype="i4").reshape(shape) if value is None else value
    return array


@cases("layout", LAYOUTS.values())
def test_reading(tmp_path, layout):
    """The new chunks have as many bytes as the old ones, and no codec notices; but some are absent."""
    place = str(tmp_path / "s")
    codecs = "gzip" if layout["format"] == "n5" else None
    stored = create(place, codecs=codecs, **layout)
    x, of_dask = stored.to_dask(), da.from_array(stored)
    np.testing.assert_array_equal(x.compute(scheduler="sync"), np.arange(16).reshape(4, 4))
    create(place, codecs=codecs, overwrite=True, **layout, chunks=(2, 2))
    with pytest.raises(StoreError, match=REPLACED) as caught:
        x.compute(scheduler="sync")
    message = str(caught.value)
    assert x.dask.layers[x.name].collection_annotations["url"] in message
    for again in (x.sum(), of_dask):
        with pytest.raises(StoreError, match=r"chunks \(4, 1\), now \(2, 2\)"):
            again.compute(scheduler="sync")


def test_what_absent_or_encoded_chunks_mean_and_nodes_that_are_no_arrays(store):
    for change in ({"fill_value": 7}, {"codecs": "zstd"}):
        x = create(store, fill_value=3, value=3, overwrite=True).to_dask()
        create(store, overwrite=True, value=7, **{"fill_value": 3} | change)
        with pytest.raises(StoreError, match=REPLACED):
            x.compute(scheduler="sync")
    x = create(store, overwrite=True).to_dask()
    cm.create_group(store, "a", overwrite=True)
    with pytest.raises(StoreError, match="another node has taken its path"):
        x.compute(scheduler="sync")
    store.set("a/zarr.json", b"{")
    with pytest.raises(MetadataError, match=r"in .a/zarr\.json"):
        x.compute(scheduler="sync")


def test_an_array_that_is_only_read(store):
    """It cannot be told what this one would read as when it is written."""
    url = "https://purl.org/zarr/spec/protocol/core/3.0"
    root = {"zarr_format": url, "metadata_encoding": url, "metadata_key_suffix": ".json", "extensions": []}
    grid = {"type": "regular", "chunk_shape": [2], "separator": "/"}
    array = {"shape": [4], "data_type": "<i2", "chunk_grid": grid, "chunk_memory_layout": "C", "fill_value": 0}
    store.set("zarr.json", json.dumps(root).encode())
    store.set("meta/root.array.json", json.dumps(array | {"extensions": [], "attributes": {}}).encode())
    x = cm.open_array(store).to_dask()
    store.set("meta/root.array.json", store.get("meta/root.array.json").replace(b"i2", b"i4"))
    with pytest.raises(StoreError, match="data type int16, now int32"):
        x.compute(scheduler="sync")


@cases(("runs", "is_same"), [([(3, 2)], True), ([(3, 1), (2, 1), (1, 1)], False)])
def test_equal_lengths_are_the_same_however_they_are_written(runs, is_same):
    one, other = ChunkGrid((RegularAxis(6, 3),)), ChunkGrid((RunsAxis(6, tuple(runs)),))
    assert staleness._has_same_chunks(one, other) is is_same


def test_of_consolidated_metadata_what_was_deleted_since():
    store = MemoryStore()
    create(store, format="zarr2")
    cm.consolidate(store)
    store.delete("a/.zarray")
    x = cm.open_array(store, "a").to_dask()
    store.delete("a/0.0")
    assert not x[:, 0].compute(scheduler="sync").any()  # other writers store consolidated metadata alone
    store.delete_prefix("a/")
    with pytest.raises(StoreError, match="it has been deleted"):
        x.compute(scheduler="sync")


@cases(
    ("change", "shown"),
    [
        ({"chunks": (2, 2)}, r"chunks \(4, 1\), now \(2, 2\)"),
        ({"dtype": "f4"}, "data type int32, now float32"),
        ({"shape": (2, 8), "chunks": (2, 2)}, r"shape \(4, 4\), now \(2, 8\)"),
    ],
)
def test_writing(store, change, shown):
    old = create(store)
    x = da.zeros((4, 4), chunks=(4, 1), dtype="i4")
    later = [cm.store(x, old, compute=False), cm.to_store(x, store, "a", mode="r+", compute=False)]
    new = create(store, overwrite=True, **change)
    for write in later:
        with pytest.raises(StoreError, match=REPLACED):
            write.compute(scheduler="sync")
    with pytest.raises(StoreError, match=shown):
        cm.store(x, old)
    np.testing.assert_array_equal(new[...], np.arange(16).reshape(new.shape))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "deleted"])
def test_a_write_that_had_looked_before_says_so(store, layout, replaces):
    """It asked for the document, and was suspended before it wrote (P14)."""
    array = create(store, codecs="gzip", **layout)
    array[...] = 1  # has just looked

    def write():
        with written_to(array.stored, array.stored) as found:
            create(store, chunks=(2, 2), overwrite=True) if replaces else cm.delete(store, "a")
            write_region(found, full_region(array.shape), np.full((4, 4), 5 * replaces, "i4"))

    with pytest.raises(StoreError, match="array 'a' is not as it was"):
        write()


CHANGED = {
    "type": lambda store, path, layout: create(store, path=path, dtype="f4", codecs="raw", overwrite=True, **layout),
    "deleted": lambda store, path, layout: cm.delete(store, path),
}
PARTS = {
    "element": lambda array: array.__setitem__((0, 0), 100),
    "region": lambda array: cm.store([da.full((1, 4), 100, dtype="i4")], [array], regions=[np.s_[:1]]),
}


@cases(
    ("place", "step"),
    [
        ("memory", "get_versioned"), ("memory", "set_if"), ("remote", "set_if"), ("root", "get_versioned"),
        ("root", "set_if"),
    ],
)  # fmt: skip
def test_a_part_of_a_chunk_that_others_have_changed(place, step, tmp_path):
    """A new array, whose elements have as many bytes, got this part."""
    path = "" if place == "root" else "a"
    for number, (name, change, write) in enumerate(product(("zarr3", "n5"), CHANGED.values(), PARTS.values())):
        store, layout = LocalStore(str(tmp_path / str(number))) if place == "root" else MemoryStore(), LAYOUTS[name]
        create(store, path=path, codecs="raw", **layout)
        changed = partial(change, path=path, layout=layout)
        seen = Meanwhile(store, lambda method, key: method == step and not key.endswith(".json"), changed)
        seen.is_remote = place == "remote"
        with pytest.raises(StoreError, match="is not as it was when it was opened"):
            write(cm.open_array(seen, path, mode="r+"))
        assert seen.done
        if list(store.list_prefix(f"{path}/" if path else "")):
            np.testing.assert_array_equal(cm.open_array(store, path)[...], np.arange(16).reshape(4, 4))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_chunks_that_are_gone_are_no_fill_values(store, layout):
    array = create(store, codecs="gzip", **layout)
    cm.delete(store, "a")
    for read in (
        lambda: array[...],
        lambda: array[0, 0],
        lambda: read_points(array.stored, ([0], [0])),
        lambda: read_outer(array.stored, ([0], [0])),
    ):
        with pytest.raises(StoreError, match="it has been deleted"):
            read()


WRITES = {
    "to_store": lambda store, x: cm.to_store(x, store, "a", region=np.s_[:2, :1], mode="r+"),
    "store": lambda store, x: cm.store([x], [cm.open_array(store, "a", mode="r+")], regions=[np.s_[:2, :1]]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_remote_write_into_what_was_deleted_says_so_in_the_end(write):
    store = Meanwhile(MemoryStore(), lambda m, key: m == "set" and "/c/" in key, lambda own: own.delete("a/zarr.json"))
    create(store.below, chunks=(2, 1))
    store.is_remote = True
    with pytest.raises(StoreError, match="it has been deleted"):
        write(store, da.ones((2, 1), chunks=(2, 1), dtype="i4"))


def test_an_array_that_became_longer(url):
    """Readers read what there was; a writer would take the last chunk for shorter than it is."""
    ds = series(5)[["v"]].drop_vars("x")
    cm.write_dataset(ds, url, encoding={"v": {"chunks": (4, 4)}})
    old = cm.open_array(url, "v", mode="r+")
    x = old.to_dask()
    cm.write_dataset(series(3, "2000-01-06")[["v"]].drop_vars("x"), url, append_dim="time")
    np.testing.assert_array_equal(x.compute(scheduler="sync"), ds.v)
    with pytest.raises(StoreError, match=r"'v' is not as it was.*shape \(5, 4\), now \(8, 4\)"):
        cm.store(da.zeros((5, 4), chunks=4, dtype="f4"), old)
    np.testing.assert_array_equal(cm.open_array(url, "v")[...], series(8).v)
    old.store.delete("v/c/0/0")
    assert np.isnan(old[:4]).all()  # absent, not replaced
    old.store.set("v/c/1/0", b"no codec's")
    with pytest.raises(ChunkError, match=r"v/c/1/0"):
        old[4:]


def test_values_in_memory_for_a_dataset_that_was_replaced_meanwhile(store, monkeypatch):
    """They were written into the chunks of the new one, which could not be decoded any more."""
    ds, new = series(8)[["v"]], series(8)[["v"]] + 1
    cm.write_dataset(ds, store, encoding={"v": {"chunks": (2, 4)}})
    check = write_module._check_others

    def replaced_when_it_is_planned(*args, **kwargs):
        check(*args, **kwargs)
        monkeypatch.setattr(write_module, "_check_others", check)
        cm.write_dataset(new, store, mode="w", encoding={"v": {"chunks": (4, 2)}})

    monkeypatch.setattr(write_module, "_check_others", replaced_when_it_is_planned)
    part = ds.isel(time=slice(0, 4)).drop_vars(["time", "x"])
    with pytest.raises(StoreError, match=r"'v' is not as it was"):
        cm.write_dataset(part, store, region={"time": slice(0, 4)})
    xr.testing.assert_equal(xr.open_dataset(store, engine="chunkmill"), new)


def test_the_last_look_at_many_variables_is_at_many_at_once():
    far = FarStore()
    ds = series(8)[["v"]].drop_vars(["time", "x"])
    cm.write_dataset(xr.merge([ds.rename(v=f"v{n}") for n in range(8)]), far)
    arrays = list(cm.open_group(far).stored.arrays().values())
    far.seconds = 0.02
    far.clear()
    staleness.check_after_writing(arrays)
    assert sorted(far.keys("get")) == sorted(f"v{n}/zarr.json" for n in range(8))
    assert far.most_at_once > 1


def test_a_dataset_that_was_replaced_before_its_values_are_computed(store):
    delayed = cm.write_dataset(series(8)[["v"]].chunk(time=2), store, compute=False)
    new = series(8)[["v"]] + 1
    cm.write_dataset(new, store, mode="w", encoding={"v": {"chunks": (4, 2)}})
    with pytest.raises(StoreError, match=r"'v' is not as it was"):
        delayed.compute(scheduler="sync")
    xr.testing.assert_equal(xr.open_dataset(store, engine="chunkmill"), new)


def test_changes_that_leave_chunks_alone(url):
    array = create(url)
    x = array.to_dask()
    cm.open_array(url, "a", mode="r+").update_attributes({"units": "K"})
    np.testing.assert_array_equal(x.compute(scheduler="sync"), array[...])
    pickled = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(pickled.to_dask().compute(scheduler="sync"), array[...])


@pytest.mark.parametrize("lazily", [{}, None], ids=["dask", "lazy"])
def test_variables_of_xarray(url, lazily):
    cm.write_dataset(series(), url, encoding={"v": {"chunks": (4, 1)}})
    ds = xr.open_dataset(url, engine="chunkmill", chunks=lazily)
    cm.write_dataset(series(), url, mode="w", encoding={"v": {"chunks": (2, 2)}})
    with pytest.raises(StoreError, match=r"'v' is not as it was.*chunks \(4, 1\), now \(2, 2\)"):
        ds.v.compute()


@pytest.mark.parametrize("value", [None, 0], ids=["values", "absent"])
def test_metadata_are_read_once_in_a_second_and_only_if_chunks_are_absent(url, value):
    recording = RecordingStore(open_store(url))
    recording.is_remote = True
    create(recording, value=value)
    x = cm.open_array(recording, "a").to_dask((4, (1, 3)))
    create(recording, value=value, overwrite=True)
    recording.log.clear()
    for _ in range(2):
        x.compute(scheduler="sync")
    documents = [key for key in recording.keys("get") if key.endswith(".json")]
    assert documents == ([] if value is None else ["a/zarr.json"])
