"""Values that are stored, or requested, in threads of their own while the task continues.

A process has so many writes under way, whatever task began them. `BegunReads` requests the values of many store keys
before they are asked for one by one: where requests cost latency, a task would wait for one at a time. Not here:
threads that a read or write waits for before it returns (`chunkmill.array.threads`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.wrapper import StoreWrapper

__all__ = [
    "MAX_BEGUN_BYTES",
    "MAX_PENDING",
    "MAX_PENDING_BYTES",
    "BegunReads",
    "PendingWrites",
    "with_begun_reads",
    "with_pending_writes",
]

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


MAX_BEGUN_BYTES = 64 << 20
"""Bytes that a process has requested ahead, or holds until they are taken: more is read when it is asked for."""

_KEYS_A_THREAD = 16  # as many as stores request at once before they know how large values are


class _Budget:
    """Bytes of this process that are requested, or held until they are taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_bytes = 0

    def reserve(self, n_bytes: int) -> bool:
        with self._lock:
            fits = self._n_bytes + n_bytes <= MAX_BEGUN_BYTES
            self._n_bytes += n_bytes if fits else 0
            return fits

    def release(self, n_bytes: int) -> None:
        with self._lock:
            self._n_bytes -= n_bytes


_budget = _Budget()
if hasattr(os, "register_at_fork"):  # a child has neither the threads nor the values
    os.register_at_fork(after_in_child=_budget.__init__)  # type: ignore[misc]


class _Values:
    """State that threads share with the `BegunReads` that they work for, which may be dropped before they end."""

    def __init__(self, value_bytes: int) -> None:
        self._changed = threading.Condition()
        self._pending: set[str] = set()
        self._fetched: dict[str, bytes | None] = {}
        self._value_bytes = value_bytes
        self._is_wanted = True

    def begin(self, store: Store, keys: Sequence[str]) -> bool:
        if not _budget.reserve(self._value_bytes * len(keys)):
            return False
        self._pending.update(keys)
        for start in range(0, len(keys), _KEYS_A_THREAD):
            own = keys[start : start + _KEYS_A_THREAD]
            thread = threading.Thread(target=self._fetch, args=(store, own), daemon=True, name="chunkmill-reads")
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads, or this process ends
                self._leave(keys[start:])
                break
        return True

    def _fetch(self, store: Store, keys: Sequence[str]) -> None:
        try:
            for key, value in zip(keys, store.get_many(map(ByteSpan, keys)), strict=True):
                with self._changed:
                    if not self._is_wanted:
                        return
                    self._pending.discard(key)
                    self._fetched[key] = value
                    self._changed.notify_all()
        except Exception:  # noqa: BLE001, S110 - of any store: the caller that asks for a key that failed reads it, and meets the error
            pass
        finally:
            self._leave(keys)

    def _leave(self, keys: Sequence[str]) -> None:
        """Leave pending keys to the callers that ask for them."""
        with self._changed:
            left = self._pending.intersection(keys)
            self._pending -= left
            self._changed.notify_all()
        _budget.release(self._value_bytes * len(left))

    def take(self, key: str) -> tuple[bytes | None] | None:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._pending)
            if key not in self._fetched:
                return None
            _budget.release(self._value_bytes)
            return (self._fetched.pop(key),)

    def drop(self) -> None:
        with self._changed:
            self._is_wanted = False
            _budget.release(self._value_bytes * len(self._fetched))
            self._fetched.clear()


class BegunReads:
    """Values of `keys` of a store, whose requests are under way from now on, as far as `MAX_BEGUN_BYTES` allow.

    Pickled, it arrives without values: there, callers read from the store. What is not taken is given up when
    nothing refers to this object any more.

    Parameters
    ----------
    value_bytes
        Size to expect of a value.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a", b"1")
    >>> reads = BegunReads(store, ["a", "b"], value_bytes=1)
    >>> reads.take("a"), reads.take("a"), reads.take("b")
    ((b'1',), None, (None,))
    """

    def __init__(self, store: Store, keys: Sequence[str], *, value_bytes: int) -> None:
        self._values: _Values | None = _Values(value_bytes)
        self._pid = os.getpid()
        self._n_bytes = value_bytes * len(keys)
        if self._values.begin(store, keys):
            weakref.finalize(self, self._values.drop).atexit = False
        else:
            self._values = None

    def __bool__(self) -> bool:
        """Return whether there may be values to take: not where it was refused, unpickled, or in a forked process."""
        return self._values is not None and self._pid == os.getpid()

    def take(self, key: str) -> tuple[bytes | None] | None:
        """Return a tuple of the value of a key, once; ``None``: the store must be asked."""
        return self._values.take(key) if self and self._values is not None else None

    def __sizeof__(self) -> int:
        # what a cluster weighs against running a task on another worker, where it would have to read again
        return object.__sizeof__(self) + self._n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_values, ()


def _without_values() -> BegunReads:
    reads = object.__new__(BegunReads)
    reads._values, reads._pid, reads._n_bytes = None, os.getpid(), 0
    return reads


def with_begun_reads(store: Store, reads: BegunReads | None) -> Store:
    """Return the store, such that whole values are taken from `reads` where it has them."""
    return _Taking(store, reads) if reads else store


class _Taking(StoreWrapper):
    def __init__(self, below: Store, reads: BegunReads) -> None:
        super().__init__(below)
        self.reads = reads

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        found = self.reads.take(key) if byte_range is None else None
        return self.below.get(key, byte_range) if found is None else found[0]

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        return (None if span is None else self.get(span.key, span.byte_range) for span in spans)
