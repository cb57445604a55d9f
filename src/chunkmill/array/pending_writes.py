"""Values that are stored in threads of their own while the task that encoded them continues.

A process has so many under way, whatever task began them. Not here: threads that a read or write waits for before it
returns (`chunkmill.array.threads`).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
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


class _Threads:
    """Threads that make calls, and end when none is under way.

    A new thread for each call took as much of the processor as all else of storing a value.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._n_waiting = self._n_at_work = 0

    def make(self, call: Callable[[], None]) -> None:
        """Make a call in a thread; here, where the system has no more threads, or this process ends."""
        with self._changed:
            if self._n_waiting > len(self._calls):
                self._calls.append(call)
                self._changed.notify()
                return
            self._n_at_work += 1
        thread = threading.Thread(target=self._work, args=([call],), daemon=True, name="chunkmill-writes")
        try:
            thread.start()
        except RuntimeError:
            with self._changed:
                self._n_at_work -= 1
            call()

    def _work(self, first: list[Callable[[], None]]) -> None:
        call: Callable[[], None] | None = first.pop()
        while call is not None:
            call()
            del call  # and the value that it stored
            call = self._next()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._n_at_work -= 1
            self._n_waiting += 1
            if not self._n_at_work and not self._calls:
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._calls or not self._n_at_work)
            self._n_waiting -= 1
            if not self._calls:
                return None
            self._n_at_work += 1
            return self._calls.popleft()


_limit, _threads = _Limit(), _Threads()
if hasattr(os, "register_at_fork"):  # a child has none of the threads
    os.register_at_fork(after_in_child=_limit.__init__)  # type: ignore[misc]
    os.register_at_fork(after_in_child=_threads.__init__)  # type: ignore[misc]


class PendingWrites:
    """Calls that store values, in threads that end with the last of them.

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

    def join(self, other: PendingWrites) -> None:
        """Wait for the calls of another one, too."""
        self._futures += other._futures

    def begin(self, call: Callable[[], object], n_bytes: int) -> None:
        """Make a call in a thread; wait before, while the process stores as much as it may."""
        _limit.acquire(n_bytes)
        future: Future[None] = Future()
        self._futures.append(future)
        _threads.make(partial(_make, future, [partial(copy_context().run, call)], n_bytes))

    def wait(self) -> None:
        """Return when all calls have ended; raise the first error."""
        for future in self._futures:
            future.exception()
        for future in self._futures:
            future.result()


def _make(future: Future[None], calls: list[Callable[[], object]], n_bytes: int) -> None:
    error = None
    try:
        calls.pop()()  # the value is freed before another is let in
    except BaseException as caught:  # noqa: BLE001 - raised by `wait`
        error = caught
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
