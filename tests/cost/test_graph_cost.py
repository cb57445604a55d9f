"""What a graph costs before anything is read, in counts that do not depend on the machine."""

import pickle

import dask
import numpy as np
import pytest
from dask.blockwise import Blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

import chunkmill as cm
from chunkmill.dask_arrays import read
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(params=[(100, 100, 100), (1000, 100, 100)], ids=["10^6", "10^7"])
def array(request):
    grid = request.param
    return cm.create_array(MemoryStore(), shape=tuple(n * 10 for n in grid), dtype="u1", chunks=(10, 10, 10))


def test_building_touches_no_chunk(array, monkeypatch):
    """The layer computes a block's region from its index: building asks for none of them."""

    def refuse(array, region):
        raise AssertionError(region)

    monkeypatch.setattr(read, "read_block", refuse)
    x = array.to_dask()
    assert x.npartitions == array.nchunks
    assert len(x.dask.layers) == 1


def test_pickled_graph_is_small(array):
    assert len(pickle.dumps(array.to_dask().dask)) < 20_000


def test_a_slice_is_culled_without_walking_the_grid(array):
    x = (array.to_dask() + 1)[:15, :15, 500:510]
    layers_before = x.dask
    assert isinstance(layers_before, HighLevelGraph)
    (optimised,) = dask.optimize(x)
    tasks = dict(optimised.dask)
    assert len(tasks) <= 12
    np.testing.assert_array_equal(x.compute(scheduler="sync"), np.ones((15, 15, 10), "u1"))


def test_a_region_knows_of_no_other_block(array, monkeypatch):
    """Dask names all blocks of all layers for a reduction over a slice; of a region there are no others."""
    named = []
    monkeypatch.setattr(Blockwise, "get_output_keys", lambda layer: named.append(KEYS_OF(layer)) or named[-1])
    x = array.to_dask(region=np.s_[:15, :15, 500:510])
    assert int(x.sum().compute(scheduler="sync")) == 0
    assert named
    assert sum(map(len, named)) <= 20


KEYS_OF = Blockwise.get_output_keys


def test_the_array_is_inlined_and_not_a_task_of_its_own():
    x = cm.create_array(MemoryStore(), shape=(40, 40), dtype="u1", chunks=(10, 10)).to_dask()
    assert set(flatten(x.__dask_keys__())) == set(dict(x.dask))


def test_a_write_has_one_task_a_block():
    store = MemoryStore()
    x = dask.array.zeros((40, 40), chunks=(10, 10), dtype="u1")
    later = cm.to_store(x, store, compute=False)
    (optimised,) = dask.optimize(later)
    writes = [key for key in dict(optimised.dask) if str(key).startswith("('write-")]
    assert len(writes) <= 16 + 2  # what sums the counts up may carry the name on
