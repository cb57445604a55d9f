"""Progress bars."""

import dask
import pytest
from support.small_jobs import make_job

from chunkmill.jobs.job import run_job
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
    with monitor.bars:
        monitor.begin_stage("convert", 10, 4)
        monitor.advance({"bytes_read": 2048, "bytes_written": 2048})
    assert "5/10 tasks" in capsys.readouterr().err
