"""Plans, reports and unfinished jobs: what they count, and what they show; nothing of what is not there."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from support.recording import FailingStore
from support.small_jobs import dead_heartbeat, make_job

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import JobError
from chunkmill.jobs.job import JobResult
from chunkmill.jobs.plan import Plan, cost_rows
from chunkmill.jobs.work import JobCounts, PlannedStage
from chunkmill.journal import heartbeat
from chunkmill.journal.lease import leased
from chunkmill.journal.plans import PLAN, journal_prefix
from chunkmill.runtime.stage_runner import StageResult
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_costs_come_in_this_order_and_intermediate_files_and_second_reads_are_said():
    sizes = {"bytes_read": 300 << 20, "bytes_written": 200 << 20, "peak_memory_bytes": 1 << 27}
    counts = JobCounts(n_tasks=17, n_requests=329, n_keys=9, **sizes)
    assert cost_rows(replace(counts, actions={"rechunk": 9}, read_amplification=1.001), [("memory", "128 MiB")]) == [
        ("read", "300.00 MiB"),
        ("written", "200.00 MiB, 9 store keys"),
        ("memory", "128 MiB"),
        ("tasks", "17, with 329 requests"),
        ("actions", "rechunk 9"),
    ]
    files = {"bytes_temporary": 100 << 20, "bytes_temporary_read": 100 << 20}
    rows = dict(cost_rows(replace(counts, read_amplification=2.96, **files), []))
    assert rows["temporary"] == "100.00 MiB of intermediate files, written and read once"
    assert (rows["read"], rows["written"]) == ("200.00 MiB; each element 3 times", "100.00 MiB, 9 store keys")


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
    plan = cm.plan_rechunk((store, "a"), MemoryStore(), chunks=(4, 4))
    assert plan.source == f"{store.url}/a (zarr3)"
    text = str(plan.explain())
    assert "1 store key" in text
    assert not any(wrong in text for wrong in ("1 store keys", " 1 times", "1 arrays"))
    assert "why" not in text  # of one array the strategy says it


def make_plan():
    costs = {"bytes_read": 1 << 20, "bytes_written": 1 << 10, "n_requests": 9, "actions": {"copy": 4, "recode": 1}}
    about = {"operation": "convert", "source": "here", "target": "there", "strategy": "copy", "reason": "because"}
    stage = PlannedStage("put-0", 5, 1 << 20, 1 << 10, 9)
    rows = [{"array": f"<a{i}>", "action": "copy"} for i in range(50)]
    return Plan(**about, n_tasks=5, **costs, stages=(stage,), job=make_job(MemoryStore()), arrays=rows)


def test_a_plan_shows_itself():
    plan = make_plan()
    text = repr(plan)
    parts = ("here", "there", "copy: because", "1.00 MiB", "put-0", "… plan.explain()")
    assert [part for part in parts if part not in text] == []
    assert "copy 4 (copied without decoding), recode 1 (decoded and encoded again)" in text
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


def interrupted(folder):
    source, target = str(folder / "a"), folder / "b"
    cm.to_store(da.from_array(np.arange(64.0).reshape(8, 8), chunks=(1, 8)), source, "v")
    failing = FailingStore(LocalStore(target), every=5, methods=["set", "set_if"])
    with pytest.raises(cm.ChunkmillError):
        cm.rechunk(source, failing, chunks=(8, 1), strategy="spill")
    return source, str(target)


def test_an_interrupted_job_is_listed_until_it_is_done(tmp_path):
    source, target = interrupted(tmp_path)
    (job,) = cm.jobs(target)
    assert (job.state, job.path) == ("interrupted", "")
    assert job.job.startswith("rechunk to file://")
    assert str(job).startswith(f"interrupted: {job.job}, begun 20")
    html = cm.jobs(target)._repr_html_()
    assert html.index("state") < html.index("interrupted") < html.index(job.job)
    assert str(replace(job, job="\x1b[31m")).startswith(r"interrupted: \x1b[31m, begun 20")  # as a store may name it
    shown = CliRunner().invoke(main, ["jobs", target])
    assert (shown.exit_code, shown.stdout.splitlines()[0][:24]) == (0, "interrupted: rechunk to ")
    assert '"state": "interrupted"' in CliRunner().invoke(main, ["jobs", "--json", target]).stdout
    cm.rechunk(source, target, chunks=(8, 1), strategy="spill")
    assert cm.jobs(target) == []
    assert cm.jobs(target)._repr_html_() == "no unfinished jobs"
    assert CliRunner().invoke(main, ["jobs", target]).stdout == "no unfinished jobs\n"


def test_a_resumed_report_counts_this_run_and_all_runs_apart(tmp_path):
    source, target = interrupted(tmp_path)
    report = cm.rechunk(source, target, chunks=(8, 1), strategy="spill")
    whole = cm.rechunk(source, tmp_path / "c", chunks=(8, 1), strategy="spill")
    assert whole.all_runs is None
    whole = JobCounts(**{each.name: getattr(whole, each.name) for each in fields(JobCounts)})
    assert replace(report.all_runs, peak_memory_bytes=whole.peak_memory_bytes) == whole
    assert whole.actions == {"rechunk": 8}
    # the source was read by the first run, and the bytes of our own files are none of it
    assert report.bytes_temporary == 0
    assert report.bytes_read == report.bytes_temporary_read > 0
    assert "\n  read       0 B\n" in repr(report)
    assert "1 task of earlier runs, not in these counts; all runs together: read " in repr(report)


def test_a_running_job_says_how_far_it_is_and_a_silent_one_that_it_is_dead(tmp_path, monkeypatch):
    with leased(LocalStore(tmp_path / "a"), "g/a", "write 'g/a'"):
        (job,) = cm.jobs(tmp_path / "a")
        monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
        assert [(each.state, each.path, each.job) for each in (job, *cm.jobs(tmp_path / "a"))] == [
            ("running", "g/a", "write 'g/a'"),
            ("dead", "g/a", "write 'g/a'"),
        ]
    shown = {"stage": "rechunk-write", "n_stage_done": 8, "n_stage_tasks": 16, "n_tasks_done": 40, "n_tasks": 160}
    times = {"bytes_per_second": float(3 << 20), "seconds": 75.0, "seconds_left": 200.0}
    assert str(replace(job, client="process 7 on here", **shown, **times)).splitlines()[1:] == [
        "  tasks    40 of 160 (25%)",
        "  stage    rechunk-write, 8 of its 16 tasks",
        "  rate     3.00 MiB/s",
        "  elapsed  75 s",
        "  left     about 3 min 20 s",
        "  run by   process 7 on here",
    ]


def test_a_damaged_journal(tmp_path):
    store = LocalStore(tmp_path / "a")
    store.set(f"{journal_prefix('g')}{PLAN}", b"{")
    (job,) = cm.jobs(tmp_path / "a")
    assert str(job) == "interrupted: a job whose plan is damaged, begun at an unknown time"
    with pytest.raises(JobError, match="the plan of the job is damaged; the same call resumes it"):
        cm.resume(tmp_path / "a")


def test_dead_jobs_are_discarded_and_running_ones_stay(tmp_path):
    source, target = interrupted(tmp_path)
    with leased(LocalStore(target), "g/a", "write 'g/a'"):
        assert "running: write 'g/a'" in CliRunner().invoke(main, ["jobs", "--discard", target]).stdout
        (job,) = cm.jobs(target)
        with pytest.raises(JobError, match="its client is alive"):
            job.discard()
        assert "_found" not in job.to_dict()
    assert CliRunner().invoke(main, ["jobs", "--discard", target]).stdout == "no unfinished jobs\n"
    cm.rechunk(source, target, chunks=(8, 2), strategy="spill")


def test_silent_clients_are_listed_without_waiting_and_watched_before_a_job_is_discarded(tmp_path, monkeypatch):
    _, target = interrupted(tmp_path)
    store = LocalStore(target)
    (job,) = cm.jobs(target)
    beat = dead_heartbeat(key="k").replace(b'"host": "', b'"host": "elsewhere-')
    store.set(f"{journal_prefix('')}running-x", beat)
    (job,) = cm.jobs(target)
    assert job.state == "running"
    assert job.silent_seconds > 1e8
    assert "\n  silent for  " in str(job)
    (problem,) = (each for each in cm.check(target, repair=True).problems if each.kind == "running")
    assert "silent for" in problem.reason
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.5)  # no sooner: two of them may pass before any line above
    job.discard()
    assert cm.jobs(target) == []


@pytest.mark.parametrize("said", [{"n_bytes": "x"}, {"seconds": [1], "stage": 5, "n_tasks": "7"}, {"host": {"a": 1}}])
def test_a_heartbeat_of_a_stranger_may_say_anything(store, said):
    store.set(f"{journal_prefix('a')}{PLAN}", json.dumps({"kind": "convert", "job": "j", "run": "1"}).encode())
    beat = {"seen": datetime.now(UTC).isoformat(), "pid": 1} | said
    store.set(f"{journal_prefix('a')}running-1-x", json.dumps(beat).encode())
    (job,) = cm.jobs(store)
    assert (job.state, job.client) == ("running", "process 1 on an unknown machine")
    assert "process 1" in str(job)


def test_the_last_heartbeat_of_two_is_told(store):
    store.set(f"{journal_prefix('a')}{PLAN}", json.dumps({"kind": "convert", "job": "j", "run": "1"}).encode())
    for n, stage in enumerate(("read", "write")):
        beat = {"seen": (datetime.now(UTC) - timedelta(seconds=2 - n)).isoformat(), "pid": n, "stage": stage}
        store.set(f"{journal_prefix('a')}running-1-{n}", json.dumps(beat).encode())
    assert cm.jobs(store)[0].stage == "write"
