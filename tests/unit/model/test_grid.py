"""Chunk coords and regions: every element belongs to exactly one chunk."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from support.cases import cases
from support.strategies import grids, grids_with_regions

from chunkmill.errors import RegionError
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis

CASES = [  # shape, chunks, grid shape, extents for dask
    ((7, 5), (3, 2), (3, 3), ((3, 3, 1), (2, 2, 1))), ((6,), (3,), (2,), ((3, 3),)), ((2,), (5,), (1,), ((2,),)),
    # one chunk, longer than the array
    ((), (), (), ()),  # one chunk
    ((0, 4), (3, 2), (0, 2), ((0,), (2, 2))),  # no chunk; dask has one of length 0
    ((0,), (0,), (0,), ((0,),)),  # as old zarr-python wrote it
]  # fmt: skip


@cases(("shape", "chunks", "grid_shape", "dask_chunks"), CASES)
def test_regular(shape, chunks, grid_shape, dask_chunks):
    grid = ChunkGrid.regular(shape, chunks)
    assert (grid.shape, grid.grid_shape, grid.dask_chunks) == (shape, grid_shape, dask_chunks)
    assert len(list(grid.all_coords())) == grid.n_chunks
    assert {grid.shape_of(coords) for coords in grid.all_coords()} <= {chunks}
    assert grid.is_regular


def test_runs():
    axis = RunsAxis(9, ((2, 3), (1, 1), (3, 1)))
    assert [axis.start(i) for i in range(5)] == [0, 2, 4, 6, 7]
    assert [axis.length(i) for i in range(5)] == [2, 2, 2, 1, 3]
    assert [axis.index(e) for e in range(9)] == [0, 0, 1, 1, 2, 2, 3, 4, 4]
    assert (axis.n_chunks, axis.widest) == (5, 3)
    assert not ChunkGrid((axis,)).is_regular


def test_runs_beyond_the_axis_hold_no_chunk():
    grid = ChunkGrid((RunsAxis(5, ((2, 2), (3, 1), (4, 10**12))),))
    assert (grid.grid_shape, grid.dask_chunks) == ((3,), ((2, 2, 1),))
    assert ChunkGrid((RunsAxis(0, ()),)).dask_chunks == ((0,),)


def test_a_run_of_a_million_million_costs_nothing():
    axis = RunsAxis(10**12, ((1, 10**12),))
    assert axis.n_chunks == 10**12
    assert axis.index(10**12 - 1) == 10**12 - 1
    grid = ChunkGrid((axis, RegularAxis(10**18, 7)))
    assert grid.region((5, 3)) == (slice(5, 6), slice(21, 28))
    assert [o.coords for o in grid.overlaps((slice(3, 5), slice(0, 7)))] == [(3, 0), (4, 0)]


def test_chunks_are_listed_up_to_a_number(monkeypatch):
    monkeypatch.setattr("chunkmill.model.grid._MAX_LISTED", 3)
    assert ChunkGrid.regular((5, 1), (2, 1)).dask_chunks == ((2, 2, 1), (1,))
    with pytest.raises(RegionError, match=r"the lengths of \(4, 1\) chunks are too many to list"):
        _ = ChunkGrid.regular((8, 1), (2, 1)).dask_chunks


def test_overlaps_of_nothing_walk_nothing():
    grid = ChunkGrid.regular((0, 10**15), (1, 1))
    assert list(grid.overlaps((slice(0, 0), slice(0, 10**15)))) == []


def test_resized():
    def resized(axis, size):
        return ChunkGrid((axis,)).resized((size,)).axes[0]

    assert resized(RegularAxis(5, 2), 9) == RegularAxis(9, 2)
    assert resized(RunsAxis(5, ((2, 1), (3, 1))), 12).runs == ((2, 1), (3, 1), (3, 3))
    assert resized(RunsAxis(5, ((2, 1), (5, 1))), 6).runs == ((2, 1), (5, 1))


@given(grids_with_regions)
def test_overlaps_partition_a_region(case):
    grid, region = case
    array = np.arange(prod(grid.shape)).reshape(grid.shape)
    wanted = array[region]
    found = np.full(wanted.shape, -1)
    for overlap in grid.overlaps(region):
        assert (found[overlap.in_region] == -1).all()  # nobody was here
        found[overlap.in_region] = array[grid.region(overlap.coords)][overlap.in_chunk]
        covered = tuple(cut.stop - cut.start for cut in overlap.in_chunk)
        assert 0 not in covered
        assert overlap.whole == (covered == tuple(cut.stop - cut.start for cut in grid.region(overlap.coords)))
    assert (found == wanted).all()
    every = list(grid.overlaps(region))
    within = grid.within(region)
    assert within.shape == wanted.shape
    regions = [within.region(coords) for coords in within.all_coords() if wanted.size]
    assert regions == [each.in_region for each in every]
    assert grid.only_overlap(region) == (every[0] if len(every) == 1 else None)


@given(grids_with_regions)
def test_an_aligned_region_covers_every_chunk_that_it_touches(case):
    grid, region = case
    if prod(cut.stop - cut.start for cut in region):
        overlaps = list(grid.overlaps(region))
        assert grid.aligned(region) == all(overlap.whole for overlap in overlaps)
        assert grid.first_touched(region) == overlaps[0].coords


@given(grids())
def test_chunks_cover_the_array_once(grid):
    counts = np.zeros(grid.shape, int)
    n = 0
    for coords in grid.all_coords():
        assert (grid.number_of(coords), grid.coords_of(n)) == (n, coords)
        counts[grid.region(coords)] += 1
        extent = grid.extent(coords)
        assert tuple(cut.stop for cut in extent) == tuple(cut.stop - cut.start for cut in grid.region(coords))
        assert all(cut.stop <= length for cut, length in zip(extent, grid.shape_of(coords), strict=True))
        n += 1
    assert (counts == 1).all()
    assert n == grid.n_chunks
    assert tuple(map(sum, grid.dask_chunks)) == grid.shape
