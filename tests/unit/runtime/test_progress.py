"""Progress bars."""

import io
import time

import dask
import pytest
from rich.console import Console
from support.small_jobs import make_job

from chunkmill.jobs.job import run_job
from chunkmill.runtime import stage_runner
from chunkmill.runtime.stage_runner import JobMonitor
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


@pytest.mark.parametrize(
    ("configured", "given", "shown"),
    [("auto", None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_progress_is_silent_unless_looked_at(store, capsys, configured, given, shown):
    with dask.config.set({"chunkmill.progress": configured}):
        run_job(make_job(store), progress=given)
    assert ("put-0" in capsys.readouterr().err) is shown


def test_progress_counts_what_was_done_before(capsys):
    monitor = JobMonitor("job", True)
    with monitor.showing():
        monitor.plan([10], [4])
        monitor.begin_stage("convert", 4)
        monitor.advance({"bytes_read": 2048, "bytes_written": 2048})
    shown = capsys.readouterr().err
    assert "5/10 tasks 50%" in shown
    assert "elapsed 0:00:00 left 0:00:00" in shown
    assert "preparing" not in shown


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
