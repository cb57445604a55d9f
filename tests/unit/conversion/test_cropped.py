"""Regions as arrays."""

import pickle

import dask
import numpy as np

from chunkmill.conversion.region_option import crop, region_of
from chunkmill.nodes.api import create_array
from chunkmill.nodes.array import Array
from chunkmill.stores.memory import MemoryStore


def test_a_region_travels_and_has_a_token_of_its_own():
    array = create_array("memory://cropped-token", shape=(9, 4), dtype="i4", chunks=(4, 4), overwrite=True)
    array[...] = np.arange(36).reshape(9, 4)
    region = (slice(3, 8), slice(0, 4))
    part = crop(array.stored, region)
    again = pickle.loads(pickle.dumps(part))
    assert np.array_equal(Array(again)[...], array[3:8])
    assert region_of(again) == region
    assert again.stored_metadata.shape == (9, 4)
    other = crop(array.stored, (slice(4, 9), slice(0, 4)))
    assert len({dask.base.tokenize(each) for each in (array.stored, part, other)}) == 3
    assert dask.base.tokenize(again) == dask.base.tokenize(part)
    assert np.array_equal(Array(part).to_dask().compute(scheduler="sync"), array[3:8])


def test_all_of_an_array_is_the_array():
    array = create_array("memory://cropped-all", shape=(9,), dtype="i4", overwrite=True)
    assert crop(array.stored, (slice(0, 9),)) is array.stored
    assert region_of(array.stored) is None


def test_absent_chunks_of_irregular_lengths():
    """Who meets some asks for the document, which is that of the whole array."""
    whole = create_array(MemoryStore(), "a", shape=(9,), dtype="i4", chunks=([2, 4, 3],))
    assert Array(crop(whole.stored, (slice(1, 8),)))[...].tolist() == [0] * 7
