"""Locks for partial writes on a cluster, and the meaning of ``lock=`` (P3).

A lock only saves writers from repeating their work; that no element is lost is the store's version check
(`chunkmill.array.chunk_io.update_chunk`). So a task that can check versions works without the cluster's lock at first,
and asks for it when it finds that others write the same key: two messages to the scheduler cost more than most partial
writes. In a store that cannot check versions the lock is all there is, and taken from the start.

The cluster's locks are `distributed.Lock` in all but the class: leases of the scheduler's semaphores, so that a lock is
free when its holder is silent for ``distributed.scheduler.locks.lease-timeout`` (30 s). A holder that died need not be
waited for so long: leases name their worker here, and a plugin of the scheduler ends those of a worker that is gone at
the moment when the scheduler knows, which for a process that was killed is at once. Shorter leases would do the same
for the dead, and take the lock from the living who are slow; the plugin needs neither settings nor a client, since the
first worker that takes a lock registers it.
"""

from __future__ import annotations

import pickle
import threading
import time
from asyncio import Task, create_task, sleep
from contextlib import AbstractContextManager
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import cloudpickle
import dask
from dask.utils import SerializableLock, parse_timedelta
from distributed import Scheduler as ClusterScheduler
from distributed import SchedulerPlugin, Worker
from distributed.utils import sync
from distributed.worker import get_worker

from chunkmill.array.local_locks import N_STRIPES, PATIENCE, LockFactory, local_lock, report_waiting, stripe
from chunkmill.errors import StoreError
from chunkmill.log import LOG
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores.base import Store

__all__ = ["ClusterLock", "UserLock", "automatic_lock", "check_guarded", "lock_factory", "no_lock"]

_MEMORY = 1.0  # seconds for which a key that others write counts as contended: one attempt in each is repeated
_POLL = 2.0  # seconds after which a waiting task asks for the holder of the lock, whereby the leases of the dead end


def lock_factory(lock: Any) -> LockFactory:
    """Return the function from a store key to its lock, picklable for tasks.

    Parameters
    ----------
    lock
        ``"auto"``: this process's locks outside a cluster, the cluster's inside one. ``None`` or ``False``: none, the
        version check alone guards. Anything else is a context manager that is entered for every partial write.

    Raises
    ------
    TypeError
        `lock` is not a lock, or cannot be sent to the workers of the current scheduler.
    """
    if isinstance(lock, str) and lock == "auto":
        return automatic_lock
    if lock is None or lock is False:
        return no_lock
    if not hasattr(lock, "__enter__"):
        raise TypeError(f"lock={lock!r} is neither 'auto' nor None nor a context manager")
    if not Scheduler().in_process:
        try:
            cloudpickle.dumps(lock)
        except Exception as error:
            way_out = "give lock='auto', a distributed.Lock, or another that processes can share"
            raise TypeError(f"lock={lock!r} cannot be sent to workers ({error}); {way_out}") from error
    return UserLock(lock)


def automatic_lock(name: str, contended: bool = False) -> AbstractContextManager[Any]:
    """Return the lock for `name`: this process's, or when `contended` that of the cluster whose worker runs here.

    After a conflict with another writer, the next writes of the key take the cluster's lock at once.
    """
    number, now = stripe(name), time.monotonic()
    if contended:
        _CONTENDED_UNTIL[number] = now + _MEMORY
    elif now < _CONTENDED_UNTIL[number]:
        contended = True
    worker = _worker() if contended else None
    return local_lock(name) if worker is None else ClusterLock(worker, name)


_CONTENDED_UNTIL = [0.0] * N_STRIPES


