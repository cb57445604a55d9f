"""Dask's thread pools after a fork."""

import os
import signal
import threading
import time

import dask
import dask.array as da
import dask.threaded
import pytest
from support.systems import NEEDS_FORK

import chunkmill.runtime.scheduler  # noqa: F401 - what is tested

pytestmark = NEEDS_FORK


def status_of(child, seconds=30):
    """Run a function in a forked child, and return its exit status; ``None`` when it hangs."""
    pid = os.fork()
    if not pid:
        try:
            child()
        except BaseException:  # noqa: BLE001 - nothing of pytest may run here
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


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
