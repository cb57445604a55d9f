"""The task of a stage, in the process that runs it: a group of specs, recorded when it is done.

Not here: what the function of a stage does, and running the stages (`chunkmill.runtime.stage_runner`).
"""

from __future__ import annotations

import pickle
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from distributed.protocol.pickle import dumps

from chunkmill.journal.journal import Journal
from chunkmill.journal.records import Inputs, Record
from chunkmill.runtime.cancellation import unless_cancelled
from chunkmill.runtime.computed import values_left_out
from chunkmill.runtime.preflight import Needs, check_process
from chunkmill.runtime.stage import TaskResult
from chunkmill.runtime.worker_memory import peak_memory
from chunkmill.stores.base import NOTHING_TAKEN, Changes, Store


def add_counts(total: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add `counts` to `total`; of names that begin with ``peak_`` the largest is kept.

    Examples
    --------
    >>> total = {"n_keys": 1, "peak_memory_bytes": 9}
    >>> add_counts(total, {"n_keys": 2, "peak_memory_bytes": 5})
    >>> total
    {'n_keys': 3, 'peak_memory_bytes': 9}
    """
    for name, value in counts.items():
        before = total.get(name, 0)
        total[name] = max(before, value) if name.startswith("peak_") else before + value


class AtOnce:
    """Limit of the tasks that this process runs at the same time; a context manager, pickled as its number.

    >>> AtOnce(3).__reduce__()[1]
    (3,)
    """

    def __init__(self, n_tasks: int) -> None:
        self._n_tasks = n_tasks
        self._free = threading.Semaphore(n_tasks)

    def __reduce__(self) -> tuple[type[AtOnce], tuple[int]]:
        return AtOnce, (self._n_tasks,)

    def __enter__(self) -> None:
        self._free.acquire()

    def __exit__(self, *_: object) -> None:
        self._free.release()


@dataclass(frozen=True, slots=True)
class LocalStage:
    """Stage as its tasks share it, where they run."""

    function: Callable[[Any, Any], TaskResult]
    common: Any
    journal: Journal | None
    number: int
    inputs: Inputs | None = None
    files: Store | None = None
    in_client: bool = False  # in the client's process, which asks once for its memory
    at_once: AtOnce | None = None

    def record(self, task: int, done: Sequence[TaskResult], counts: Mapping[str, int]) -> None:
        """Record that a task is done, whose data are in the store.

        In a transaction nothing is on record: the changes of a task may be lost with the worker that has them.
        """
        if self.journal is None or self.journal.store.has_transactions:
            return
        written = {key: size for each in done for key, size in each.writes.items() if size is not None}
        reads = [each.reads for each in done]
        digest = None if self.inputs is None or None in reads else sum(n for n in reads if n is not None) % 2**64
        is_elsewhere = self.files is not None and self.files != self.journal.store
        self.journal.records.put(self.number, task, Record(counts, written, digest, is_elsewhere))

    def open(self) -> LocalStage:
        """Return the stage."""
        return self


@dataclass(frozen=True, slots=True)
class PackedStage:
    """The same pickled and compressed for other processes: opened once in each, which is checked then."""

    token: str
    stage: bytes
    needs: bytes

    @classmethod
    def of(cls, stage: LocalStage, needs: Needs | None, job: str) -> PackedStage:
        """Pack a stage of a job; `TypeError` where a function of the user's cannot be sent."""
        try:
            with values_left_out():
                packed = dumps(stage)
        except Exception as error:
            msg = f"{job}: a function, what it closes over, or its arguments cannot be pickled for workers of other "
            hint = "make it in the function, or run with dask.config.set(scheduler='threads')"
            raise TypeError(f"{msg}processes: {error}; {hint}") from error
        return cls(uuid4().hex, zlib.compress(packed), dumps(needs))

    def open(self) -> LocalStage:
        """Unpack the stage, once in this process, and check the process then."""
        with _OPENED_LOCK:
            opened = _OPENED.get(self.token)
            if opened is None:
                check_process(self.needs)
                opened = _OPENED[self.token] = pickle.loads(zlib.decompress(self.stage))  # noqa: S301 - made by the client
                while len(_OPENED) > _MAX_OPENED:
                    _OPENED.popitem(last=False)
        return opened


_OPENED: OrderedDict[str, LocalStage] = OrderedDict()
_OPENED_LOCK = threading.Lock()
_NOTHING = nullcontext()
_MAX_OPENED = 8  # stages of jobs that run at the same time


def run_task(
    shared: LocalStage | PackedStage, index: int, specs: Sequence[Any]
) -> tuple[dict[str, int], list[Any], Changes | None]:
    """Run a group of specs: the function of every task; not one on record (P7), nor after its run has ended (P10)."""
    stage = shared.open()
    journal = stage.journal
    if journal is not None:
        # in the client's process dask repeats no task
        record = None if stage.in_client else journal.records.read(stage.number, index)
        if record is not None:
            return {**record.counts, "n_repeated": 1}, [], None
        journal.check()
    attempt = None if journal is None else journal.heartbeat
    check = _NOTHING if attempt is None else unless_cancelled(attempt.key, attempt.check)
    changes_taken = NOTHING_TAKEN if journal is None else journal.store.changes_taken()
    with check, stage.at_once or _NOTHING, changes_taken as taken:
        done = [stage.function(stage.common, spec) for spec in specs]
        counts: dict[str, int] = {}
        for result in done:
            add_counts(counts, result.counts)
        if not stage.in_client:
            add_counts(counts, {"peak_memory_bytes": peak_memory()})
        changes = taken()
        stage.record(index, done, counts)
    return counts, [each for result in done for each in result.details], changes
