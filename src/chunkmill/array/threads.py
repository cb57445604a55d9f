"""Run reads and writes outside of dask in threads that end with them.

No pool: nothing is left running, so that forks before and after are safe. Not here: schedulers
(`chunkmill.dask_arrays`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from types import TracebackType
from typing import Any, Self, TypeVar

from chunkmill.stores.base import Store

__all__ = ["BackgroundCalls", "at_once", "cut_evenly", "in_threads", "own_threads"]

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
    if not store.is_remote or len(calls) == 1:
        return [call() for call in calls]
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(copy_context().run, call) for call in calls]]


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


def _forget_dask_pools() -> None:
    """Make dask create new pools: the parent's would accept tasks and never run them, and the child would hang."""
    threaded: Any = sys.modules.get("dask.threaded")
    if threaded is None:
        return
    threaded.default_pool = None
    threaded.pools_lock = threading.Lock()
    for pools in getattr(threaded, "pools", {}).values():
        pools.clear()


if hasattr(os, "register_at_fork"):  # here, as jobs and dask arrays that only read both come by this module
    os.register_at_fork(after_in_child=_forget_dask_pools)
