"""Jobs that have not ended: found, refused, discarded."""

import pytest
from recording import RecordingStore

from chunkmill.errors import JobError
from chunkmill.runtime.journal import Journal
from chunkmill.runtime.unfinished_jobs import (
    check_no_job,
    discard_block_write,
    discard_jobs,
    jobs_at,
    unfinished_jobs,
)
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def store():
    return RecordingStore(MemoryStore())


def begin(store, path, **kwargs):
    journal = Journal(store, path, f"write to {path!r}", "plan", **kwargs)
    journal.begin({})
    return journal


def test_where_jobs_are_met(store):
    for path in ("a", "a/b/c", "ab"):
        begin(store, path)
    assert [job.path for job in jobs_at(store, "a/b")] == ["a"]
    assert {job.path for job in jobs_at(store, "a/b", below=True)} == {"a", "a/b/c"}
    assert {job.path for job in jobs_at(store, "a/b/c", "ab")} == {"a", "a/b/c", "ab"}
    assert jobs_at(store, "") == jobs_at(store, "c") == []
    assert {job.path for job in jobs_at(store, "", below=True)} == {"a", "a/b/c", "ab"}


def test_looking_costs_one_request_for_each_group(store):
    check_no_job(store, "a/b/c")
    assert [method for method, _, _ in store.log] == ["get"] * 4
    store.clear()
    check_no_job(store, "a/b/c", overwrite=True)
    assert [method for method, _, _ in store.log] == ["list_dir"]


def test_an_interrupted_job_is_refused_and_its_way_out_told(store):
    begin(store, "a")
    for overwrite, hint in ((None, False), (False, True)):
        with pytest.raises(JobError, match=r"was interrupted: \"write to 'a'\", begun 20.*resume=False") as caught:
            check_no_job(store, "a/b", overwrite=overwrite)
        assert ("overwrite=True discards it" in str(caught.value)) is hint


def test_a_running_job_is_refused_by_those_who_overwrite_too(store):
    journal = begin(store, "a/b")
    with journal.running(), pytest.raises(JobError, match=r"is running.*wait until it is done"):
        check_no_job(store, "a", overwrite=True)
    assert [job.path for job in check_no_job(store, "a", overwrite=True)] == ["a/b"]


def test_overwriting_part_of_what_a_job_writes_discards_nothing(store):
    begin(store, "a")
    with pytest.raises(JobError, match="was interrupted"):
        check_no_job(store, "a/b", overwrite=True)


def test_discarding(store):
    begin(store, "a").record(0, 1, {}, {})
    discard_jobs(store, jobs_at(store, "a"))
    assert list(store.list_prefix("")) == []


def test_only_block_writes_that_nobody_runs_are_discarded_unasked(store):
    begin(store, "a")
    blocks = begin(store, "b", is_block_write=True)
    begin(store, "", is_block_write=True)
    with blocks.running():
        discard_block_write(store, "b")
        assert len(unfinished_jobs(store)) == 3
    discard_block_write(store, "a")
    discard_block_write(store, "b")
    assert {job.path for job in unfinished_jobs(store)} == {"", "a"}


def test_a_damaged_plan_is_an_unfinished_job(store):
    store.set(Journal(store, "a", "", "").plan_key, b"{")
    (job,) = unfinished_jobs(store)
    assert (job.path, job.is_running) == ("", False)
    with pytest.raises(JobError, match="was interrupted"):
        check_no_job(store, "a")
