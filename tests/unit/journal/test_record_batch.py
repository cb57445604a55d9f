"""Records of short tasks: stored some together, and what a job that is killed repeats."""

import dask
import pytest
from support.recording import RecordingStore
from support.small_jobs import journal_keys, make_job, put

from chunkmill.errors import JobError
from chunkmill.journal import record_batch
from chunkmill.journal.journal import Journal
from chunkmill.journal.record_batch import RecordBatch
from chunkmill.journal.records import Record
from chunkmill.runtime.job import run_job
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.zip import ZipStore

DONE = Record({}, ())


@pytest.fixture
def journal():
    made = Journal(MemoryStore(), "a/b", "put it", "plan")
    made.begin({})
    with made.running():
        yield made


def tasks_of(journal):
    return sorted(task for _, task, _ in journal.records.names())


def test_no_more_waits_than_a_quarter_of_a_second_of_work(journal):
    batch = RecordBatch(journal, 0)
    for task in range(3):
        batch.add(task, DONE, seconds=0.1 if task else 0.01)
        assert tasks_of(journal) == []
    batch.add(3, DONE, seconds=0.1)
    assert tasks_of(journal) == [0, 1, 2, 3]
    batch.add(4, DONE, seconds=0.01)
    assert tasks_of(journal) == [0, 1, 2, 3]
    batch.add(5, DONE, seconds=1000.0)  # a long one never waits
    assert tasks_of(journal) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_job_of_short_tasks_has_few_requests_for_records(scheduler):
    store = RecordingStore(MemoryStore())
    with dask.config.set(scheduler=scheduler):
        run_job(make_job(store, n=600))
    recorded = [key for method, key, _ in store.log if ".merged" in key and method == "set_if"]
    assert 3 <= len(recorded) <= 12
    assert [key for key in store.keys("set") if not key.startswith("data/")] == ["zarr.json"]


def test_a_job_that_is_killed_repeats_what_waits_and_no_more(monkeypatch):
    """Killed: nothing reaches the store any more; then, what was not on record is done again, and nothing else."""
    monkeypatch.setattr(record_batch, "BATCH_TASKS", 4)
    below = MemoryStore()

    class Written(RecordingStore):
        def written(self):
            return [key for key in self.keys("set") if key.startswith("data/")]

    class Killed(Written):
        dead = False

        def _before(self, method, key, byte_range=None):
            super()._before(method, key)
            self.dead = self.dead or (method == "set" and len(self.written()) > 10)
            if self.dead:
                raise KeyboardInterrupt

    with dask.config.set(scheduler="sync"):
        killed, again = Killed(below), Written(below)
        with pytest.raises(KeyboardInterrupt):
            run_job(make_job(killed, n=20))
        assert len(list(below.list_prefix("data/"))) == 10
        assert run_job(make_job(again, n=20)).n_resumed == 8
    assert set(again.written()) == {f"data/{n}" for n in range(20)} - set(killed.written()[:8])
    assert not journal_keys(below)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_what_was_done_is_on_record(error):
    store = MemoryStore()

    def fails(common, number):
        if len(list(store.list_prefix("data/"))) == 3:
            raise error
        return put(common, number)

    with dask.config.set(scheduler="sync"):
        with pytest.raises(error):
            run_job(make_job(store, function=fails))
        assert run_job(make_job(store)).n_resumed == 3


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_records_that_could_not_be_stored_are_stored_at_the_end(error, monkeypatch):
    class FailsOnce(RecordingStore):
        has_failed = False

        def _before(self, method, key, byte_range=None):
            super()._before(method, key)
            if ".merged" in key and method == "set_if" and not self.has_failed:
                self.has_failed = True
                raise error

    monkeypatch.setattr(record_batch, "BATCH_TASKS", 5)
    store = MemoryStore()
    with dask.config.set(scheduler="sync"):
        with pytest.raises(error):
            run_job(make_job(FailsOnce(store), n=20))
        assert run_job(make_job(store, n=20)).n_resumed == 5


def test_a_run_that_was_discarded_is_not_recorded(journal):
    batch = RecordBatch(journal, 0)
    batch.add(0, DONE, seconds=0.0)
    journal.discard()
    batch.__exit__(ZeroDivisionError)
    assert tasks_of(journal) == []


def test_a_client_whose_attempt_is_over_records_nothing_more(journal):
    batch = RecordBatch(journal, 0)
    batch.add(0, DONE, seconds=0.0)
    journal.heartbeat.end()
    with pytest.raises(JobError, match="the job has ended"):
        batch.store()
    assert tasks_of(journal) == []


def test_batches_of_one_group_are_merged_and_last_records_count(journal):
    batch = RecordBatch(journal, 0)
    for first in (0, 100, 50):
        for task in range(first, first + 60):
            batch.add(task, Record({"n": first}, ()), seconds=0.0)
        batch.store()
    files = journal.records
    assert len(files.names()) == 160
    assert len({key for *_, key in files.names()}) == 1
    assert [Record.unpack(files.read(0, task)).counts["n"] for task in (0, 50, 100, 109, 110)] == [0, 50, 50, 50, 100]


def test_a_zip_file_does_not_grow_by_merging(tmp_path):
    journal = Journal(ZipStore(tmp_path / "a.zip"), "a/b", "put it", "plan")
    journal.begin({})
    with journal.running(), RecordBatch(journal, 0) as batch:
        for task in range(9):
            batch.add(task, DONE, seconds=0.0)
    assert len({key for *_, key in journal.records.names()}) == 9
