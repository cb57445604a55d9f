"""The task of a stage in the process that runs it."""

import pickle

from small_jobs import put

from chunkmill.runtime.stage_task import LocalStage, PackedStage, run_task
from chunkmill.stores.memory import MemoryStore


def test_specs_are_summed_up():
    counts, details = run_task(LocalStage(put, MemoryStore(), None, 0), 0, [3, 4])
    assert (counts["n_keys"], counts["bytes_written"], counts["peak_x"], details) == (2, 7, 4, [])


def test_a_packed_stage_is_opened_once():
    packed = PackedStage.of(LocalStage(len, "abc", None, 7), None, None)
    there = pickle.loads(pickle.dumps(packed))
    assert there.open() is there.open()
    assert (there.open().number, there.open().common) == (7, "abc")
    assert there.open().open() is there.open()
