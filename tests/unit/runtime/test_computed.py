"""Dask arrays as sources of jobs: a task has the blocks that it needs, also those that a cluster holds."""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import chunkmill as cm
from chunkmill.dask_arrays.sources import open_or_compute
from chunkmill.errors import StoreError, UnsupportedFeature
from chunkmill.runtime.computed import ComputedStore, values_left_out, with_blocks


def test_text_of_variable_length_is_refused():
    with pytest.raises(UnsupportedFeature, match=r"a computed source of dtype StringDType.*write it by to_store"):
        open_or_compute(da.from_array(np.array(["a", "bcd"], np.dtypes.StringDType()), chunks=1), None)


@pytest.fixture(scope="module")
def persisted():
    one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(processes=False, **one) as cluster, Client(cluster) as client:
        yield client.persist(da.arange(400.0, chunks=100).reshape(20, 20).rechunk((10, 10)) + 1)


def test_tasks_have_the_blocks_that_they_were_given_as_long_as_one_of_them_runs():
    with values_left_out():
        store = pickle.loads(pickle.dumps(ComputedStore(da.ones(4, chunks=2))))
    given = [store.block_key("c/0")], [], np.full(2, 3.0)

    def read(*_):
        with_blocks(lambda *_: None, None, *given)
        return store.get("c/0")

    assert with_blocks(read, None, *given) == np.full(2, 3.0).tobytes()
    with pytest.raises(StoreError, match=r"'c/0': the task was not given this block"):
        store.get("c/0")


def every_job(x, name):
    """Write `x` by every call that takes Dask arrays; return the sums of what is stored."""
    url = f"memory://persisted-{name}"
    cm.to_store(x, f"{url}-a")
    cm.to_store(x + 1, f"{url}-b", resume=True)
    cm.transform(lambda block: block * 2, x, f"{url}-c", dtype="f8", halo=1)
    cm.pyramid(xr.DataArray(x, dims=("y", "x")), f"{url}-d", levels=2)
    cm.write_dataset(xr.Dataset({"v": (("y", "x"), x)}), f"{url}-e")
    assert cm.verify(x, f"{url}-a").equal
    places = [(f"{url}-a", ""), (f"{url}-b", ""), (f"{url}-c", ""), (f"{url}-d", "0"), (f"{url}-e", "v")]
    return [float(cm.open_array(*place)[...].sum()) for place in places]


SUMS = [80200.0, 80600.0, 160400.0, 80200.0, 80200.0]


@pytest.mark.parametrize("scheduler", ["distributed", "threads", "sync"])
def test_blocks_that_a_cluster_holds_are_inputs_of_every_job(persisted, scheduler):
    with dask.config.set(scheduler=scheduler):
        assert every_job(persisted, scheduler) == SUMS


def test_blocks_that_a_cluster_holds_are_inputs_of_jobs_in_its_tasks(persisted):
    def job():
        return every_job((da.arange(400.0, chunks=100).reshape(20, 20).rechunk((10, 10)) + 1).persist(), "task")

    assert persisted.blocks[0, 0].size
    assert Client.current().submit(job).result(timeout=60) == SUMS


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_each_block_is_computed_once_and_what_blocks_share_too(scheduler):
    """Each task computed its blocks by itself, with all that they depend on."""
    calls = []

    def noted(block):
        calls.append(block.shape)
        return block

    x = da.ones((40, 40), chunks=10).map_blocks(noted, dtype="f8", meta=np.empty((0, 0)))
    with dask.config.set(scheduler=scheduler):
        cm.transform(np.positive, x - x.mean(), f"memory://once-{scheduler}", dtype="f8", halo=2, block=(10, 10))
    assert len(calls) == 16
