"""Target chunks: assembled in three kinds of buffers, and written out where fill values differ."""

from itertools import product

import numpy as np
import pytest
from support.cases import cases
from support.rechunks import make

import chunkmill as cm
from chunkmill.conversion.rechunking.target_chunks import BlockBuffer, SeparateBuffer, TiledBuffer, target_buffer
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.stores.memory import MemoryStore

GRIDS = {
    "equal": (ChunkGrid.regular((12, 8), (3, 4)), TiledBuffer),
    "cropped": (ChunkGrid.regular((11, 8), (3, 4)), SeparateBuffer),
    "rectilinear": (ChunkGrid((RunsAxis(12, ((5, 1), (7, 1))), RegularAxis(8, 4))), SeparateBuffer),
    "overhanging": (ChunkGrid.regular((12, 8), (20, 4)), SeparateBuffer),
    "many axes": (ChunkGrid.regular((4, 2, *(1,) * 31), (2, 1, *(1,) * 31)), SeparateBuffer),
}


@cases("through_block", [True, False])
@cases("case", GRIDS)
def test_chunks_hold_what_was_put(case, through_block):
    grid, kind = GRIDS[case]
    region = tuple(slice(0, n) for n in grid.shape)
    buffer = target_buffer(np.dtype("i4"), grid, region, through_block=through_block)
    assert type(buffer) is (BlockBuffer if through_block else kind)
    values = np.arange(np.prod(grid.shape), dtype="i4").reshape(grid.shape)
    halves = [(slice(0, n // 2), slice(n // 2, n)) if n > 1 else (slice(0, 1),) for n in grid.shape]
    for at in product(*halves):
        buffer.put(at, values[at])
    for overlap in grid.overlaps(region):
        np.testing.assert_array_equal(buffer.take(overlap), values[grid.region(overlap.coords)])


@pytest.mark.parametrize("fill_value", [0, 5])
def test_absent_chunks_are_written_out_where_fill_values_differ(fill_value):
    array, values = make(MemoryStore(), shape=(8, 8), chunks=(4, 8), absent=[(0, 0)])
    target = cm.create_array(MemoryStore(), shape=(8, 8), dtype="i4", chunks=(4, 4), fill_value=fill_value)
    plan = cm.plan_rechunk(array, target, chunks=None, strategy="direct")
    plan.run()
    np.testing.assert_array_equal(target[...], values)
    assert len(list(target.store.list_prefix("c/"))) == (2 if fill_value == 0 else 4)
