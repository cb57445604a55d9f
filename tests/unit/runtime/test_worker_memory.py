"""Memory and threads of the workers that run tasks, and the peak of a process."""

import subprocess
import sys

import dask
import numpy as np
import pytest
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from support.cases import cases

from chunkmill.runtime.worker_memory import Worker, current_worker, parse_memory, peak_memory


@cases(("max_mem", "n_bytes"), [(1000, 1000), ("2 MiB", 2 << 20), ("1e3", 1000), ("1.5kB", 1500)])
def test_memory_is_parsed(max_mem, n_bytes):
    assert parse_memory(max_mem) == n_bytes


@cases("max_mem", [0, -1, "much", "-2 GiB"])
def test_what_is_no_memory(max_mem):
    with pytest.raises(ValueError, match=r"expected a number of bytes above 0"):
        parse_memory(max_mem)


def test_local_schedulers():
    with dask.config.set(scheduler="threads", num_workers=3):
        worker = current_worker()
        assert (worker.n_threads, worker.n_workers) == (3, 1)
        assert 0 < worker.max_mem < MEMORY_LIMIT / 2
    with dask.config.set(scheduler="processes"):
        each = current_worker()
        assert (each.n_threads, each.n_workers) == (1, CPU_COUNT)
        assert each.max_mem == pytest.approx(worker.max_mem / CPU_COUNT, rel=0.01)


def test_memory_as_configured_or_given():
    with dask.config.set({"scheduler": "sync", "chunkmill.max-mem": "1 MiB"}):
        assert current_worker().max_mem == 1 << 20
        assert current_worker("2 MiB").max_mem == 2 << 20


def test_what_is_fetched_ahead_is_a_small_part_of_memory():
    assert Worker(8 << 30, 4, 1).ahead_bytes == 32 << 20
    assert Worker(64 << 20, 4, 1).ahead_bytes == 2 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system may not tell")
def test_it_is_this_process_alone():
    """Not the parent's, which a process that is spawned is told by getrusage."""
    peak_memory()  # what is found once may grow
    held = np.ones(256 << 20, np.uint8)
    script = "from chunkmill.runtime.worker_memory import peak_memory as p; print(p())"
    child = int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout)
    assert child > 1 << 20
    before = peak_memory()
    assert before > held.nbytes
    assert child < before
