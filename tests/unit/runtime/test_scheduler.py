"""Running many tasks on the local schedulers."""

import operator
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import dask
import dask.array as da
import pytest
from dask._task_spec import Alias, List, Task, TaskRef
from support.recording import FailingStore
from support.small_jobs import make_job, put

from chunkmill.errors import JobError, StoreError
from chunkmill.jobs.job import run_job
from chunkmill.runtime import scheduler as scheduling
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.stage_runner import JobMonitor, run_stages
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(autouse=True, params=["sync", "threads"])
def scheduler(request):
    with dask.config.set(scheduler=request.param):
        yield request.param


def test_two_jobs_that_begin_at_once_count_their_own_tasks(monkeypatch):
    """Both have registered for results before either computes."""
    together, compute = Barrier(2), scheduling.Scheduler.compute

    def at_once(self, graph, keys, **options):
        together.wait(timeout=30)
        return compute(self, graph, keys, **options)

    monkeypatch.setattr(scheduling.Scheduler, "compute", at_once)

    def run(n):
        (result,) = run_stages([Stage("put", put, MemoryStore(), range(n))], JobMonitor("job"), Scheduler())
        return result.counts["n_keys"]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, [40, 70])) == [40, 70]


def test_an_error_is_the_task_s_own(store):
    failing = FailingStore(store, every=3, methods=["set"])
    with pytest.raises(StoreError, match="injected failure") as caught:
        run_stages([Stage("put", put, failing, range(5))], JobMonitor("job"), Scheduler())
    assert caught.value.key == "data/2" or dask.config.get("scheduler") == "threads"


def test_what_runs_beside_a_failure_is_waited_for(store):
    ended = []

    def work(store, number):
        if number:
            time.sleep(0.3)
            ended.append(number)
            return TaskResult({})
        raise ValueError

    with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(ValueError):
        run_job(make_job(store, n=2, function=work))
    assert ended == [1]


def test_jobs_of_too_many_tasks_are_refused():
    scheduling.check_n_tasks("put it", (1 << 63) - 1)
    with pytest.raises(
        JobError, match=r"put it: it would take 9,223,372,036,854,775,808 tasks.*larger chunks or shards"
    ):
        scheduling.check_n_tasks("put it", 1 << 63)


def test_optimised_graphs_hold_no_aliases():
    x = (da.ones((4, 4), chunks=2) + 1).sum()
    (key,) = x.__dask_keys__()
    graph = scheduling.optimised(x.dask, [key])
    assert not [task for task in graph.values() if isinstance(task, Alias)]
    assert scheduling.Scheduler().compute(graph, [key]) == [32]


def test_what_a_fused_task_uses_twice_is_computed_once():
    calls = []
    first = Task("first", lambda x: calls.append(x) or x, TaskRef("given"))
    once = Task.fuse(first, Task("last", operator.neg, TaskRef("first")), key="all")
    twice = Task.fuse(first, Task("last", operator.mul, TaskRef("first"), TaskRef("first")), key="all")
    in_list = Task.fuse(first, Task("last", sum, List(TaskRef("first"), 1)), key="all")
    found = [scheduling.nested(task) for task in (once, twice, in_list)]
    assert [task.has_subgraph() for task in found] == [False, True, True]
    assert [task.key for task in found] == ["all"] * 3
    assert [task.dependencies for task in found] == [frozenset({"given"})] * 3
    assert [task({"given": 3}) for task in found] == [-3, 9, 4]
    assert calls == [3, 3, 3]


def test_who_shares_memory():
    with dask.config.set(scheduler="processes"):
        assert not scheduling.Scheduler().in_process
    with dask.config.set(scheduler="threads", num_workers=3):
        assert scheduling.Scheduler().in_process
        assert scheduling.Scheduler().threads_per_worker == 3
    with dask.config.set(scheduler="sync"):
        assert scheduling.Scheduler().threads_per_worker == 1
    with ThreadPoolExecutor(2) as pool, dask.config.set(scheduler=pool):
        assert scheduling.Scheduler().in_process
