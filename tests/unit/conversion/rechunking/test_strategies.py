"""What a strategy costs where slices of chunks are read; blocks and costs of all others: properties/test_rechunk."""

from dataclasses import replace

import pytest

from chunkmill.conversion.rechunking.plan import choose_rechunk_strategy
from chunkmill.conversion.rechunking.strategies import (
    Direct,
    Limits,
    Side,
    UnitCosts,
)
from chunkmill.model.grid import ChunkGrid


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
