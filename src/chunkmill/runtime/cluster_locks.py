"""Locks for partial writes on a cluster, and the meaning of ``lock=`` (P3).

A lock only saves writers from repeating their work; that no element is lost is the store's version check
(`chunkmill.array.chunk_io.update_chunk`). So a task that can check versions works without the cluster's lock at first,
and asks for it when it finds that others write the same key: two messages to the scheduler cost more than most partial
writes. In a store that cannot check versions the lock is all there is, and taken from the start.

The cluster's locks are `distributed.Lock`: the lock of a holder that died is free when its lease ends, which the
scheduler sees within ``distributed.scheduler.locks.lease-timeout`` and ``lease-validation-interval`` (30 and 10 s).
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle
from dask.utils import SerializableLock
from distributed import Lock, Worker
from distributed.worker import get_worker

from chunkmill.array.threads import N_STRIPES, LockFactory, local_lock, stripe
from chunkmill.errors import StoreError
from chunkmill.log import LOG
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores.base import Store

_MEMORY = 1.0  # seconds for which a key that others write counts as contended: one attempt in each is repeated


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
    worker = worker_here() if contended else None
    return local_lock(name) if worker is None else ClusterLock(worker, name)


_CONTENDED_UNTIL = [0.0] * N_STRIPES


def no_lock(name: str, contended: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG001 - signature of a lock factory
    """Return a context manager that guards nothing."""
    return nullcontext()


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


def worker_here() -> Worker | None:
    """Return the worker that this task runs on, or (in a thread that a task started) that of this process."""
    try:
        return get_worker()
    except ValueError:
        return next((worker for worker in getattr(Worker, "_instances", ()) if worker.status.name == "running"), None)


# --------------------------------------------------------------------------------------------------------------------
# On workers


PATIENCE = 5.0
"""Seconds after which waiting is worth a line in the log; then after twice, four times as long, …"""


class ClusterLock(AbstractContextManager[None]):
    """Context manager that holds the cluster's lock of a store key once.

    Threads of one process queue for it here, so that a process asks the scheduler for one lock of a key at a time.
    The local lock is always taken before the cluster's, and for one key only, so that a deadlock cannot occur.
    """

    def __init__(self, worker: Worker, name: str) -> None:
        self.name = name
        self._local = local_lock(name)
        number = stripe(name)
        with _LOCKS_LOCK:
            locks = _LOCKS.setdefault(worker, {})
            if number not in locks:
                locks[number] = Lock(f"chunkmill-{number}", scheduler_rpc=worker.scheduler, loop=worker.loop)
            self._lock = locks[number]

    def __enter__(self) -> None:
        self._local.acquire()
        begun, pause = time.monotonic(), PATIENCE
        try:
            while not self._lock.acquire(timeout=pause):
                pause = time.monotonic() - begun
                LOG.warning("waiting for the lock of %s for %.0f s: another worker holds it", self.name, pause)
        except BaseException:
            self._local.release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._lock.release()
        finally:
            self._local.release()


# one for each key of a process: distributed refreshes their leases for ever, also of those that nobody refers to
_LOCKS: WeakKeyDictionary[Worker, dict[int, Lock]] = WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()
