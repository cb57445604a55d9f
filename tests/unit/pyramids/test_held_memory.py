"""Pyramids and transforms hold the memory that they were planned to hold (P12)."""

import numpy as np
import pytest
from support.arrays import filled
from support.memory import peak_of
from support.rechunks import smallest

import chunkmill as cm
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD

pytestmark = pytest.mark.usefixtures("one_thread")


def stored(**options):
    return filled(np.random.default_rng(0).random((400, 1200)), **options)


BLOCK, SMALL = (400, 800), (100, 100)
BLOCKS = {
    "pyramid of blocks of Dask": lambda a, to: cm.plan_pyramid(a.to_dask(chunks=BLOCK), to, chunks=SMALL),
    "transform of them": lambda a, to: cm.plan_transform(np.negative, a.to_dask(chunks=BLOCK), to, chunks=SMALL),
    "transform with halos": lambda a, to: cm.plan_transform(np.negative, a, to, chunks=BLOCK, block=BLOCK, halo=4),
}


@pytest.mark.parametrize("job", BLOCKS)
def test_blocks_that_tasks_hold_or_depend_on_are_counted(tmp_path, job):
    plan = BLOCKS[job](stored(chunks=(200, 400)), tmp_path / "b.zarr")
    peak, _ = peak_of(plan.run)
    planned = plan.peak_memory_bytes - THREAD_OVERHEAD
    assert 0.25 * planned < peak < planned + (1 << 19)


def test_large_chunks_of_the_source_are_part_of_a_pyramid_s_memory(tmp_path):
    array = stored(chunks=(400, 1200), codecs="gzip")
    options = {"chunks": (200, 400), "levels": 2}
    needed, plan = smallest(lambda n: cm.plan_pyramid(array, tmp_path / "b", max_mem=n, **options))
    peak, _ = peak_of(plan.run)
    assert peak < needed
