"""Stored arrays that a graph reads."""

import threading

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.recording import DeletingStore

import chunkmill as cm
from chunkmill.dask_arrays.hazards import check_not_read, locations_read
from chunkmill.errors import JobError


@pytest.fixture
def array(tmp_path):
    return cm.create_array(tmp_path / "s", "g/a", shape=(8, 8), dtype="i4", chunks=(4, 4))


IN_TASKS = {
    "optimized": lambda a: dask.optimize(a.to_dask())[0],
    "fused with arithmetic": lambda a: dask.optimize(a.to_dask() * 2 + da.ones((8, 8), chunks=4))[0],
    "optimized from_array": lambda a: dask.optimize(da.from_array(a) + 1)[0],
    "delayed": lambda a: da.from_delayed(dask.delayed(np.asarray)(a), a.shape, a.dtype),
    "a function's own": lambda a: da.ones((8, 8), chunks=4).map_blocks(lambda block: block + a[:4, :4]),
}


@cases("case", IN_TASKS)
def test_deleting_what_tasks_and_functions_read_is_refused(array, case):
    x = IN_TASKS[case](array)
    with pytest.raises(JobError, match=r"would delete .*g/a, .* load or persist"):
        check_not_read([np.ones(3), x], array.store, "g")
    check_not_read([x], array.store, "g/ab")
    check_not_read([x.persist()], array.store, "g")


def test_a_search_goes_on_after_a_task_that_cannot_be_pickled(array):
    lock = threading.Lock()
    x = da.ones((8, 8), chunks=4).map_blocks(lambda block: block if lock else None) + dask.optimize(array.to_dask())[0]
    with pytest.raises(JobError, match=r"would delete .*g/a"):
        check_not_read([x], array.store, "g")


@cases("is_optimized", [False, True])
@cases("compute", [True, False])
def test_where_the_old_node_is_deleted_first_no_writer_deletes_its_source(compute, is_optimized):
    """Nothing would be left to read, or fill values alone."""
    store, values = DeletingStore(), np.arange(64.0).reshape(8, 8)
    cm.write_dataset(xr.Dataset({"v": (("y", "x"), values)}), store, "g", encoding={"v": {"chunks": (4, 4)}})
    ds = xr.open_dataset(store, engine="chunkmill", group="g", chunks={}) + 0
    x = cm.from_store(store, "g/v") + 0
    if is_optimized:
        ds, x = dask.optimize(ds, x)
    later = {"compute": compute}
    for write in (
        lambda: cm.write_dataset(ds, store, "g", mode="w", **later),
        lambda: cm.to_store(x, store, "g/v", mode="w", **later),
        lambda: cm.to_store(x, store, "g", mode="w", **later),
        lambda: cm.plan_transform(np.negative, x, (store, "g/v"), dtype="f8", overwrite=True),
        lambda: cm.plan_pyramid(x, (store, "g/v"), levels=2, overwrite=True),
    ):
        with pytest.raises(JobError, match=r"would delete .*g/v, .*persist"):
            write()
    np.testing.assert_array_equal(cm.open_array(store, "g/v"), values)
    lazy = xr.open_dataset(store, engine="chunkmill", group="g")  # in memory before anything is deleted
    cm.write_dataset(lazy, store, "g", mode="w")
    np.testing.assert_array_equal(cm.open_array(store, "g/v"), values)


def test_what_sources_share_is_searched_once(store):
    x, searched = cm.create_array(store, shape=(4,), dtype="i4", chunks=2).to_dask(), set()
    assert [len([*locations_read(x, searched)]) for _ in range(2)] == [1, 0]
