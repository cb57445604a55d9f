"""The task of a stage in the process that runs it."""

import pickle
import sys

import pytest
from support.small_jobs import put

from chunkmill.journal.journal import Journal
from chunkmill.journal.records import read_record
from chunkmill.runtime import task as stage_task
from chunkmill.runtime.reference_shipping import ReferenceSender
from chunkmill.runtime.stage import TaskSpecs
from chunkmill.runtime.task import LocalStage, PackedStage, run_task
from chunkmill.stores.memory import MemoryStore


def test_specs_are_summed_up():
    counts, details, _ = run_task(LocalStage(put, MemoryStore(), None, 0), 0, [3, 4])
    assert (counts["n_keys"], counts["bytes_written"], counts["peak_x"], details) == (2, 7, 4, [])


def test_a_packed_stage_is_opened_once():
    packed = PackedStage.of(LocalStage(len, "abc", None, 7), None, None)
    there = pickle.loads(pickle.dumps(packed))
    assert there.open() is there.open()
    assert (there.open().number, there.open().common) == (7, "abc")
    assert there.open().open() is there.open()


@pytest.mark.parametrize("sends_references", [False, True])
def test_what_a_script_defines_is_packed_by_value(monkeypatch, sends_references):
    """Workers have another ``__main__``: a store or a codec of a notebook was not found there."""

    class Codec:
        level = 7

    Codec.__module__, Codec.__qualname__ = "__main__", "CodecOfScript"
    monkeypatch.setattr(sys.modules["__main__"], "CodecOfScript", Codec, raising=False)
    sender = ReferenceSender(lambda *_: [], None) if sends_references else None
    packed = PackedStage.of(LocalStage(len, Codec(), None, 0), None, sender)
    monkeypatch.delattr(sys.modules["__main__"], "CodecOfScript")
    assert packed.open().common.level == 7


class Interrupted(Exception):
    pass


class Puts:
    """Writes a key for each spec, and is interrupted at one."""

    def __init__(self, store, at=None):
        self.store, self.at, self.done = store, at, []

    def __call__(self, _, spec):
        if spec[1] == self.at:
            raise Interrupted
        self.done.append(spec[1])
        return put(self.store, spec[1])


@pytest.fixture
def journal():
    store = MemoryStore()
    journal = Journal(store, "a", "put it", "plan")
    journal.begin({})
    with journal.running():
        yield journal


def run(journal, puts, n=6):
    return run_task(LocalStage(puts, None, journal, 0), 0, TaskSpecs.counted([0, n])[:])


def test_a_long_task_resumes_within_itself(monkeypatch, journal):
    monkeypatch.setattr(stage_task, "_RECORD_BYTES", 3)
    with pytest.raises(Interrupted):
        run(journal, Puts(journal.store, at=5))
    assert journal.recall(0, 0) is None
    assert journal.begun(0, 0).upto == (1, 4)
    again = Puts(journal.store)
    counts, *_ = run(journal, again)
    assert again.done == [5]
    assert counts["n_keys"] == 1
    (key,) = (key for key in journal.store.list_prefix(journal.prefix + "0/"))
    record = read_record(journal.store.get(key))
    assert (record.upto, sorted(k for each in record.written for k in list(each.keys()))) == (
        None,
        [f"data/{i}" for i in range(6)],
    )


def test_no_more_than_so_many_bytes_or_seconds_are_repeated(monkeypatch, journal):
    with pytest.raises(Interrupted):
        run(journal, Puts(journal.store, at=5))
    assert journal.begun(0, 0) is None
    monkeypatch.setattr(stage_task, "_RECORD_SECONDS", 0.0)
    with pytest.raises(Interrupted):
        run(journal, Puts(journal.store, at=3))
    assert journal.begun(0, 0).upto == (1, 2)


def test_what_is_not_as_on_record_is_done_again(monkeypatch, journal):
    monkeypatch.setattr(stage_task, "_RECORD_BYTES", 3)
    with pytest.raises(Interrupted):
        run(journal, Puts(journal.store, at=5))
    journal.store.set("data/2", b"")
    again = Puts(journal.store)
    run(journal, again)
    assert again.done == list(range(6))
