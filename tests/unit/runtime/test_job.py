"""Running stages on the local schedulers, the journal, resuming, and what plans and reports show."""

import json
import threading
import time
from dataclasses import replace

import dask
import pytest
from recording import FailingStore, RecordingStore, SlowStore

from chunkmill.conversion.plan import JobCounts, Plan, PlannedStage
from chunkmill.errors import JobError, StoreError
from chunkmill.runtime import job as jobs
from chunkmill.runtime import scheduler as scheduling
from chunkmill.runtime import stage as stages
from chunkmill.runtime.job import Job, Stage, StageResult, TaskResult, run_job, run_stages
from chunkmill.runtime.journal import JOB_PREFIX, Journal, fingerprint
from chunkmill.runtime.progress import JobProgress
from chunkmill.runtime.unfinished_jobs import unfinished_jobs
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.metered import Meter, MeteredStore


@pytest.fixture(autouse=True, params=["sync", "threads"])
def scheduler(request):
    with dask.config.set(scheduler=request.param):
        yield request.param


@pytest.fixture
def store():
    return MemoryStore()


def put(store, number):
    """A task: one key of `number` bytes."""
    meter = Meter()
    MeteredStore(store, meter).set(f"data/{number}", bytes(number))
    return TaskResult.of(meter, n_keys=1, peak_x=number)


def make_job(store, *, n=5, mark="plan", prepare=lambda: {"doc": b"there"}, n_stages=1, function=put):
    def publish(documents):
        for key, value in documents.items():
            store.set(key, value)

    stages = [Stage(f"put-{i}", function, store, range(n)) for i in range(n_stages)]
    return Job("put it", store, "a/b", mark, (), (), prepare, lambda _: stages, publish)


def journal_keys(store):
    return [key for key in store.list_prefix("") if key.startswith(JOB_PREFIX)]


# --------------------------------------------------------------------------------------------------------------------
# Stages


def test_results_are_added_up(store):
    (result,) = run_stages([Stage("put", put, store, range(5))])
    assert result.n_tasks == 5
    assert result.counts["n_keys"] == 5
    assert result.counts["bytes_written"] == 0 + 1 + 2 + 3 + 4
    assert result.counts["peak_x"] == 4  # the largest
    assert result.counts["peak_memory_bytes"] > 1 << 20


def test_stages_follow_each_other(store):
    order = []

    def note(name, number):
        order.append(name)
        return TaskResult({}, details=[number])

    results = run_stages([Stage("one", note, "one", range(4)), Stage("two", note, "two", range(4))])
    assert order == ["one"] * 4 + ["two"] * 4
    assert sorted(results[0].details) == [0, 1, 2, 3]


def test_no_tasks(store):
    (result,) = run_stages([Stage("put", put, store, [])])
    assert result == StageResult("put", 0, 0, result.seconds, {}, [])


def test_waves(store, monkeypatch):
    monkeypatch.setattr(scheduling, "_WAVE", 3)
    (result,) = run_stages([Stage("put", put, store, range(10))])
    assert result.counts["n_keys"] == 10


def test_many_tasks_are_grouped(store, monkeypatch):
    monkeypatch.setattr(stages, "MAX_TASKS", 4)
    result = run_job(make_job(store, n=10))
    assert result.n_tasks == 4  # of three specs each, and the rest
    assert result.counts["n_keys"] == 10


def test_an_error_is_the_task_s_own(store):
    failing = FailingStore(store, every=3, methods=["set"])
    with pytest.raises(StoreError, match="injected failure") as caught:
        run_stages([Stage("put", put, failing, range(5))])
    assert caught.value.key == "data/2" or dask.config.get("scheduler") == "threads"


def test_keys_are_readable_on_the_dashboard():
    from dask.utils import key_split

    wave = scheduling._Wave("rechunk-spill", put, None)
    _, (key,) = wave.graph([(1,)])
    assert key_split(key) == "rechunk-spill"
    assert key_split(wave.common_key) == "rechunk-spill-common"


# --------------------------------------------------------------------------------------------------------------------
# Jobs and their journals


def test_success_leaves_nothing_but_the_target(store):
    result = run_job(make_job(store))
    assert sorted(store.list_prefix("")) == ["data/0", "data/1", "data/2", "data/3", "data/4", "doc"]
    assert (result.n_tasks, result.n_resumed) == (5, 0)


