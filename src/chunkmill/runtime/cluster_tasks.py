"""Wait for a scheduler, its workers and their tasks, never silently for what cannot come; sync what was written.

Not here: which tasks there are (`chunkmill.runtime.scheduler`), what a store does to sync
(`chunkmill.stores.base.Store.sync`).
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dask.utils import format_bytes
from distributed import Client, Future
from distributed.protocol.pickle import dumps
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError
from distributed.worker import get_worker

from chunkmill.errors import ChunkmillError, JobError, NoWorkers
from chunkmill.log import LOG
from chunkmill.stores.base import Store
from chunkmill.stores.posix_file import origin

_PATIENCE = 5.0  # seconds
_UNNAMED = "dask"  # a job of which only a function knows that asks for others
_ENDED = {"finished", "error", "cancelled"}
_SLEEP, _SLEEP_EACH, _LONGEST_SLEEP = 0.005, 1e-5, 0.1  # seconds between two looks, which take 0.2 µs a future
_LOOK_SECONDS = 5.0  # between two looks at a cluster from which nothing comes
_GATHER_SECONDS = 1.0  # at least between two gatherings of results, which ask each worker that holds one
_GATHER_SHARE = 20  # a pause lasts so many times the gathering before it
_MOST_SECONDS = 2.0  # that a pause lasts, since a progress bar is to move
_PAUSED_SECONDS = 15.0  # with paused workers alone: they resume when values are on disk, or never
_ALONE_SECONDS = 25.0  # without a worker before that is reported: nannies need some seconds to restart theirs
_NOTICED_SECONDS = 2.0  # after which a client knows that the connection of a request that failed is closed


def cluster_facts(client: Client) -> Mapping[str, Any]:
    """Return what a scheduler says of itself and its workers; of an asynchronous client without workers."""
    if client.asynchronous:
        return client.scheduler_info()
    with scheduler_needed(client):
        scheduler: Any = client.scheduler  # `None` of a client that is closed
        # not `scheduler_info`: the client asks for the same without workers every two seconds, and may return that
        about: Mapping[str, Any] = client.sync(scheduler.identity, n_workers=-1)
    return about


@contextmanager
def scheduler_needed(client: Client, job: str = _UNNAMED) -> Iterator[None]:
    """Raise one `JobError`, which names the job, where what runs inside fails as its cluster does.

    Its scheduler is gone, its workers were restarted, or they died of a task.
    """
    address = getattr(getattr(client, "scheduler", None), "address", None)  # the client forgets it
    try:
        yield
    except JobError as error:
        if error.job != _UNNAMED or job == _UNNAMED:
            raise
        raise JobError(job=job, reason=error.reason, hint=error.hint) from error.__cause__
    except ChunkmillError:
        raise
    except Exception as error:
        where = f" at {address}" if address else ""
        if _is_lost(client, error):
            reason = f"the scheduler{where} is gone, and the tasks with it"
            hint = "run it again with a Client of another one: what a job has on record is not done again"
        elif isinstance(error, KilledWorker):
            reason = f"each worker that ran its task {error.task!r} died, {error.last_worker.address} the last: most "
            reason += "often a task takes more memory than a worker has"
            hint = "with more memory a worker the same call resumes; or begin again, `plan.run(resume=False)`, with a "
            hint += "lower max_mem=, or a smaller block= or chunks"
        elif isinstance(error, CancelledError):
            why = getattr(error, "reason", "") or "unknown"
            reason = f"the cluster{where} has cancelled its tasks ({why}): somebody restarted it, or cancelled them"
            hint = "the same call resumes: what a job has on record is not done again"
        elif isinstance(error, (NoWorkerError, NoValidWorkerError)):
            reason = f"the cluster{where} has had no worker for its tasks for too long: {error}"
            hint = "give it workers, and the same call resumes; distributed.scheduler.no-workers-timeout is the limit"
        else:
            raise
        raise JobError(job=job, reason=reason, hint=hint) from error


def _is_lost(client: Client, error: Exception) -> bool:
    """Return whether a client has lost its scheduler, which it may learn after a request has failed."""
    until = time.monotonic() + _NOTICED_SECONDS * isinstance(error, (OSError, CancelledError))  # CommClosedError, too
    while is_connected(client) and time.monotonic() < until:
        time.sleep(_SLEEP)
    return not is_connected(client)


def await_workers(client: Client) -> None:
    """Wait a few seconds for the cluster's first worker, and warn (`NoWorkers`) when none comes: dask waits silently.

    This is not an error, since workers may join later. Dask's setting ``distributed.scheduler.no-workers-timeout``, in
    the scheduler's configuration, limits how long tasks wait for them.
    """
    demand = client.submit(int, pure=False)  # makes an adaptive cluster start workers
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        address = cluster_facts(client)["address"]
        msg = f"the cluster at {address} has no workers, tasks wait for one: `dask worker {address}` starts one"
        warnings.warn(msg, NoWorkers, stacklevel=3)
    finally:
        demand.release()


class RunningTasks:
    """Futures of tasks that run on a cluster, and their results, in the order in which they end.

    Gathering what has ended asks the scheduler, and that every worker that holds a result: done for each task that
    ends, it made a third of the scheduler's work of a job (0.85 ms a task instead of 0.57, and 0.59 for tasks that are
    submitted and gathered at once). So there are pauses, in which results collect.

    dask's ``as_completed`` waits for ever where no worker is left, without a word: a ``LocalCluster`` gives the nanny
    of a worker up for good when that is restarting 15 s after its last restart (after a worker was lost, its name is
    looked for once in ``distributed.deploy.lost-worker-timeout``).

    Parameters
    ----------
    client
        Of the cluster.
    name
        Of the computation, for messages.
    futures
        The first ones.
    check
        Called while they are waited for; it may raise.
    waiting
        Called with what is waited for where no worker takes tasks, and with nothing when one does.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        futures: Iterable[Future[Any]] = (),
        *,
        check: Callable[[], object] | None = None,
        waiting: Callable[[str], object] | None = None,
    ) -> None:
        self._waiting = waiting or (lambda _: None)
        self._client, self._name, self._check = client, name, check
        self._address = cluster_facts(client)["address"]
        self._running = set(futures)
        self._gathered = time.monotonic()
        self._pause = _GATHER_SECONDS
        self._is_reported = False

    def __len__(self) -> int:
        return len(self._running)

    def add(self, futures: Iterable[Future[Any]]) -> None:
        """Add futures that were submitted."""
        self._running.update(futures)

    def gather_ended(self) -> list[Any]:
        """Wait until tasks have ended, and return their results; they are not among the others then.

        Raises the error of the first one that failed. Warns (`NoWorkers`) where the cluster has had no worker for half
        a minute.
        """
        ended = self._wait()
        self._running.difference_update(ended)
        begun = time.monotonic()
        results = list(self._client.gather(ended))
        self._gathered = time.monotonic()
        self._pause = min(_MOST_SECONDS, max(_GATHER_SECONDS, _GATHER_SHARE * (self._gathered - begun)))
        return results

    @contextmanager
    def cancelled_on_error(self, before_cancel: Callable[[], object] | None = None) -> Iterator[None]:
        """Submit and gather inside; after an error call `before_cancel`, and cancel all tasks that have not ended.

        Raises
        ------
        JobError
            The scheduler is gone.
        """
        with scheduler_needed(self._client, self._name):
            try:
                yield
            except BaseException:
                if before_cancel is not None:
                    before_cancel()
                if is_connected(self._client):
                    with suppress(RuntimeError):  # it was closed just now
                        self._client.cancel(list(self._running), force=True)
                raise

    def _wait(self) -> list[Future[Any]]:
        """Return the futures of the tasks that have ended, when it is time to gather their results."""
        looked = seen_workers = time.monotonic()
        while True:
            if self._check is not None:
                self._check()
            ended = [future for future in self._running if future.status in _ENDED]
            now = time.monotonic()
            if len(ended) == len(self._running) or any(future.status != "finished" for future in ended):
                return ended
            if ended and now - self._gathered >= self._pause:
                return ended
            if not ended and now - looked > _LOOK_SECONDS:
                workers = cluster_facts(self._client)["workers"]
                looked = now = time.monotonic()
                if any(worker.get("status") != "paused" for worker in workers.values()):
                    seen_workers, self._is_reported = now, False
                    self._waiting("")
                elif now - seen_workers > (_PAUSED_SECONDS if workers else _ALONE_SECONDS):
                    self._warn(now - seen_workers, workers)
            time.sleep(min(_LONGEST_SLEEP, _SLEEP + _SLEEP_EACH * len(self._running)))

    def _warn(self, seconds: float, workers: Mapping[str, Mapping[str, Any]]) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        n_tasks = len(self._running)
        if workers:
            msg = (
                f"{self._name}: all {len(workers)} workers of the cluster at {self._address} are paused for memory, "
                f"and {n_tasks} tasks wait: {_memory_of(workers)}; restarting them frees what other "
                "computations hold, and workers of more memory or fewer threads are not paused"
            )
        else:
            msg = (
                f"the cluster at {self._address} has had no workers for {seconds:.0f} s, and "
                f"{n_tasks} tasks wait for one: `dask worker {self._address}` starts one, `cluster.scale(n)` "
                "those that a cluster of this process has given up; or interrupt this"
            )
        self._waiting(msg)
        LOG.warning("%s", msg)
        warnings.warn(msg, NoWorkers, stacklevel=5)


