"""Running many tasks on schedulers that are local, in a forked child, or not of dask; progress, as bars and numbers."""

import io
import multiprocessing
import operator
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from unittest.mock import Mock

import dask
import dask.array as da
import dask.local
import dask.threaded
import numpy as np
import pytest
from dask._task_spec import List, Task, TaskRef
from dask.multiprocessing import remote_exception
from rich.console import Console
from support.recording import FailingStore, UnfencedStore
from support.small_jobs import make_job, put
from support.systems import NEEDS_FORK

import chunkmill as cm
from chunkmill.checks import check
from chunkmill.conversion import convert_job
from chunkmill.errors import JobCancelled, JobError, StoreError
from chunkmill.jobs import call as calls
from chunkmill.jobs.job import run_job
from chunkmill.runtime import scheduler as scheduling
from chunkmill.runtime import stage_runner
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.stage_runner import JobMonitor, run_once, run_stages
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


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


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_an_error_is_the_task_s_own(store, scheduler):
    failing = FailingStore(store, every=3, methods=["set"])
    with dask.config.set(scheduler=scheduler), pytest.raises(StoreError, match="injected failure") as caught:
        run_stages([Stage("put", put, failing, range(5))], JobMonitor("job"), Scheduler())
    assert caught.value.key == "data/2" or scheduler == "threads"


def test_an_error_of_another_process_is_the_task_s_own():
    failing = Mock(side_effect=remote_exception(ValueError("bad"), "its traceback"))
    with dask.config.set(scheduler=failing), pytest.raises(ValueError, match=r"^bad$") as caught:
        Scheduler().compute({}, ["a"])
    assert "its traceback" in str(caught.value.__cause__)


def test_a_task_that_waits_for_a_block_of_its_cluster_leaves_its_thread(monkeypatch):
    steps = Mock(**{"done.return_value": False, "result.return_value": 7})
    monkeypatch.setattr(scheduling.thread_state, "proceed", True, raising=False)
    for name in ("worker_task", "secede", "rejoin"):
        monkeypatch.setattr(scheduling, name, getattr(steps, name))
    assert scheduling._fetched(steps) == 7
    assert [each[0] for each in steps.method_calls] == ["done", "worker_task", "secede", "result", "rejoin"]


def test_reads_in_this_process_are_not_checked(store, monkeypatch):
    monkeypatch.setattr(stage_runner, "describe_needs", lambda *_, **__: pytest.fail("workers are asked"))
    assert run_once([Stage("put", put, store, range(2))], JobMonitor("job"), [])[0].n_tasks == 2


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


VALUES = np.arange(400).reshape(20, 20)


def without_callbacks(graph, keys, **_):
    return dask.local.get_sync(graph, keys, callbacks=[])


@pytest.fixture(params=["function", "frisky"])
def other_scheduler(request):
    if request.param == "function":
        with dask.config.set(scheduler=without_callbacks):
            yield
        return
    frisky = pytest.importorskip("frisky")  # in no group: its client replaces dask.compute in the whole process
    with (
        frisky.LocalCluster(n_workers=2) as cluster,
        cluster.get_client() as client,
        dask.config.set(scheduler=client.get),
    ):
        yield


@pytest.mark.usefixtures("other_scheduler")
def test_counts_come_back_as_results(tmp_path):
    x, first, second = da.from_array(VALUES, chunks=5), str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")
    written = cm.to_store(x, first, chunks=(4, 4))
    assert (written.n_keys, written.n_regrouped, written.bytes_written > 0) == (25, 16, True)
    part = cm.to_store(x[:10, :10], cm.open_array(first, mode="r+"), region=(slice(3, 13), slice(3, 13)))
    assert (part.n_keys, part.n_partial, part.guard) == (16, 12, "version")
    job = cm.plan_rechunk(first, second, chunks=(10, 10)).run(progress=False)
    assert (job.actions, job.bytes_written > 0, job.n_requests > 4) == ({"rechunk": 4}, True, True)
    np.testing.assert_array_equal(cm.open_array(second)[...], cm.open_array(first)[...])


@pytest.mark.usefixtures("other_scheduler")
def test_no_lock_is_taken_for_one_of_the_cluster(tmp_path):
    array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(8,), dtype="i4", chunks=(4,))
    with pytest.raises(StoreError, match="have no lock in common, and the store cannot check versions"):
        cm.to_store(da.ones(4, chunks=2, dtype="i4"), array, region=slice(2, 6))


