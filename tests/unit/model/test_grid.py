from itertools import product

from support.cases import cases

from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis

CASES = [  # shape, chunks, grid shape, extents for dask
    ((7, 5), (3, 2), (3, 3), ((3, 3, 1), (2, 2, 1))),
    ((6,), (3,), (2,), ((3, 3),)),
    ((2,), (5,), (1,), ((2,),)),  # one chunk, longer than the array
    ((), (), (), ()),  # one chunk
    ((0, 4), (3, 2), (0, 2), ((0,), (2, 2))),  # no chunk; dask has one of length 0
    ((0,), (0,), (0,), ((0,),)),  # as old zarr-python wrote it
]


@cases(("shape", "chunks", "grid_shape", "dask_chunks"), CASES)
def test_regular(shape, chunks, grid_shape, dask_chunks):
    grid = ChunkGrid.regular(shape, chunks)
    assert (grid.shape, grid.grid_shape, grid.dask_chunks) == (shape, grid_shape, dask_chunks)
    assert len(list(grid.all_coords())) == grid.n_chunks
    assert grid.is_regular


def test_edges():
    grid = ChunkGrid.regular((7, 5), (3, 2))
    assert grid.region((2, 2)) == (slice(6, 7), slice(4, 5))
    assert grid.extent((2, 2)) == (slice(0, 1), slice(0, 1))
    assert grid.shape_of((2, 2)) == (3, 2)


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


def test_overlaps_of_nothing_walk_nothing():
    grid = ChunkGrid.regular((0, 10**15), (1, 1))
    assert list(grid.overlaps((slice(0, 0), slice(0, 10**15)))) == []


def test_alignment():
    grid = ChunkGrid.regular((10,), (4,))
    assert grid.aligned((slice(4, 10),))  # the last chunk overhangs
    assert not grid.aligned((slice(4, 9),))
    assert not grid.aligned((slice(5, 10),))
    assert grid.aligned((slice(5, 5),))


def test_resized():
    def resized(axis, size):
        return ChunkGrid((axis,)).resized((size,)).axes[0]

    assert resized(RegularAxis(5, 2), 9) == RegularAxis(9, 2)
    assert resized(RunsAxis(5, ((2, 1), (3, 1))), 12).runs == ((2, 1), (3, 1), (3, 3))
    assert resized(RunsAxis(5, ((2, 1), (5, 1))), 6).runs == ((2, 1), (5, 1))


def test_the_only_overlap_is_that_of_a_region_within_one_chunk():
    grid = ChunkGrid.regular((7, 5), (3, 2))
    cuts = [[slice(i, j) for i in range(n) for j in range(i, n + 1)] for n in grid.shape]
    counts = set()
    for region in product(*cuts):
        every = list(grid.overlaps(region))
        assert grid.only_overlap(region) == (every[0] if len(every) == 1 else None)
        counts.add(len(every))
    assert counts >= {0, 1, 2, 9}
