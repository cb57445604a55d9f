"""Locks for partial writes: in a process, or on a cluster.

A lock only keeps writers from working in vain; that no element is lost is the store's version check
(`chunkmill.array.update_chunk`).
"""

from __future__ import annotations

import zlib
from contextlib import AbstractContextManager
from typing import Any

from distributed import Lock
from distributed.worker import get_worker

from chunkmill.array import LockFactory, local_lock

__all__ = ["lock_factory"]

# Names that the scheduler keeps for good; enough that unrelated keys seldom wait for each other.
_N_STRIPES = 1024


def lock_factory(lock: Any) -> LockFactory:
    """Return what gives the lock of a store key, picklable for tasks.

    Parameters
    ----------
    lock
        ``"auto"``: this process's locks outside a cluster, `distributed.Lock` inside one. ``None`` or ``False``: none,
        the version check alone guards. Anything else is a context manager that is entered for every partial write.
    """
    if isinstance(lock, str) and lock == "auto":
        return automatic_lock
    if lock is None or lock is False:
        return no_lock
    if not hasattr(lock, "__enter__"):
        raise TypeError(f"lock={lock!r} is neither 'auto' nor None nor a context manager")
    return GivenLock(lock)


def automatic_lock(name: str) -> AbstractContextManager[Any]:
    """Return the lock for `name` of the cluster that the caller is a worker of, or else of this process."""
    try:
        get_worker()
    except ValueError:
        return local_lock(name)
    return Lock(f"chunkmill-{zlib.crc32(name.encode()) % _N_STRIPES}")


class _NoLock(AbstractContextManager[None]):
    def __exit__(self, *_: object) -> None: ...


def no_lock(name: str) -> AbstractContextManager[Any]:  # noqa: ARG001 - the signature of a lock factory
    """Return a context manager that guards nothing."""
    return _NoLock()


class GivenLock:
    """The user's one lock, for every key."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __call__(self, name: str) -> AbstractContextManager[Any]:  # noqa: ARG002 - the signature of a lock factory
        return self.lock  # type: ignore[no-any-return]
