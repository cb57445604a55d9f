"""Datasets that are written at the same time, and after a writer died."""

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.errors import DatasetError, JobError, NodeExists
from chunkmill.journal import heartbeat
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.nodes import delete
from chunkmill.xarray import write

FORMATS = ["zarr2", "zarr3", "n5"]


def dataset(n=4, start=0, then=None):
    """Return a dataset of `n` elements; `then` is called while they are written."""

    def values(block):
        if then is not None:
            then()
        return block

    t = da.from_array(np.arange(n) + start, chunks=n).map_blocks(values, dtype="i8", meta=np.empty(0, "i8"))
    return xr.Dataset({"t": ("x", t)}, coords={"x": np.arange(n) + start})


def stored(store, path=""):
    return xr.open_dataset(store, engine="chunkmill", group=path or None).t.values.tolist()


def refused(error, call):
    """Return a function that makes a call that must raise, and keeps what it raised."""

    def function():
        with pytest.raises(error) as caught:
            call()
        function.caught = str(caught.value)

    return function


@pytest.mark.parametrize("fmt", FORMATS)
def test_of_two_new_datasets_at_one_place_the_second_is_refused_before_it_writes(store, fmt):
    def second():
        before = set(store.list_prefix(""))
        try:
            cm.write_dataset(dataset(4, 100), store, "g", format=fmt)
        finally:
            assert {key for key in store.list_prefix("") if not key.startswith(".")} <= before

    call = refused(JobError, second)
    cm.write_dataset(dataset(then=call), store, "g", format=fmt)
    assert "write a dataset to 'g'" in call.caught
    assert "is running" in call.caught
    assert stored(store, "g") == [0, 1, 2, 3]
    assert unfinished_jobs(store) == []


@pytest.mark.parametrize("other", ["g", "g/t", ""])
def test_arrays_above_at_and_below_a_dataset_that_is_written_are_refused(store, other):
    call = refused((JobError, NodeExists), lambda: cm.to_store(np.zeros(3), store, other))
    cm.write_dataset(dataset(then=call if other else None), store, "g")
    if not other:
        call()
    assert stored(store, "g") == [0, 1, 2, 3]


@pytest.mark.parametrize("fmt", FORMATS)
def test_of_two_appends_the_second_is_refused_and_succeeds_afterwards(store, fmt):
    cm.write_dataset(dataset(), store, "g", format=fmt)

    def append():
        cm.write_dataset(dataset(2, 100), store, "g", append_dim="x")

    call = refused(JobError, append)
    cm.write_dataset(dataset(2, 4, then=call), store, "g", append_dim="x")
    assert "append to 'g'" in call.caught
    append()
    assert stored(store, "g") == [0, 1, 2, 3, 4, 5, 100, 101]
    assert cm.check(store).ok


def test_regions_are_written_during_an_append(store):
    cm.write_dataset(dataset(), store, "g")
    region = dataset(2, 50).drop_vars("x")
    more = dataset(2, 4, then=lambda: cm.write_dataset(region, store, "g", region={"x": slice(1, 3)}))
    cm.write_dataset(more, store, "g", append_dim="x")
    assert stored(store, "g") == [0, 50, 51, 3, 4, 5]


def test_of_two_that_add_one_variable_the_second_is_refused(store):
    cm.write_dataset(dataset(), store, "g")
    new = dataset().rename(t="v")

    def late():
        cm.write_dataset(dataset(4, 100, then=call).rename(t="v").drop_vars("x"), store, "g", mode="a")

    call = refused(JobError, lambda: cm.write_dataset(new, store, "g", mode="a"))
    late()
    assert "add 'g/v'" in call.caught
    assert cm.open_array(store, "g/v")[...].tolist() == [100, 101, 102, 103]


def test_an_append_that_was_planned_before_another_ended_is_refused(store, monkeypatch):
    cm.write_dataset(dataset(), store, "g")
    reserve, done = write.leased, []

    def late(*args, **kwargs):
        if not done:
            done.append(True)
            cm.write_dataset(dataset(2, 4), store, "g", append_dim="x")
        return reserve(*args, **kwargs)

    monkeypatch.setattr(write, "leased", late)
    with pytest.raises(DatasetError, match="append them again"):
        cm.write_dataset(dataset(2, 100), store, "g", append_dim="x")
    assert stored(store, "g") == [0, 1, 2, 3, 4, 5]


def test_nodes_of_others_below_a_folder_without_a_document_are_left_alone(store):
    cm.create_array(store, "g/t", shape=(3,), dtype="i4", chunks=(3,))[...] = 7
    store.delete("g/zarr.json")
    with pytest.raises(NodeExists, match="in a folder without a document"):
        cm.write_dataset(dataset(), store, "g")
    assert cm.open_array(store, "g/t")[...].tolist() == [7, 7, 7]
    assert unfinished_jobs(store) == []


@pytest.mark.parametrize("dies", [False, True], ids=["fails", "dies"])
def test_what_a_failed_addition_has_stored_is_no_value_of_the_next(store, dies, monkeypatch):
    """Read before it was computed, the new variable had the values of the one that failed."""
    cm.create_group(store)

    calls = []

    def second_fails(block):
        calls.append(block)
        if len(calls) > 1:
            raise RuntimeError("no source")
        return block + 100

    x = da.zeros(8, dtype="i8", chunks=4).map_blocks(second_fails, dtype="i8", meta=np.empty(0, "i8"))
    failing = xr.Dataset({"t": ("x", x)})
    with dask.config.set(scheduler="sync"), pytest.MonkeyPatch.context() as patch:
        if dies:  # nothing that it does afterwards reaches the store
            patch.setattr(delete, "delete_stored_chunks", lambda _: None)
            patch.setattr("chunkmill.journal.lease._release", lambda *_, **__: None)
        with pytest.raises(RuntimeError, match="no source"):
            cm.write_dataset(failing, store, mode="a")
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    later = xr.Dataset({"t": ("x", da.zeros(8, dtype="i8", chunks=4))})
    cm.write_dataset(later, store, mode="a", compute=False)
    assert not cm.open_array(store, "t")[...].any()
