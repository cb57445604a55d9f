"""The three buffers in which target chunks are assembled: the same chunks, whatever is put where."""

from itertools import product

import numpy as np
import pytest

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


def source_of(grid, fill_value=-1):
    return cm.create_array(MemoryStore(), shape=grid.shape, chunks=grid.shape, dtype="i4", fill_value=fill_value)


@pytest.mark.parametrize("through_block", [True, False])
@pytest.mark.parametrize("case", GRIDS)
def test_chunks_hold_what_was_put(case, through_block):
    grid, kind = GRIDS[case]
    region = tuple(slice(0, n) for n in grid.shape)
    buffer = target_buffer(source_of(grid).stored, grid, region, through_block=through_block)
    assert type(buffer) is (BlockBuffer if through_block else kind)
    values = np.arange(np.prod(grid.shape), dtype="i4").reshape(grid.shape)
    halves = [(slice(0, n // 2), slice(n // 2, n)) if n > 1 else (slice(0, 1),) for n in grid.shape]
    for number, at in enumerate(product(*halves)):
        if number == 1:
            buffer.put_fill(at)
            values[at] = -1
        else:
            buffer.put(at, values[at])
    for overlap in grid.overlaps(region):
        np.testing.assert_array_equal(buffer.take(overlap), values[grid.region(overlap.coords)])


@pytest.mark.parametrize("fill_first", [True, False])
def test_fill_and_values_share_a_chunk_in_any_order(fill_first):
    grid = ChunkGrid.regular((11,), (4,))
    buffer = SeparateBuffer(source_of(grid).stored, grid, (slice(0, 11),))
    puts = [lambda: buffer.put_fill((slice(0, 6),)), lambda: buffer.put((slice(6, 11),), np.arange(5, dtype="i4"))]
    for put in puts if fill_first else puts[::-1]:
        put()
    chunks = [buffer.take(overlap).tolist() for overlap in grid.overlaps((slice(0, 11),))]
    assert chunks == [[-1] * 4, [-1, -1, 0, 1], [2, 3, 4]]


def test_a_block_need_not_begin_at_the_origin():
    grid = ChunkGrid.regular((12,), (3,))
    region = (slice(6, 12),)
    for through_block in (True, False):
        buffer = target_buffer(source_of(grid).stored, grid, region, through_block=through_block)
        buffer.put((slice(7, 11),), np.arange(4, dtype="i4"))
        buffer.put_fill((slice(6, 7),))
        buffer.put_fill((slice(11, 12),))
        assert [buffer.take(o).tolist() for o in grid.overlaps(region)] == [[-1, 0, 1], [2, 3, -1]]


def test_all_chunks_share_one_allocation():
    grid = ChunkGrid.regular((11,), (4,))
    buffer = SeparateBuffer(source_of(grid).stored, grid, (slice(0, 11),))
    buffer.put((slice(0, 11),), np.arange(11, dtype="i4"))
    chunks = [buffer.take(overlap) for overlap in grid.overlaps((slice(0, 11),))]
    assert all(chunk.base is not None and chunk.base is chunks[0].base for chunk in chunks)
    assert all(chunk.flags.c_contiguous for chunk in chunks)


def test_an_undefined_fill_value_is_zero():
    grid = ChunkGrid.regular((4,), (4,))
    cm.create_array(store := MemoryStore(), shape=(4,), chunks=(4,), dtype="i4", format="n5")
    buffer = SeparateBuffer(cm.open_array(store).stored, grid, (slice(0, 4),))
    buffer.put_fill((slice(0, 4),))
    (overlap,) = grid.overlaps((slice(0, 4),))
    assert buffer.take(overlap).tolist() == [0] * 4
