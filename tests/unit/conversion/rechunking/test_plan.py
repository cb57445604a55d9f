"""Rechunk plans: the choices, by tables of numbers, what planners see of arrays and stores, and what slices spare."""

import time
from dataclasses import replace
from math import prod

import dask
import pytest
from support.cases import cases
from support.rechunks import make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion import stages
from chunkmill.conversion.rechunking.job import plan_array_rechunk, read_side, write_side
from chunkmill.conversion.rechunking.plan import choose_rechunk_strategy
from chunkmill.conversion.rechunking.strategies import Limits, Side, Spill, UnitCosts
from chunkmill.conversion.rechunking.target_chunks import writes_at_once
from chunkmill.model.grid import ChunkGrid
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore

MIB = 2**20


def side(shape, chunks, keys=None, itemsize=4, copies=2):
    """An array of `shape` whose chunks need `copies` times their decoded size to decode or encode."""
    grid = ChunkGrid.regular(shape, chunks)
    whole = grid if keys is None else ChunkGrid.regular(shape, keys)
    chunk = chunks if keys is None else keys
    return Side(whole, grid, copies * itemsize * prod(map(min, chunk, shape)), is_sharded=whole != grid)


def plan(shape, source, target, max_mem, *, n_threads=2, source_keys=None, **options):
    ends = side(shape, source, source_keys, copies=2), side(shape, target)
    limits = Limits(max_mem, n_threads)
    return choose_rechunk_strategy(*ends, 4, limits, **options)


@cases(
    ("shape", "source", "target", "strategy"),
    [
        pytest.param((512, 1024, 1024), (1, 1024, 1024), (512, 32, 32), "spill", id="images to series"),
        pytest.param((512, 1024, 1024), (512, 32, 32), (1, 1024, 1024), "spill", id="series to images"),
        pytest.param((512, 512, 512), (64, 64, 64), (128, 128, 16), "direct", id="blocks that fit both grids"),
        pytest.param((1000, 1000), (10, 1000), (10, 1000), "direct", id="the same grid"),
        pytest.param((1000, 1000), (10, 1000), (20, 500), "direct", id="one multiple of the other"),
        pytest.param((64, 64), (64, 1), (1, 64), "direct", id="all of it fits into one task"),
        pytest.param((7, 0), (2, 3), (3, 2), "direct", id="no elements"),
        pytest.param((), (), (), "direct", id="0-d"),
    ],
)
def test_strategy(shape, source, target, strategy):
    chosen = plan(shape, source, target, 256 * MIB)
    assert chosen.strategy == strategy
    assert chosen.estimate.amplification == 1
    assert chosen.estimate.peak_bytes <= 256 * MIB
    assert sorted(estimate.strategy for estimate in (chosen.estimate, *chosen.others)) == ["direct", "spill"]


def test_direct_when_reading_some_chunks_twice_costs_less_than_a_spill():
    chosen = plan((100_000,), (1000,), (1001,), 16 * MIB)
    assert (chosen.strategy, chosen.estimate.intermediate_bytes) == ("direct", 0)
    assert 1 < chosen.estimate.amplification < 1.1


def test_costs_decide():
    arguments = (1000, 1000), (100, 1000), (1000, 300), 8 * MIB
    assert plan(*arguments, costs=UnitCosts(decoded_byte=1e-6)).strategy == "spill"
    assert plan(*arguments, costs=UnitCosts(intermediate_byte=1e-6)).strategy == "direct"


def test_part_of_a_shard_is_enough_where_a_shard_does_not_fit():
    shape, inner, shard = (1024, 1024, 256), (32, 32, 32), (512, 512, 256)  # shards of 256 MiB
    ends = side(shape, inner, shard, copies=0), side(shape, (1024, 16, 16))
    source = Side(ends[0].keys, ends[0].chunks, 2 * 4 * 32**3, is_sharded=True)
    chosen = choose_rechunk_strategy(source, ends[1], 4, Limits(64 * MIB, 2), strategy="spill")
    assert chosen.estimate.peak_bytes <= 64 * MIB
    assert chosen.estimate.amplification == 1


@cases(
    ("shape", "source", "target"),
    [
        pytest.param((10**9,), (100,), (333,), id="10**7 chunks of an axis"),
        pytest.param((15,) * 6, (1,) * 6, (2,) * 6, id="10**7 chunks of six axes"),
        pytest.param((30,) * 6, (2, 3, 2, 3, 2, 3), (3, 2, 3, 2, 3, 2), id="six axes"),
        pytest.param((350_640, 721, 1440), (1, 721, 1440), (35_040, 12, 12), id="ERA5, 1.3 TB"),
        pytest.param((20_000, 7000, 7000), (1, 500, 500), (20_000, 20, 20), id="4 TB"),
    ],
)
def test_large_plans_take_seconds_and_few_tasks(shape, source, target):
    begun = time.process_time()
    chosen = plan(shape, source, target, 2048 * MIB)
    assert time.process_time() - begun < 5
    assert sum(chosen.estimate.n_tasks) <= 100_000
    assert chosen.estimate.peak_bytes <= 2048 * MIB


