"""Clusters of processes for tests, and how to kill what belongs to them: by process id."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import dask
from distributed import Client, LocalCluster

__all__ = ["cluster_of", "kill_worker", "worker_pids"]


@contextlib.contextmanager
def cluster_of(n_workers: int = 2, n_threads: int = 1, config: dict[str, Any] | None = None) -> Iterator[Client]:
    """Run a LocalCluster of processes, and yield a Client of it, set as dask's scheduler."""
    with (
        dask.config.set(config or {}),
        # port 0: with None the scheduler wants 8787, and warns when the tests of another run have it
        LocalCluster(
            n_workers=n_workers, threads_per_worker=n_threads, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers)
        yield client


def worker_pids(client: Client) -> dict[str, int]:
    """Return the process id of every worker that is at work, by address.

    Nobody is asked who may be dead; and whoever is killed while it starts is given up by its nanny.
    """
    known = client.cluster.scheduler.workers
    nannies = [nanny for nanny in client.cluster.workers.values() if nanny.worker_address in known]
    return {nanny.worker_address: nanny.pid for nanny in nannies if nanny.pid}


def kill_worker(pid: int) -> None:
    """End a worker's process as the kernel does when memory is out: without a word."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
