"""Chunk coords and regions: every element belongs to exactly one chunk."""

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import grids, grids_with_regions

from chunkmill.model.metadata import ChunkKeyEncoding


@given(grids_with_regions())
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


@given(grids_with_regions())
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


@given(
    st.sampled_from(["", "c", "c/", "c."]),
    st.sampled_from("./"),
    st.booleans(),
    st.lists(st.integers(0, 10**20), max_size=4),
)
def test_keys_round_trip(prefix, separator, reverse, coords):
    encoding = ChunkKeyEncoding(prefix, separator, "0", reverse=reverse)
    assert encoding.decode(encoding.encode(tuple(coords)), len(coords)) == tuple(coords)
