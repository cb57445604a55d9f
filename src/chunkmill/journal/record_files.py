"""Objects that hold the records of a run: one for each task, later one for neighbouring tasks.

Layout, below the prefix of a journal::

    <stage>/<task>-<run>            record of a task (`chunkmill.journal.records`)
    <stage>/<task>-<run>.begun      the same, of a task that is not done yet
    <stage>/<group>-<run>.merged    records of the tasks of a group, one after the other, and an index at the end

Those of short tasks are put into the merged object at once (`chunkmill.journal.record_batch`). Merging writes the
merged object first, and then deletes each record that it holds, unless that has changed: a client that dies in between
leaves both. A record of its own counts before a merged one, so several clients may merge, and tasks may be recorded
again at that time. Not here: what a record says (`chunkmill.journal.records`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.journal.records import Record, read_record
from chunkmill.stores.base import REQUESTS_AT_ONCE, ByteRange, ByteSpan, Store
from chunkmill.stores.capabilities import delete_keys, scratch_store
from chunkmill.stores.conflicts import swap, update

__all__ = ["BEGUN", "GROUP", "RecordFiles"]

GROUP = 256
"""Tasks, neighbours by number, whose records are merged into one object."""

BEGUN = ".begun"
"""After the name of the record of a task that is not done yet."""

_MERGED = ".merged"
_NAME = re.compile(r"(\d+)-([^.]*)(\.merged)?")
_WORTH = 16  # records of a group that are worth writing its merged object again
_TOGETHER = 4  # records that take longer to store one by one than into a merged object, which is read for that
_AT_WORK = 8  # groups below the last one whose tasks may still be at work: of those before, any record is worth it
_TAIL = ByteRange(-8192)  # holds the index of a merged object
_FOOTER = 8  # bytes: the length of the index, at the end
_N_SAMPLED = 32
_AT_ONCE = 32  # records, looked at by one thread before it takes the next

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """Records of one run (of all runs, where `run` is empty) below a journal's prefix.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> files = RecordFiles(MemoryStore(), "job/", "r1")
    >>> for task in range(300):
    ...     files.store.set(files.key(0, task), b'{"counts":{},"upto":null,"written":[]}')
    >>> files.merge(0)
    >>> sorted(files.store.list_prefix("job/"))
    ['job/0/0-r1.merged', 'job/0/1-r1.merged']
    >>> len(files.names()), files.read(0, 299)
    (300, b'{"counts":{},"upto":null,"written":[]}')
    """

    store: Store
    prefix: str
    run: str

    def key(self, stage: int, task: int) -> str:
        """Return the key of the record of a task."""
        return f"{self.prefix}{stage}/{task}-{self.run}"

    def names(self) -> list[tuple[int, int, str]]:
        """Return stage and number of every task on record, and the key of the object that has its record.

        One listing, and the end of each merged object.
        """
        found: dict[tuple[int, int, str], str] = {}
        merged = []
        for stage, number, run, key in self._listed():
            if key.endswith(_MERGED):
                merged.append((stage, run, key))
            else:
                found[stage, number, run] = key
        tails = self.store.get_many([ByteSpan(key, _TAIL) for *_, key in merged])
        for (stage, run, key), tail in zip(merged, tails, strict=True):
            for task in _spans_of(tail or b"") or ():
                found.setdefault((stage, task, run), key)
        return [(stage, task, key) for (stage, task, _), key in found.items()]

    def read(self, stage: int, task: int) -> bytes | None:
        """Return the record of a task; ``None`` when it is not on record. One round trip, two where it is merged."""
        at = self._merged_key(stage, task)
        value, tail = self.store.get_many([ByteSpan(self.key(stage, task)), ByteSpan(at, _TAIL)])
        span = None if value is not None else (_spans_of(tail or b"") or {}).get(task)
        return value if span is None else self.store.get(at, span)

    def read_at(self, key: str, task: int) -> bytes | None:
        """Return the record of a task from the object that `names` found it in; ``None`` when it was deleted since."""
        if not key.endswith(_MERGED):
            return self.store.get(key)
        span = (_spans_of(self.store.get(key, _TAIL) or b"") or {}).get(task)
        return None if span is None else self.store.get(key, span)

    def read_many(self, stage: int, tasks: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
        """Yield each task and its record: each object is read once."""
        own = self.store.get_many([ByteSpan(self.key(stage, task)) for task in tasks])
        found = dict(zip(tasks, own, strict=True))
        groups = {self._merged_key(stage, task) for task, value in found.items() if value is None}
        merged = {task: value for key in sorted(groups) for task, value in _unpacked(self.store.get(key)).items()}
        return ((task, merged.get(task) if value is None else value) for task, value in found.items())

    def forget(self, stage: int, tasks: Iterable[int]) -> None:
        """Delete the records of tasks: what they say is not true any more."""
        groups: dict[str, set[int]] = defaultdict(set)
        for task in tasks:
            self.store.delete(self.key(stage, task))
            groups[self._merged_key(stage, task)].add(task)
        for key, forgotten in groups.items():

            def kept(value: bytes | None, forgotten: Collection[int] = forgotten) -> bytes:
                return _packed({task: record for task, record in _unpacked(value).items() if task not in forgotten})

            update(self.store, key, kept, rewrites=True)  # a new version: else `merge` might bring one back

    def delete(self) -> None:
        """Delete the records of the run, those of tasks that are not done included."""
        delete_keys(self.store, [key for _, key, name in self._keys() if name.split("-")[-1].split(".")[0] == self.run])

    def put(self, stage: int, records: Mapping[int, bytes]) -> None:
        """Store records of tasks: many of one group at once, as `merge` would leave them."""
        groups: dict[int, dict[int, bytes]] = defaultdict(dict)
        for task, value in records.items():
            groups[task // GROUP][task] = value
        for own in groups.values():
            if len(own) < _TOGETHER or scratch_store(self.store) is not None:
                self._each(lambda each: self.store.set(self.key(stage, each[0]), each[1]), [*own.items()])
                continue

            def joined(value: bytes | None, own: Mapping[int, bytes] = own) -> bytes:
                return _packed({**_unpacked(value), **own})

            # of most groups, there is none yet
            update(self.store, self._merged_key(stage, next(iter(own))), joined, seen=(None, None))

    def merge(self, stage: int) -> None:
        """Merge the records of neighbouring tasks of a stage, where there are enough of them."""
        if scratch_store(self.store) is not None:  # a zip file, which would grow
            return
        groups: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for _, number, run, key in self._listed(stage):
            if run == self.run and not key.endswith(_MERGED):
                groups[number // GROUP].append((number, key))
        for group, own in groups.items():
            if len(own) >= _WORTH or group < max(groups) - _AT_WORK:
                self._merge(stage, own)

    def seem_to_hold(self, names: Sequence[tuple[int, int, str]]) -> bool:
        """Return whether, of some of the tasks that `names` found, the first value that each wrote is there."""
        return all(self._each(self._begins, names[:: max(1, len(names) // _N_SAMPLED)]))

    def that_hold(self) -> set[tuple[int, int]]:
        """Return stage and number of every task on record: one listing.

        In a store of files each record is read, too, and compared with the values, by many threads: a machine that
        went down may have kept a file's name and lost its bytes. Records that are not true any more are deleted, so
        that their tasks are done again.
        """
        found = self.names()
        if self.store.is_remote:
            return {(stage, task) for stage, task, _ in found}

        def true(batch: slice) -> list[tuple[int, int]]:
            held = []
            for stage, task, key in found[batch]:
                if self._is_true(key, task):
                    held.append((stage, task))
                elif key.endswith(_MERGED):
                    self.forget(stage, [task])
                else:
                    self.store.delete(key)
            return held

        batches = cut_evenly(len(found), -(-len(found) // _AT_ONCE))
        return {*chain.from_iterable(in_threads(true, batches, REQUESTS_AT_ONCE))}

    def false_ones(self, stage: int, tasks: Sequence[int], holds: Callable[[int, Record], bool]) -> list[int]:
        """Return those tasks whose record does not hold, or which are not on record; forget their records."""
        records = ((task, read_record(value or b"")) for task, value in self.read_many(stage, tasks))
        found = [task for task, record in records if record is None or not holds(task, record)]
        self.forget(stage, found)
        return found

    def _is_true(self, key: str, task: int) -> bool:
        """Return whether all values are as recorded; ``False`` also when they, or the record, cannot be looked at."""
        try:
            record = read_record(self.read_at(key, task) or b"")
        except OSError:
            return False
        return record is not None and record.holds(self.store)

    def differences(self, key: str, task: int) -> Iterator[tuple[str, str]]:
        """Yield the key of each value that differs from the record of a task, and a text on how it differs.

        Of values that share a checksum, the first is named. A record that cannot be read is yielded itself.
        """
        if (value := self.read_at(key, task)) is None:
            return  # the job has ended since
        try:
            record = Record.unpack(value)
        except ValueError as error:
            yield key, str(error)
            return
        for each in () if record.elsewhere else record.written:
            if (found := each.difference(self.store)) is not None:
                yield found

    def _begins(self, name: tuple[int, int, str]) -> bool:
        _, task, key = name
        record = read_record(self.read_at(key, task) or b"")
        if record is None or record.elsewhere:
            return record is not None
        first = next((key for each in record.written for key in each.keys()), "")  # noqa: SIM118
        return not first or self.store.size(first) is not None

    def _merge(self, stage: int, own: Sequence[tuple[int, str]]) -> None:
        """Merge some records of a group: read after the version of the merged object, which `forget` changes."""
        found: list[tuple[int, str, bytes, str | None]] = []

        def merged(value: bytes | None) -> bytes | None:
            nonlocal found
            read = self._each(self.store.get_versioned, [key for _, key in own])
            found = [
                (task, key, each, version)
                for (task, key), (each, version) in zip(own, read, strict=True)
                if each is not None and read_record(each) is not None
            ]
            return _packed({**_unpacked(value), **{task: each for task, _, each, _ in found}}) if found else value

        update(self.store, self._merged_key(stage, own[0][0]), merged)
        self._each(lambda each: swap(self.store, each[1], None, each[3]), found)

    def _each(self, function: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Call a function for each item: at once where requests cost latency."""
        if not self.store.is_remote:
            return [function(each) for each in items]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            return list(pool.map(function, items))

    def _merged_key(self, stage: int, task: int) -> str:
        return f"{self.prefix}{stage}/{task // GROUP}-{self.run}{_MERGED}"

    def _listed(self, stage: int | None = None) -> Iterator[tuple[int, int, str, str]]:
        """Yield stage, number of the task or group, run and key of every object with records."""
        for of, key, name in self._keys(stage):
            match = _NAME.fullmatch(name)
            if match is not None and self.run in {"", match[2]}:
                yield of, int(match[1]), match[2], key

    def _keys(self, stage: int | None = None) -> Iterator[tuple[int, str, str]]:
        """Yield stage, key and name of every object below the prefixes of stages."""
        names = [f"{stage}/"] if stage is not None else self.store.list_dir(self.prefix)
        stages = [
            name for name in names if name.endswith("/") and name[:-1].isdigit()
        ]  # values may be stored there, too
        for key in chain.from_iterable(self.store.list_prefix(self.prefix + name) for name in stages):
            of, _, name = key[len(self.prefix) :].partition("/")
            yield int(of), key, name


