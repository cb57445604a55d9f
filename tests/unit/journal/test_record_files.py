"""Where records are kept, and the merging of neighbours: whoever dies or does the same meanwhile."""

import google_crc32c
import pytest
from support.recording import RecordingStore

from chunkmill.journal.journal import Journal
from chunkmill.journal.names import staged_prefix
from chunkmill.journal.record_files import GROUP, RecordFiles
from chunkmill.journal.records import Record, WrittenKeys
from chunkmill.stores.memory import MemoryStore

N = 40  # records, in two groups


@pytest.fixture
def store():
    return MemoryStore()


def record(task, value=b"old"):
    return Record(
        {"n_keys": task}, tuple(WrittenKeys.of({f"a/{task}": (len(value), google_crc32c.value(value))}))
    ).pack()


def files_of(store):
    return RecordFiles(store, "job/", "r1")


def put(store):
    files = files_of(store)
    for task in range(GROUP - N // 2, GROUP + N // 2):
        store.set(files.key(0, task), record(task))
        store.set(f"a/{task}", b"old")
    return files


def on_record(files):
    names = {task: key for _, task, key in files.names()}
    for task, key in names.items():
        assert files.read(0, task) == files.read_at(key, task)
    assert dict(files.read_many(0, sorted(names))) == {task: files.read(0, task) for task in names}
    return {task: files.read(0, task) for task in names}


class Interrupted(MemoryStore):
    """Calls something before the write of one number, and reads or lists nothing else."""

    def __init__(self, number, function):
        super().__init__()
        self.number, self.function = number, function

    def set_if(self, key, value, version):
        self._step()
        done = super().set_if(key, value, version)
        self._step()
        return done

    def get_versioned(self, key):
        self._step()
        return super().get_versioned(key)

    def _step(self):
        self.number -= 1
        if self.number == -1:
            self.function()


class Died(Exception):
    pass


def die():
    raise Died


def steps():
    """Return the number of steps of a merge, between which others may do anything."""
    store = Interrupted(10**9, die)
    put(store).merge(0)
    return 10**9 - store.number


STEPS = steps()


def test_a_merge_takes_the_objects_of_neighbours_together(store):
    files = put(store)
    before = on_record(files)
    files.merge(0)
    assert len(list(store.list_prefix("job/"))) == 2
    assert on_record(files) == before
    recording = RecordingStore(store)
    files_of(recording).merge(0)
    assert not recording.keys("set_if")
    store.set("job/0/0-r1.merged", b"torn")
    assert {task for task in before if task >= GROUP} == on_record(files).keys()


@pytest.mark.parametrize("at", range(0, STEPS, 3))
def test_a_client_that_dies_while_it_merges_loses_nothing(at):
    store = Interrupted(at, die)
    before = on_record(files := put(store))
    with pytest.raises(Died):
        files.merge(0)
    assert on_record(files) == before
    files.merge(0)
    assert on_record(files) == before


def test_two_clients_merge_at_once():
    for at in range(STEPS):
        store = Interrupted(at, lambda: files.merge(0))
        before = on_record(files := put(store))
        files.merge(0)
        assert on_record(files) == before
        assert len(list(store.list_prefix("job/"))) == 2


@pytest.mark.parametrize("again", [False, True])
def test_what_is_forgotten_while_others_merge_does_not_come_back(again):
    """Its values are gone; the task that is done again, or not, must not be believed by what was read before."""
    task, new = GROUP + 2, record(GROUP + 2, b"new one")

    def forget():
        files.forget(0, [task])
        if again:
            store.set(files.key(0, task), new)
            files.merge(0)

    for at in range(STEPS):
        store = Interrupted(at, forget)
        before = on_record(files := put(store))
        files.merge(0)
        files.merge(0)
        assert on_record(files) == {**before, task: new} if again else before.keys() - {task}
        assert on_record(files).get(task) == (new if again else None)


def test_false_records_are_forgotten(store):
    files = put(store)
    files.merge(0)
    tasks = range(GROUP - N // 2, GROUP + N // 2)
    store.set(f"a/{GROUP}", b"torn value")
    store.delete(f"a/{GROUP + 1}")
    assert files.false_ones(0, [*tasks, 999], lambda _, record: record.holds(files.store)) == [GROUP, GROUP + 1, 999]
    assert on_record(files).keys() == set(tasks) - {GROUP, GROUP + 1}
    assert files.that_hold() == {(0, task) for task in tasks} - {(0, GROUP), (0, GROUP + 1)}


def test_records_of_other_runs_are_left_out(store):
    journal = Journal(store, "a", "put it", "plan")
    journal.begin({})
    journal.record(0, 7, {}, {})
    store.set(f"{journal.prefix}0/8-another", b"{}")
    store.set(f"{journal.prefix}0/9-{journal.run}.begun", b"{}")
    store.set(f"{journal.prefix}intermediate/{journal.run}/0/3", b"values")
    store.set(f"{staged_prefix('a', journal.run)}0/3", b"values")
    assert [(stage, task) for stage, task, _ in journal.records.names()] == [(0, 7)]
    assert len(RecordFiles(store, journal.prefix, "").names()) == 2


def test_a_record_that_cannot_be_read_is_a_difference(store):
    store.set("record", b"{")
    files = files_of(store)
    assert list(files.differences("record", 0)) == [("record", "the record is damaged")]
    assert list(files.differences("absent", 0)) == []