def sliced_images(n_columns):
    """Images, whose rows are contiguous, and blocks of 16 rows of all of them."""
    images, rows = (ChunkGrid.regular((8, 4096, n_columns), each) for each in ((1, 4096, n_columns), (8, 1024, 64)))
    return Side(images, images, 4096 * n_columns * 4, sliced=1), Side(rows, rows, 1)


@pytest.mark.parametrize(("n_columns", "is_taken"), [(16, True), (15, False)])
def test_short_slices_are_not_taken(n_columns, is_taken):
    sliced, target = sliced_images(n_columns)
    whole, limits = replace(sliced, sliced=None), Limits(1024 * n_columns * 48)
    plan = choose_rechunk_strategy(whole, target, 4, limits, strategy="direct", slices=(sliced,))
    assert plan.source == (sliced if is_taken else whole)


def test_short_slices_are_taken_where_nothing_else_fits():
    sliced, target = sliced_images(15)
    whole = replace(sliced, sliced=None)
    smallest = choose_rechunk_strategy(whole, target, 4, Limits(1), slices=(sliced,)).estimate.peak_bytes
    plan = choose_rechunk_strategy(whole, target, 4, Limits(smallest), slices=(sliced,))
    assert (plan.source, plan.estimate.peak_bytes) == (sliced, smallest)


WORKER = Worker(1 << 30, 2, 1)


def far(array):
    store = RecordingStore(array.store)
    store.is_remote = True
    return array.stored.with_store(store)


def test_stores_with_latency_fetch_ahead():
    array, _ = make(MemoryStore(), shape=(8, 8), chunks=(2, 4))
    assert read_side(array.stored, WORKER).ahead_bytes == 0
    assert read_side(far(array), WORKER).ahead_bytes == WORKER.ahead_bytes


def test_requests_of_far_sources_cost_time_and_a_place_of_no_files_none():
    array, target = make(MemoryStore(), shape=(8, 8), chunks=(2, 4)), make(MemoryStore(), shape=(8, 8), chunks=(4, 2))

    def seconds(source, store):
        return plan_array_rechunk(source, target[0].stored, WORKER, store, "direct").estimate.seconds

    near = seconds(array[0].stored, MemoryStore())
    assert near == seconds(array[0].stored, far(array[0]).store) < seconds(far(array[0]), MemoryStore())


def test_as_many_values_are_stored_at_once_as_memory_was_fetched_ahead():
    array, _ = make(MemoryStore(), shape=(64, 64), chunks=(32, 32))
    one = write_side(far(array), Worker(1, 1, 1)).working_bytes
    assert writes_at_once(array.stored, 1 << 30) == 0  # no latency
    assert [writes_at_once(far(array), n * one) for n in (0, 1, 2, 5, 99)] == [0, 0, 2, 5, 32]
    assert write_side(far(array), Worker(8 * 5 * one, 1, 1)).working_bytes == 5 * one


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_small_arrays_share_tasks_where_there_are_many(strategy, monkeypatch):
    monkeypatch.setattr(stages, "_MANY_TASKS", 8)
    store, target, about = MemoryStore(), MemoryStore(), {"shape": (4, 4), "dtype": "u1", "chunks": (1, 4)}
    cm.create_group(store)
    for i, array in enumerate(cm.create_arrays(store, dict.fromkeys(map("a{}".format, range(40)), about)).values()):
        array[...] = i
    plan = cm.plan_rechunk(store, target, chunks=(4, 1), strategy=strategy, max_mem="64 MiB")
    assert all(8 <= stage.n_tasks <= 16 for stage in plan.stages)
    with dask.config.set(scheduler="sync"):
        report = plan.run(progress=False)
    assert report.n_tasks == plan.n_tasks
    assert cm.verify(store, target).equal


def test_a_bitmap_has_a_bit_for_each_source_chunk_of_a_block():
    spill = Spill(side((1 << 20,), (1,)), side((1 << 20,), (1 << 20,)), 4, Limits(1 << 40), UnitCosts())
    assert spill.trailer_bytes([len(ways) - 1 for ways in spill.options]) == (1 << 20) // 8
