"""One task: what it reads, shows and writes."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.nodes.array import Array
from chunkmill.pyramids.levels import divide
from chunkmill.pyramids.tasks import LevelStage, level_inputs, level_shows, write_block
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def stage():
    store = MemoryStore()
    base = cm.create_array(store, "base", shape=(20,), dtype="i4", chunks=(4,))
    base[8:] = np.arange(12)  # the first two chunks are absent
    levels = [cm.create_array(store, f"l{i}", shape=(n,), dtype="i4", chunks=(4,)) for i, n in enumerate((10, 5))]
    (blocks,) = divide([(20,), (10,), (5,)], [(1,), (2,), (2,)], [(4,)] * 3, itemsize=4, budget=1 << 30, n_least=1)
    return LevelStage(
        base.stored, None, None, tuple(blocks), tuple(level.stored for level in levels), "max", fresh=True
    )


def test_a_task_writes_the_keys_of_its_levels(stage):
    result = write_block([stage], 0)
    assert Array(stage.targets[0])[...].tolist() == [0, 0, 0, 0, 1, 3, 5, 7, 0, 0]
    assert Array(stage.targets[1])[...].tolist() == [0, 0, 3, 7, 0]
    assert result.counts["n_elements_read"] == 16
    assert set(result.writes) == {"l0/c/1", "l1/c/0"}
    assert (result.counts["action_reduce"], result.counts["action_absent"]) == (2, 1)
    write_block([stage], 1)
    assert Array(stage.targets[1])[4] == 11


def test_absent_keys_are_deleted_where_something_was(stage):
    Array(stage.targets[0])[...] = 5
    write_block([LevelStage(**{name: getattr(stage, name) for name in stage.__slots__} | {"fresh": False})], 0)
    assert stage.targets[0].store.get("l0/c/0") is None


def test_what_a_task_reads_and_shows(stage):
    (read,) = level_inputs([stage], 1)
    assert read.store is stage.source.store
    assert list(read.keys) == ["base/c/4"]
    assert level_shows([stage], 1) == "l1/c/1"
    assert [list(each.keys) for each in level_inputs([stage], 0)] == [[f"base/c/{i}" for i in range(4)]]
