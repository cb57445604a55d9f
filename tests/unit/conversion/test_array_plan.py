"""The specs of tasks of many arrays, and what one array's plan counts."""

import pytest
from rechunks import make

import chunkmill as cm
from chunkmill.conversion.array_plan import TaskSpecs
from chunkmill.stores.memory import MemoryStore


def test_specs_are_counted_array_by_array():
    specs = TaskSpecs([2, 0, 3])
    expected = [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    assert list(specs) == expected
    assert [specs[i] for i in range(len(specs))] == expected
    assert specs[1:4] == expected[1:4]
    assert specs[::2] == expected[::2]
    with pytest.raises(IndexError):
        specs[5]
    assert list(TaskSpecs([])) == []


def test_specs_are_never_listed():
    specs = TaskSpecs([10**12, 10**12])
    assert len(specs) == 2 * 10**12
    assert specs[10**12] == (1, 0)
    assert next(iter(specs)) == (0, 0)


def plans_of(plan):
    return plan.job.publish.__self__.plans


def test_groups_files_and_blocks():
    array, _ = make(MemoryStore())
    (stays,) = plans_of(cm.plan_convert(array, MemoryStore(), format="zarr2"))
    assert (stays.n_groups > 0, stays.n_intermediate_files, stays.n_target_blocks) == (True, 0, 0)
    assert stays.strategy == "copy"
    (direct,) = plans_of(cm.plan_rechunk(array, MemoryStore(), chunks=(20, 7, 4), strategy="direct"))
    assert (direct.n_groups, direct.n_intermediate_files) == (0, 0)
    assert direct.n_target_blocks == direct.rechunk.writes.n_chunks
    (spill,) = plans_of(cm.plan_rechunk(array, MemoryStore(), chunks=(20, 7, 4), strategy="spill"))
    assert spill.n_intermediate_files == spill.rechunk.reads.n_chunks
    assert spill.strategy == "spill"
