"""Running jobs: stages, results, resuming; the plan that is stored is the one that runs (P7)."""

from dataclasses import dataclass, replace
from unittest.mock import Mock

import dask
import pytest
from support.cases import cases
from support.rechunks import check, make
from support.recording import FailingStore, RecordingStore
from support.small_jobs import SmallTasks, SmallWork, journal_keys, make_job, put

import chunkmill as cm
from chunkmill.errors import ChunkError, JobCancelled, JobError, StoreError
from chunkmill.jobs import job as jobs
from chunkmill.jobs import plan as shown
from chunkmill.jobs.job import Job, run_job
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import Plan, journal_prefix
from chunkmill.journal.records import Records
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.runtime import task as stage_task
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import Stage
from chunkmill.runtime.stage_runner import JobMonitor, run_stages
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore


def test_results_are_added_up(store):
    (result,) = run_stages([Stage("put", put, store, range(5))], JobMonitor("job"), Scheduler())
    assert result.n_tasks == 5
    assert result.counts["n_keys"] == 5
    assert result.counts["bytes_written"] == 0 + 1 + 2 + 3 + 4
    assert result.counts["peak_x"] == 4  # the largest
    assert result.counts["peak_memory_bytes"] > 1 << 20


def test_a_record_follows_its_data(store):
    recording = RecordingStore(store)
    with dask.config.set(scheduler="sync"):
        run_job(make_job(recording, n=2))
    sets = recording.keys("set", "set_if")
    prefix = Journal(store, Plan("a/b", "", "")).prefix
    (record,) = [key for key in sets if key.startswith(f"{prefix}0/0-")]
    assert sets.index("data/0") < sets.index(record) < sets.index("zarr.json")
    assert sets.index(f"{prefix}plan.json") < sets.index("data/0")


