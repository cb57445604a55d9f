"""Locks for partial writes on a cluster, the meaning of ``lock=``, and `Array.lock` (P3).

A lock only saves writers from repeating their work; that no element is lost is the store's version check
(`chunkmill.array.chunk_io.update_chunk`). So a task that can check versions works without the cluster's lock at first,
and asks for it when it finds that others write the same key: two messages to the scheduler cost more than most partial
writes. In a store that cannot check versions the lock is all there is, and taken from the start.

The cluster's locks are `distributed.Lock`: the lock of a holder that died is free when its lease ends, which the
scheduler sees within ``distributed.scheduler.locks.lease-timeout`` and ``lease-validation-interval`` (30 and 10 s).

`Array.lock` holds a region for code that writes its chunks by other means than this library's: which reads a part of a
chunk, changes and writes it, as zarr-python does, and would lose what others wrote to that chunk between.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeAlias
from uuid import uuid4
from weakref import WeakKeyDictionary

import cloudpickle
from dask.utils import SerializableLock
from distributed import Lock, Worker
from distributed.worker import get_worker

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import N_STRIPES, LockFactory, local_lock, stripe
from chunkmill.errors import StoreError
from chunkmill.journal.heartbeat import Heartbeat, is_live
from chunkmill.journal.plans import LOCK_PREFIX, fingerprint
from chunkmill.log import LOG
from chunkmill.model.grid import Region
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores import conflicts
from chunkmill.stores.base import Store, fork_safe_lock

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


# --------------------------------------------------------------------------------------------------------------------
# `Array.lock`


Box: TypeAlias = list[list[int]]
"""First and last chunk coordinate of each axis."""


class LockTimeout(StoreError, TimeoutError):
    """The region of an array is still held by others when the time is over."""


@contextmanager
def hold(array: StoredArray, region: Region, timeout: float | None) -> Iterator[None]:
    """Hold the store keys that `region` touches; what this thread holds already is not waited for.

    In three steps that each keep out more of the others:

    - threads of this process, by a table in its memory;
    - workers and clients of a cluster, by locks of its scheduler, where the store compares no versions;
    - all others, where it does, by a table at the root of the store, changed by compare-and-swap, and a heartbeat of
      each holder: what is held by a process that died is taken over.

    A box of store keys is taken as a whole or not at all, and the scheduler's locks in the order of their numbers, so
    that no two holders wait for each other.

    Raises
    ------
    LockTimeout
        Others hold some of them after `timeout` seconds.
    StoreError
        This thread holds others of these keys; or, in the end, this process was silent for so long that its lock in the
        store was taken over.
    """
    grid = array.write_layout.grid
    if any(cut.start >= cut.stop for cut in region):
        yield
        return
    last = (slice(cut.stop - 1, cut.stop) for cut in region)
    box = [list(ends) for ends in zip(grid.first_touched(region), grid.first_touched(tuple(last)), strict=True)]
    name = f"{os.getpid()} {array.url}/{array.path}"  # a forked child holds nothing of its parent's
    own = [held for where, held in _OWN.get() if where == name]
    if any(_within(box, held) for held in own):
        yield
        return
    if any(_meet(box, held) for held in own):
        reason = "this thread holds a part of the region already: lock the larger region first"
        raise StoreError(url=array.url, key=array.path, reason=reason)
    until = None if timeout is None else time.monotonic() + timeout
    with ExitStack() as stack:
        stack.enter_context(_in_process(array, name, box, until))
        if not array.store.compares_versions:
            _on_cluster(stack, array, region, until)
        elif not array.store.has_transactions:
            stack.enter_context(_in_store(array, box, until))
        token = _OWN.set((*_OWN.get(), (name, box)))
        stack.callback(_OWN.reset, token)
        yield


_OWN: ContextVar[tuple[tuple[str, Box], ...]] = ContextVar("_OWN", default=())
_HELD: list[tuple[str, Box]] = []  # by threads of this process
_CHANGED = threading.Condition(fork_safe_lock())


def _meet(one: Box, other: Box) -> bool:
    # the table may have boxes of an array of other rank that was there before
    return all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(one, other, strict=False))


def _within(one: Box, other: Box) -> bool:
    return len(one) == len(other) and all(b[0] <= a[0] and a[1] <= b[1] for a, b in zip(one, other, strict=True))


def _left(array: StoredArray, until: float | None, by: str) -> float | None:
    """Return the seconds that are left, or raise."""
    left = None if until is None else until - time.monotonic()
    if left is not None and left <= 0:
        raise LockTimeout(url=array.url, key=array.path, reason=f"the region is locked by {by}, and the time is over")
    return left


@contextmanager
def _in_process(array: StoredArray, name: str, box: Box, until: float | None) -> Iterator[None]:
    with _CHANGED:
        while any(where == name and _meet(box, held) for where, held in _HELD):
            _CHANGED.wait(_left(array, until, "another thread of this process"))
        _HELD.append((name, box))
    try:
        yield
    finally:
        with _CHANGED:
            _HELD.remove((name, box))
            _CHANGED.notify_all()


def _on_cluster(stack: ExitStack, array: StoredArray, region: Region, until: float | None) -> None:
    worker, client = worker_here(), Scheduler().client
    if worker is None and client is None:
        return
    of = {} if worker is None else {"scheduler_rpc": worker.scheduler, "loop": worker.loop}
    layout = array.write_layout
    keys = (layout.locator.key(overlap.coords) for overlap in layout.grid.overlaps(region))
    for number in sorted({stripe(f"{array.url}/{key}") for key in keys}):
        lock = Lock(f"chunkmill-region-{number}", **of)
        while not lock.acquire(timeout=None if until is None else max(0.0, until - time.monotonic())):
            _left(array, until, "another worker of the cluster")
        stack.callback(_release, lock)


def _release(lock: Lock) -> None:
    lock.release()
    if hasattr(lock, "refresh_callback"):  # or the lease would be refreshed for ever
        lock.loop.add_callback(lock.refresh_callback.stop)


@contextmanager
def _in_store(array: StoredArray, box: Box, until: float | None) -> Iterator[None]:
    store = array.store
    prefix, own = f"{LOCK_PREFIX}{fingerprint(array.path)[:16]}-", uuid4().hex
    pause, pauses = 0.0, iter(_PAUSES if store.is_remote else _PAUSES[:-2])
    with Heartbeat(store, prefix + own, f"lock of {array.path!r} in {store.url}").running():
        while rivals := _try(store, prefix, own, box):
            for rival, beat in [(rival, store.get(prefix + rival)) for rival in rivals]:
                if beat is None or not is_live(beat):
                    _remove(store, prefix, rival)
                    store.delete(prefix + rival)
                else:
                    _left(array, until, "another process")
            conflicts.pause(pause := next(pauses, pause))
        try:
            yield
        finally:
            if not _remove(store, prefix, own):
                reason = "its lock was taken over by others, as this process was silent: their values may be lost"
                raise StoreError(url=store.url, key=array.path, reason=reason)


_PAUSES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # seconds between tries


def _try(store: Store, prefix: str, own: str, box: Box) -> list[str]:
    """Hold a box where no other one meets it; return the holders of others."""
    rivals: list[str] = []

    def change(held: Mapping[str, Box]) -> Mapping[str, Box]:
        rivals[:] = [name for name, other in held.items() if _meet(box, other)]
        return held if rivals else {**held, own: box}

    _change(store, prefix, change)
    return rivals


def _remove(store: Store, prefix: str, name: str) -> bool:
    """Free the box that `name` holds; return whether it held one."""
    found: list[Box] = []

    def change(held: Mapping[str, Box]) -> Mapping[str, Box]:
        found[:] = [box for other, box in held.items() if other == name]
        return {other: box for other, box in held.items() if other != name}

    _change(store, prefix, change)
    return bool(found)


def _change(store: Store, prefix: str, change: Callable[[Mapping[str, Box]], Mapping[str, Box]]) -> None:
    """Change the table of boxes by their holders; without any, it is deleted."""

    def changed(value: bytes | None) -> bytes | None:
        held = _parsed(store, prefix, value)
        new = change(held)
        if new == held:
            return value
        # a deletion that cannot be conditional could take another's box with it
        return json.dumps(new).encode() if new or not store.deletes_conditionally else None

    conflicts.update(store, f"{prefix}held", changed)


def _parsed(store: Store, prefix: str, value: bytes | None) -> dict[str, Any]:
    try:
        held = json.loads(value or b"{}")
        if all(name.isalnum() and all(0 <= first <= last for first, last in box) for name, box in held.items()):
            return dict(held)
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise StoreError(url=store.url, key=f"{prefix}held", reason="is not a table of locks: delete it if nobody writes")
