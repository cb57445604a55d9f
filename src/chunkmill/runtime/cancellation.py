"""Stop tasks of a cancelled or failed computation from writing.

When one task fails, or the user interrupts, dask raises at once and others continue in their threads, here or on
workers. What they would write could meet the next attempt's. So a task asks, before it writes, whether its computation
still stands; and in this process the tasks that are writing are waited for. Tasks that died while they wrote left
partial files, which are removed. Not here: jobs, whose journal tells (`chunkmill.runtime.journal`).
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
from chunkmill.stores.capabilities import sweep_partial_files

__all__ = ["abandon_on_error", "remove_partial_files", "remove_partial_files_beside", "unless_cancelled"]

_PATIENCE = 60.0  # seconds to wait for writes under way: one that takes longer hangs, and waiting does not help it


class _Writes:
    """The writes of this process: how many tasks of each are writing, and which were abandoned."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.n_writing: Counter[str] = Counter()
        self.abandoned: set[str] = set()


_writes = _Writes()
if hasattr(os, "register_at_fork"):  # a child has no threads that could release the lock
    os.register_at_fork(after_in_child=_writes.__init__)  # type: ignore[misc]


@contextmanager
def unless_cancelled(write: str) -> Iterator[None]:
    """Write inside; `JobError` when the write of that name was abandoned, or this task was cancelled."""
    _check_worker(write)
    with _writes.changed:
        if write in _writes.abandoned:
            raise _cancelled(write)
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
def abandon_on_error(arrays: Iterable[da.Array]) -> Iterator[None]:
    """Compute `arrays` inside; when that fails, abandon their writes, and wait for those under way here."""
    try:
        yield
    except BaseException:
        names = {name for array in arrays for name in array.dask.layers if name.startswith("write-")}
        with _writes.changed:
            _writes.abandoned.update(names)
            _writes.changed.wait_for(lambda: not names & _writes.n_writing.keys(), _PATIENCE)
        raise


@contextmanager
def remove_partial_files(arrays: Iterable[StoredArray], *, after_death: bool = False) -> Iterator[None]:
    """Write to `arrays` inside; then remove the partial files of workers that died, or of an interrupted run."""
    before = _workers()
    yield
    if after_death or before - _workers():
        for array in arrays:
            sweep_partial_files(array.store, array.prefix)


def remove_partial_files_beside(store: Store, keys: Iterable[str]) -> None:
    """Remove the partial files that an interrupted run left beside `keys`, and beside the folders above them."""
    for prefix in {prefix for key in keys for prefix in map("{}/".format, parents_of(key))}:
        sweep_partial_files(store, "" if prefix == "/" else prefix, recursive=False)


def _workers() -> set[str]:
    client = Scheduler().client
    return set() if client is None else set(client.scheduler_info(n_workers=-1)["workers"])


def _check_worker(write: str) -> None:
    """Raise when this task was cancelled while it computed: the scheduler told its worker, which cannot stop it."""
    try:
        worker = get_worker()
    except ValueError:
        return
    key = worker.active_threads.get(threading.get_ident())
    task = None if key is None else worker.state.tasks.get(key)
    if task is not None and task.state in {"cancelled", "resumed"}:
        raise _cancelled(write)


def _cancelled(write: str) -> JobError:
    reason = "this task belongs to a write that was cancelled or has failed; its result is discarded"
    return JobError(job=write, reason=reason)
