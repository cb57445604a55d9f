"""The parts of symbolic layers; which blocks are written by one task: every element arrives, with little copied."""

import pickle
import sys
from functools import partial
from itertools import accumulate

import cloudpickle
import dask
import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.layers import ArraySliceDep
from dask.utils import key_split
from support.cases import cases

from chunkmill.dask_arrays import regroup as module
from chunkmill.dask_arrays.blocks import BlockRegions, SharedFunction, _unpack
from chunkmill.dask_arrays.regroup import regroup, write_chunks
from chunkmill.model.grid import ChunkGrid

CASES = {
    "finer": (((8, 8), (6,)), ((4,) * 4, (2, 2, 2))),
    "coarser": (((4,) * 4, (2, 2, 2)), ((16,), (6,))),
    "shifted": (((4,) * 4, (3, 3)), ((2, 4, 4, 4, 2), (1, 3, 2))),
    "blocks without elements": (((3, 0, 4), (0, 2)), ((5, 2), (1, 1))),
    "an axis without elements": (((0,), (3, 7)), ((0,), (4, 6))),
}


def written(x, chunks, unit=2):
    """Return what arrives when every task asks for units of this size, and the graph's tasks."""
    result = np.zeros(x.shape, x.dtype)
    views = []

    def function(pieces, within):
        shape = tuple(cut.stop - cut.start for cut in within)
        for start in np.ndindex(*(-(-n // unit) for n in shape)):
            region = tuple(slice(unit * s, min(unit * (s + 1), n)) for s, n in zip(start, shape, strict=True))
            values = pieces[*region, ...]
            views.append(values.base is not None)
            result[tuple(slice(w.start + c.start, w.start + c.stop) for w, c in zip(within, region, strict=True))] = (
                values
            )
        return np.ones((1,) * pieces.ndim + (1,), np.int64)

    counts = regroup(x, chunks, function, name="write-x", n_results=1)
    n_blocks = np.prod([len(axis) for axis in chunks])
    assert dask.compute(counts, scheduler="sync")[0].sum() == n_blocks
    return result, dict(counts.dask), views


@cases("worth", [0, 1 << 20])
@cases(("old", "new"), CASES.values())
def test_every_element_arrives(old, new, worth, monkeypatch):
    monkeypatch.setattr(module, "_WORTH_A_TASK", worth)
    shape = tuple(map(sum, old))
    values = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    result, _, _ = written(da.from_array(values, chunks=old), new)
    np.testing.assert_array_equal(result, values)


def test_one_task_a_block():
    x = da.from_array(np.zeros((40, 40)), chunks=4)
    _, graph, _ = written(x, ((18, 22), (18, 22)))
    assert sum(key_split(key) == "write-x" for key in graph) == 4
    assert not any("extract" in key_split(key) for key in graph)


def test_of_large_blocks_parts_are_sent():
    x = da.zeros((3 << 20, 2), chunks=(1 << 20, 2), dtype="u1")
    chunks = ((1 << 18, 1 << 20, 1 << 20, 3 << 18), (2,))
    counts = regroup(x, chunks, lambda pieces, within: None, name="write-x", n_results=1)
    # a block: a quarter to one task (worth a task to cut), three quarters to the other (sent whole)
    assert sum(key_split(key).startswith("extract") for key in counts.dask) == 3


def test_what_lies_in_one_piece_is_not_copied():
    x = da.from_array(np.zeros((8, 8)), chunks=(4, 8))
    _, _, views = written(x, ((2, 4, 2), (8,)))
    assert all(views)


def test_other_names_of_a_block_are_no_tasks():
    x = da.arange(12, chunks=4).map_blocks(np.negative)
    y = x.blocks[::-1].blocks[1:]  # dask gives each step a name of its own
    result, graph, _ = written(y, ((2, 4, 2),))
    np.testing.assert_array_equal(result, y.compute())
    needed = set().union(*(task.dependencies for key, task in graph.items() if key[0] == "write-x"))
    assert {key[0] for key in needed} == {x.name}
    assert not [key for key in graph if key_split(key) == "blocks"]


def test_a_layer_that_has_not_the_name_of_its_keys():
    """A graph made by hand: what is not known to be of names alone stays."""
    tasks = {("x", i): (np.full, 3, i) for i in range(4)}
    x = da.Array(HighLevelGraph({"odd": MaterializedLayer(tasks)}, {"odd": set()}), "x", ((3,) * 4,), dtype=int)
    result, *_ = written(x, ((4,) * 3,))
    np.testing.assert_array_equal(result, np.repeat(np.arange(4), 3))


# --------------------------------------------------------------------------------------------------------------------
# Boundaries

KIB = 2**10


def borders(lengths):
    return set(accumulate(lengths))


def test_aligned_blocks_stay_as_they_are():
    grid = ChunkGrid.regular((1000,), (10,))
    for own in ((10,) * 100, (20, 980), (1000,)):
        assert write_chunks(grid, (slice(0, 1000),), (own,), 1) == (own,)


def test_small_blocks_are_written_together():
    grid = ChunkGrid.regular((64 * 66, 32 * 66), (64, 32))  # 4 KiB
    region = slice(32, 32 + 64 * 64), slice(16, 16 + 32 * 64)
    rows, columns = write_chunks(grid, region, ((64,) * 64, (32,) * 64), 2)
    assert sum(rows) == 64 * 64
    assert sum(columns) == 32 * 64
    assert (rows[1], columns[1]) == (16 * 64, 16 * 32)  # 1 MiB, as many of both
    assert borders(rows[:-1]) <= set(range(32, 64 * 66, 64))


@cases(
    ("n_keys", "most"),
    [
        (64, 1024 * KIB),  # 4 MiB in all: no task is smaller than is worth it
        (1024, 4 * 1024 * KIB),  # 64 MiB: 16 tasks
        (65536, 8 * 1024 * KIB),  # 4 GiB
    ],
)
def test_how_much_one_task_writes(n_keys, most):
    n = 64 * KIB
    grid = ChunkGrid.regular((n * (n_keys + 1),), (n,))
    (lengths,) = write_chunks(grid, (slice(n // 2, n // 2 + n * n_keys),), ((n,) * n_keys,), 1)
    assert lengths[1] == most
    assert sum(lengths) == n * n_keys


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
