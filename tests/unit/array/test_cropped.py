"""Layouts of regions."""

import numpy as np
from support.cases import cases

from chunkmill.array.chunk_io import read_chunk
from chunkmill.array.cropped import crop_layouts, kept_grid
from chunkmill.array.present_keys import chunks_in_shards, list_present
from chunkmill.conversion.region_option import crop
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.nodes.api import create_array
from chunkmill.nodes.array import Array

LAYOUTS = {
    "zarr2": {"format": "zarr2", "chunks": (4, 3)},
    "n5": {"format": "n5", "chunks": (4, 3)},
    "sharded": {"chunks": (2, 3), "shards": (4, 9)},
    "rectilinear": {"chunks": ((4, 4, 3, 6), (3, 5, 5))},
}
REGIONS = [(slice(4, 16), slice(3, 9)), (slice(1, 17), slice(2, 13)), (slice(5, 7), slice(0, 4)), (slice(3, 3),) * 2]


@cases("layout", LAYOUTS)
@cases("region", REGIONS)
def test_a_region_is_read_as_an_array_of_its_own(layout, region):
    values = np.arange(1, 17 * 13 + 1, dtype="u2").reshape(17, 13)
    array = create_array(
        f"memory://cropped-{layout}", shape=values.shape, dtype="u2", **LAYOUTS[layout], overwrite=True
    )
    array[...] = values
    part = crop(array.stored, region)
    assert np.array_equal(Array(part)[...], values[region])
    assert part.shape == values[region].shape
    for each in (part.read_layout, part.write_layout):
        assert each.n_cut == sum(each.is_cut(coords) for coords in each.grid.all_coords())
        for coords in each.grid.all_coords():  # each by itself
            chunk = read_chunk(part, each, coords, each.grid.extent(coords))
            assert np.array_equal(chunk, values[region][each.grid.region(coords)])


def test_a_chunk_is_cut_at_either_end_or_both():
    layouts = create_array(
        "memory://cropped-ends", shape=(12,), dtype="u1", chunks=(5,), overwrite=True
    ).stored._layouts
    cut = {}
    for region in ((5, 10), (5, 12), (0, 12), (4, 12), (5, 9), (6, 8), (0, 3)):
        _, keys = crop_layouts(layouts, (slice(*region),))
        cut[region] = [coords[0] for coords in keys.grid.all_coords() if keys.is_cut(coords)]
    expected = {(5, 10): [], (5, 12): [], (0, 12): [], (4, 12): [0], (5, 9): [0], (6, 8): [0], (0, 3): [0]}
    assert cut == expected


def test_listings_count_from_the_region():
    array = create_array(
        "memory://cropped-listed", shape=(40, 40), dtype="u1", chunks=(2, 2), shards=(8, 8), overwrite=True
    )
    array[16:18, 20:22] = 1  # chunk (8, 10) in shard (2, 2)
    array[0, 0] = 1  # outside
    part = crop(array.stored, (slice(10, 40), slice(4, 36)))
    shards = list_present(part)
    assert [part.write_layout.grid.coords_of(n) for n in shards.tolist()] == [(1, 2)]
    assert [part.read_layout.grid.coords_of(n) for n in chunks_in_shards(part, shards).tolist()] == [(3, 8)]


def test_runs_are_kept_from_the_region_on():
    grid = ChunkGrid((RunsAxis(12, ((2, 2), (4, 2))), RegularAxis(12, 5)))
    kept = kept_grid(grid, (slice(2, 7), slice(2, 9)))
    assert kept.axes == (RunsAxis(5, ((2, 1), (4, 1))), RegularAxis(7, 5))
