"""Locks of one process for partial writes: a fixed number of them, shared by all store keys (P3).

They keep threads from working in vain, and guard alone where a store cannot compare versions. A thread that waits
long says so in the log. Not here: locks of a cluster, registered by `use_locks` where one of its workers runs.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from chunkmill.log import LOG

LockFactory = Callable[[str, bool], AbstractContextManager[Any]]
"""Function of a store key, and of whether other writers of it are known, that returns the lock of partial writes."""

N_STRIPES = 1024
"""Locks, and names of locks on a cluster: enough that unrelated keys seldom wait for each other."""

PATIENCE = 5.0
"""Seconds after which waiting is worth a line in the log; then after twice, four times as long, …"""


def stripe(name: str) -> int:
    """Return the number of the lock that guards `name`: the same in every process.

    Examples
    --------
    >>> stripe("file:///data/x.zarr/a/c/0/0")
    367
    """
    return zlib.crc32(name.encode()) % N_STRIPES


def report_waiting(name: str, seconds: float, holders: str) -> None:
    """Log that a lock has been waited for."""
    LOG.warning("waiting for the lock of %s for %.0f s; it is held by %s", name, seconds, holders or "nobody known")


class LocalLock:
    """One entry into the lock of a store key, for one thread at a time.

    Examples
    --------
    >>> with local_lock("file:///data/x.zarr/a/c/0/0"):
    ...     pass
    """

    __slots__ = ("_lock", "_name", "_stripe")

    def __init__(self, name: str) -> None:
        self._name = name
        self._stripe = stripe(name)
        self._lock = _LOCKS[self._stripe]

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._wait()
        _HOLDERS[self._stripe] = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        _HOLDERS[self._stripe] = 0
        self._lock.release()

    def _wait(self) -> None:
        begun, pause = time.monotonic(), PATIENCE
        while not self._lock.acquire(timeout=pause):
            pause = time.monotonic() - begun
            report_waiting(self._name, pause, _thread_name(_HOLDERS[self._stripe]))


def local_lock(name: str, contended: bool = False) -> LocalLock:  # noqa: ARG001 - the signature of a lock factory
    """Return this process's lock for a store key."""
    return LocalLock(name)


def automatic_lock(name: str, contended: bool = False) -> AbstractContextManager[Any]:
    """Return the lock for a store key: this process's, or the cluster's where a worker of one may run here."""
    return _FACTORIES[-1](name, contended)


def use_locks(factory: LockFactory) -> None:
    """Take locks of another kind from now on: those of a cluster."""
    _FACTORIES[1:] = [factory]


_FACTORIES: list[LockFactory] = [local_lock]


def _thread_name(ident: int) -> str:
    named = next((thread.name for thread in threading.enumerate() if thread.ident == ident), "")
    return f"thread {named!r} of this process" if named else ""


_LOCKS: list[threading.Lock] = []
_HOLDERS = [0] * N_STRIPES


def _make_locks() -> None:
    _LOCKS[:] = [threading.Lock() for _ in range(N_STRIPES)]


_make_locks()
if hasattr(os, "register_at_fork"):  # a child has locks that threads of its parent hold, but not the threads
    os.register_at_fork(after_in_child=_make_locks)
