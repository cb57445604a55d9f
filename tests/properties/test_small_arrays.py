"""Arrays without axes, without elements or of one element pass every job, as other arrays do."""

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrays import filled

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
SHORT = st.lists(st.integers(0, 1), max_size=3)
SHAPES = st.one_of(st.just([]), SHORT, st.lists(st.integers(0, 3), min_size=1, max_size=2)).map(tuple)


pytestmark = pytest.mark.usefixtures("one_thread")


def equal(array, values):
    np.testing.assert_array_equal(array[...], values)


def convert(array, values, name):
    store = MemoryStore()
    for options in ({}, {"overwrite": True, "codecs": "raw"}):
        cm.convert(array, store, format=name, **options)
        equal(cm.open_array(store), values)
    report = cm.verify(array, cm.open_array(store))
    assert report.equal, report


def rechunk(array, values, name):
    for options in ({}, {"strategy": "spill"}, {"region": ...}):
        cm.rechunk(array, store := MemoryStore(), chunks=(3,) * values.ndim, format=name, **options)
        equal(cm.open_array(store), values)
    target = cm.create_array(MemoryStore(), shape=values.shape, dtype=values.dtype)
    cm.rechunk(array, target, chunks=None)
    equal(target, values)


def shards(array, values, _):
    cm.convert(array, store := MemoryStore(), format="zarr3", chunks=(2,) * values.ndim, shards=(4,) * values.ndim)
    equal(cm.open_array(store), values)


def pyramid(array, values, name):
    cm.pyramid(array, store := MemoryStore(), format=name, ome=None)
    equal(cm.open_array(store, "0"), values)


def transform(array, values, name):
    for halo in (0, 1):
        store = MemoryStore()
        cm.transform(np.negative, array, store, format=name, halo=halo)
        equal(cm.open_array(store), -values)


def compare(array, values, _):
    for other in (array, values, array.to_dask()):
        report = cm.verify(array, other)
        assert report.equal, report
    assert cm.check(array).ok


def to_store(array, values, name):
    store = MemoryStore()
    for source in (array.to_dask(), values):
        for options in ({}, {"resume": True}):
            if not (options and source is values):
                cm.to_store(source, store, mode="w", format=name, **options)
                equal(cm.open_array(store), values)
    target = cm.create_array(MemoryStore(), shape=values.shape, dtype=values.dtype)
    cm.store([array.to_dask()], [target])
    equal(target, values)


def group(array, values, name):
    store, target = MemoryStore(), MemoryStore()
    cm.create_group(store)
    cm.convert(array, (store, "x"), format="zarr3")
    cm.create_array(store, "crs", shape=(1,) if name == "n5" else (), dtype="i4", codecs="gzip")
    cm.convert(store, target, format=name)
    assert cm.verify(cm.open_group(store), cm.open_group(target)).equal
    assert cm.check(target).ok


def dataset(array, values, name):
    names = [f"d{axis}" for axis in range(values.ndim)]
    for data in (values, array.to_dask()):
        store = MemoryStore()
        cm.write_dataset(xr.Dataset({"x": (names, data)}), store, format=name)
        np.testing.assert_array_equal(xr.open_dataset(store, engine="chunkmill").x.values, values)


JOBS = [convert, rechunk, shards, pyramid, transform, compare, to_store, group, dataset]


@settings(max_examples=8)
@given(shape=SHAPES, source=st.sampled_from(FORMATS), target=st.sampled_from(FORMATS))
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_arrays_without_axes_or_elements_pass_every_job(job, shape, source, target):
    if not shape:  # N5 has no arrays of 0 dimensions
        source, target = ("zarr3" if name == "n5" else name for name in (source, target))
    values = np.ones(shape, "i4")
    job(filled(values, chunks=(2,) * len(shape), format=source, codecs="gzip"), values, target)


@settings(max_examples=8)
@given(shape=SHAPES, kind=st.sampled_from(["json", "parq"]))
def test_arrays_without_axes_or_elements_pass_references(tmp_path_factory, shape, kind):
    folder, values = tmp_path_factory.mktemp("small"), np.ones(shape, "i4")
    with h5py.File(folder / "a.h5", "w") as file:
        file["x"] = values
    cm.scan(folder / "a.h5", folder / f"scanned.{kind}")
    cm.convert((folder / f"scanned.{kind}", "x"), folder / "a.zarr", format="zarr3")
    cm.to_references(folder / "a.zarr", folder / f"b.{kind}")
    for url, path in ((folder / f"scanned.{kind}", "x"), (folder / "a.zarr", ""), (folder / f"b.{kind}", "")):
        equal(cm.open_array(url, path), values)
