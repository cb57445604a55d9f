"""Memory and threads of the workers that run tasks, and the peak memory of this process (P12).

Not here: memory that a plan needs (`chunkmill.conversion.estimate`).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed.system import MEMORY_LIMIT
from distributed.worker import get_worker

from chunkmill.runtime.cluster_tasks import cluster_facts
from chunkmill.runtime.scheduler import Scheduler, worker_task

_SHARE = 0.3
"""Fraction of a worker's memory limit: distributed spills from 0.6, and the interpreter and libraries need some."""


THREAD_OVERHEAD = 4 << 20
"""Bytes (measured): memory that a thread's heap does not return, and Python's objects."""


_MAX_AHEAD = 32 << 20


@dataclass(frozen=True, slots=True)
class Worker:
    """Memory and threads of the workers that run tasks.

    Attributes
    ----------
    max_mem
        Bytes that the tasks of one worker may hold, all threads together.
    n_threads, n_workers
        Tasks at once in a worker, and workers.
    is_asked
        Whether a call asked for this memory.
    """

    max_mem: int
    n_threads: int
    n_workers: int
    is_asked: bool = False

    @property
    def ahead_bytes(self) -> int:
        """Bytes that a thread may fetch ahead of their use, from stores whose requests cost latency."""
        return min(_MAX_AHEAD, self.max_mem // self.n_threads // 8)


def current_worker(max_mem: int | str | None = None) -> Worker:
    """Return the workers of the current dask scheduler or Client.

    `max_mem` defaults to ``chunkmill.max-mem`` in dask's config, or else to a fraction of a worker's memory limit; in a
    task, whose worker may run such a job in each thread, to its thread's part.
    """
    scheduler = Scheduler(of_job=True)
    n_threads, n_workers, limit = scheduler.threads_per_worker, 1, MEMORY_LIMIT
    n_jobs, is_asked = 1, max_mem is not None  # jobs at once in this process
    if scheduler.in_process and worker_task() is not None:
        own = get_worker()
        n_jobs, limit = own.state.nthreads, own.memory_manager.memory_limit or MEMORY_LIMIT
    if scheduler.client is not None and scheduler.is_in_event_loop:
        about = scheduler.client.scheduler_info()
        n_workers = max(1, about.get("n_workers", 1))
        n_threads = n_threads if about.get("n_workers") else CPU_COUNT
        limit = (about.get("total_memory") or MEMORY_LIMIT) // n_workers
    elif scheduler.client is not None:
        workers = list(cluster_facts(scheduler.client)["workers"].values())
        n_workers = max(1, len(workers))
        n_threads = n_threads if workers else CPU_COUNT  # workers to come: as many as they are likely to have
        limit = min((w["memory_limit"] or MEMORY_LIMIT // n_workers for w in workers), default=MEMORY_LIMIT)
    elif not scheduler.in_process:
        n_workers = int(dask.config.get("num_workers", None) or CPU_COUNT)
        limit = MEMORY_LIMIT // n_workers
    if max_mem is None:
        of_worker = dask.config.get("chunkmill.max-mem", None)
        max_mem = max(1, int(limit * _SHARE if of_worker is None else parse_memory(of_worker)) // n_jobs)
    return Worker(parse_memory(max_mem), n_threads, n_workers, is_asked)


def parse_memory(max_mem: int | str) -> int:
    """Return `max_mem` in bytes.

    Raises
    ------
    ValueError
        `max_mem` is not a positive number of bytes.

    Examples
    --------
    >>> parse_memory("1 MiB")
    1048576
    """
    try:
        n_bytes = int(parse_bytes(max_mem))
    except (ValueError, TypeError, AttributeError):
        n_bytes = 0
    if n_bytes <= 0:
        msg = f"max_mem={max_mem!r}: expected a number of bytes above 0, or text such as '2 GiB'"
        raise ValueError(msg)
    return n_bytes


try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


_found = (0, 0)  # process id, and the peak that its status had last


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes; 0 where the system does not report it."""
    global _found  # noqa: PLW0603 - one for the process
    unit = 1 if sys.platform == "darwin" else 1024
    most = 0 if resource is None else unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # type: ignore[redundant-expr]
    if 0 < most <= _found[1] and _found[0] == os.getpid():
        return _found[1]  # the status, which takes 25 µs to read, has no more than getrusage
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as status:  # noqa: PTH123
        # Linux: getrusage reports the parent's peak for a process that was spawned
        peak = 1024 * int(status.read().partition(b"VmHWM:")[2].split(maxsplit=1)[0])
        _found = os.getpid(), peak
        return peak
    return most
