"""Stop tasks of a cancelled or failed computation from writing (P10).

When one task fails, or the user interrupts, dask raises at once and others continue in their threads, here or on
workers. What they would write could meet the next attempt's. So a task asks, before it writes each store key, whether
its computation still stands; and those that are writing are waited for, here and on workers. Tasks that died while they
wrote left partial files, which are removed. Not here: the attempts of jobs, which are ended in the store
(`chunkmill.journal.heartbeat`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from distributed import Client

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError
from chunkmill.model.metadata import parents_of
from chunkmill.runtime.cluster_tasks import cluster_facts, is_connected
from chunkmill.runtime.scheduler import Scheduler, worker_task
from chunkmill.stores.base import Store
from chunkmill.stores.wrapper import Guard, write_guard

if TYPE_CHECKING:
    from dask.array import core as da

_POLL = 0.02  # seconds between two looks at what a worker writes
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
def unless_cancelled(write: str, check: Guard | None = None) -> Iterator[Guard]:
    """Write inside, and ask the guard before each store key; it is also this thread's `write_guard`.

    Parameters
    ----------
    write
        Name by which the write is abandoned.
    check
        A further question to be asked each time.

    Raises
    ------
    JobError
        The write was abandoned, or this task was cancelled.
    """
    task = worker_task()  # the scheduler tells its worker when it is cancelled, but nobody can stop it

    def check_here() -> None:
        if write in _writes.abandoned or (task is not None and task.state in {"cancelled", "resumed"}):
            reason = "this task belongs to a write that was cancelled or has failed; its result is discarded"
            raise JobError(job=write, reason=reason)

    def guard(*, now: bool = False) -> None:
        check_here()
        if check is not None:
            check(now=now)

    with _writes.changed:
        check_here()
        _writes.n_writing[write] += 1
    token = write_guard.set(guard)
    try:
        yield guard
    except Exception:
        with suppress(OSError):  # where the run was replaced, whatever failed did so because of that
            guard(now=True)
        raise
    finally:
        write_guard.reset(token)
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
        abandon(names, Scheduler().client)
        raise


def abandon(names: Iterable[str], client: Client | None = None) -> None:
    """Stop the writes of these names, and return when none of their tasks is writing, here or on a worker of `client`.

    A worker that does not answer is left after a while: its tasks learn from the store (`chunkmill.journal.heartbeat`)
    when the write belongs to a job.
    """
    abandoned = frozenset(names)
    asking = None
    if client is not None and is_connected(client):
        # by a thread: a worker that hangs would keep the client waiting, and its timeout cannot be set
        asking = threading.Thread(target=_ask_workers, args=(client, abandoned), daemon=True)
        asking.start()
    with _writes.changed:
        _writes.abandoned.update(abandoned)
        _writes.changed.wait_for(lambda: not abandoned & _writes.n_writing.keys(), _PATIENCE)
    if asking is not None:
        asking.join(_PATIENCE)


def _ask_workers(client: Client, names: frozenset[str]) -> None:
    with suppress(Exception):  # a cluster that goes down ends their tasks, too
        client.run(partial(_abandon_here, names), on_error="ignore")


async def _abandon_here(names: frozenset[str]) -> None:
    """On the event loop of a worker, where nothing may wait for a lock that tasks hold for long."""
    _writes.abandoned.update(names)
    for _ in range(int(_PATIENCE / _POLL)):
        if not names & _writes.n_writing.keys():
            return
        await sleep(_POLL)


@contextmanager
def remove_partial_files(arrays: Iterable[StoredArray], *, after_death: bool = False) -> Iterator[None]:
    """Write to `arrays` inside; then remove the partial files of workers that died, or of an interrupted run (P8)."""
    before = _workers()
    yield
    if after_death or before - _workers():
        for array in arrays:
            array.store.sweep(array.prefix)


def remove_partial_files_near(store: Store, keys: Iterable[str]) -> None:
    """Remove the partial files that an interrupted run left next to `keys`, and next to the folders above them."""
    for prefix in {prefix for key in keys for prefix in map("{}/".format, parents_of(key))}:
        store.sweep("" if prefix == "/" else prefix, recursive=False)


def _workers() -> set[str]:
    client = Scheduler().client
    return set() if client is None else set(cluster_facts(client)["workers"])


_AGAIN = 75  # exit code EX_TEMPFAIL: a batch system may submit the script again


@contextmanager
def ended_by_sigterm(job: str, cancel: Callable[[], object], way: str) -> Iterator[None]:
    """Run a job inside; SIGTERM, which batch systems send before the walltime, cancels it and ends the process with 75.

    What is done is on record then. Only the main thread of a process that does not handle SIGTERM itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    asked: list[int] = []

    def end(signum: int, _: object) -> None:
        if not asked:  # by a thread: the main one may hold a lock that this needs
            threading.Thread(target=cancel, daemon=True).start()
        asked.append(signum)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except Exception as error:
        if not asked:
            raise
        sys.stderr.write(f"{job}: ended by SIGTERM; what is done is on record: the same call resumes it, or {way}\n")
        raise SystemExit(_AGAIN) from error
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if asked:  # the job was done before it was cancelled
        signal.raise_signal(signal.SIGTERM)
