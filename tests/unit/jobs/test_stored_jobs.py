"""Jobs of a store, as any process sees them."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from support.recording import FailingStore
from support.small_jobs import dead_heartbeat

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import JobError
from chunkmill.journal import heartbeat
from chunkmill.journal.lease import leased
from chunkmill.journal.plans import PLAN, journal_prefix
from chunkmill.stores.local import LocalStore

pytestmark = pytest.mark.usefixtures("one_thread")


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
    assert str(replace(job, job="\x1b[31m")).startswith(r"interrupted: \x1b[31m, begun 20")  # as a store may name it
    shown = CliRunner().invoke(main, ["jobs", target])
    assert (shown.exit_code, shown.stdout.splitlines()[0][:24]) == (0, "interrupted: rechunk to ")
    assert '"state": "interrupted"' in CliRunner().invoke(main, ["jobs", "--json", target]).stdout
    cm.rechunk(source, target, chunks=(8, 1), strategy="spill")
    assert cm.jobs(target) == []
    assert CliRunner().invoke(main, ["jobs", target]).stdout == "no unfinished jobs\n"


def test_a_resumed_report_counts_this_run_and_all_runs_apart(tmp_path):
    source, target = interrupted(tmp_path)
    report = cm.rechunk(source, target, chunks=(8, 1), strategy="spill")
    whole = cm.rechunk(source, tmp_path / "c", chunks=(8, 1), strategy="spill")
    assert whole.all_runs is None
    names = (
        "n_tasks",
        "bytes_read",
        "bytes_written",
        "bytes_temporary",
        "bytes_temporary_read",
        "n_requests",
        "n_keys",
    )
    assert {n: getattr(report.all_runs, n) for n in names} == {n: getattr(whole, n) for n in names}
    assert report.all_runs.actions == whole.actions == {"rechunk": 8}
    # the source was read by the first run, and the bytes of our own files are none of it
    assert report.bytes_temporary == 0
    assert report.bytes_read == report.bytes_temporary_read > 0
    assert "\n  read       0 B\n" in repr(report)
    assert "1 task of earlier runs, not in these counts; all runs together: read " in repr(report)


def test_running_and_dead(tmp_path, monkeypatch):
    store = LocalStore(tmp_path / "a")
    with leased(store, "g/a", "write 'g/a'"):
        (job,) = cm.jobs(tmp_path / "a")
        assert (job.state, job.path, job.job) == ("running", "g/a", "write 'g/a'")
        monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
        (job,) = cm.jobs(tmp_path / "a")
        assert job.state == "dead"


def test_a_running_job_says_how_far_it_is(tmp_path):
    with leased(LocalStore(tmp_path / "a"), "g/a", "write 'g/a'"):
        (job,) = cm.jobs(tmp_path / "a")
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
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 2.0)
    (job,) = cm.jobs(target)
    assert job.state == "running"
    assert job.silent_seconds > 1e8
    assert "\n  silent for  " in str(job)
    (problem,) = (each for each in cm.check(target, repair=True).problems if each.kind == "running")
    assert "silent for" in problem.reason
    job.discard()
    assert cm.jobs(target) == []
