"""Values that are stored, or requested, in threads of their own while the task continues.

A process has so many writes under way, whatever task began them. `BegunReads` requests the values of many store keys
before they are asked for one by one: where requests cost latency, a task would wait for one at a time. Not here:
threads that a read or write waits for before it returns (`chunkmill.array.threads`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeAlias

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


_limit, _threads = _Limit(), ThreadPoolExecutor(MAX_PENDING, "chunkmill-writes")


def _after_fork() -> None:
    """Begin without threads, and what they hold, in a child process."""
    global _limit, _threads, _budget
    _limit, _threads, _budget = _Limit(), ThreadPoolExecutor(MAX_PENDING, "chunkmill-writes"), _Budget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class PendingWrites:
    """Calls that store values, in threads of the process.

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
        calls: list[Callable[[], object]] = [partial(copy_context().run, call)]
        try:
            self._futures.append(_threads.submit(_make, calls, n_bytes))
        except RuntimeError:  # the system has no more threads, or this process ends
            _make(calls, n_bytes)

    def wait(self) -> None:
        """Return when all calls have ended; raise the first error."""
        for future in self._futures:
            future.exception()
        for future in self._futures:
            future.result()


def _make(calls: list[Callable[[], object]], n_bytes: int) -> None:
    try:
        call = calls.pop()
    except IndexError:  # made already, where no thread could be begun
        return
    try:
        call()
    finally:
        del call  # and the value that it stored, before another is let in
        _limit.release(n_bytes)


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


Found: TypeAlias = tuple[bytes | None] | None
"""A value of a store, or that its key is absent; ``None`` where it was not read."""


def _fetch(store: Store, futures: dict[str, Future[Found]]) -> None:
    keys = list(futures)
    try:
        for key, value in zip(keys, store.get_many(map(ByteSpan, keys)), strict=True):
            future = futures.pop(key)  # the value is free when it is taken
            if not future.set_running_or_notify_cancel():
                return
            future.set_result((value,))
    except Exception:  # noqa: BLE001, S110 - of any store: the caller that asks for a key that failed reads it, and meets the error
        pass
    finally:
        for future in futures.values():
            if future.set_running_or_notify_cancel():
                future.set_result(None)


def _drop(futures: dict[str, Future[Found]], value_bytes: int) -> None:
    """Give up the values that were not taken."""
    while futures:
        _, future = futures.popitem()
        future.cancel()
        _budget.release(value_bytes)


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
        self._pid, self._value_bytes, self._n_bytes = os.getpid(), value_bytes, value_bytes * len(keys)
        self._futures: dict[str, Future[Found]] | None = None
        if not _budget.reserve(self._n_bytes):
            return
        self._futures = {key: Future() for key in keys}
        weakref.finalize(self, _drop, self._futures, value_bytes).atexit = False
        for start in range(0, len(keys), _KEYS_A_THREAD):
            own = {key: self._futures[key] for key in keys[start : start + _KEYS_A_THREAD]}
            try:
                threading.Thread(target=_fetch, args=(store, own), daemon=True, name="chunkmill-reads").start()
            except RuntimeError:  # the system has no more threads, or this process ends
                _drop(self._futures, value_bytes)
                break

    def __bool__(self) -> bool:
        """Return whether there may be values to take: not where it was refused, unpickled, or in a forked process."""
        return self._futures is not None and self._pid == os.getpid()

    def take(self, key: str) -> Found:
        """Return a tuple of the value of a key, once; ``None``: the store must be asked."""
        future = self._futures.pop(key, None) if self and self._futures is not None else None
        if future is None:
            return None
        try:
            return future.result()
        finally:
            _budget.release(self._value_bytes)

    def __sizeof__(self) -> int:
        # what a cluster weighs against running a task on another worker, where it would have to read again
        return object.__sizeof__(self) + self._n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_values, ()


def _without_values() -> BegunReads:
    reads = object.__new__(BegunReads)
    reads._futures, reads._n_bytes = None, 0
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