def _packed(records: Mapping[int, bytes]) -> bytes:
    tasks = sorted(records)
    index = json.dumps([tasks, [len(records[task]) for task in tasks]], separators=(",", ":")).encode()
    return b"".join([*(records[task] for task in tasks), index, len(index).to_bytes(_FOOTER, "little")])


def _unpacked(value: bytes | None) -> dict[int, bytes]:
    """Return the records in a merged object, by task; none of one that is absent or damaged."""
    spans = _spans_of(value or b"") or {}
    return {task: value[at.start : at.start + (at.length or 0)] for task, at in spans.items()} if value else {}


def _spans_of(tail: bytes) -> dict[int, ByteRange] | None:
    """Return where the record of each task is in a merged object, by its last bytes; ``None`` where it is damaged."""
    n_bytes = int.from_bytes(tail[-_FOOTER:], "little")
    if not 0 < n_bytes <= len(tail) - _FOOTER:
        return None
    try:
        tasks, sizes = json.loads(tail[-_FOOTER - n_bytes : -_FOOTER])
        return _spans(tasks, sizes)
    except (ValueError, TypeError, RecursionError):
        return None


def _spans(tasks: Sequence[Any], sizes: Sequence[Any]) -> dict[int, ByteRange]:
    spans, start = {}, 0
    for task, size in zip(tasks, sizes, strict=True):
        spans[int(task)] = ByteRange(start, int(size))
        start += int(size)
    return spans
