"""Threads that read and write: those of one call end with it, others store or request values while a task continues.

A process has so many writes under way, whatever task began them. `BegunReads` requests the values of many store keys
before they are asked for one by one: where requests cost latency, a task would wait for one at a time.

The locks of partial writes keep threads from working in vain, and guard alone where a store cannot compare versions
(P3). Not here: locks of a cluster, registered by `use_locks` where one of its workers runs; schedulers
(`chunkmill.dask_arrays`).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.wrapper import StoreWrapper

T = TypeVar("T")


def own_threads() -> int:
    """Return how many threads a read or write may use: as many as there are processors, in the main thread.

    In any other thread 1: its owner (a scheduler, a server) has decided how much runs at once.
    """
    if threading.current_thread() is not threading.main_thread():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cut_evenly(n_items: int, n_parts: int) -> list[slice]:
    """Cut a sequence into at most `n_parts` slices of nearly equal length.

    Examples
    --------
    >>> cut_evenly(5, 2), cut_evenly(1, 4)
    ([slice(0, 2, None), slice(2, 5, None)], [slice(0, 1, None)])
    """
    n_parts = max(1, min(n_parts, n_items))
    borders = [i * n_items // n_parts for i in range(n_parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(borders)]


def in_threads(function: Callable[[slice], T], parts: Sequence[slice], n_threads: int) -> list[T]:
    """Call `function` with each part, in as many threads; the first error ends the rest and is raised."""
    if n_threads == 1 or len(parts) <= 1:
        return [function(part) for part in parts]
    context = copy_context()  # a task's threads write as it does
    with ThreadPoolExecutor(min(n_threads, len(parts))) as pool:
        return list(pool.map(lambda part: context.copy().run(function, part), parts))


def at_once(store: Store, *calls: Callable[[], Any]) -> list[Any]:
    """Make calls that do not depend on each other, and return their results.

    In order, unless requests to the store cost latency: then at the same time. The first error in order is raised.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> at_once(MemoryStore(), lambda: "looked", lambda: "listed")
    ['looked', 'listed']
    """
    parts = cut_evenly(len(calls), len(calls))
    return in_threads(lambda part: calls[part.start](), parts, len(calls) if store.is_remote else 1)


class BackgroundCalls:
    """Concurrent calls that wait for a network while the caller continues; their number is limited.

    A context: it ends when they have. The first error is raised by a later call, or at the end, and what was not begun
    then is not done. With ``n_at_once=0`` each call is made when it is asked for.

    Examples
    --------
    >>> done = []
    >>> with BackgroundCalls(2) as calls:
    ...     for i in range(4):
    ...         calls.call(done.append, i)
    >>> sorted(done)
    [0, 1, 2, 3]
    """

    def __init__(self, n_at_once: int) -> None:
        self._n_at_once = n_at_once
        self._pool = ThreadPoolExecutor(n_at_once) if n_at_once else None
        self._made: deque[Future[Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call the function, or wait until it can be called: what it is given lives no longer than the call."""
        if self._pool is None:
            function(*arguments)
            return
        if len(self._made) == self._n_at_once:
            self._made.popleft().result()
        self._made.append(self._pool.submit(copy_context().run, function, *arguments))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is None:
            return
        try:
            while kind is None and self._made:
                self._made.popleft().result()
        finally:
            self._pool.shutdown(cancel_futures=True)


# --------------------------------------------------------------------------------------------------------------------
# Values that are stored, or requested, while their task continues

MAX_PENDING = 32
"""Values that a process stores at once."""

MAX_PENDING_BYTES = 64 << 20
"""Bytes of their elements; a larger value is stored alone."""

MAX_BEGUN_BYTES = 64 << 20
"""Bytes that a process has requested ahead, or holds until they are taken: more is read when it is asked for."""


