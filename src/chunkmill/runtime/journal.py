"""The journal of a whole-store job: what is done, kept beside the target until all is.

One object a task, written after the task's data, so that a job that was killed goes on where it stopped and a task
that dask repeats returns at once. Stores keep their promise that a value is there whole or not at all, so a record
that can be read is true: unless the machine went down before its files were on the disk, or somebody else changed
them. So values are compared with the record: their sizes when a job goes on, their crc32c by `chunkmill.check`.

Layout, at the root of the target's store, under a name that no format takes for a node::

    .chunkmill-job-<hash of the target's path>/plan.json            fingerprint, what, when, documents to publish
    .chunkmill-job-<hash of the target's path>/<stage>/<task>-<run> counts; keys with size and crc32c, or null: empty

A run is from the beginning of a job to its end, however often it is cut off and goes on. Its name in the records keeps
tasks of a job that was given up, which may still be at work somewhere, from speaking for those of the next.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import Any
from uuid import uuid4

import google_crc32c

from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.model.metadata import JSON
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store

__all__ = ["JOB_PREFIX", "Journal", "differences", "fingerprint", "records", "unfinished_jobs"]

_VERSION = 1

_AT_ONCE = 256  # records, looked at by one thread before it takes the next
_SLOW = 1e-4  # seconds for a record: files that others serve (NFS, Lustre), where waiting is what takes long


def fingerprint(*parts: Any) -> str:
    """Return a hash of the ``repr`` of `parts`: of values (integers, strings, tuples, metadata), never of objects.

    Two runs of one plan must have the same one, in any process, so that the second may go on with the first.

    Examples
    --------
    >>> fingerprint("convert", (3, 4)) == fingerprint("convert", (3, 4))
    True
    """
    return sha256(repr(parts).encode()).hexdigest()


@dataclass(slots=True)
class Journal:
    """The journal of the job that writes the node at `path` of `store`.

    Parameters
    ----------
    job
        What the job is, for people: ``"convert to 'a' in file:///x"``.
    fingerprint
        Of the plan: only a job with the same one goes on with what is recorded.
    run
        The run's name, which `begin` gives and `resume` finds.
    is_over
        Whether `resume` found that all was done, and nothing left but to delete the journal.
    """

    store: Store
    path: str
    job: str
    fingerprint: str
    run: str = ""
    is_over: bool = False

    @property
    def prefix(self) -> str:
        """What the keys of this journal begin with."""
        return f"{JOB_PREFIX}{sha256(self.path.encode()).hexdigest()[:16]}/"

    @property
    def plan_key(self) -> str:
        """The key of the object that is there from the beginning to the end of the job."""
        return f"{self.prefix}plan.json"

    def resume(self) -> dict[str, bytes] | None:
        """Return the documents that the unfinished job is to publish; ``None`` when there is no such job.

        Raises
        ------
        JobError
            There is one with another plan.
        """
        value = self.store.get(self.plan_key)
        if value is None:
            if not self.store.is_remote:  # the folder, of a job that was killed when all but that was deleted
                self.store.delete_prefix(self.prefix)
            return None
        plan = _parse(value, self)
        is_ours = self._is_ours(plan)
        if plan.get("over"):
            self._delete_records()
            self.discard()
        if plan.get("over") and not is_ours:
            return None
        if not is_ours:
            began = f"{plan.get('job')!r}, begun {plan.get('began')}"
            reason = f"there is an unfinished job at the target with another plan ({began})"
            text = "give {} to discard what it wrote and start again, or finish it with its own arguments"
            hint = Hint(text, ("resume", False))
            raise JobError(job=self.job, reason=reason, hint=hint)
        self.run, self.is_over = str(plan.get("run", "")), bool(plan.get("over"))
        return {key: base64.b64decode(text) for key, text in plan["documents"].items()}

    def has_this_plan(self) -> bool | None:
        """Whether the unfinished job at the target has this plan; ``None``: there is none. Nothing is changed."""
        value = self.store.get(self.plan_key)
        if value is None:
            return None
        plan = _parse(value, self)
        return self._is_ours(plan) or (None if plan.get("over") else False)

    def _is_ours(self, plan: Mapping[str, Any]) -> bool:
        return plan.get("version") == _VERSION and plan.get("fingerprint") == self.fingerprint

    def begin(self, documents: Mapping[str, bytes]) -> None:
        """Begin, where `resume` found no job, or `discard` forgot it.

        Raises
        ------
        JobError
            Another job has begun since: the two would write over each other.
        """
        self.run = uuid4().hex[:8]
        plan = {
            "version": _VERSION,
            "job": self.job,
            "path": self.path,
            "fingerprint": self.fingerprint,
            "run": self.run,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "documents": {key: base64.b64encode(value).decode() for key, value in documents.items()},
        }
        if not self.store.set_if(self.plan_key, json.dumps(plan).encode(), None):
            hint = "wait until it is done, or stop it, and run this one again"
            raise JobError(job=self.job, reason="another job has begun to write the target meanwhile", hint=hint)

    def done(self) -> set[tuple[int, int]]:
        """Return stage and number of every task on record: one listing.

        Of files each record is read, too, and the sizes of the values are compared: a machine that went down may have
        kept a file's name and lost its bytes. Records that are not true any more are deleted, so that their tasks are
        done again. In many threads where files are slow; threads of Python would slow down what the system answers from
        memory.
        """
        found = records(self.store, self.prefix, self.run)
        if self.store.is_remote:
            return {(stage, task) for stage, task, _ in found}

        def true(part: slice) -> list[tuple[int, int]]:
            held = []
            for stage, task, key in found[part]:
                if self._holds(key):
                    held.append((stage, task))
                else:
                    self.store.delete(key)
            return held

        parts = cut_evenly(len(found), -(-len(found) // _AT_ONCE))
        begun = time.perf_counter()
        first = true(parts[0])
        waits = time.perf_counter() - begun > _AT_ONCE * _SLOW
        rest = in_threads(true, parts[1:], REQUESTS_AT_ONCE if waits else 1)
        return {*first, *chain.from_iterable(rest)}

    def _holds(self, record: str) -> bool:
        """Whether the values are there as they are on record; what cannot be told is done again."""
        try:
            return not any(differences(self.store, record))
        except OSError:
            return False

    def recall(self, stage: int, task: int) -> dict[str, int] | None:
        """Return the counts of a task that was done; ``None`` when it is still to be done.

        Raises
        ------
        JobError
            The job is over: done, or given up and begun anew. What the task would write is not wanted any more.
        """
        value = self.store.get(self._key(stage, task))
        if value is not None:
            return dict(_parse(value, self)["counts"])
        plan = self.store.get(self.plan_key)
        if plan is None or (known := _parse(plan, self)).get("run") != self.run or known.get("over"):
            raise JobError(job=self.job, reason="this task is late: the job is over, or was begun anew")
        return None

    def record(self, stage: int, task: int, counts: Mapping[str, int], writes: Mapping[str, Any]) -> None:
        """Put on record that a task is done: its data must be in the store."""
        self.store.set(self._key(stage, task), json.dumps({"counts": counts, "keys": writes}).encode())

    def finish(self) -> None:
        """Delete the journal of a job that is done; a job that is killed here has nothing left to do but that."""
        value = self.store.get(self.plan_key)
        if value is not None:
            with suppress(OSError):  # a disk that is full: all is done, and what is left to do makes room
                self.store.set(self.plan_key, json.dumps(_parse(value, self) | {"over": True}).encode())
                self._delete_records()
        self.discard()

    def discard(self) -> bool:
        """Delete the journal, the plan first: records without a plan are nothing to go on with.

        Return whether there was one.
        """
        was_there = self.store.get(self.plan_key) is not None
        if was_there:
            self.store.delete(self.plan_key)
        self.store.delete_prefix(self.prefix)
        return was_there

    def tidy(self) -> None:
        """Delete what tasks recorded when their job was over already: another process had joined in, and ended it."""
        if self.store.get(self.plan_key) is None:
            self.store.delete_prefix(self.prefix)

    def _delete_records(self) -> None:
        for name in self.store.list_dir(self.prefix):
            if name.endswith("/"):
                self.store.delete_prefix(self.prefix + name)

    def _key(self, stage: int, task: int) -> str:
        return f"{self.prefix}{stage}/{task}-{self.run}"


def records(store: Store, prefix: str, run: str) -> list[tuple[int, int, str]]:
    """Return stage, number and record's key of every task of a run that left one below a journal's prefix."""
    found = []
    for key in store.list_prefix(prefix):
        stage, _, name = key[len(prefix) :].partition("/")
        task, _, of = name.partition("-")
        if stage.isdigit() and task.isdigit() and run in {"", of}:
            found.append((int(stage), int(task), key))
    return found


def differences(store: Store, record: str, *, read: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the key of each value that is not as a task put it on record, and what is wrong with it.

    Sizes are compared, and with `read` the values' crc32c. A record that cannot be read is wrong itself.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store, journal = MemoryStore(), Journal(MemoryStore(), "a", "convert", "x")
    >>> store.set("a/c/0", b"123456789")
    >>> store.set("record", json.dumps({"keys": {"a/c/0": (9, 0)}}).encode())
    >>> list(differences(store, "record")), list(differences(store, "record", read=True))
    ([], [('a/c/0', 'its bytes are not those that were written')])
    """
    value = store.get(record)
    if value is None:
        return  # the job has ended meanwhile
    try:
        written = [(key, int(known[0]), int(known[1])) for key, known in json.loads(value)["keys"].items() if known]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        yield record, "the record is damaged"
        return
    for key, size, checksum in written:
        data = store.get(key) if read else None
        there = store.size(key) if data is None else len(data)
        if there != size:
            yield key, f"{'absent' if there is None else f'{there} bytes'}, where {size} bytes were written"
        elif data is not None and google_crc32c.value(data) != checksum:
            yield key, "its bytes are not those that were written"


def unfinished_jobs(store: Store) -> list[dict[str, JSON]]:
    """Return what is known of the jobs that began in `store` and did not end: job, path, began, run, the plan's key.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> Journal(store, "a", "convert to 'a'", fingerprint("x")).begin({})
    >>> [(job["job"], job["path"]) for job in unfinished_jobs(store)]
    [("convert to 'a'", 'a')]
    """
    found = []
    for name in store.list_dir(""):
        if name.startswith(JOB_PREFIX) and (value := store.get(f"{name}plan.json")) is not None:
            try:
                plan = json.loads(value)
            except ValueError:
                plan = {}
            known = {member: plan.get(member, "") for member in ("job", "path", "began", "run")}
            found.append(known | {"key": f"{name}plan.json"})
    return found


def _parse(value: bytes, journal: Journal) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        hint = Hint("give {} to discard it and start again", ("resume", False))
        raise JobError(job=journal.job, reason=f"the journal at {journal.plan_key!r} is damaged", hint=hint)
    return parsed


JOB_PREFIX = ".chunkmill-job-"
"""What the keys of every job's journal begin with, at the root of a store."""
