"""The parts of symbolic layers."""

import pickle
import sys
from functools import partial

import cloudpickle
import numpy as np
from dask.layers import ArraySliceDep
from support.cases import cases

from chunkmill.dask_arrays.blocks import BlockRegions, SharedFunction, _unpack

CHUNKS = {
    "regular": ((4, 4, 4), (3, 3)),
    "short end": ((4, 4, 1), (5,)),
    "long end": ((4, 4, 6), (5, 5)),
    "odd": ((1, 6, 2, 2), (3, 1, 3)),
    "empty blocks": ((3, 0, 4), (0,)),
    "0-d": (),
}


@cases("chunks", CHUNKS.values())
def test_regions_are_dask_s_own(chunks):
    ours, theirs = BlockRegions(chunks), ArraySliceDep(chunks)
    assert ours.numblocks == theirs.numblocks
    for index in np.ndindex(*ours.numblocks):
        assert ours[index].value == theirs[index]


def test_a_carried_function_is_unpickled_once():
    _unpack.cache_clear()
    sent = cloudpickle.dumps(SharedFunction(lambda x: x + 1))
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first is second
    assert first(1) == 2
    assert pickle.loads(pickle.dumps(first)) is first  # as the scheduler sends it on


def test_what_workers_can_import_is_pickled_without_cloudpickle(monkeypatch):
    """Cloudpickle took three times as long: most of the time of pickling a graph."""
    monkeypatch.delattr(cloudpickle, "dumps")
    assert pickle.loads(pickle.dumps(SharedFunction(partial(pow, 2))))(3) == 8


def test_what_a_script_defines_is_sent_whole(monkeypatch):
    def double(x):
        return 2 * x

    double.__module__, double.__qualname__ = "__main__", "double"
    with monkeypatch.context() as script:
        script.setattr(sys.modules["__main__"], "double", double, raising=False)
        sent = pickle.dumps(SharedFunction(partial(map, double)))
    assert list(pickle.loads(sent)([1, 2])) == [2, 4]  # where no script has it