def test_the_target_appears_last(store):
    recording = RecordingStore(store)
    run_job(make_job(recording))
    written = [key for key in recording.keys("set") if not key.startswith(JOB_PREFIX)]
    assert written[-1] == "doc"


def test_a_record_follows_its_data(store):
    recording = RecordingStore(store)
    with dask.config.set(scheduler="sync"):
        run_job(make_job(recording, n=2))
    sets = recording.keys("set", "set_if")
    prefix = Journal(store, "a/b", "", "").prefix
    (record,) = [key for key in sets if key.startswith(f"{prefix}0/0-")]
    assert sets.index("data/0") < sets.index(record) < sets.index("doc")
    assert sets[0] == f"{prefix}plan.json"


def test_resume_skips_what_is_on_record(store):
    failing = FailingStore(store, every=4, methods=["set"], times=1)
    with pytest.raises(StoreError):
        run_job(make_job(failing))
    assert "doc" not in store.list_prefix("")
    n_recorded = len(Journal(store, "a/b", "", "").done())
    prepared = []
    recording = RecordingStore(store)
    result = run_job(make_job(recording, prepare=lambda: prepared.append(1) or {}))
    assert result.n_resumed == n_recorded
    assert result.counts["n_keys"] == 5 - n_recorded
    assert not prepared
    assert len([key for key in recording.keys("set") if key.startswith("data/")]) == 5 - n_recorded
    assert store.get("doc") == b"there"  # as the first run was to write it
    assert not journal_keys(store)


def test_resume_across_stages(store):
    job = make_job(store, n_stages=2)
    failing = FailingStore(store, every=13, methods=["set"], times=1)  # the plan, 5 tasks with records, one more
    with pytest.raises(StoreError):
        run_job(make_job(failing, n_stages=2))
    result = run_job(job)
    assert result.stages[0].n_resumed == 5
    assert result.stages[1].n_resumed < 5
    assert not journal_keys(store)


def test_publishing_is_repeated(store):
    failing = FailingStore(store, every=1, methods=["set"], times=0)
    job = make_job(failing)
    with pytest.raises(ZeroDivisionError):
        run_job(Job(*[getattr(job, name) for name in Job.__dataclass_fields__][:8], lambda _: 1 / 0))
    result = run_job(job)
    assert result.n_resumed == 5
    assert store.get("doc") == b"there"


@pytest.mark.parametrize("n_deletes", range(6))
def test_a_job_that_was_killed_while_it_tidied_up_is_done(store, n_deletes):
    """What is left is the journal; who runs the job again, with it or without, is told so or begins anew."""
    values = {}

    class Killed(RecordingStore):
        def _before(self, method, key, byte_range=None):
            super()._before(method, key)
            if values and method.startswith("delete") and len(self.keys("delete", "delete_prefix")) > n_deletes:
                raise KeyboardInterrupt

    def publish(documents):
        values.update(documents)
        store.set("doc", documents["doc"])

    job = replace(make_job(Killed(store), function=put), publish=publish)
    job = replace(job, stages=lambda _: [Stage("put", put, store, range(5))])
    try:
        run_job(job)
    except KeyboardInterrupt:
        assert n_deletes < 5
    values.clear()
    result = run_job(replace(job, store=store))
    assert result.n_tasks == 5
    assert result.n_resumed in {0, 5}
    assert not journal_keys(store)
    assert {key for key in store.list_prefix("") if key.startswith("data")} == {f"data/{n}" for n in range(5)}


def test_what_is_on_record_is_forgotten_before_it_is_deleted(store):
    """Else a job that begins anew, and is cut off while it makes room, would leave records of what is gone."""
    with pytest.raises(StoreError):
        run_job(make_job(FailingStore(store, every=8, methods=["set"])))
    assert Journal(store, "a/b", "", "").done()

    def prepare():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(make_job(store, prepare=prepare), resume=False)
    assert not unfinished_jobs(store)


def test_restart_forgets(store):
    with pytest.raises(StoreError):
        run_job(make_job(FailingStore(store, every=8, methods=["set"], times=1)))
    result = run_job(make_job(store), resume=False)
    assert result.n_resumed == 0
    assert not journal_keys(store)


