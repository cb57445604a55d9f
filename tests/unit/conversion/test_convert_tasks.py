"""One task of a conversion at a time."""

import numpy as np
import pytest
from support.conversions import make

import chunkmill as cm
from chunkmill.conversion.convert_tasks import (
    covered,
    transfer_group,
    transfer_reads,
    transfer_share,
    transfer_shows,
)
from chunkmill.errors import ChunkError
from chunkmill.model.grid import ChunkGrid
from chunkmill.stores.memory import MemoryStore


def stage_of(source, **options):
    plan = cm.plan_convert(source, target := MemoryStore(), **options)
    return plan.job.stages("1")[0], target


def run(stage):
    return [transfer_group(stage.common, spec) for spec in stage.tasks]


@pytest.mark.parametrize("codecs", ["keep", "blosc"])
def test_tasks_write_their_keys_and_say_so(codecs):
    source, _ = make()
    stage, target = stage_of(source, format="zarr3", codecs=codecs)
    results = run(stage)
    written = {key for result in results for key, value in result.writes.items() if value is not None}
    assert written == set(target.list_prefix(""))
    assert sum(result.counts["n_keys"] for result in results) == 9
    assert sum(result.counts.get("action_absent", 0) for result in results) == 1


def test_a_task_run_twice_writes_the_same():
    source, _ = make()
    stage, target = stage_of(source, format="n5")
    run(stage)
    before = {key: target.get(key) for key in target.list_prefix("")}
    run(stage)
    assert {key: target.get(key) for key in target.list_prefix("")} == before


def test_what_a_task_reads_shows_and_shares():
    source, _ = make()
    stage, _ = stage_of(source, format="zarr3")
    (array, keys), *others = transfer_reads(stage.common, stage.tasks[0])
    assert not others
    assert array.path == "g/a"
    assert keys[0] == "g/a/0.0"
    assert transfer_shows(stage.common, stage.tasks[0]) == "g/a/c/0/0"
    assert transfer_share(stage.common, stage.tasks[0]) > 0


def test_covered_is_cropped_to_the_array():
    grid = ChunkGrid.regular((7, 5), (3, 2))
    assert covered(grid, [range(1, 3), range(2)]) == (slice(3, 7), slice(0, 4))


def test_a_chunk_that_does_not_decode_names_itself():
    source, _ = make()
    source.set("g/a/1.1", b"torn")
    stage, _ = stage_of(source, format="zarr3", codecs="zstd")
    with pytest.raises(ChunkError) as caught:
        run(stage)
    assert (caught.value.key, caught.value.coords) == ("g/a/1.1", (1, 1))


def test_copied_bytes_are_those_of_the_source():
    source, values = make()
    stage, target = stage_of(source, format="zarr3")
    run(stage)
    assert target.get("g/a/c/1/2") == source.get("g/a/1.2")
    np.testing.assert_array_equal(cm.open_array(source, "g/a")[...], values)
