"""References that tasks take along."""

import pickle

import numpy as np
import pytest
from dask.base import tokenize

import chunkmill as cm
from chunkmill.array.other_stores import without_references
from chunkmill.dask_arrays.reference_subsets import SubsetRegions, read_subset


@pytest.fixture
def array(tmp_path):
    source = cm.create_array(tmp_path / "s", "a", shape=(12,), dtype="i4", chunks=(3,))
    source[...] = np.arange(12)
    cm.to_references(str(tmp_path / "s"), str(tmp_path / "refs.json"))
    return cm.open_array(str(tmp_path / "refs.json"), "a")


def test_a_block_takes_its_own_references_along(array):
    regions = SubsetRegions(array.stored, ((6, 6),))
    sent = pickle.loads(pickle.dumps(regions[1,].value))
    store, blocks = pickle.loads(sent)
    assert blocks == [(slice(6, 12),)]
    assert sorted(store.references.keys()) == ["a/2", "a/3"]
    np.testing.assert_array_equal(read_subset(without_references(array.stored), sent), np.arange(6, 12))


def test_in_the_process_that_holds_the_set_nothing_is_copied(array):
    block = SubsetRegions(array.stored, ((6, 6),), start=(0,))[0,].value
    assert block.array is array.stored
    np.testing.assert_array_equal(read_subset(without_references(array.stored), block), np.arange(6))


def test_tokens_tell_regions_and_arrays(array):
    whole, moved = SubsetRegions(array.stored, ((6, 3),)), SubsetRegions(array.stored, ((6, 3),), start=(3,))
    assert tokenize(whole) == tokenize(SubsetRegions(array.stored, ((6, 3),)))
    assert tokenize(whole) != tokenize(moved)