def test_the_memory_of_a_run_without_tasks_is_that_of_none(store):
    with pytest.raises(ZeroDivisionError):
        run_job(make_job(store, publishing=lambda _: 1 // 0))
    result = run_job(make_job(store))
    assert (result.n_resumed, "peak_memory_bytes" in result.counts) == (5, False)


def test_resume_skips_what_is_on_record(store):
    failing = FailingStore(store, every=4, methods=["set"], times=1)
    with pytest.raises(StoreError):
        run_job(make_job(failing))
    assert "zarr.json" not in store.list_prefix("")
    n_recorded = len(Records(store, journal_prefix("a/b"), "").names())
    prepared = []
    recording = RecordingStore(store)
    result = run_job(make_job(recording, room=lambda: prepared.append(1)))
    assert result.n_resumed == n_recorded
    assert result.counts["n_keys"] == 5 - n_recorded
    assert not prepared
    assert len([key for key in recording.keys("set") if key.startswith("data/")]) == 5 - n_recorded
    assert store.get("zarr.json") == b"there"
    assert not journal_keys(store)


def test_what_is_on_record_is_forgotten_before_it_is_deleted(store):
    """Else a job that begins anew, and is cut off while it makes room, would leave records of what is gone."""
    with pytest.raises(StoreError):
        run_job(make_job(FailingStore(store, every=4, methods=["set"])))
    assert Records(store, journal_prefix("a/b"), "").names()

    def room():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(make_job(store, room=room), resume=False)
    assert not unfinished_jobs(store)


@pytest.mark.parametrize("is_own", [True, False])
def test_of_a_damaged_plan_the_records_of_the_job_are_used(store, is_own):
    """They were dropped, with the hours that they stand for."""

    def interrupt(store, number):
        if number == 3:
            raise KeyboardInterrupt
        return put(store, number)

    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        run_job(make_job(store, function=interrupt))
    n_recorded = len(Records(store, journal_prefix("a/b"), "").names())
    store.set(Journal(store, Plan("a/b", "", "")).plan_key, b"")
    result = run_job(make_job(store, mark="plan" if is_own else "other"))
    assert (result.stages[0].n_tasks, result.n_resumed) == (5, n_recorded if is_own else 0)
    assert [len(store.get(f"data/{i}")) for i in range(5)] == list(range(5))
    assert not journal_keys(store)


def test_a_repeated_task_sees_its_record(store):
    journal = Journal(store, Plan("a/b", "put it", "plan"))
    journal.begin()
    shared = stage_task.LocalStage(put, store, journal, 0)
    with journal.running():
        first, *_ = stage_task.run_task(shared, 3, [3])
        store.delete("data/3")
        again, *_ = stage_task.run_task(shared, 3, [3])
    assert again == first | {"n_repeated": 1}
    assert store.get("data/3") is None  # returned at once


def test_a_job_that_another_process_ended_leaves_nothing(store):
    """Two ran the same job: the second joined the first, which then was done first."""

    def ended(common, number):
        result = put(common, number)
        if number == 3:
            first = make_job(store, n=9).journal()
            first.resume()
            first.finish()
        return result

    with pytest.raises(JobError, match="the job has ended"):
        run_job(make_job(store, n=9, function=ended))
    assert not journal_keys(store)


def test_nothing_is_on_record_when_there_is_no_room(store):
    def room():
        raise FileExistsError

    with pytest.raises(FileExistsError):
        run_job(make_job(store, room=room))
    assert not list(store.list_prefix(""))


@dataclass(frozen=True, kw_only=True)
class Fitted(SmallWork):
    """A task for each thread of a worker, which holds a part of its memory."""

    def fit(self, worker, choices=None):
        n = worker.n_threads if choices is None else choices["n"]
        stages = [Stage("put", put, self.target.store, range(n))]
        return SmallTasks(numbered=n, task_bytes=worker.max_mem // n, choices={"n": n}, given=stages)


def fitted(store, worker):
    known = make_job(store).work
    work = Fitted(operation="put", name="put it", sources=(), target=known.target, mark="plan", tasks=known.tasks)
    return Job.fitted(work, worker)


@pytest.fixture
def unfinished():
    """A store with an unfinished job of eight tasks, each of which holds 100 bytes."""
    store = MemoryStore()
    with dask.config.set(scheduler="sync"), pytest.raises(StoreError):
        run_job(fitted(FailingStore(store, every=4, methods=["set"], times=1), Worker(800, 8, 1)))
    return store


@pytest.mark.parametrize(
    ("worker", "most"), [(Worker(300, 4, 1), 3), (Worker(5000, 2, 7), None), (Worker(60, 1, 1), None)]
)
def test_a_job_resumes_as_it_was_fitted_when_it_began(unfinished, worker, most, caplog):
    job = fitted(unfinished, worker)
    begun = job.unfinished()
    assert (begun.tasks.numbered, begun.worker, begun.at_once) == (8, Worker(800, 8, 1), most)
    with caplog.at_level("INFO"):
        result = run_job(job)
    assert "put it: resumes a plan that was made for other workers" in caplog.messages
    assert result.stages[0].n_tasks == 8
    assert result.n_resumed > 0


@pytest.mark.parametrize("worker", [Worker(40, 1, 1), Worker(99, 1, 1, is_asked=True)])
def test_workers_that_hold_no_task_are_told_how_much_one_needs(unfinished, worker):
    with pytest.raises(
        JobError, match=r"holds 100 bytes, planned with max_mem 800, and max_mem is \d+ now.*max_mem=100"
    ):
        run_job(fitted(unfinished, worker))
    said = str(shown.Plan.at_target(Mock(job=fitted(unfinished, worker))))
    assert said.startswith("an unfinished job of another plan, so that this fails; resume=False")


def test_the_error_of_a_task_that_learns_first_that_its_job_is_cancelled_says_so(store, monkeypatch):
    monitor = JobMonitor("put it")
    monkeypatch.setattr(jobs, "JobMonitor", lambda *_: monitor)

    def learns(*_):
        monitor.cancel()
        raise StoreError(url="", key="", reason="gone")

    with dask.config.set(scheduler="sync"), pytest.raises(JobCancelled, match="put it: it was cancelled") as caught:
        run_job(make_job(store, function=learns))
    assert "the job has ended" in str(caught.value.__cause__)


@pytest.mark.parametrize("choices", [{}, {"n": 8}, {"worker": "ab", "n": 8}, {"worker": [1, 2], "n": 0}])
def test_a_plan_whose_choices_are_damaged_is_another_one(unfinished, choices):
    job = fitted(unfinished, Worker(5000, 2, 1))
    journal = job.journal()
    journal.has_this_plan()
    plan = replace(journal.other, choices=choices)
    unfinished.set(journal.plan_key, plan.packed())
    assert job.unfinished() is False
    with pytest.raises(JobError, match="another plan"):
        run_job(job)


@cases(
    ("again", "says"),
    [
        ({"strategy": None}, "strategy spill where this call has None"),
        ({"strategy": "direct"}, "strategy spill where this call has direct"),
        ({"overwrite": True}, "overwrite False where this call has True"),
        ({"temp": "memory://elsewhere"}, "temp None where this call has memory://elsewhere"),
        ({"chunks": (20, 2)}, r"chunks \(40, 1\) where this call has \(20, 2\)"),
    ],
)
def test_another_option_is_another_plan_and_named(again, says):
    """Where both options led to the same tasks, a resumed job took the first one without a word."""
    array, values = make(MemoryStore(), shape=(40, 40), chunks=(1, 40))
    store, options = MemoryStore(), {"chunks": (40, 1), "strategy": "spill"}
    with pytest.raises((StoreError, ChunkError)):
        cm.rechunk(array, FailingStore(store, every=9, methods=["set", "set_if"], times=1), **options)
    at_target = cm.plan_rechunk(array, store, **options | again).at_target()
    assert at_target.endswith("another plan, so that this fails; resume=False (of plan.run, or to_store) discards it")
    with pytest.raises(JobError, match=rf"{says}; give resume=False .* or finish it with its own arguments"):
        cm.rechunk(array, store, **options | again)
    cm.rechunk(array, store, **options)
    check(store, values, "")


def test_another_option_of_a_later_array_is_named():
    source, store = MemoryStore(), MemoryStore()
    for name in "ab":
        cm.create_array(source, name, shape=(8,), dtype="i4", chunks=(2,))[...] = 7
    with pytest.raises((StoreError, ChunkError)):
        cm.convert(source, FailingStore(store, every=4, methods=["set"]), format="zarr3", chunks={"a": (4,)})
    with pytest.raises(JobError, match=r"'b': \(2,\)} where this call has {'a': \(4,\), 'b': \(4,\)}"):
        cm.convert(source, store, format="zarr3", chunks=(4,))