def no_lock(name: str, contended: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG001 - signature of a lock factory
    """Return a context manager that guards nothing."""
    return _NoLock()


class _NoLock(AbstractContextManager[None]):
    def __exit__(self, *_: object) -> None: ...


class UserLock:
    """Lock factory that returns the user's one lock for every key."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __call__(self, name: str, contended: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - likewise
        """Return the lock."""
        return self.lock  # type: ignore[no-any-return]


def check_guarded(store: Store, key: str, lock: LockFactory) -> None:
    """Raise `StoreError` when nothing guards partial writes on the current scheduler; `key` is named in the error."""
    if store.compares_versions:
        return
    scheduler = Scheduler()
    client = scheduler.client
    alone = scheduler.in_process or (client is not None and client.scheduler_info()["address"].startswith("inproc:"))
    if lock is no_lock:
        reason = "lock=None leaves partial writes unguarded"
    elif not alone and isinstance(lock, UserLock) and isinstance(lock.lock, SerializableLock):
        reason = "a SerializableLock is a lock of one process only"
    elif not alone and lock is automatic_lock and client is None:
        reason = "processes without a cluster have no lock in common"
    else:
        return
    way_out = "give lock='auto', with threads or a distributed Client, or a region of whole chunks (shards)"
    reason = f"{reason}, and the store cannot check versions; {way_out}"
    raise StoreError(url=store.url, key=key, reason=reason)


def _worker() -> Worker | None:
    """Return the worker that this task runs on, or (in a thread that a task started) that of this process."""
    try:
        return get_worker()
    except ValueError:
        return next((worker for worker in getattr(Worker, "_instances", ()) if worker.status.name == "running"), None)


# --------------------------------------------------------------------------------------------------------------------
# On workers


class ClusterLock(AbstractContextManager[None]):
    """Context manager that holds the cluster's lock of a store key once.

    Threads of one process queue for it here, so that a process asks the scheduler for one lock of a key at a time.
    The local lock is always taken before the cluster's, and for one key only, so that a deadlock cannot occur.
    """

    def __init__(self, worker: Worker, name: str) -> None:
        self.name = name
        self._local = local_lock(name)
        self._leases = _leases_of(worker)
        self._semaphore = f"chunkmill-{stripe(name)}"
        self._lease = f"{worker.address}|{_task_key(worker)}|{uuid4().hex}"

    def __enter__(self) -> None:
        self._local.__enter__()
        try:
            self._leases.acquire(self._semaphore, self._lease, self.name)
        except BaseException:
            self._local.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._leases.release(self._semaphore, self._lease)
        finally:
            self._local.__exit__()


class _Leases:
    """Leases that the tasks of one worker hold, and the coroutines that refresh them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._known: set[str] = set()
        self._alive: dict[str, Task[None]] = {}

    def acquire(self, semaphore: str, lease: str, name: str) -> None:
        begun = time.monotonic()
        next_line = PATIENCE
        while not sync(self._worker.loop, self._acquire, semaphore, lease):
            holders = sync(self._worker.loop, self._holders, semaphore)
            if (waited := time.monotonic() - begun) >= next_line:
                report_waiting(name, waited, holders)
                next_line = 2 * waited

    def release(self, semaphore: str, lease: str) -> None:
        sync(self._worker.loop, self._release, semaphore, lease)

    async def _acquire(self, semaphore: str, lease: str) -> bool:
        scheduler = self._worker.scheduler
        timeout = parse_timedelta(dask.config.get("distributed.scheduler.locks.lease-timeout"), "s")
        timeout = None if timeout == float("inf") else timeout
        if semaphore not in self._known:
            if not self._known:
                await self._register_plugin()
            await scheduler.semaphore_register(name=semaphore, max_leases=1, lease_timeout=timeout)
            self._known.add(semaphore)
        if not await scheduler.semaphore_acquire(name=semaphore, timeout=_POLL, lease_id=lease):
            return False
        if timeout is not None:
            self._alive[lease] = create_task(self._keep_alive(semaphore, lease, timeout / 5))
        return True

    async def _release(self, semaphore: str, lease: str) -> None:
        if (task := self._alive.pop(lease, None)) is not None:
            task.cancel()
        try:
            await self._worker.scheduler.semaphore_release(name=semaphore, lease_id=lease)
        except Exception:  # noqa: BLE001 - whatever it is
            # the guarded write is done; the lease expires, as it is not refreshed any more
            LOG.warning("cannot tell the scheduler that %s is released", semaphore, exc_info=True)

    async def _keep_alive(self, semaphore: str, lease: str, pause: float) -> None:
        while True:
            await sleep(pause)
            await self._worker.scheduler.semaphore_refresh_leases(name=semaphore, lease_ids=[lease])

    async def _register_plugin(self) -> None:
        try:
            await self._worker.scheduler.register_scheduler_plugin(
                plugin=pickle.dumps(ReleaseDeadHolders()), name=ReleaseDeadHolders.name, idempotent=True
            )
        except Exception as error:  # noqa: BLE001 - a scheduler that takes no plugins (distributed.scheduler.pickle)
            LOG.info("locks of workers that die are freed when their leases end: %r", error)

    async def _holders(self, semaphore: str) -> str:
        try:
            leases = await self._worker.scheduler.chunkmill_lock_holders(semaphore=semaphore)
        except Exception:  # noqa: BLE001 - no plugin
            return ""
        return ", ".join(f"task {task} on {address}" for address, task, _ in (lease.split("|") for lease in leases))


_LEASES: WeakKeyDictionary[Worker, _Leases] = WeakKeyDictionary()
_LEASES_LOCK = threading.Lock()


def _leases_of(worker: Worker) -> _Leases:
    with _LEASES_LOCK:
        return _LEASES.setdefault(worker, _Leases(worker))


def _task_key(worker: Worker) -> str:
    return str(worker.active_threads.get(threading.get_ident(), "none")).replace("|", "/")


# --------------------------------------------------------------------------------------------------------------------
# On the scheduler


class ReleaseDeadHolders(SchedulerPlugin):
    """End the leases of workers that are gone, so that a dead holder's lock is free at once."""

    name = "chunkmill-locks"

    async def start(self, scheduler: ClusterScheduler) -> None:
        """Let workers ask for the holder of a lock."""
        self._scheduler = scheduler
        scheduler.handlers["chunkmill_lock_holders"] = self.holders

    def remove_worker(self, scheduler: ClusterScheduler, worker: str, **_: Any) -> None:
        """End the leases of a worker that leaves."""
        leases = scheduler.extensions["semaphores"].leases
        for semaphore in [name for name in leases if str(name).startswith("chunkmill-")]:
            self._end(semaphore, lambda owner: owner == worker)

    def holders(self, semaphore: str) -> list[str]:
        """Return the leases of a lock, after ending those of workers that are gone."""
        self._end(semaphore, lambda owner: owner not in self._scheduler.workers)
        return list(self._scheduler.extensions["semaphores"].leases.get(semaphore, ()))

    def _end(self, semaphore: str, is_over: Any) -> None:
        extension = self._scheduler.extensions["semaphores"]
        for lease in list(extension.leases.get(semaphore, ())):
            if is_over(lease.partition("|")[0]):
                LOG.info("the holder of %s is gone: %s", semaphore, lease)
                extension.release(name=semaphore, lease_id=lease)