def status_of(child):
    """Run a function in a forked child, and return its exit status; ``None`` when it hangs."""
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    status = process.exitcode
    process.kill()
    return status


@NEEDS_FORK
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_computes_in_threads_of_its_own():
    """It would wait without end for threads of its parent's pool, or for the lock of one that is being made."""
    with dask.config.set(scheduler="threads", num_workers=3):
        assert da.ones(4, chunks=1).sum().compute() == 4
        with getattr(dask.threaded, "pools_lock", threading.Lock()):
            assert status_of(lambda: da.ones(8, chunks=1).sum().compute()) == 0


@pytest.mark.parametrize(
    ("configured", "given", "shown"),
    [("auto", None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_progress_is_silent_unless_looked_at(store, capsys, configured, given, shown):
    with dask.config.set({"chunkmill.progress": configured}):
        run_job(make_job(store), progress=given)
    assert ("put-0" in capsys.readouterr().err) is shown


def test_bars_move_before_and_after_the_tasks(store, monkeypatch):
    """Where nothing is shown for more than 2 s, a job seems to hang."""
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=100)
    monkeypatch.setattr(stage_runner, "Console", lambda **_: console)
    job, seen = make_job(store), []

    def looked(phase):
        time.sleep(0.3)  # bars are drawn ten times a second
        seen.append((phase, phase in terminal.getvalue()))

    publish = type(job.tasks).publish
    stages = type(job.tasks).stages
    monkeypatch.setattr(type(job.tasks), "stages", lambda *o, **n: looked("preparing") or stages(*o, **n))
    monkeypatch.setattr(type(job.tasks), "publish", lambda *o, **n: looked("completing") or publish(*o, **n))
    run_job(job, progress=True)
    assert set(seen) == {("preparing", True), ("completing", True)}
    take_inventory, see_sources = check.take_inventory, convert_job.see_sources
    monkeypatch.setattr(check, "take_inventory", lambda *o: looked("preparing") or take_inventory(*o))
    monkeypatch.setattr(convert_job, "see_sources", lambda *o: looked("preparing") or see_sources(*o))
    monkeypatch.setattr(calls, "_PATIENCE", 0.01)
    with dask.config.set({"chunkmill.progress": True}):
        for function in (check.check, lambda url: cm.plan_convert(url, MemoryStore(), format="n5")):
            terminal.seek(0)
            terminal.truncate()
            seen.clear()
            function(cm.create_group(MemoryStore()))
            assert seen == [("preparing", True)]
        monkeypatch.undo()
        shown = Console(file=(quiet := io.StringIO()), force_terminal=True)
        monkeypatch.setattr(stage_runner, "Console", lambda **_: shown)
        cm.plan_convert(cm.create_group(MemoryStore()), MemoryStore(), format="n5")
        assert not quiet.getvalue()  # it took no second


def test_the_time_left_is_that_of_the_whole_job(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(stage_runner.time, "perf_counter", lambda: now[0])
    monitor = JobMonitor("x")
    assert monitor.shown()["seconds_left"] is None
    monitor.plan([10, 9], [5, 2])
    monitor.begin_stage("small", 5)  # half of it was done before
    now[0] = 5.0
    monitor.advance({"bytes_read": 3, "bytes_written": 2})
    assert monitor.shown()["seconds_left"] == pytest.approx(55)  # a task took 5 s; four are left, and seven after them
    for _ in range(4):
        monitor.advance({})
    monitor.begin_stage("large", 2)
    assert monitor.shown()["seconds_left"] == pytest.approx(7)  # five tasks took 5 s
    monitor.advance({"bytes_read": 1})
    now[0] = 8.0
    monitor.wait_for("workers")
    shown = monitor.shown()
    assert (shown["stage"], shown["waits_for"], shown["n_bytes"], shown["seconds"]) == ("large", "workers", 6, 8.0)
    assert [shown[f"n_{name}"] for name in ("stage_done", "stage_tasks", "tasks_done", "tasks")] == [3, 9, 13, 19]
    assert shown["seconds_left"] == pytest.approx(18)


def test_a_monitor_that_is_cancelled_raises():
    monitor = JobMonitor("x")
    monitor.check()
    monitor.cancel()
    for call in (monitor.check, lambda: monitor.advance({}), lambda: monitor.begin_stage("a", 0)):
        with pytest.raises(JobCancelled, match="x: it was cancelled"):
            call()
