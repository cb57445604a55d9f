"""The three buffers in which target chunks are assembled: the same chunks, whatever is put where."""

from itertools import product

import numpy as np
from support.cases import cases

from chunkmill.conversion.rechunking.target_chunks import BlockBuffer, SeparateBuffer, TiledBuffer, target_buffer
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis

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


def test_a_block_need_not_begin_at_the_origin():
    grid = ChunkGrid.regular((12,), (3,))
    region = (slice(6, 12),)
    for through_block in (True, False):
        buffer = target_buffer(np.dtype("i4"), grid, region, through_block=through_block)
        buffer.put((slice(7, 11),), np.arange(4, dtype="i4"))
        for at in ((slice(6, 7),), (slice(11, 12),)):
            buffer.put(at, np.full(1, -1, "i4"))
        assert [buffer.take(o).tolist() for o in grid.overlaps(region)] == [[-1, 0, 1], [2, 3, -1]]


def test_all_chunks_share_one_allocation():
    grid = ChunkGrid.regular((11,), (4,))
    buffer = SeparateBuffer(np.dtype("i4"), grid, (slice(0, 11),))
    buffer.put((slice(0, 11),), np.arange(11, dtype="i4"))
    chunks = [buffer.take(overlap) for overlap in grid.overlaps((slice(0, 11),))]
    assert all(chunk.base is not None and chunk.base is chunks[0].base for chunk in chunks)
    assert all(chunk.flags.c_contiguous for chunk in chunks)
