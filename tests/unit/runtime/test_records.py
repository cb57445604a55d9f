"""Records of the tasks of a job that are done."""

import pytest

from chunkmill.runtime.journal import Journal, staged_prefix
from chunkmill.runtime.records import differences, records
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


def test_records_of_other_runs_are_left_out(store):
    journal = Journal(store, "a", "put it", "plan")
    journal.begin({})
    journal.record(0, 7, {}, {})
    store.set(f"{journal.prefix}0/8-another", b"{}")
    store.set(f"{journal.prefix}intermediate/{journal.run}/0/3", b"values")
    store.set(f"{staged_prefix('a', journal.run)}0/3", b"values")
    assert [(stage, task) for stage, task, _ in records(store, journal.prefix, journal.run)] == [(0, 7)]
    assert len(records(store, journal.prefix, "")) == 2


def test_a_record_that_cannot_be_read_is_a_difference(store):
    store.set("record", b"{")
    assert list(differences(store, "record")) == [("record", "the record is damaged")]
    assert list(differences(store, "absent")) == []
