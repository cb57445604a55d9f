"""Conversion of groups with everything below them, and the places that they are written to (P5)."""

import zipfile
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.conversions import leftovers, make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import NodeExists
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


# --------------------------------------------------------------------------------------------------------------------
# Hierarchies


def make_tree(kind="zarr2"):
    store = MemoryStore()
    cm.create_group(store, format=kind, attributes={"title": "tree"})
    cm.create_group(store, "empty", format=kind, attributes={"e": 1})
    names = ("y", "x")
    options = {"format": kind, "chunks": (3, 2), "dtype": "i2", "shape": (7, 5), "codecs": "gzip"}
    for i, path in enumerate(["a", "deep/er/b", "deep/c"]):
        cm.create_array(store, path, dimension_names=names, attributes={"i": i}, **options)
        cm.open_array(store, path, mode="r+")[...] = np.arange(35).reshape(7, 5) + i
    cm.create_array(store, "line", **options | {"shape": (4,), "chunks": (2,)})
    return store


@cases(("old", "new"), list(pairwise(["zarr2", "n5", "zarr3-draft", "zarr3", "zarr2"])))
def test_trees(old, new):
    source = make_tree(old)
    report = cm.convert(source, target := MemoryStore(), format=new)
    assert cm.verify(source, target).equal
    b = cm.open_group(target)
    assert list(b) == ["a", "deep", "empty", "line"]
    assert b["deep/er/b"].dimension_names == ("y", "x")
    assert dict(b["empty"].attributes) == {"e": 1}
    assert dict(b.attributes) == {"title": "tree"}
    assert report.n_keys == 3 * 9 + 2
    back = MemoryStore()
    cm.convert(target, back, format=old)
    differences = cm.verify(source, back).differences
    if new == "zarr2":  # where the fill value marks missing elements for xarray: then it does so ever after
        differences = [d for d in differences if "_FillValue" not in d.text]
    assert not differences


@cases("kind", ["zarr2", "zarr3"])
def test_the_target_is_consolidated(kind):
    source = make_tree("n5")
    cm.convert(source, target := RecordingStore(MemoryStore()), format=kind)
    last = [key for key in target.keys("set", "set_if") if not key.startswith(JOB_PREFIX)][-1]
    assert last == {"zarr2": ".zmetadata", "zarr3": "zarr.json"}[kind]
    target.clear()
    g = cm.open_group(target, consolidated=True)
    assert g["deep/er/b"].shape == (7, 5)
    assert not target.keys("list_dir", "list_prefix")


def test_below_and_beside():
    source = make_tree()
    target = MemoryStore()
    cm.create_array(target, "other", shape=(1,), dtype="i1", chunks=(1,))
    cm.consolidate(target)
    cm.convert((source, "deep"), (target, "x/y"), format="zarr3")
    assert cm.verify((source, "deep"), (target, "x/y")).equal
    assert list(cm.open_group(target, consolidated=True)) == [
        "other",
        "x",
    ]  # consolidated metadata are brought up to date
    assert list(cm.open_group(target, "x/y")) == ["c", "er"]
    cm.convert((source, "a"), (target, "x/a"), format="zarr3")
    assert cm.verify((source, "a"), (target, "x/a")).equal


def test_nothing_is_seen_before_all_is_done():
    source = make_tree()
    target = RecordingStore(MemoryStore())
    cm.convert(source, target, format="zarr3")
    keys = [key for key in target.keys("set", "set_if") if not key.startswith(JOB_PREFIX)]
    first_document = next(i for i, key in enumerate(keys) if key.endswith("zarr.json"))
    assert all(key.endswith("zarr.json") for key in keys[first_document:])
    assert keys[-1] == "zarr.json"  # the root


# --------------------------------------------------------------------------------------------------------------------
# Targets


def test_what_is_there_is_not_replaced_unasked():
    source, values = make()
    target = MemoryStore()
    cm.create_array(target, "g/a", shape=(3,), dtype="i1", chunks=(1,))
    cm.open_array(target, "g/a", mode="r+")[...] = 5
    for asked in (source, (source, "g"), (source, "g/a")):
        with pytest.raises(NodeExists):
            cm.convert(asked, target, format="zarr3")
    assert cm.open_array(target, "g/a")[0] == 5
    assert not leftovers(target)
    cm.convert(source, target, format="zarr3", overwrite=True)
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], values)


def test_into_a_zip_file(tmp_path):
    source, values = make()
    path = str(tmp_path / "x.zip")
    cm.convert(source, path, format="zarr3")
    np.testing.assert_array_equal(cm.open_array(path, "g/a")[...], values)
    names = zipfile.ZipFile(path).namelist()
    assert "zarr.json" in names
    assert not [name for name in names if "chunkmill" in name]


@pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated metadata")
@cases("dtype", ["i4", "f8"])
def test_zeros_of_a_dataset_are_not_missing_in_zarr_v2(dtype, tmp_path):
    """There xarray takes a fill value for missing data, which an array of Zarr v3 without ``_FillValue`` has not."""
    pytest.importorskip("zarr")
    values = np.arange(6).reshape(2, 3).astype(dtype)
    data = xr.DataArray(values, dims=("y", "x"), name="v").chunk(x=1).to_dataset()
    data.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False, encoding={"v": {"_FillValue": None}})
    (key,) = (tmp_path / "a.zarr").rglob("c/0/0")  # zeros, and stored or absent by the writer
    key.unlink()
    expected = xr.load_dataset(tmp_path / "a.zarr", engine="zarr", consolidated=False)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b.zarr", format="zarr2")
    cm.convert(tmp_path / "b.zarr", tmp_path / "c.zarr", format="zarr3")
    # null, which leaves absent chunks undefined, where none is absent
    assert (tmp_path / "b.zarr" / "v" / "0.0").exists() == (dtype != "f8")
    assert cm.verify(tmp_path / "a.zarr", tmp_path / "b.zarr").equal
    for store in ("b.zarr", "c.zarr"):
        for engine in ("zarr", "chunkmill"):
            found = xr.load_dataset(tmp_path / store, engine=engine)
            assert found["v"].dtype == values.dtype
            xr.testing.assert_equal(found, expected)
