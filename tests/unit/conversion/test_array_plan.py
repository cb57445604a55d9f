"""What one array's plan counts."""

from support.rechunks import make

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore


def plans_of(plan):
    return plan.job.tasks.plans


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
