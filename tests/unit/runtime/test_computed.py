"""Arrays of Dask, numpy and xarray as sources of jobs."""

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import chunkmill as cm
from chunkmill.dask_arrays.as_dask import open_or_compute
from chunkmill.errors import UnsupportedFeature


def test_text_of_variable_length_is_refused():
    with pytest.raises(UnsupportedFeature, match=r"a computed source of dtype StringDType.*write it by to_store"):
        open_or_compute(da.from_array(np.array(["a", "bcd"], np.dtypes.StringDType()), chunks=1), None)


@pytest.fixture
def persisted():
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        yield client.persist(da.arange(1600.0, chunks=400).reshape(40, 40).rechunk((10, 10)) + 1)


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


SUMS = [1280800.0, 1282400.0, 2561600.0, 1280800.0, 1280800.0]


@pytest.mark.parametrize("scheduler", ["distributed", "threads", "sync"])
def test_blocks_that_a_cluster_holds_are_inputs_of_every_job(persisted, scheduler):
    with dask.config.set(scheduler=scheduler):
        assert every_job(persisted, scheduler) == SUMS


def test_blocks_that_a_cluster_holds_are_inputs_of_jobs_in_its_tasks(persisted):
    def job():
        return every_job((da.arange(1600.0, chunks=400).reshape(40, 40).rechunk((10, 10)) + 1).persist(), "task")

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
        cm.transform(
            lambda block: block, x - x.mean(), f"memory://once-{scheduler}", dtype="f8", halo=2, block=(10, 10)
        )
    assert len(calls) == 16
