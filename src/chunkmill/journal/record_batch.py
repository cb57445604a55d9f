"""Records of the short tasks that end in the client's process, stored some together.

A record costs several system calls, more than what a short task does. So those of tasks that together took less than
`BATCH_SECONDS` wait in memory, and no others: a job that is killed repeats the tasks that were under way or being
recorded, and that much. Tasks of other processes are recorded one by one (`chunkmill.journal.journal`): a process may
be lost without its client, and dask's own work for such a task takes several times as long as a record. Not here: where
records are kept (`chunkmill.journal.record_files`).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Self

from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import is_of_run
from chunkmill.journal.record_files import GROUP
from chunkmill.journal.records import Record

__all__ = ["BATCH_SECONDS", "BATCH_TASKS", "RecordBatch"]

BATCH_SECONDS = 0.25
"""Seconds that the tasks took, all in all, whose records wait."""

BATCH_TASKS = GROUP
"""Records that wait at most: more are no cheaper, since each merged object holds so many."""


class RecordBatch:
    """Records of one stage that wait to be stored; a context manager, which stores them at its end.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> journal = Journal(MemoryStore(), "a", "convert", "plan")
    >>> journal.begin({})
    >>> with journal.running(), RecordBatch(journal, 0) as batch:
    ...     batch.add(0, Record({}, ()), seconds=0.01)
    ...     n_before = len(journal.records.names())
    >>> n_before, len(journal.records.names())
    (0, 1)
    """

    def __init__(self, journal: Journal, stage: int) -> None:
        self._journal, self._stage = journal, stage
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._waiting: dict[int, bytes] = {}
        self._seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.store()
            return
        with suppress(OSError):  # the error that ends the stage is raised
            journal = self._journal
            if is_of_run(journal.store.get(journal.plan_key), journal.run):  # this client's heartbeat may be ended
                self._put()

    def add(self, task: int, record: Record, *, seconds: float) -> None:
        """Record that a task, whose data are in the store and which took so long, is done."""
        packed = record.pack()
        with self._lock:
            self._waiting[task] = packed
            self._seconds += seconds
            is_due = self._seconds >= BATCH_SECONDS or len(self._waiting) >= BATCH_TASKS
        if is_due:
            self.store()

    def store(self) -> None:
        """Store what waits; `JobError` where the heartbeat was ended."""
        if self._waiting:
            self._journal.check()
            self._put()

    def _put(self) -> None:
        with self._lock:
            waiting = self._waiting
            self._begin()
        if waiting:
            try:
                self._journal.records.put(self._stage, waiting)
            except BaseException:  # Ctrl-C, too: stored at the end, if that can be
                with self._lock:
                    self._waiting = waiting | self._waiting
                raise