def test_another_plan_is_refused(store):
    with pytest.raises(StoreError):
        run_job(make_job(FailingStore(store, every=8, methods=["set"], times=1)))
    with pytest.raises(JobError, match=r"another plan.*resume=False") as caught:
        run_job(make_job(store, mark="other"))
    assert "put it" in str(caught.value)
    run_job(make_job(store, mark="other"), resume=False)
    assert not journal_keys(store)


def test_a_damaged_journal_is_refused(store):
    store.set(Journal(store, "a/b", "", "").plan_key, b"{")
    with pytest.raises(JobError, match="damaged"):
        run_job(make_job(store))
    run_job(make_job(store), resume=False)


def test_a_repeated_task_sees_its_record(store):
    journal = Journal(store, "a/b", "put it", "plan")
    journal.begin({})
    shared = jobs._Stage(put, store, journal, 0)
    with journal.running():
        first, _ = jobs.run_task(shared, 3, [3])
        store.delete("data/3")
        again, _ = jobs.run_task(shared, 3, [3])
    assert again == first | {"n_repeated": 1}
    assert store.get("data/3") is None  # returned at once


def test_a_record_says_what_was_written(store):
    journal = Journal(store, "a/b", "put it", "plan")
    journal.begin({})
    with journal.running():
        jobs.run_task(jobs._Stage(put, store, journal, 1), 9, [3])
    record = json.loads(store.get(f"{journal.prefix}1/9-{journal.run}"))
    assert record["keys"] == {"data/3": [3, 0x6064A37A]}
    assert record["counts"]["bytes_written"] == 3


def test_late_tasks_of_a_job_that_was_given_up(store):
    """They may be at work on another machine when the next job begins: they speak for nobody."""
    old = Journal(store, "a/b", "put it", "plan")
    old.begin({})
    new = Journal(store, "a/b", "put it", "plan")
    with pytest.raises(JobError, match="another job has begun"):
        new.begin({})
    with old.running():
        new.discard()
        new.begin({})
        with new.running():
            old.record(0, 3, {"n_keys": 1}, {})
            assert new.done() == set()
            assert new.recall(0, 3) is None
            with pytest.raises(JobError, match="was replaced by another one; this result is discarded"):
                jobs.run_task(jobs._Stage(put, store, old, 0), 4, [4])
            assert store.get("data/4") is None
        new.finish()
        with pytest.raises(JobError, match="the job has ended"):
            new.recall(0, 4)
    resumed = Journal(store, "a/b", "put it", "plan")
    assert resumed.resume() is None


def test_a_job_that_another_process_ended_leaves_nothing(store):
    """Two ran the same job: the second joined the first, which then was done first."""

    def ended(common, number):
        result = put(common, number)
        if number == 3:
            first = Journal(store, "a/b", "put it", "plan")
            first.resume()
            first.finish()
        return result

    with pytest.raises(JobError, match="the job has ended"):
        run_job(make_job(store, n=9, function=ended))
    assert not journal_keys(store)


def test_a_run_goes_on_under_its_name(store):
    journal = Journal(store, "a/b", "put it", "plan")
    journal.begin({"doc": b"x"})
    journal.record(0, 3, {"n_keys": 1}, {})
    again = Journal(store, "a/b", "put it", "plan")
    assert again.resume() == {"doc": b"x"}
    assert (again.run, again.done(), again.recall(0, 3)) == (journal.run, {(0, 3)}, {"n_keys": 1})


@pytest.mark.parametrize("seconds", [0, 2e-4], ids=["fast files", "slow files"])
def test_values_that_are_not_as_on_record_are_written_again(store, seconds):
    """Of many: looked at by one thread, by many where files are slow."""
    n = 700
    journal = Journal(store, "a/b", "put it", "plan")
    journal.begin({})
    with journal.running():
        for number in range(n):
            jobs.run_task(jobs._Stage(put, store, journal, 0), number, [number])
    store.set("data/3", b"torn")
    store.delete("data/600")
    store.set(f"{journal.prefix}0/650-{journal.run}", b"{")
    threads = set()

    class Watched(SlowStore):
        def _before(self, method, key, byte_range=None):
            threads.add(threading.get_ident())
            super()._before(method, key, byte_range)

    again = Journal(Watched(store, seconds), "a/b", "put it", "plan")
    again.resume()
    assert {(0, number) for number in range(n)} - again.done() == {(0, 3), (0, 600), (0, 650)}
    assert bool(seconds) < len(threads) <= 17
    with again.running():
        assert again.recall(0, 3) is None  # its record is gone


