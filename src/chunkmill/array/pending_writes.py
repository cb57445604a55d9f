"""Values that are stored in threads of their own while the task that encoded them continues.

A process has so many under way, whatever task began them. Not here: threads that a read or write waits for before it
returns (`chunkmill.array.threads`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from chunkmill.stores.base import Store

__all__ = ["MAX_PENDING", "MAX_PENDING_BYTES", "PendingWrites", "with_pending_writes"]

MAX_PENDING = 32
"""Values that a process stores at once."""

MAX_PENDING_BYTES = 64 << 20
"""Bytes of their elements; a larger value is stored alone."""


class _Limit:
    """Values that this process is storing, and their bytes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n = self._n_bytes = 0

    def acquire(self, n_bytes: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._fits(n_bytes))
            self._n += 1
            self._n_bytes += n_bytes

    def _fits(self, n_bytes: int) -> bool:
        return not self._n or (self._n < MAX_PENDING and self._n_bytes + n_bytes <= MAX_PENDING_BYTES)

    def release(self, n_bytes: int) -> None:
        with self._changed:
            self._n -= 1
            self._n_bytes -= n_bytes
            self._changed.notify_all()


_limit = _Limit()
if hasattr(os, "register_at_fork"):  # a child has none of the threads
    os.register_at_fork(after_in_child=_limit.__init__)  # type: ignore[misc]


class PendingWrites:
    """Calls that store values, each in a thread that ends with it.

    Examples
    --------
    >>> done = []
    >>> writes = PendingWrites()
    >>> for i in range(3):
    ...     writes.begin(lambda i=i: done.append(i), 1)
    >>> writes.wait()
    >>> sorted(done)
    [0, 1, 2]
    """

    def __init__(self) -> None:
        self._futures: list[Future[None]] = []

    def begin(self, call: Callable[[], object], n_bytes: int) -> None:
        """Make a call in a thread; wait before, while the process stores as much as it may."""
        _limit.acquire(n_bytes)
        future: Future[None] = Future()
        self._futures.append(future)
        thread = threading.Thread(target=_make, args=(future, call, n_bytes), daemon=True, name="chunkmill-writes")
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads, or this process ends
            _make(future, call, n_bytes)

    def wait(self) -> None:
        """Return when all calls have ended; raise the first error."""
        for future in self._futures:
            future.exception()
        for future in self._futures:
            future.result()


def _make(future: Future[None], call: Callable[[], object], n_bytes: int) -> None:
    error = None
    try:
        call()
    except BaseException as caught:  # noqa: BLE001 - raised by `wait`
        error = caught
    del call  # the value is freed before another is let in
    _limit.release(n_bytes)
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def with_pending_writes(store: Store, begin: Callable[[Callable[[], object]], object]) -> Any:
    """Return the store, such that `set` and `delete` pass their call to `begin` and return."""
    return _Later(store, begin)


class _Later:
    def __init__(self, below: Store, begin: Callable[[Callable[[], object]], object]) -> None:
        self.below = below
        self._begin = begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Begin to store a value."""
        self._begin(lambda: self.below.set(key, value))

    def delete(self, key: str) -> None:
        """Begin to delete a key."""
        self._begin(lambda: self.below.delete(key))