_MOST_NAMED = 5


def _memory_of(workers: Mapping[str, Mapping[str, Any]]) -> str:
    """Name some workers with the memory that they use, and their limit."""
    named = [
        f"{address} {format_bytes(about.get('metrics', {}).get('memory', 0))} of {format_bytes(about['memory_limit'])}"
        for address, about in sorted(workers.items())[:_MOST_NAMED]
    ]
    return ", ".join(named) + (f" and {len(workers) - _MOST_NAMED} more" if len(workers) > _MOST_NAMED else "")


def is_connected(client: Client) -> bool:
    """Return whether a client has its scheduler: what is asked of one that is gone, is waited for until a timeout."""
    return client.status == "running"


# --------------------------------------------------------------------------------------------------------------------
# Machines whose workers ran tasks: a client's ``syncfs`` reaches the page cache of its own machine only (P11)


def worker_name() -> str | None:
    """Return the address of the worker that this task runs on; ``None`` outside a cluster."""
    try:
        return str(get_worker().address)
    except ValueError:
        return None


def machine() -> str:
    """Return what tells this machine from others: its boot, else its name."""
    host, boot, _ = origin()
    return boot or host


def run_and_say_where(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str, str | None]:
    """Return what a task's function returns, with the machine and the worker that ran it."""
    return function(*arguments), machine(), worker_name()


