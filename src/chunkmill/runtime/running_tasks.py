"""Wait for workers, and for tasks that run on a cluster, without ever waiting silently for what cannot come."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from typing import Any

from distributed import Client, Future, as_completed

from chunkmill.errors import NoWorkers

__all__ = ["RunningTasks", "await_workers"]

_PATIENCE = 5.0  # seconds
_LOOK_SECONDS = 5.0  # between two looks at a cluster from which nothing comes
_ALONE_SECONDS = 30.0  # without a worker before that is told: nannies need some seconds to restart theirs


def await_workers(client: Client, patience: float | None = None) -> None:
    """Wait a few seconds for the cluster's first worker, and warn (`NoWorkers`) when none comes: dask waits silently.

    This is not an error, since workers may join later. Dask's setting ``distributed.scheduler.no-workers-timeout``, in
    the scheduler's configuration, limits how long tasks wait for them.
    """
    demand = client.submit(int, pure=False)  # makes an adaptive cluster start workers
    try:
        client.wait_for_workers(1, timeout=_PATIENCE if patience is None else patience)
    except TimeoutError:
        address = client.scheduler_info(n_workers=0)["address"]
        msg = f"the cluster at {address} has no workers, tasks wait for one: `dask worker {address}` starts one"
        warnings.warn(msg, NoWorkers, stacklevel=3)
    finally:
        demand.release()


class RunningTasks:
    """Futures of tasks that run on a cluster, in the order in which they end.

    dask's ``as_completed`` waits for ever where no worker is left, without a word: a `LocalCluster` gives the nanny of
    a worker up for good when that is restarting 15 s after its last restart (``distributed.deploy.lost-worker-timeout``
    after a worker was lost, its name is looked for once).

    Parameters
    ----------
    client
        Of the cluster.
    futures
        The first ones.
    """

    def __init__(self, client: Client, futures: Iterable[Future[Any]] = ()) -> None:
        self._client = client
        self._running: set[Future[Any]] = set()
        self._ended = as_completed(loop=client.loop)
        self._looked = self._seen_workers = time.monotonic()
        self._is_told = False
        self.add(futures)

    def __len__(self) -> int:
        return len(self._running)

    def add(self, futures: Iterable[Future[Any]]) -> None:
        """Add futures that were submitted."""
        new = list(futures)
        self._running.update(new)
        self._ended.update(new)

    def next_ended(self) -> list[Future[Any]]:
        """Wait until tasks have ended, finished or not, and return their futures; they are not among the others then.

        Warns (`NoWorkers`) where the cluster has had no worker for half a minute.
        """
        self._looked = self._seen_workers = time.monotonic()
        ended: list[Future[Any]] = []
        while not ended and self._running:
            with self._ended.thread_condition:
                if not self._ended.has_ready():
                    self._ended.thread_condition.wait(0.1)  # as as_completed does itself
            ended = [future for future in self._ended.next_batch(block=False) if future in self._running]
            if not ended and time.monotonic() - self._looked > _LOOK_SECONDS:
                ended = self._look()
        self._running.difference_update(ended)
        return ended

    def cancel(self) -> None:
        """Cancel all that have not ended."""
        self._client.cancel(list(self._running), force=True)

    def _look(self) -> list[Future[Any]]:
        """Return the futures of tasks that have ended without a message, and warn where there is no worker."""
        now = self._looked = time.monotonic()
        known = self._client.scheduler_info(n_workers=0)
        if known.get("n_workers", 1):
            self._seen_workers, self._is_told = now, False
        elif now - self._seen_workers > _ALONE_SECONDS and not self._is_told:
            self._is_told = True
            address = known["address"]
            msg = (
                f"the cluster at {address} has had no workers for {now - self._seen_workers:.0f} s, and "
                f"{len(self._running)} tasks wait for one: `dask worker {address}` starts one, `cluster.scale(n)` "
                "those that a cluster of this process has given up; or interrupt this"
            )
            warnings.warn(msg, NoWorkers, stacklevel=5)
        return [future for future in self._running if future.done()]
