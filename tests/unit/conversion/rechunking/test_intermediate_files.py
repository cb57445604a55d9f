"""Intermediate files, written by one task and read by others."""

import numpy as np
import pytest
from support.cases import cases
from support.rechunks import make
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.conversion.rechunking.intermediate_files import intermediate_values, write_intermediate_file
from chunkmill.errors import StoreError
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import Meter


def spilled(**options):
    """Stages of a spill, with all files written; the source's values, and where the files are."""
    array, values = make(MemoryStore(), **options)
    temp = MemoryStore()
    plan = cm.plan_rechunk(array, MemoryStore(), chunks=(12, 4), strategy="spill", temp=temp, max_mem="9 MiB")
    spill, write = stages_of(plan, "run")
    results = [write_intermediate_file(spill.common, spec) for spec in spill.tasks]
    return spill, write, results, values, temp


@cases(
    "options",
    [
        {"shape": (12, 12), "chunks": (1, 12)},
        {"shape": (12, 13), "chunks": (5, 13)},
        {"shape": (12, 12), "chunks": (1, 12), "absent": [(0, 0), (7, 0)], "fill_value": -1},
    ],
)
def test_blocks_read_back_what_was_spilled(options):
    _, write, results, values, temp = spilled(**options)
    rechunk = write.common[0]
    out = np.full_like(values, values.flat[-1])
    for block in rechunk.plan.writes.all_coords():
        for at, found in intermediate_values(rechunk, Meter(), block):
            out[at] = rechunk.source.fill_value if found is None else found
    np.testing.assert_array_equal(out, values)
    sizes = [temp.size(key) for key in temp.list_prefix("")]
    assert sum(sizes) == sum(result.counts["bytes_temporary"] for result in results)
    assert sum(result.counts["n_elements_read"] for result in results) == values.size


def test_files_are_named_after_run_and_array():
    spill, _, _, _, temp = spilled(shape=(12, 12), chunks=(1, 12))
    assert all(key.startswith(spill.common[0].prefix) for key in temp.list_prefix(""))
    assert spill.common[0].prefix.endswith("-intermediate/run/0/")


def test_a_file_of_absent_chunks_is_a_marker():
    absent = [(i, 0) for i in range(12)]
    _, write, results, _, temp = spilled(shape=(12, 12), chunks=(1, 12), absent=absent)
    assert all(key.endswith(".absent") for key in temp.list_prefix(""))
    assert sum(result.counts["bytes_temporary"] for result in results) == 0
    rechunk = write.common[0]
    blocks = rechunk.plan.writes.all_coords()
    found = [values for block in blocks for _, values in intermediate_values(rechunk, Meter(), block)]
    assert found
    assert all(values is None for values in found)


def test_a_lost_file_is_an_error():
    _, write, _, _, temp = spilled(shape=(12, 12), chunks=(1, 12))
    temp.delete(next(iter(temp.list_prefix(""))))
    rechunk = write.common[0]
    blocks = rechunk.plan.writes.all_coords()
    with pytest.raises(StoreError, match="was written and is gone"):
        [list(intermediate_values(rechunk, Meter(), block)) for block in blocks]