def sync_other_machines(
    stores: Iterable[Store], client: Client | None, job: str, ran: Mapping[str, set[str]] | None = None
) -> None:
    """Let one worker of each other host of a cluster make what was written to `stores` survive a crash there.

    Parameters
    ----------
    ran
        Machines that have run the tasks of the job, each with workers that were seen there: only they matter, and a
        warning names the workers of those that have none by now. ``None`` where that is not known.
    """
    here = machine()
    others = {name: seen for name, seen in (ran or {}).items() if name != here}
    written = [store for store in stores if store.can_sync]
    if client is None or client.asynchronous or (ran is not None and not others) or not written:
        return
    with scheduler_needed(client, job):
        workers = cluster_facts(client)["workers"]
        asked = [min(alive) for seen in others.values() if (alive := seen & workers.keys())]
        hosts = {workers[worker]["host"] for worker in asked}  # further ones: a nanny may have replaced a worker
        asked += {about["host"]: worker for worker, about in workers.items() if about["host"] not in hosts}.values()
        # pickled by hand, as a job's tasks are
        sync = partial(_sync, dumps(written), here)
        answers = client.run(sync, workers=asked, on_error="return") if asked else {}
    synced = {answer for answer in answers.values() if isinstance(answer, str)}
    if left := sorted(worker for name, seen in others.items() if name not in synced for worker in seen):
        msg = (
            f"{job}: what workers wrote to {written[0].url} that are gone ({', '.join(left)}) was not synced on their "
            "machines: a crash of those in the next seconds may lose it, unless chunkmill.fsync is true"
        )
        LOG.warning("%s%s", msg, "".join(f"; {error!r}" for error in answers.values() if not isinstance(error, str)))
        warnings.warn(msg, UserWarning, stacklevel=2)


def _sync(stores: bytes, client_machine: str) -> str:
    """Sync pickled stores, unless their client does that, and return the machine."""
    if (here := machine()) != client_machine:
        for store in pickle.loads(stores):  # noqa: S301 - made by the client
            store.sync()
    return here