class Limit:
    """Values of this process that are under way, and their bytes: so many at most, or a single one of any size."""

    def __init__(self, most: int | None, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._changed = threading.Condition()
        self.n = self.n_bytes = 0

    def _fits(self, n_bytes: int) -> bool:
        return self.n_bytes + n_bytes <= self._most_bytes and (self._most is None or self.n < self._most)

    def enter(self, n_bytes: int) -> None:
        """Wait until a value may be under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self.n or self._fits(n_bytes))
            self.n += 1
            self.n_bytes += n_bytes

    def reserve(self, n_bytes: int, n: int) -> bool:
        """Return whether several values may be under way, which they are then."""
        with self._changed:
            if fits := self._fits(n_bytes):
                self.n += n
                self.n_bytes += n_bytes
            return fits

    def leave(self, n_bytes: int) -> None:
        """Let others in for a value that was stored, or taken."""
        with self._changed:
            self.n -= 1
            self.n_bytes -= n_bytes
            self._changed.notify_all()


class _Process:
    """State that a process holds once: a child begins its own, as it has no thread of its parent's."""

    def begin(self) -> None:
        self.writes, self.reads = Limit(MAX_PENDING, MAX_PENDING_BYTES), Limit(None, MAX_BEGUN_BYTES)
        self.writers = ThreadPoolExecutor(MAX_PENDING, "chunkmill-writes")
        self.readers = ThreadPoolExecutor(MAX_PENDING, "chunkmill-reads")


_here = _Process()
_here.begin()


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

    def begin(self, call: Callable[[], object], n_bytes: int) -> None:
        """Make a call in a thread; wait before, while the process stores as much as it may."""
        _here.writes.enter(n_bytes)
        self._futures.append(_here.writers.submit(_make, [partial(copy_context().run, call)], n_bytes))

    def wait(self) -> None:
        """Return when all calls have ended; raise the first error."""
        wait(self._futures)
        for future in self._futures:
            future.result()


def _make(calls: list[Callable[[], object]], n_bytes: int) -> None:
    try:
        calls.pop()()  # and the value that it stored is free before another is let in
    finally:
        _here.writes.leave(n_bytes)


_KEYS_A_THREAD = 16  # as many as stores request at once before they know how large values are


def _fetch(store: Store, keys: Sequence[str]) -> dict[str, bytes | None]:
    try:
        return dict(zip(keys, store.get_many(map(ByteSpan, keys)), strict=True))
    except Exception:  # noqa: BLE001 - of any store: the caller that asks for a key that failed reads it, and meets the error
        return {}


def _drop(batches: dict[str, Future[dict[str, bytes | None]]], value_bytes: int) -> None:
    """Give up the values that were not taken."""
    while batches:
        _, batch = batches.popitem()
        batch.cancel()
        _here.reads.leave(value_bytes)


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
        self._value_bytes, self._n_bytes = value_bytes, value_bytes * len(keys)
        self._batches: dict[str, Future[dict[str, bytes | None]]] = {}
        if not _here.reads.reserve(self._n_bytes, len(keys)):
            return
        weakref.finalize(self, _drop, self._batches, value_bytes).atexit = False
        for start in range(0, len(keys), _KEYS_A_THREAD):
            own = keys[start : start + _KEYS_A_THREAD]
            self._batches.update(dict.fromkeys(own, _here.readers.submit(_fetch, store, own)))

    def __bool__(self) -> bool:
        """Return whether there may be values to take: not where it was refused, or unpickled."""
        return bool(self._batches)

    def take(self, key: str) -> tuple[bytes | None] | None:
        """Return a tuple of the value of a key, once; ``None``: the store must be asked."""
        batch = self._batches.pop(key, None)
        if batch is None:
            return None
        try:
            values = batch.result()
            return (values.pop(key),) if key in values else None
        finally:
            _here.reads.leave(self._value_bytes)

    def __sizeof__(self) -> int:
        # what a cluster weighs against running a task on another worker, where it would have to read again
        return object.__sizeof__(self) + self._n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(BegunReads, cast("Store", None), (), value_bytes=0), ()


class TakingReads(StoreWrapper):
    """A store of which whole values are taken from `reads` where it has them."""

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


def _forget_dask_pools() -> None:
    """Make dask create new pools: the parent's would accept tasks and never run them, and the child would hang."""
    threaded: Any = sys.modules.get("dask.threaded")
    if threaded is None:
        return
    threaded.default_pool = None
    threaded.pools_lock = threading.Lock()
    for pools in getattr(threaded, "pools", {}).values():
        pools.clear()


# --------------------------------------------------------------------------------------------------------------------
# Locks of partial writes: a fixed number of them, shared by all store keys

LockFactory = Callable[[str, bool], AbstractContextManager[Any]]
"""Function of a store key, and of whether other writers of it are known, that returns the lock of partial writes."""

N_STRIPES = 1024
"""Locks, and names of locks on a cluster: enough that unrelated keys seldom wait for each other."""


def stripe(name: str) -> int:
    """Return the number of the lock that guards `name`: the same in every process.

    Examples
    --------
    >>> stripe("file:///data/x.zarr/a/c/0/0")
    367
    """
    return zlib.crc32(name.encode()) % N_STRIPES


def local_lock(name: str, contended: bool = False) -> threading.Lock:  # noqa: ARG001 - the signature of a lock factory
    """Return this process's lock for a store key.

    Examples
    --------
    >>> with local_lock("file:///data/x.zarr/a/c/0/0"):
    ...     pass
    """
    return _LOCKS[stripe(name)]


def automatic_lock(name: str, contended: bool = False) -> AbstractContextManager[Any]:
    """Return the lock for a store key: this process's, or the cluster's where a worker of one may run here."""
    return _FACTORIES[-1](name, contended)


def use_locks(factory: LockFactory) -> None:
    """Take locks of another kind from now on: those of a cluster."""
    _FACTORIES[1:] = [factory]


_FACTORIES: list[LockFactory] = [local_lock]
_LOCKS: list[threading.Lock] = []


def _make_locks() -> None:
    _LOCKS[:] = [threading.Lock() for _ in range(N_STRIPES)]


_make_locks()
if hasattr(os, "register_at_fork"):  # a child has no thread of its parent's, but the locks that those hold
    for _begin in (_here.begin, _forget_dask_pools, _make_locks):
        os.register_at_fork(after_in_child=_begin)
