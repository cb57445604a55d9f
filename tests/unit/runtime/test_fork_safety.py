"""Dask's thread pools after a fork."""

import multiprocessing
import threading

import dask
import dask.array as da
import dask.threaded
import pytest
from support.systems import NEEDS_FORK

import chunkmill.runtime.scheduler  # noqa: F401 - what is tested

pytestmark = NEEDS_FORK


def status_of(child):
    """Run a function in a forked child, and return its exit status; ``None`` when it hangs."""
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    status = process.exitcode
    process.kill()
    return status


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_computes_in_threads_of_its_own():
    """With its parent's pool it would wait without end for threads that it does not have."""
    with dask.config.set(scheduler="threads", num_workers=3):
        assert da.ones(4, chunks=1).sum().compute() == 4
        assert status_of(lambda: da.ones(8, chunks=1).sum().compute()) == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_dask_makes_a_pool():
    lock = getattr(dask.threaded, "pools_lock", threading.Lock())
    with lock, dask.config.set(scheduler="threads", num_workers=2):
        assert status_of(lambda: da.ones(8, chunks=1).sum().compute()) == 0