def test_nothing_is_on_record_when_there_is_no_room(store):
    def prepare():
        raise FileExistsError

    with pytest.raises(FileExistsError):
        run_job(make_job(store, prepare=prepare))
    assert not list(store.list_prefix(""))


def test_interrupted(store):
    def interrupt(store, number):
        if number == 3:
            raise KeyboardInterrupt
        return put(store, number)

    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        run_job(make_job(store, function=interrupt))
    assert [job.job for job in unfinished_jobs(store)] == ["put it"]
    n_recorded = len(Journal(store, "a/b", "", "").done())
    assert run_job(make_job(store)).n_resumed == n_recorded
    assert not unfinished_jobs(store)


def test_journals_of_different_paths_do_not_meet(store):
    prefixes = {Journal(store, path, "", "").prefix for path in ("", "a", "a/b", "a%2Fb")}
    assert len(prefixes) == 4
    assert all(prefix.count("/") == 1 for prefix in prefixes)


def test_fingerprints_are_of_values():
    assert fingerprint((1, "a"), {"x": 2}) == fingerprint((1, "a"), {"x": 2})
    assert fingerprint((1, "a")) != fingerprint((1, "b"))


# --------------------------------------------------------------------------------------------------------------------
# For people


def make_plan(store):
    costs = JobCounts(
        n_tasks=5, bytes_read=1 << 20, bytes_written=1 << 10, n_requests=9, actions={"copy": 4, "recode": 1}
    )
    stage = PlannedStage("put-0", 5, 1 << 20, 1 << 10, 9)
    rows = [{"array": f"<a{i}>", "action": "copy"} for i in range(50)]
    return Plan("convert", "here", "there", "copy", "because", costs, (stage,), make_job(store), rows, "<svg/>")


def test_a_plan_shows_itself(store):
    plan = make_plan(store)
    text = repr(plan)
    for part in ("here", "there", "copy: because", "1.00 MiB", "copy 4, recode 1", "put-0", "<a0>", "… and 10 more"):
        assert part in text
    html = plan._repr_html_()
    assert "&lt;a0&gt;" in html
    assert "<a0>" not in html
    assert "<svg/>" in html


def test_columns_are_attributes(store):
    plan = make_plan(store)
    assert (plan.n_tasks, plan.n_requests, plan.actions["copy"]) == (5, 9, 4)
    with pytest.raises(AttributeError, match="'Plan' object has no attribute 'n_thinks'"):
        plan.n_thinks  # noqa: B018
    as_dict = plan.to_dict()
    assert as_dict["n_tasks"] == 5
    assert as_dict["stages"][0]["name"] == "put-0"
    assert not {"job", "drawing", "costs"} & as_dict.keys()
    json.dumps(as_dict)


def test_a_report_is_measured(store):
    report = make_plan(store).run(progress=False)
    assert (report.n_tasks, report.n_keys, report.bytes_written) == (5, 5, 10)
    assert report.stages[0].seconds is not None
    assert report.seconds > 0
    json.dumps(report.to_dict())
    assert "convert: done" in repr(report)
    assert "<table>" in report._repr_html_()


@pytest.mark.parametrize(
    ("configured", "given", "shown"),
    [("auto", None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_progress_is_silent_unless_looked_at(store, capsys, configured, given, shown):
    with dask.config.set({"chunkmill.progress": configured}):
        run_job(make_job(store), progress=given)
    assert ("put-0" in capsys.readouterr().err) is shown


def test_progress_counts_what_was_done_before(capsys):
    with JobProgress(True) as bars:
        bars.begin("convert", 10, 4)
        bars.advance({"bytes_read": 2048, "bytes_written": 2048})
    assert "5/10 tasks" in capsys.readouterr().err


def test_what_runs_beside_a_failure_is_waited_for(store):
    ended = []

    def work(store, number):
        if number:
            time.sleep(0.3)
            ended.append(number)
            return TaskResult({})
        raise ValueError

    with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(ValueError):
        run_stages([Stage("work", work, store, range(2))])
    assert ended == [1]
