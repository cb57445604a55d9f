"""Find the jobs that began in a store and have not ended, so that other writers refuse to write there.

Not here: what a job keeps of itself (`chunkmill.runtime.journal`), reports about them
(`chunkmill.checks.inventory`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.model.paths import parents_of
from chunkmill.runtime.attempts import is_live
from chunkmill.runtime.journal import JOB_PREFIX, PLAN, RUNNING, Journal, journal_prefix
from chunkmill.stores.base import ByteSpan, Store
from chunkmill.stores.capabilities import scratch_store

__all__ = [
    "UnfinishedJob",
    "check_no_job",
    "discard_block_write",
    "discard_jobs",
    "jobs_at",
    "reserved",
    "unfinished_jobs",
]


@dataclass(frozen=True, slots=True)
class UnfinishedJob:
    """A job that began and has not ended.

    Attributes
    ----------
    job
        Description of the job for messages.
    path
        Of the node that it writes.
    began, run
        Time of its beginning, and name of its run.
    key
        Of its plan, in the store.
    is_running
        True when a client that runs it is alive (see `chunkmill.runtime.attempts`).
    is_block_write
        True for a `to_store`.
    """

    job: str
    path: str
    began: str
    run: str
    key: str
    is_running: bool
    is_block_write: bool = False

    def __str__(self) -> str:
        return f"{self.job!r}, begun {self.began}"


def unfinished_jobs(store: Store) -> list[UnfinishedJob]:
    """Return the jobs that began anywhere in `store` and have not ended: one listing of its root.

    Examples
    --------
    >>> from chunkmill.runtime.journal import fingerprint
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> journal = Journal(store, "a", "convert to 'a'", fingerprint("x"))
    >>> journal.begin({})
    >>> [(job.job, job.path, job.is_running) for job in unfinished_jobs(store)]
    [("convert to 'a'", 'a', False)]
    >>> with journal.running():
    ...     [job.is_running for job in unfinished_jobs(store)]
    [True]
    """
    names = [name for name in store.list_dir("") if name.startswith(JOB_PREFIX) and name.endswith("/")]
    return _found(store, names)


def jobs_at(store: Store, *paths: str, below: bool = False) -> list[UnfinishedJob]:
    """Return the unfinished jobs that write the nodes at `paths` or groups above them: a request each, all at once.

    With `below` also those that write nodes below them, for which the store's root is listed.
    """
    places = dict.fromkeys(place for path in paths for place in (path, *parents_of(path)))
    if not below:
        return _found(store, map(journal_prefix, places))
    return [job for job in unfinished_jobs(store) if job.path in places or any(_is_below(job.path, p) for p in paths)]


@contextmanager
def reserved(store: Store, path: str, job: str) -> Iterator[str]:
    """Reserve the place of a new node while it is written: other writers are refused; yields the name of the run.

    What an interrupted reservation left is removed first. In a zip file, which has one writer, nothing is reserved.

    Raises
    ------
    JobError
        Another writer has reserved the place.
    """
    if scratch_store(store) is not None:
        yield ""
        return
    discard_block_write(store, path)
    journal = Journal(store, path, job, uuid4().hex, is_block_write=True)
    with journal.running():  # before it begins: others take a job without a heartbeat for one that was interrupted
        try:
            journal.begin({})
        except JobError:
            check_no_job(store, path)  # names the other job, and the way out
            raise
        try:
            yield journal.run
        finally:
            with suppress(OSError):  # what failed before is told; the next writer removes what is left
                journal.discard()


def check_no_job(
    store: Store, *paths: str, overwrite: bool | None = None, own_run: str = "", below: bool = False
) -> list[UnfinishedJob]:
    """Raise `JobError` when a job writes the nodes at `paths`, groups above them, or what is to be overwritten.

    Parameters
    ----------
    overwrite
        ``True``: the caller deletes the nodes and everything below them, so that interrupted jobs there are returned
        instead, to be discarded before (`discard_jobs`). ``False``: the error says that it could. ``None``: it cannot.
    own_run
        Name of the caller's own run, which is not another job.
    below
        Refuse where jobs write nodes below `paths`, too: the caller creates nodes there.
    """
    discarded = []
    for job in jobs_at(store, *paths, below=below or bool(overwrite)):
        if own_run and job.run == own_run:
            continue
        if job.is_running:
            hint = Hint("wait until it is done, or stop it")
        elif overwrite and any(_is_below(job.path, path) for path in paths):
            discarded.append(job)
            continue
        else:
            hint = Hint("run it again to finish it, or with {} to begin again", ("resume", False))
            hint = hint if overwrite is None else hint.also("{} discards it", ("overwrite", True))
        state = "is running" if job.is_running else "was interrupted"
        where = f"{store.url}/{paths[0]}" if paths[0] else store.url
        raise JobError(job=f"write to {where}", reason=f"a job that writes there {state}: {job}", hint=hint)
    return discarded


def discard_jobs(store: Store, jobs: Iterable[UnfinishedJob]) -> None:
    """Delete the journals of jobs, before the values that they record are deleted."""
    for job in jobs:
        Journal(store, job.path, job.job, "").discard()


def discard_block_write(store: Store, path: str) -> None:
    """Delete the journal of an interrupted ``to_store(resume=True)`` of the array at `path`, which is written again."""
    jobs = [job for job in jobs_at(store, path) if job.path == path and job.is_block_write and not job.is_running]
    discard_jobs(store, jobs)


def _is_below(path: str, group: str) -> bool:
    """Return whether `path` is `group` or below it."""
    return not group or path == group or path.startswith(f"{group}/")


def _found(store: Store, prefixes: Iterable[str]) -> list[UnfinishedJob]:
    keys = [f"{prefix}{PLAN}" for prefix in prefixes]
    values = store.get_many(map(ByteSpan, keys))
    return [_job(store, key, value) for key, value in zip(keys, values, strict=True) if value is not None]


def _job(store: Store, key: str, value: bytes) -> UnfinishedJob:
    try:
        plan = json.loads(value)
        job, path, began, run = (str(plan.get(name, "")) for name in ("job", "path", "began", "run"))
        is_block_write = bool(plan.get("is_block_write"))
    except (ValueError, AttributeError):  # damaged: whoever runs the job again is told so
        job, path, began, run, is_block_write = "", "", "", "", False
    running = key.removesuffix(PLAN) + RUNNING
    heartbeats = (store.get(running + name) for name in store.list_dir(running))
    is_running = any(heartbeat is not None and is_live(heartbeat) for heartbeat in heartbeats)
    return UnfinishedJob(job, path, began, run, key, is_running, is_block_write)
