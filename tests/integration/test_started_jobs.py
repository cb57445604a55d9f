"""`plan.start()` of each kind of plan, from another process, and with an asynchronous Client."""

import asyncio
import pickle
import subprocess
import sys
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import chunkmill as cm
from chunkmill.conversion import convert_tasks
from chunkmill.errors import JobCancelled, JobError

PLANS = {
    "convert": lambda source, target: cm.plan_convert(source, target, format="n5"),
    "rechunk": lambda source, target: cm.plan_rechunk(source, target, chunks=(40, 2)),
    "pyramid": lambda source, target: cm.plan_pyramid(source, target, levels=2),
}


def _source(url, shape=(40, 40)):
    array = cm.create_array(url, shape=shape, dtype="i4", chunks=(10, 10), dimension_names=("y", "x"))
    array[...] = np.arange(np.prod(shape)).reshape(shape)
    return array


@pytest.mark.parametrize("kind", PLANS)
def test_each_kind_of_plan_can_be_started_and_pickled(kind, tmp_path):
    source = _source(str(tmp_path / "a"))
    plan = pickle.loads(pickle.dumps(PLANS[kind](source, str(tmp_path / "b"))))
    with dask.config.set(scheduler="threads"):
        job = plan.start()
        again = pickle.loads(pickle.dumps(job))
    report = job.result(60)
    assert again is job
    assert (report.operation, job.status().state, job.status().stage) == (kind, "done", plan.stages[-1].name)
    assert job.status().seconds_left == pytest.approx(0, abs=1)
    with pytest.raises(cm.errors.NodeExists):
        plan.start().result(60)


def test_a_job_that_is_cancelled_is_interrupted_on_record(tmp_path):
    source = _source(str(tmp_path / "a"), (150, 150))
    target = str(tmp_path / "b")
    with dask.config.set(scheduler="threads"):
        job = cm.plan_convert(source, target, format="n5").start()
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(60)
        assert {each.state for each in cm.jobs(target)} <= {"interrupted"}
        report = cm.plan_convert(source, target, format="n5").start().result(60)
    assert report.n_keys <= 225  # what was stored before the job was cancelled is on record
    np.testing.assert_array_equal(cm.open_array(target)[...], source[...])
    assert not cm.jobs(target)


OTHER = """
import pickle, sys
job = pickle.load(open(sys.argv[1], "rb"))
print(job.status().state, job.wait(0.1), job.cancel(), job.wait(20), job.status().state)
"""


@pytest.mark.slow
def test_another_process_cancels_a_job(tmp_path, monkeypatch):
    at_work, go, put = threading.Event(), threading.Event(), convert_tasks._put

    def held_put(*args):
        at_work.set()
        go.wait(60)
        put(*args)

    monkeypatch.setattr(convert_tasks, "_put", held_put)
    source = _source(str(tmp_path / "a"))
    with dask.config.set(scheduler="threads"):
        job = cm.plan_convert(source, str(tmp_path / "b"), format="n5").start()
    assert at_work.wait(20)
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    script = [sys.executable, "-c", OTHER, str(tmp_path / "job")]
    other = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=True)
    assert other.stdout.split() == ["running", "False", "True", "True", "interrupted"]
    go.set()
    with pytest.raises(JobError, match="the job has ended, was interrupted"):
        job.result(60)
    assert [each.state for each in cm.jobs(str(tmp_path / "b"))] == ["interrupted"]


@pytest.mark.slow
def test_an_asynchronous_client_plans_starts_and_is_never_blocked(tmp_path):
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
                job = plan.start()
                with pytest.raises(JobError, match=r"block it; `await plan.start\(\)`"):
                    job.result()
                assert (await job).operation == kind
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
