"""Each kind of plan with an asynchronous Client, whose event loop only a cluster has."""

import asyncio
import time

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from support.arrays import filled

import chunkmill as cm
from chunkmill.errors import JobError

PLANS = {
    "convert": lambda source, target: cm.plan_convert(source, target, format="n5"),
    "rechunk": lambda source, target: cm.plan_rechunk(source, target, chunks=(40, 2)),
    "pyramid": lambda source, target: cm.plan_pyramid(source, target, levels=2),
}


def _source(url, shape=(40, 40)):
    values = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    return filled(values, url, chunks=(10, 10), dimension_names=("y", "x"))


@pytest.mark.slow
def test_an_asynchronous_client_plans_runs_and_is_never_blocked(tmp_path):
    async def main():
        where = {"processes": False, "dashboard_address": ":0", "asynchronous": True}
        async with (
            LocalCluster(n_workers=1, threads_per_worker=2, **where) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            source = _source(str(tmp_path / "a"), (200, 200))
            plans = {kind: make(source, str(tmp_path / kind)) for kind, make in PLANS.items()}
            pauses = asyncio.create_task(_longest_pause())
            for kind, plan in plans.items():
                assert (await asyncio.to_thread(plan.run)).operation == kind
            for blocking in (
                plans["convert"].run,
                lambda: cm.to_store(da.ones(9), str(tmp_path / "x")),
                lambda: cm.verify(source, source),
            ):
                with pytest.raises(JobError, match="in the event loop of an asynchronous Client"):
                    blocking()
            lazy = cm.to_store(da.ones((20, 20), chunks=10), str(tmp_path / "lazy"), compute=False)
            assert (await client.compute(lazy)).n_keys == 4
            assert (await asyncio.to_thread(cm.verify, source, str(tmp_path / "convert"))).equal
            pauses.cancel()
            assert await pauses < 5

    asyncio.run(main())


async def _longest_pause():
    longest, seen = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(0.01)
            longest, seen = max(longest, time.monotonic() - seen), time.monotonic()
    except asyncio.CancelledError:
        return longest
