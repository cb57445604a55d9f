"""The task of a stage, in the process that runs it: a group of specs, recorded when it is done.

Not here: what the function of a stage does, and running the stages (`chunkmill.runtime.stage_runner`).
"""

from __future__ import annotations

import pickle
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

from distributed.protocol.pickle import dumps

from chunkmill.journal.inputs import Inputs, digest_now
from chunkmill.journal.journal import Journal
from chunkmill.journal.record_batch import RecordBatch
from chunkmill.journal.records import Record, WrittenKeys
from chunkmill.runtime.cancellation import unless_cancelled
from chunkmill.runtime.computed import values_left_out
from chunkmill.runtime.preflight import Needs, check_process
from chunkmill.runtime.reference_shipping import ReferenceSender, TaskReferences, references_in_scope
from chunkmill.runtime.stage import TaskResult
from chunkmill.runtime.worker_memory import peak_memory
from chunkmill.stores.base import Store
from chunkmill.stores.transactions import Changes, changes_taken, has_transactions

__all__ = ["AtOnce", "LocalStage", "PackedStage", "add_counts", "compare_records", "run_task"]


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
        before = total.get(name)
        if before is None:
            total[name] = value
        else:
            total[name] = max(before, value) if name.startswith("peak_") else before + value


class AtOnce:
    """Limit of the tasks that this process runs at the same time; a context manager, pickled as its number."""

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
    batch: RecordBatch | None = None
    at_once: AtOnce | None = None

    def reads_now(self, specs: Sequence[Any]) -> int | None:
        """Return the digest of what some specs would read now; ``None``: not known."""
        return None if self.inputs is None else digest_now(self.inputs, self.common, specs)

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
    def of(cls, stage: LocalStage, needs: Needs | None, sender: ReferenceSender | None) -> PackedStage:
        """Pack a stage; with a sender of references, without those."""
        with values_left_out():
            packed = sender.pack(stage) if sender else dumps(stage)
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


_SharedStage: TypeAlias = LocalStage | PackedStage

_OPENED: OrderedDict[str, LocalStage] = OrderedDict()
_OPENED_LOCK = threading.Lock()
_RECORD_BYTES, _RECORD_SECONDS = 64 << 20, 10.0  # a task that is interrupted repeats no more
_NOTHING = nullcontext()
_MAX_OPENED = 8  # stages of jobs that run at the same time


def run_task(
    shared: _SharedStage, index: int, specs: Sequence[Any], references: Sequence[TaskReferences] = ()
) -> tuple[dict[str, int], list[Any], Changes | None]:
    """Run a group of specs: the function of every task in the graph of a stage."""
    stage = shared.open()
    journal = stage.journal
    target, here = (None, False) if journal is None else (journal.store, journal.keeps_changes)
    if journal is not None and (recorded := journal.recall_with_changes(stage.number, index)) is not None:
        return recorded[0] | {"n_repeated": 1}, [], recorded[1]
    progress = _Progress(stage, index)
    upto = progress.resume(specs) if len(specs) > 1 else None
    counts = progress.counts
    details: list[Any] = []
    attempt = None if journal is None else journal.heartbeat
    check = _NOTHING if attempt is None else unless_cancelled(attempt.key, attempt.check)
    in_scope = references_in_scope(references) if references else _NOTHING
    with check, stage.at_once or _NOTHING, in_scope, changes_taken(target, here=here) as taken:
        last = len(specs) - 1
        for i, spec in enumerate(specs):
            if upto is not None and spec[:2] <= upto:
                continue
            result = stage.function(stage.common, spec)
            details.extend(result.details)
            progress.add(result)
            if i < last and not details and isinstance(spec, tuple) and progress.is_due():
                progress.record(spec[:2])
        if not stage.in_client:
            add_counts(counts, {"peak_memory_bytes": peak_memory()})
        changes = taken()
        if journal is not None:
            journal.keep_changes(stage.number, index, changes)
        progress.record()
    return counts, details, changes


def compare_records(
    shared: _SharedStage, tasks: Sequence[int], specs: Sequence[Sequence[Any]] | None, values: bool
) -> tuple[int, list[int]]:
    """Compare the records of some tasks with what is stored; return their number, and those to be done again.

    With `values`, what they wrote; with the `specs` of each, what they read.
    """
    stage = shared.open()
    of_task = {} if specs is None else dict(zip(tasks, specs, strict=True))

    def holds(task: int, record: Record) -> bool:
        if values and stage.journal is not None and not record.holds(stage.files or stage.journal.store):
            return False
        return task not in of_task or record.has_read(stage.reads_now(of_task[task]))

    return len(tasks), list(tasks) if stage.journal is None else stage.journal.compare(stage.number, tasks, holds)


class _Progress:
    """Progress of a task, on record every now and then: if it is interrupted, it is resumed from there."""

    def __init__(self, stage: LocalStage, task: int) -> None:
        self.counts: dict[str, int] = {}
        self._stage, self._journal, self._task = stage, stage.journal, task
        files, journal = stage.files, stage.journal
        self._elsewhere = files is not None and journal is not None and files != journal.store
        self._reads: int | None = None if stage.inputs is None else 0
        self._earlier: list[WrittenKeys] = []
        self._writes: dict[str, Any] = {}
        self._begin()

    def _begin(self) -> None:
        self._since, self._n_bytes = time.monotonic(), 0

    def resume(self, specs: Sequence[Any]) -> tuple[int, ...] | None:
        """Return the last spec that is on record as done, where what was read for those has not changed."""
        record = (
            None if self._journal is None else self._journal.begun(self._stage.number, self._task, self._stage.files)
        )
        if record is None or record.upto is None:
            return None
        if not record.has_read(self._stage.reads_now([spec for spec in specs if spec[:2] <= record.upto])):
            return None
        self._earlier, self._reads = list(record.written), record.reads
        return record.upto

    def add(self, result: TaskResult) -> None:
        """Add the result of one spec."""
        add_counts(self.counts, result.counts)
        self._writes.update(result.writes)
        self._reads = None if self._reads is None or result.reads is None else (self._reads + result.reads) % 2**64
        self._n_bytes += result.counts.get("bytes_written", 0)

    def is_due(self) -> bool:
        """Return whether a record should be written before the next spec; in a transaction, changes come at the end."""
        if self._journal is not None and has_transactions(self._journal.store):
            return False
        return self._n_bytes >= _RECORD_BYTES or time.monotonic() - self._since >= _RECORD_SECONDS

    def record(self, upto: tuple[int, ...] | None = None) -> None:
        """Record what is done; all, without `upto`."""
        batch = self._stage.batch
        if batch is not None and upto is None and not self._earlier:
            written = [*WrittenKeys.of(self._writes)]
            record = Record(self.counts, written, reads=self._reads, elsewhere=self._elsewhere)
            batch.add(self._task, record, seconds=time.monotonic() - self._since)
        elif self._journal is not None:
            self._earlier = self._journal.record(
                self._stage.number,
                self._task,
                self.counts,
                self._writes,
                earlier=self._earlier,
                upto=upto,
                reads=self._reads,
                elsewhere=self._elsewhere,
            )
            self._writes = {}
        self._begin()
