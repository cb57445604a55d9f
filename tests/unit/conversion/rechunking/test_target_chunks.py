"""The tasks that write the target chunks of a block."""

import numpy as np
import pytest
from support.rechunks import make
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.conversion.rechunking.target_chunks import write_target_block
from chunkmill.stores.memory import MemoryStore


def run(array, target, **options):
    plan = cm.plan_rechunk(array, target, chunks=(4, 4), strategy="direct", **options)
    (stage,) = stages_of(plan, "1")
    return plan, [write_target_block(stage.common, spec) for spec in stage.tasks]


def test_a_task_writes_its_chunks_and_counts_them():
    array, values = make(MemoryStore(), shape=(12, 12), chunks=(2, 12), absent=[(0, 0), (1, 0)], fill_value=-1)
    plan, results = run(array, target := MemoryStore())
    assert sum(result.counts["n_keys"] for result in results) == 9
    assert sum(result.counts["action_rechunk"] for result in results) == 6
    assert sum(result.counts["action_absent"] for result in results) == 3
    assert sum(result.counts["n_elements_owned"] for result in results) == values.size
    plan.job.target.publish()
    np.testing.assert_array_equal(cm.open_array(target)[...], values)
    assert {key for result in results for key in result.writes} == {f"c/{i}/{j}" for i in (1, 2) for j in range(3)}


def test_what_is_there_is_deleted_where_the_source_is_absent():
    array, _ = make(MemoryStore(), shape=(12, 12), chunks=(4, 12), absent=[(0, 0)])
    target = cm.create_array(MemoryStore(), shape=(12, 12), dtype="i4", chunks=(4, 4))
    target[...] = 9
    plan = cm.plan_rechunk(array, target, chunks=None, strategy="direct")
    (stage,) = stages_of(plan, "1")
    for spec in stage.tasks:
        write_target_block(stage.common, spec)
    assert sorted(target.store.list_prefix("c/")) == [f"c/{i}/{j}" for i in (1, 2) for j in range(3)]


@pytest.mark.parametrize("fill_value", [0, 5])
def test_absent_chunks_are_written_out_where_fill_values_differ(fill_value):
    array, values = make(MemoryStore(), shape=(8, 8), chunks=(4, 8), absent=[(0, 0)])
    target = cm.create_array(MemoryStore(), shape=(8, 8), dtype="i4", chunks=(4, 4), fill_value=fill_value)
    plan = cm.plan_rechunk(array, target, chunks=None, strategy="direct")
    plan.run()
    np.testing.assert_array_equal(target[...], values)
    assert len(list(target.store.list_prefix("c/"))) == (2 if fill_value == 0 else 4)
