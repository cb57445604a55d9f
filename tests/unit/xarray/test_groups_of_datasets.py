"""Modes of `write_dataset`, consolidated metadata, trees and reports."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from support.cases import cases
from support.datasets import read, read_by_xarray, refused, series, tree
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import DatasetError, JobError, MetadataError, NodeExists, NodeNotFound
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.write import write_dataset

pytest.importorskip("zarr")


# --------------------------------------------------------------------------------------------------------------------
# Modes


def test_create_fails_where_something_is(url):
    write_dataset(series(), url)
    refused("mode='w'", series(), url, error=NodeExists)
    write_dataset(series()[["mask"]], url, mode="w")
    assert set(read(url).variables) == {"mask", "x"}


def test_replacing_spares_what_lies_beside(url):
    write_dataset(series(), url, "a", format="zarr2")
    write_dataset(series(), url, "b", format="zarr2")
    write_dataset(series()[["mask"]], url, "a", format="zarr2", mode="w")
    assert set(read(url, group="a").variables) == {"mask", "x"}
    assert set(read(url, group="b", consolidated=True)) == {"v", "mask"}
    assert set(xr.open_groups(url, engine="zarr")["/a"].variables) == {"mask", "x"}


def test_adding_to_a_group(url):
    write_dataset(series(), url)
    more = xr.Dataset({"v": series().v + 1, "w": ("x", [1.5, 2, 3, 4])}, attrs={"more": 1})
    write_dataset(more, url, mode="a")
    back = read(url)
    np.testing.assert_array_equal(back.v, series().v + 1)
    np.testing.assert_array_equal(back.w, [1.5, 2, 3, 4])
    assert back.attrs == {"title": "a series", "more": 1}
    assert back.v.attrs == {"units": "K"}


def test_what_no_dataset_could_have_is_not_added(url):
    write_dataset(series(), url)
    refused(r"'w'.*'x' has length 4, got 3", xr.Dataset({"w": ("x", [1, 2, 3])}), url, mode="a")
    xr.testing.assert_identical(read(url).load(), series())


def test_values_only(url):
    write_dataset(series(), url)
    write_dataset(series()[["v"]] + 1, url, mode="r+")
    np.testing.assert_array_equal(read(url).v, series().v + 1)
    with pytest.raises(DatasetError, match=r"'w'.*not in the store, which has 'mask', 'time', 'v', 'x'; mode='a'"):
        write_dataset(xr.Dataset({"w": ("x", [1])}), url, mode="r+")
    refused(r"'v'.*lengths {'time': 2, 'x': 4}, but {'time': 5, 'x': 4}.*region=", series(2)[["v"]], url, mode="r+")
    refused(r"dimensions \('x',\), but \('time', 'x'\)", xr.Dataset({"v": ("x", [1.0] * 4)}), url, mode="r+")
    refused("its own encoding", series()[["v"]], url, mode="r+", encoding={"v": {"chunks": (1, 1)}})
    with pytest.raises(NodeNotFound):
        write_dataset(series(), url, "nowhere", mode="r+")


def test_arguments_that_contradict_each_other():
    for arguments in (
        {"mode": "x"},
        {"mode": "r"},
        {"mode": "w", "append_dim": "time"},
        {"mode": "w", "region": "auto"},
        {"mode": "r+", "append_dim": "time"},
        {"mode": "a-"},
        {"append_dim": "time", "region": {"x": slice(0, 1)}},
    ):
        refused(r"mode=|region=", series(), MemoryStore(), error=ValueError, **arguments)


def test_a_store_is_not_replaced_by_what_is_to_be_read_from_it(url):
    write_dataset(series(), url)
    write_dataset(series(), url, "part")
    for engine in ("chunkmill", "zarr"):
        for group in (None, "part"):
            lazy = xr.open_dataset(url, engine=engine, group=group, chunks={}) + 1
            with pytest.raises(JobError, match=r"mode='w' would delete .*, which .* read from; load or persist\(\)"):
                write_dataset(lazy, url, group or "", mode="w")
    write_dataset(read(url, chunks={}), url, "part", mode="w")
    write_dataset(read(url).load(), url, mode="w")
    xr.testing.assert_identical(read(url).load(), series())


# --------------------------------------------------------------------------------------------------------------------
# Consolidated metadata


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_new_stores_are_consolidated_without_listing(name):
    store = RecordingStore(MemoryStore())
    write_dataset(series(), store, format=name)
    assert all(JOB_PREFIX in prefix for prefix in store.keys("list_prefix"))
    listed = {prefix for prefix in store.keys("list_dir") if JOB_PREFIX not in prefix}
    assert listed == {""}  # whether something is stored there
    assert set(cm.open_group(store, consolidated=True)) == {"v", "mask", "time", "x"}


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_consolidated_metadata_are_never_stale(url, name):
    write_dataset(series(), url, format=name)
    write_dataset(series(2, "2000-01-06"), url, append_dim="time", consolidated=False)
    write_dataset(xr.Dataset({"w": ("x", [1, 2, 3, 4])}, attrs={"title": "new"}), url, mode="a")
    for back in (read(url, consolidated=True), read_by_xarray(url, consolidated=True), read(url, consolidated=False)):
        assert (back.sizes["time"], back.title, "w" in back) == (7, "new", True)


@pytest.mark.parametrize(("name", "path"), [("zarr2", ""), ("zarr3", "g")])
def test_not_consolidated(url, name, path):
    write_dataset(series(), url, path, format=name, consolidated=False)
    with pytest.raises(MetadataError, match="consolidated"):
        cm.open_group(url, consolidated=True)
    write_dataset(series(2, "2000-01-06"), url, path, append_dim="time")
    with pytest.raises(MetadataError, match="consolidated"):
        cm.open_group(url, consolidated=True)
    write_dataset(series(2, "2000-01-08"), url, path, append_dim="time", consolidated=True)
    xr.testing.assert_identical(read_by_xarray(url, group=path or None, consolidated=True).load(), series(9))


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_consolidated_metadata_of_groups_above_and_at_the_group(url, name):
    write_dataset(series(), url, "a/b", format=name)
    cm.consolidate(url, "a/b")
    write_dataset(series(2, "2000-01-06"), url, "a/b", append_dim="time")
    assert read(url, group="a/b", consolidated=True).sizes["time"] == 7
    assert read(f"{url}/a/b", consolidated=True).sizes["time"] == 7
    xr.testing.assert_identical(read_by_xarray(url, group="a/b", consolidated=True).load(), series(7))


# --------------------------------------------------------------------------------------------------------------------
# Trees


@cases("name", ["zarr2", "zarr3", "zarr3-draft", "n5"])
def test_trees(url, name):
    write_dataset(tree().chunk() if name == "zarr2" else tree(), url, format=name)
    xr.testing.assert_identical(xr.open_datatree(url, engine="chunkmill").load(), tree())
    if name in {"zarr2", "zarr3"}:
        xr.testing.assert_identical(xr.open_datatree(url, engine="zarr", consolidated=True).load(), tree())


def test_coordinates_that_groups_inherit_are_stored_once(store):
    whole = xr.DataTree.from_dict({"/": xr.Dataset(coords={"x": [1, 2]}), "/a/b": xr.Dataset({"v": ("x", [3, 4])})})
    write_dataset(whole, store)
    write_dataset(whole["a"], store, "part")  # whose own root inherits them
    found = {path: list(cm.open_group(store, path)) for path in ("", "a/b", "part", "part/b")}
    assert found == {"": ["a", "part", "x"], "a/b": ["v"], "part": ["b", "x"], "part/b": ["v"]}


def test_a_dataset_is_replaced_by_a_tree(url):
    write_dataset(series(), url)
    write_dataset(tree(), url, mode="w")
    xr.testing.assert_identical(xr.open_datatree(url, engine="chunkmill").load(), tree())


def test_adding_and_appending_to_trees(url):
    write_dataset(tree(), url)
    more = xr.DataTree.from_dict({"/a": xr.Dataset({"v": ("x", [3.5, 4.5])}), "/c": xr.Dataset({"u": ("z", [1])})})
    write_dataset(more, url, mode="a")
    back = xr.open_datatree(url, engine="zarr", consolidated=True)
    assert back["a/v"].to_numpy().tolist() == [3.5, 4.5]
    assert back["c/u"].to_numpy().tolist() == [1]
    wrong = xr.DataTree.from_dict({"/a": xr.Dataset(attrs={"x": object()})})
    refused(rf"dataset in .*{re.escape(Path(url).name)}/a: attributes that JSON cannot hold: 'x'", wrong, url, mode="a")
    below = xr.DataTree.from_dict({"/a/v": xr.Dataset({"w": ("x", [1])})})
    refused("a group of the dataset cannot replace an array", below, url, error=NodeExists, mode="a")
    with pytest.raises(NodeNotFound):
        write_dataset(xr.DataTree.from_dict({"/none": xr.Dataset({"w": ("x", [1])})}), url, mode="r+")
    twice = xr.Dataset({"v": ("x", [1], {"coordinates": "x"}, {"coordinates": "x"})}, {"x": [1]})
    refused("cannot encode its coordinates", twice, MemoryStore())
    refused(r"encoding\['v'\]='i4': expected a mapping", series(), MemoryStore(), error=TypeError, encoding={"v": "i4"})
    with pytest.raises(TypeError, match="expected a Dataset or a DataTree, got Variable: call to_dataset"):
        write_dataset(series().v.variable, MemoryStore())
    refused("unknown groups", more, MemoryStore(), encoding={"v": {}})
    part = xr.DataTree.from_dict({"/a/deep": xr.Dataset({"w": ("t", pd.date_range("2000-01-04", periods=2))})})
    write_dataset(part, url, append_dim="t")  # the groups above lack the dimension
    assert xr.open_datatree(url, engine="zarr", consolidated=True)["a/deep"].sizes["t"] == 5


def test_groups_without_the_dimension_are_compared_when_a_tree_is_appended(url):
    static = xr.Dataset({"mask": ("z", [1, 2])})
    write_dataset(xr.DataTree.from_dict({"/": static, "/runs": series(2), "/map": static}), url)
    later = {"/": static, "/runs": series(2, "2000-01-03"), "/map": static}
    report = write_dataset(xr.DataTree.from_dict(later), url, append_dim="time")
    assert {"mask", "map/mask"} <= set(report.unchanged)
    assert cm.open_array(url, "runs/time").shape == (4,)
    other = later | {"/map": xr.Dataset({"mask": ("z", [1, 3])}), "/runs": series(2, "2000-01-05")}
    refused("1 of 2 values differ", xr.DataTree.from_dict(other), url, append_dim="time")
    with pytest.raises(DatasetError, match="append_dim='time' is not a dimension of the dataset in 'runs'"):
        write_dataset(xr.DataTree.from_dict({"/runs": static, "/more": series(1)}), url, append_dim="time")
    refused("append_dim='none' is not a dimension of the store", xr.DataTree.from_dict(later), url, append_dim="none")


def test_a_new_group_is_of_the_format_around_it():
    for name, mode in (("zarr2", "w-"), ("n5", "w"), ("zarr3-draft", "a")):
        store = MemoryStore()
        write_dataset(series(), store, format=name)
        write_dataset(series(), store, "more/of_it", mode=mode)
        assert cm.open(store).format == cm.open(store, "more/of_it").format == name
        xr.testing.assert_identical(read(store, group="more/of_it").load(), read(store).load())
