"""Progress of jobs as numbers."""

import pytest

from chunkmill.errors import JobCancelled
from chunkmill.runtime import progress as job_monitor
from chunkmill.runtime.progress import JobMonitor, JobStatus


def test_the_time_left_follows_the_bytes_that_stages_are_expected_to_move(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(job_monitor.time, "perf_counter", lambda: now[0])
    monitor = JobMonitor("x", {"small": 10, "large": 90})
    assert monitor.status().seconds_left is None
    monitor.begin_stage("small", 10, 5)  # half of it was done before
    now[0] = 5.0
    monitor.advance({"bytes_read": 3, "bytes_written": 2}, 3)
    monitor.advance({}, 2)
    monitor.begin_stage("large", 9, 0)
    status = monitor.status()
    assert status.seconds_left == pytest.approx(5 / 0.03 * 0.9)  # three tasks of the first ten took 5 s
    assert (status.n_bytes, status.bytes_per_second) == (5, 1.0)
    monitor.advance({"bytes_read": 1}, 9)
    assert monitor.status().seconds_left == pytest.approx(0)


def test_a_monitor_that_is_cancelled_raises():
    monitor = JobMonitor("x")
    monitor.check()
    monitor.cancel()
    for call in (monitor.check, lambda: monitor.advance({}), lambda: monitor.begin_stage("a", 1, 0)):
        with pytest.raises(JobCancelled, match="x: it was cancelled"):
            call()


def test_a_status_is_one_line():
    status = JobStatus("convert to <a>", "running", "convert", 1200, 3000, 5 << 20, 2.0, 61.0)
    assert (
        str(status)
        == "convert to <a>: running, convert: 1,200 of 3,000 tasks, 5.00 MiB, 2.50 MiB/s, about 61.00 s left"
    )
    assert "&lt;a&gt;" in status._repr_html_()
    assert status.to_dict()["n_tasks"] == 3000
