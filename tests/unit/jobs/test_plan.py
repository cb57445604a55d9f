"""Columns of plans and reports, and the report of what a run counted."""

import pytest

import chunkmill as cm
from chunkmill.jobs.job import JobResult
from chunkmill.jobs.work import PlannedStage
from chunkmill.runtime.stage_runner import StageResult
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def plan():
    cm.create_array(store := MemoryStore(), shape=(8,), dtype="i4", chunks=(2,), format="zarr2")[...] = 1
    return cm.plan_convert(store, MemoryStore(), format="zarr3")


def result(**counts):
    return JobResult((StageResult("convert", 4, 1, 2.0, counts),), 3.0)


def test_a_report_holds_what_was_counted(plan):
    counts = {"bytes_read": 8, "bytes_written": 9, "n_requests": 7, "n_keys": 4, "action_copy": 3, "action_absent": 1}
    report = plan.report(result(**counts, peak_memory_bytes=5))
    assert (report.n_tasks, report.bytes_read, report.bytes_written, report.n_requests) == (3, 8, 9, 7)  # of 4
    assert (report.peak_memory_bytes, report.n_keys, report.actions) == (5, 4, {"copy": 3, "absent": 1})
    assert report.stages == (PlannedStage("convert", 3, 8, 9, 7, 2.0),)
    assert (report.seconds, report.n_resumed) == (3.0, 1)
    assert report.all_runs.n_tasks == 4
    assert "1 task of earlier runs, not in these counts; all runs together: read " in repr(report)
    assert plan.report(JobResult((), 1.0)).all_runs is None


def test_read_amplification_is_that_of_the_elements_read(plan):
    assert plan.report(result(n_elements_read=30, n_elements_owned=20)).read_amplification == 1.5
    assert plan.report(result()).read_amplification == 1.0  # every chunk is read once, or nothing is left to read


def test_what_is_at_the_target(plan):
    assert plan.at_target() == ""
    plan.run()
    assert (
        plan.at_target() == "an array of format zarr3 is there already, so that this fails; overwrite=True replaces it"
    )
