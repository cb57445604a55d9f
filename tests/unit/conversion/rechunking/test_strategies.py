"""The search for blocks, and what a strategy costs with them."""

from dataclasses import replace

import pytest

from chunkmill.conversion.rechunking.plan import choose_rechunk_strategy
from chunkmill.conversion.rechunking.strategies import (
    Direct,
    Limits,
    Side,
    Spill,
    UnitCosts,
    best_blocks,
    smallest_blocks,
)
from chunkmill.model.grid import ChunkGrid

SHAPE = (64, 64)


def side(chunks, working_bytes=0):
    grid = ChunkGrid.regular(SHAPE, chunks)
    return Side(grid, grid, working_bytes)


def direct(source=(1, 64), target=(64, 1)):
    return Direct(side(source), side(target), 4, Limits(1 << 20), UnitCosts())


def spill(source=(1, 64), target=(64, 1)):
    return Spill(side(source), side(target), 4, Limits(1 << 20), UnitCosts())


@pytest.mark.parametrize("strategy", [direct, spill])
def test_options_grow_from_one_chunk_to_all(strategy):
    for ways in strategy().options:
        lengths = [way.longest for way in ways]
        assert lengths == sorted(set(lengths))
        assert lengths[-1] == 64


@pytest.mark.parametrize("strategy", [direct, spill])
def test_no_blocks_fit_less_than_the_smallest(strategy):
    candidate = strategy()
    least = candidate.peak_bytes(smallest_blocks(candidate))
    for budget in (least, least - 1):
        assert candidate.peak_bytes(best_blocks(candidate, budget)) == least


def test_direct_with_the_smallest_blocks_reads_all_for_each():
    candidate = direct()
    estimate = candidate.estimate((0, 0))
    assert (estimate.n_tasks, estimate.amplification) == ((64,), 64.0)
    whole = tuple(len(ways) - 1 for ways in candidate.options)
    assert candidate.estimate(whole).amplification == 1.0


def test_spilling_reads_once_and_counts_sections():
    candidate = spill()
    estimate = candidate.estimate((0,) * 4)
    assert (estimate.amplification, estimate.n_tasks) == (1.0, (64, 64))
    assert estimate.intermediate_bytes == 64 * 64 * 4 + 64 * 64 * candidate.trailer_bytes((0,) * 4)


def sliced_images(n_columns):
    """Images, whose rows are contiguous, and blocks of 16 rows of all of them."""
    images, rows = (ChunkGrid.regular((8, 4096, n_columns), each) for each in ((1, 4096, n_columns), (8, 1024, 64)))
    return Side(images, images, 4096 * n_columns * 4, sliced=1), Side(rows, rows, 1)


def test_slices_are_read_once_within_less_memory():
    sliced, target = sliced_images(64)
    whole, slices = (
        Direct(each, target, 4, Limits(1 << 20), UnitCosts()) for each in (replace(sliced, sliced=None), sliced)
    )
    estimates = [each.estimate((0, 0, 0)) for each in (whole, slices)]
    assert [estimate.amplification for estimate in estimates] == [4, 1]
    assert [estimate.n_chunk_reads for estimate in estimates] == [32, 32]
    assert whole.peak_bytes((0, 0, 0)) - slices.peak_bytes((0, 0, 0)) == 3072 * 64 * 4


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
