"""Which blocks are written by one task."""

from itertools import accumulate

import numpy as np
import pytest

from chunkmill.dask_arrays.aligned_chunks import write_chunks
from chunkmill.model.grid import ChunkGrid

KIB = 2**10


def borders(lengths):
    return set(accumulate(lengths))


def test_aligned_blocks_stay_as_they_are():
    grid = ChunkGrid.regular((1000,), (10,))
    for own in ((10,) * 100, (20, 980), (1000,)):
        assert write_chunks(grid, (slice(0, 1000),), (own,), 1) == (own,)


def test_small_blocks_are_written_together():
    grid = ChunkGrid.regular((64 * 66, 32 * 66), (64, 32))  # 4 KiB
    region = slice(32, 32 + 64 * 64), slice(16, 16 + 32 * 64)
    rows, columns = write_chunks(grid, region, ((64,) * 64, (32,) * 64), 2)
    assert sum(rows) == 64 * 64
    assert sum(columns) == 32 * 64
    assert (rows[1], columns[1]) == (16 * 64, 16 * 32)  # 1 MiB, as many of both
    assert borders(rows[:-1]) <= set(range(32, 64 * 66, 64))


@pytest.mark.parametrize(
    ("n_keys", "most"),
    [
        (64, 1024 * KIB),  # 4 MiB in all: no task is smaller than is worth it
        (1024, 4 * 1024 * KIB),  # 64 MiB: 16 tasks
        (65536, 8 * 1024 * KIB),  # 4 GiB
    ],
    ids=["4 MiB", "64 MiB", "4 GiB"],
)
def test_how_much_one_task_writes(n_keys, most):
    n = 64 * KIB
    grid = ChunkGrid.regular((n * (n_keys + 1),), (n,))
    (lengths,) = write_chunks(grid, (slice(n // 2, n // 2 + n * n_keys),), ((n,) * n_keys,), 1)
    assert lengths[1] == most
    assert sum(lengths) == n * n_keys


def test_large_blocks_are_not_merged():
    n = 2**20
    grid = ChunkGrid.regular((100 * n,), (n,))
    (lengths,) = write_chunks(grid, (slice(0, 90 * n),), (((9 * n + 7,) * 9 + (9 * n - 63,)),), 4)
    assert lengths == (9 * n,) * 10


@pytest.mark.parametrize("chunks", [((0,), (3, 7)), ((3, 0, 4), (5, 5))])
def test_axes_and_blocks_without_elements(chunks):
    shape = tuple(map(sum, chunks))
    new = write_chunks(ChunkGrid.regular(shape, (4, 4)), tuple(slice(0, n) for n in shape), chunks, 1)
    assert tuple(map(sum, new)) == shape
    assert np.prod([len(axis) for axis in new]) == 1
