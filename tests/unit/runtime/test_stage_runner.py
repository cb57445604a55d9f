"""Progress of jobs, as bars and as numbers."""

import io
import time

import dask
import pytest
from rich.console import Console
from support.small_jobs import make_job

import chunkmill as cm
from chunkmill.checks import check
from chunkmill.conversion import convert_job
from chunkmill.errors import JobCancelled
from chunkmill.jobs import call as calls
from chunkmill.jobs.job import run_job
from chunkmill.runtime import stage_runner
from chunkmill.runtime.stage_runner import JobMonitor
from chunkmill.stores.memory import MemoryStore


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
    assert monitor.shown() == {
        "stage": "large",
        "n_stage_done": 3,
        "n_stage_tasks": 9,
        "n_tasks_done": 13,
        "n_tasks": 19,
        "n_bytes": 6,
        "seconds": 8.0,
        "seconds_left": pytest.approx(18),
        "waits_for": "workers",
    }


def test_a_monitor_that_is_cancelled_raises():
    monitor = JobMonitor("x")
    monitor.check()
    monitor.cancel()
    for call in (monitor.check, lambda: monitor.advance({}), lambda: monitor.begin_stage("a", 0)):
        with pytest.raises(JobCancelled, match="x: it was cancelled"):
            call()
