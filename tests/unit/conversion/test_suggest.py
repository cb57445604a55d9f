"""Suggested chunks: what is promised of a read is what reads touch, and no other division serves all accesses better."""

from itertools import product

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import RegionError
from chunkmill.model.grid import ChunkGrid
from chunkmill.stores.memory import MemoryStore

SHAPE = (96, 64, 48)
ACCESS = [(1, -1, -1), (-1, 1, 1)]


def values(shape=SHAPE):
    return np.broadcast_to(np.float32(0), shape)


def test_one_access_gets_chunks_made_for_it():
    assert cm.suggest_chunks(values(), access=(1, -1, -1), size=64 * 48 * 4).chunks == (1, 64, 48)
    assert cm.suggest_chunks(values(), access=[(-1, 1, 1)], size=96 * 4).chunks == (96, 1, 1)


def test_no_other_division_is_better():
    found = cm.suggest_chunks(values(), access=ACCESS, size="16KiB", remote=True)

    def of(chunks, access):
        stored = cm.create_array(MemoryStore(), shape=SHAPE, dtype="f4", chunks=chunks)
        return cm.suggest_chunks(stored, access=access, size="16KiB", remote=True).present[0].seconds

    alone = [cm.suggest_chunks(values(), access=each, size="16KiB", remote=True).accesses[0].seconds for each in ACCESS]
    dearest = max(of(found.chunks, each) / least for each, least in zip(ACCESS, alone, strict=True))
    for chunks in product((96, 48, 24, 12, 6, 3), (64, 32, 16, 8, 4), (48, 24, 12, 6, 3)):
        if 8 << 10 < 4 * np.prod(chunks) <= 16 << 10:
            others = max(of(chunks, each) / least for each, least in zip(ACCESS, alone, strict=True))
            assert dearest <= others * 1.000001, chunks


@cases("region", [(1, 64, 48), (96, 1, 1), (5, 7, 9), (13, 64, 1)])
def test_the_chunks_of_a_read_are_those_that_it_touches_on_average(region):
    array = cm.create_array(MemoryStore(), shape=SHAPE, dtype="f4", chunks=(8, 6, 10))
    (cost,) = cm.suggest_chunks(array, access=region).present
    grid: ChunkGrid = array.write_layout.grid
    starts = product(*(range(n - length + 1) for n, length in zip(SHAPE, region, strict=True)))
    touched = [
        sum(1 for _ in grid.overlaps(tuple(slice(a, a + n) for a, n in zip(start, region, strict=True))))
        for start in list(starts)[::7]
    ]
    assert cost.n_chunks == pytest.approx(np.mean(touched), rel=0.1)
    assert cost.amplification == pytest.approx(cost.n_bytes / (4 * np.prod(region)))


def test_dimensions_by_name_and_the_table():
    store = MemoryStore()
    cm.create_array(store, shape=SHAPE, dtype="f4", chunks=(1, 64, 48), dimension_names=("time", "y", "x"))
    found = cm.suggest_chunks(store, access=[{"time": 1}, {"y": 1, "x": 1}], size="16KiB")
    assert [cost.region for cost in found.accesses] == [(1, 64, 48), (96, 1, 1)]
    assert "time: 96, y: 1, x: 1" in repr(found)
    assert "now in about" in repr(found)
    assert found.to_dict()["chunks"] == list(found.chunks)


def test_a_rectilinear_grid_has_no_cost_of_its_own():
    array = cm.create_array(MemoryStore(), shape=(7, 5), dtype="i4", chunks=((3, 4), 5))
    assert cm.suggest_chunks(array, access=(1, -1)).present == ()


def test_a_path_next_to_an_array_is_refused():
    with pytest.raises(ValueError, match="the array is given"):
        cm.suggest_chunks(values(), "a", access=(1, -1, -1))


@cases("access", [(1, 2), (0, 1, 1), "abc"])
def test_an_access_that_does_not_fit(access):
    with pytest.raises(RegionError, match="for each of 3 axes"):
        cm.suggest_chunks(values(), access=access)


def test_more_axes_than_can_be_divided_get_blocks_in_c_order():
    assert cm.suggest_chunks(values((2,) * 32), access=[-1] * 32, size="4KiB").chunks == (1,) * 22 + (2,) * 10
