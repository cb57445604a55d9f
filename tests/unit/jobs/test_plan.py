"""Plans and reports: what they count, and what they show: first what people ask first, and nothing of what is not there."""

import json
from dataclasses import replace

import pytest
from support.small_jobs import make_job

import chunkmill as cm
from chunkmill.jobs.job import JobResult
from chunkmill.jobs.plan import Plan, cost_rows
from chunkmill.jobs.work import JobCounts, PlannedStage
from chunkmill.runtime.stage_runner import StageResult
from chunkmill.runtime.worker_memory import Worker
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


COUNTS = {
    "n_tasks": 17,
    "bytes_read": 300 << 20,
    "bytes_written": 200 << 20,
    "n_requests": 329,
    "peak_memory_bytes": 1 << 27,
}


def test_bytes_and_memory_come_first_and_in_this_order():
    rows = cost_rows(JobCounts(**COUNTS, n_keys=9, actions={"rechunk": 9}), [("memory", "128.00 MiB")])
    assert rows == [
        ("read", "300.00 MiB"),
        ("written", "200.00 MiB, 9 store keys"),
        ("memory", "128.00 MiB"),
        ("tasks", "17, with 329 requests"),
        ("actions", "rechunk 9"),
    ]


def test_intermediate_files_have_a_row_of_their_own():
    rows = dict(cost_rows(JobCounts(**COUNTS, bytes_temporary=100 << 20, bytes_temporary_read=100 << 20), []))
    assert rows["temporary"] == "100.00 MiB of intermediate files, written and read once"
    assert (rows["read"], rows["written"]) == ("200.00 MiB", "100.00 MiB, 0 store keys")
    assert "actions" not in rows


def test_reading_again_is_said():
    assert (
        dict(cost_rows(JobCounts(**COUNTS, read_amplification=2.96), []))["read"] == "300.00 MiB; each element 3 times"
    )
    assert dict(cost_rows(JobCounts(**COUNTS, read_amplification=1.001), []))["read"] == "300.00 MiB"


def six_arrays(store):
    for number in range(6):
        cm.create_array(store, f"data/variable_{number}", shape=(50, 40, 30), dtype="f8", chunks=(1, 40, 30))
    return store


def test_a_plan_of_any_size_has_fifteen_lines_and_explains_the_rest():
    plan = cm.plan_rechunk(six_arrays(MemoryStore()), MemoryStore(), chunks=(50, 8, 8))
    lines = repr(plan).splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100
    assert "plan.explain()" in lines[-1]
    explained = plan.explain()
    assert all(f"data/variable_{number}" in explained for number in range(6))
    assert repr(explained) == str(explained)
    assert len(explained.splitlines()) > 15


def test_numbers_and_nouns_agree():
    cm.create_array(store := MemoryStore(), "a", shape=(4, 4), dtype="f8", chunks=(1, 4))
    text = str(cm.plan_rechunk(store, MemoryStore(), chunks=(4, 4)).explain())
    assert "1 store key" in text
    assert not any(wrong in text for wrong in ("1 store keys", " 1 times", "1 arrays"))


def make_plan():
    costs = {"bytes_read": 1 << 20, "bytes_written": 1 << 10, "n_requests": 9, "actions": {"copy": 4, "recode": 1}}
    about = {"operation": "convert", "source": "here", "target": "there", "strategy": "copy", "reason": "because"}
    stage = PlannedStage("put-0", 5, 1 << 20, 1 << 10, 9)
    rows = [{"array": f"<a{i}>", "action": "copy"} for i in range(50)]
    return Plan(**about, n_tasks=5, **costs, stages=(stage,), job=make_job(MemoryStore()), arrays=rows)


def test_a_plan_shows_itself():
    plan = make_plan()
    text = repr(plan)
    for part in (
        "here",
        "there",
        "copy: because",
        "1.00 MiB",
        "copy 4 (copied without decoding), recode 1 (decoded and encoded again)",
        "put-0",
        "… plan.explain()",
    ):
        assert part in text
    assert "array  action" not in text  # a head without its rows
    assert "<a0>" in plan.explain()
    html = plan._repr_html_()
    assert "&lt;a0&gt;" in html
    assert "<a0>" not in html
    as_dict = plan.to_dict()
    assert (as_dict["n_tasks"], as_dict["stages"][0]["name"]) == (5, "put-0")
    assert not {"job", "drawn", "costs"} & as_dict.keys()
    json.dumps(as_dict)


def test_a_plan_says_for_which_workers_it_is():
    plan = replace(make_plan(), peak_memory_bytes=71 << 20)
    plan = replace(plan, job=replace(plan.job, worker=Worker(1 << 30, 2, 3)))
    assert "memory       71.00 MiB for all tasks at once on a worker" in repr(plan)
    assert "planned for  3 workers of 2 threads, each with 1.00 GiB for its tasks" in repr(plan)
