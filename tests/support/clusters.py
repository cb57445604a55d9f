"""Clusters of processes for tests, and how to kill what belongs to them: by process id."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import dask
from distributed import Client, LocalCluster


class FakeClient:
    """A client of a cluster without futures that end, of which `identity` tells."""

    status, asynchronous = "running", False

    def __init__(self, identity):
        self.identity, self.scheduler = identity, self

    def sync(self, function, **options):
        return function(**options)


@contextlib.contextmanager
def cluster_of(
    n_workers: int = 2, n_threads: int = 1, config: dict[str, Any] | None = None, **options: Any
) -> Iterator[Client]:
    """Run a LocalCluster of processes, and yield a Client of it, set as dask's scheduler.

    Nannies that restart a worker 15 s after its last death would be given up, and with the last one the cluster.
    """
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"} | (config or {})),
        # port 0: with None the scheduler wants 8787, and warns when the tests of another run have it
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=n_threads,
            processes=True,
            dashboard_address="127.0.0.1:0",
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers)
        yield client


@contextlib.contextmanager
def cluster_without_nannies(n_workers: int = 2, config: dict[str, Any] | None = None) -> Iterator[list[Popen[bytes]]]:
    """Run workers of one thread that nobody restarts, and yield their processes; a Client is set as dask's scheduler.

    A nanny kills a worker that was suspended for long; but a machine that sleeps suspends its nannies, too.
    """
    with (
        dask.config.set(config or {}),
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        contextlib.ExitStack() as workers,
    ):
        started = [workers.enter_context(_worker(cluster.scheduler_address)) for _ in range(n_workers)]
        client.wait_for_workers(n_workers)
        yield started


@contextlib.contextmanager
def scheduler_of_its_own(folder: Path, n_workers: int = 2) -> Iterator[Popen[bytes]]:
    """Run a scheduler and workers of one thread, and yield the scheduler's process; a Client is set as dask's."""
    file = folder / "scheduler.json"
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(_process("scheduler", "--port", "0", "--scheduler-file", str(file)))
        while not file.exists():
            time.sleep(0.05)
        for _ in range(n_workers):
            stack.enter_context(_worker("--scheduler-file", str(file)))
        stack.enter_context(Client(scheduler_file=str(file))).wait_for_workers(n_workers)
        yield scheduler


@contextlib.contextmanager
def bare_worker(client: Client) -> Iterator[Popen[bytes]]:
    """Run a worker of the client's cluster in an environment without chunkmill, and yield its process."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    with _worker(client.scheduler_info()["address"], python=["-S"], path=packages) as worker:
        client.wait_for_workers(1)
        yield worker


def _worker(*options: str, **how: list[str]) -> contextlib.AbstractContextManager[Popen[bytes]]:
    return _process("worker", *options, "--no-nanny", "--nthreads", "1", **how)


@contextlib.contextmanager
def _process(kind: str, *options: str, python: Sequence[str] = (), path: Sequence[str] = ()) -> Iterator[Popen[bytes]]:
    command = [sys.executable, *python, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or sys.path)}
    process = Popen(command, env=environment, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


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
