"""Regions as arrays."""

import pickle

import dask
import numpy as np
from support.arrays import filled
from support.cases import cases

from chunkmill.array.chunk_io import read_chunk
from chunkmill.array.present_keys import chunks_in_shards, list_present
from chunkmill.model.grid import RegularAxis, RunsAxis
from chunkmill.nodes.api import create_array
from chunkmill.nodes.array import Array
from chunkmill.stores.memory import MemoryStore

LAYOUTS = {
    "zarr2": {"format": "zarr2", "chunks": (4, 3)}, "n5": {"format": "n5", "chunks": (4, 3)},
    "sharded": {"chunks": (2, 3), "shards": (4, 9)}, "rectilinear": {"chunks": ((4, 4, 3, 6), (3, 5, 5))},
}  # fmt: skip
REGIONS = [(slice(4, 16), slice(3, 9)), (slice(1, 17), slice(2, 13)), (slice(5, 7), slice(0, 4)), (slice(3, 3),) * 2]


@cases("layout", LAYOUTS)
@cases("region", REGIONS)
def test_a_region_is_read_as_an_array_of_its_own(layout, region):
    values = np.arange(1, 17 * 13 + 1, dtype="u2").reshape(17, 13)
    part = filled(values, **LAYOUTS[layout]).stored.crop(region)
    assert np.array_equal(Array(part)[...], values[region])
    assert part.shape == values[region].shape
    for each in (part.read_layout, part.write_layout):
        assert each.n_cut == sum(each.is_cut(coords) for coords in each.grid.all_coords())
        for coords in each.grid.all_coords():  # each by itself
            chunk = read_chunk(part, each, coords, each.grid.extent(coords))
            assert np.array_equal(chunk, values[region][each.grid.region(coords)])


def test_a_chunk_is_cut_at_either_end_or_both():
    array = create_array(MemoryStore(), shape=(12,), dtype="u1", chunks=(5,)).stored
    cut = {}
    for region in ((5, 10), (5, 12), (0, 12), (4, 12), (5, 9), (6, 8), (0, 3)):
        keys = array.crop((slice(*region),)).write_layout
        cut[region] = [coords[0] for coords in keys.grid.all_coords() if keys.is_cut(coords)]
    expected = {(5, 10): [], (5, 12): [], (0, 12): [], (4, 12): [0], (5, 9): [0], (6, 8): [0], (0, 3): [0]}
    assert cut == expected


def test_listings_count_from_the_region():
    array = create_array(MemoryStore(), shape=(40, 40), dtype="u1", chunks=(2, 2), shards=(8, 8))
    array[16:18, 20:22] = 1  # chunk (8, 10) in shard (2, 2)
    array[0, 0] = 1  # outside
    part = array.stored.crop((slice(10, 40), slice(4, 36)))
    shards = list_present(part)
    assert [part.write_layout.grid.coords_of(n) for n in shards.tolist()] == [(1, 2)]
    assert [part.read_layout.grid.coords_of(n) for n in chunks_in_shards(part, shards).tolist()] == [(3, 8)]


def test_runs_are_kept_from_the_region_on():
    array = create_array(MemoryStore(), "a", shape=(12, 12), dtype="u1", chunks=([2, 2, 4, 4], 5)).stored
    kept = array.crop((slice(2, 7), slice(2, 9))).chunk_grid
    assert kept.axes == (RunsAxis(5, ((2, 1), (4, 1))), RegularAxis(7, 5))


def test_a_region_travels_and_has_a_token_of_its_own():
    array = filled(np.arange(36).reshape(9, 4), chunks=(4, 4))
    region = (slice(3, 8), slice(0, 4))
    part = array.stored.crop(region)
    again = pickle.loads(pickle.dumps(part))
    assert np.array_equal(Array(again)[...], array[3:8])
    assert again.region == region
    assert again.stored_metadata.shape == (9, 4)
    other = array.stored.crop((slice(4, 9), slice(0, 4)))
    assert len({dask.base.tokenize(each) for each in (array.stored, part, other)}) == 3
    assert dask.base.tokenize(again) == dask.base.tokenize(part)
    assert np.array_equal(Array(part).to_dask().compute(scheduler="sync"), array[3:8])


def test_all_of_an_array_is_the_array():
    array = create_array(MemoryStore(), shape=(9,), dtype="i4")
    assert array.stored.crop((slice(0, 9),)) is array.stored
    assert array.stored.region is None


def test_absent_chunks_of_irregular_lengths():
    """Who meets some asks for the document, which is that of the whole array."""
    whole = create_array(MemoryStore(), "a", shape=(9,), dtype="i4", chunks=([2, 4, 3],))
    assert Array(whole.stored.crop((slice(1, 8),)))[...].tolist() == [0] * 7
