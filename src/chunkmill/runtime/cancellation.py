"""Tasks that are late: their graph was given up while they were at work, and what they hold is not wanted any more.

When one task fails, or the user interrupts, dask raises at once and others go on in their threads, here or on workers.
What they would write could meet the next attempt's. So a task asks, before it writes, whether it still should; and in
this process those that are writing are waited for. Those that died while they wrote left files half done, which are
removed. Not here: jobs, whose journal tells (`chunkmill.runtime.journal`).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import dask.array as da
from distributed.worker import get_worker

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError
from chunkmill.model.paths import parents_of
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores.base import Store
from chunkmill.stores.local import LocalStore

__all__ = ["giving_up", "sweep_beside", "swept", "wanted"]

_PATIENCE = 60.0  # seconds to wait for writes under way: one that takes longer hangs, and waiting does not help it


class _Writes:
    """The writes of this process: how many tasks of each are writing, and which were given up."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.n_writing: Counter[str] = Counter()
        self.given_up: set[str] = set()


_writes = _Writes()
if hasattr(os, "register_at_fork"):  # a child has no threads that could let go of the lock
    os.register_at_fork(after_in_child=_writes.__init__)  # type: ignore[misc]


@contextmanager
def wanted(write: str) -> Iterator[None]:
    """Write inside; `JobError` when the write of that name was given up, or this task was cancelled."""
    _check_worker(write)
    with _writes.changed:
        if write in _writes.given_up:
            raise _late(write)
        _writes.n_writing[write] += 1
    try:
        yield
    finally:
        with _writes.changed:
            _writes.n_writing[write] -= 1
            if not _writes.n_writing[write]:
                del _writes.n_writing[write]
                _writes.changed.notify_all()


@contextmanager
def giving_up(arrays: Iterable[da.Array]) -> Iterator[None]:
    """Compute `arrays` inside; when that fails, give up their writes, and wait for those under way here."""
    try:
        yield
    except BaseException:
        names = {name for array in arrays for name in array.dask.layers if name.startswith("write-")}
        with _writes.changed:
            _writes.given_up.update(names)
            _writes.changed.wait_for(lambda: not names & _writes.n_writing.keys(), _PATIENCE)
        raise


@contextmanager
def swept(arrays: Iterable[StoredArray], *, after_death: bool = False) -> Iterator[None]:
    """Write to `arrays` inside; then remove what was left by workers that are gone, or by a run that was cut off."""
    before = _workers()
    yield
    if after_death or before - _workers():
        for array in arrays:
            if isinstance(array.store, LocalStore):
                array.store.sweep(array.prefix)


def sweep_beside(store: Store, keys: Iterable[str]) -> None:
    """Remove what was left right beside some keys, and beside what is above them, by a run that was cut off."""
    if isinstance(store, LocalStore):
        for prefix in {prefix for key in keys for prefix in map("{}/".format, parents_of(key))}:
            store.sweep("" if prefix == "/" else prefix, recursive=False)


def _workers() -> set[str]:
    client = Scheduler().client
    return set() if client is None else set(client.scheduler_info(n_workers=-1)["workers"])


def _check_worker(write: str) -> None:
    """Raise when this task was cancelled while it computed: the scheduler has told its worker, who cannot stop it."""
    try:
        worker = get_worker()
    except ValueError:
        return
    key = worker.active_threads.get(threading.get_ident())
    task = None if key is None else worker.state.tasks.get(key)
    if task is not None and task.state in {"cancelled", "resumed"}:
        raise _late(write)


def _late(write: str) -> JobError:
    return JobError(job=write, reason="this task is late: its write was given up or cancelled")
