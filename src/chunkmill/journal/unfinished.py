"""Find the jobs that began in a store and have not ended, and how far they have come (P4); roll them back (P8).

Not here: leases, and the refusal to write where there is a job (`chunkmill.journal.lease`), reports about jobs
(`chunkmill.checks.inventory`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from chunkmill.array.threads import at_once
from chunkmill.journal.heartbeat import age, any_live, end_dead, silence
from chunkmill.journal.plans import (
    JOB_PREFIX,
    PLAN,
    RUNNING,
    TAG_PREFIX,
    Plan,
    beats_of,
    is_in_place,
    is_of_run,
    journal_prefix,
    watch_client,
)
from chunkmill.model.metadata import is_within, parents_of
from chunkmill.stores.base import ByteSpan, Store
from chunkmill.stores.conflicts import swap

T = TypeVar("T")
UNKNOWN_PATH = "?"
"""Path of a job whose plan is damaged, where it is not looked for by its path."""


@dataclass(frozen=True, slots=True)
class UnfinishedJob(Plan):
    """A job that began and has not ended: its plan, and its state.

    Attributes
    ----------
    key
        Of its plan, in the store.
    is_running
        True when a client that runs it is alive, or not known to be dead (see `chunkmill.journal.heartbeat`).
    silence
        Seconds since its client's last heartbeat, where it is not known whether that client is alive.
    is_in_place
        True where its new node has taken the place of the old one, and only its traces are left.
    """

    key: str = ""
    is_running: bool = False
    silence: float | None = None
    is_in_place: bool = False

    @property
    def replaces(self) -> bool:
        """True where it replaces a node, which stays until the job is done."""
        return self.old_prefix is not None

    def __str__(self) -> str:
        if self.is_damaged:
            return "a job whose plan is damaged"
        silent = "" if self.silence is None else f", whose client is silent for {self.silence:.0f} s"
        return f"{self.job!r}, begun {self.began} ({age(self.began)}){silent}"


def described(key: str, value: bytes, paths: Iterable[str] = ()) -> UnfinishedJob:
    """Return the job of a plan, at its key; its state is not looked at.

    `paths` are those whose keys are known: a plan that is damaged does not say its own.
    """
    plan = UnfinishedJob.parsed(value) or UnfinishedJob()
    if plan.is_damaged:
        plan = UnfinishedJob(path=next((path for path in paths if key.startswith(journal_prefix(path))), UNKNOWN_PATH))
    return replace(plan, key=key)


def with_state(store: Store, job: UnfinishedJob, plan: bytes | None = None) -> UnfinishedJob:
    """Return the job with its state: whether its client is alive, and how far it has come in replacing a node.

    `plan` as of `beats_of`.
    """
    beats = beats_of(store, job.key, plan)
    is_new = is_in_place(store, job.run, job.old_prefix)
    return replace(job, is_running=any_live(beats), silence=silence(beats), is_in_place=is_new)


def unfinished_jobs(store: Store) -> list[UnfinishedJob]:
    """Return the jobs that began anywhere in `store` and have not ended: one listing of its root.

    Examples
    --------
    >>> from chunkmill.journal.journal import Journal
    >>> from chunkmill.journal.plans import Plan, fingerprint
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> journal = Journal(store, Plan("a", "convert to 'a'", fingerprint("x")))
    >>> journal.begin()
    >>> [(job.job, job.path, job.is_running) for job in unfinished_jobs(store)]
    [("convert to 'a'", 'a', False)]
    >>> with journal.running():
    ...     [job.is_running for job in unfinished_jobs(store)]
    [True]
    """
    return _found(store, _journals(store), paths=[""])


def _journals(store: Store) -> list[str]:
    return [name for name in store.list_dir("") if name.startswith(JOB_PREFIX) and name.endswith("/")]


def jobs_at(
    store: Store, *paths: str, below: bool = False, own_run: str = "", watches: bool = False
) -> list[UnfinishedJob]:
    """Return the unfinished jobs that write the nodes at `paths` or groups above them: a request each, all at once.

    With `below` also those that write nodes below them, for which the store's root is listed. The caller's `own_run` is
    left out. With `watches`, for a client that wants the lease, silent clients are watched first.
    """
    places = dict.fromkeys(place for path in paths for place in (path, *parents_of(path)))
    if not below:
        return _watched(store, _found(store, map(journal_prefix, places), own_run, paths=places), watches=watches)
    names, own = at_once(
        store, lambda: _journals(store), lambda: own_run and store.get(f"{journal_prefix(paths[0])}{PLAN}")
    )
    if is_of_run(own or None, own_run):  # as a rule there is no other that is listed
        names = [name for name in names if name != journal_prefix(paths[0])]
    jobs = _found(store, names, own_run, paths=places)
    jobs = [job for job in jobs if job.path in places or any(is_within(job.path, p) for p in paths)]
    return _watched(store, jobs, watches=watches)


def _watched(store: Store, jobs: list[UnfinishedJob], *, watches: bool) -> list[UnfinishedJob]:
    """Return the jobs that have not ended when it is known of each whether its client is alive."""
    silent = [job for job in jobs if job.silence is not None] if watches else []
    for job in silent:
        watch_client(store, job.key, job)
    paths = [job.path for job in jobs]
    return _found(store, [job.key.removesuffix(PLAN) for job in jobs], paths=paths) if silent else jobs


def _found(store: Store, prefixes: Iterable[str], own_run: str = "", *, paths: Collection[str]) -> list[UnfinishedJob]:
    keys = [f"{prefix}{PLAN}" for prefix in prefixes]
    plans = zip(keys, store.get_many(map(ByteSpan, keys)), strict=True)
    others = [(key, value) for key, value in plans if value is not None and not (own_run and is_of_run(value, own_run))]
    looked_at = [with_state(store, described(key, value, paths), value) for key, value in others]
    # one that ends is without a heartbeat for a moment
    return [job for job in looked_at if job.is_running or store.get(job.key) is not None]


# --------------------------------------------------------------------------------------------------------------------
# Roll back: what a job that is over has left (P8)
#
# Nothing is deleted by its folder, which may be the next job's by then, but by keys that were listed when the job that
# had them was over: names of runs and heartbeats are parts of them, and are used once.


def clear_journal(store: Store, prefix: str, *, ended: Collection[str] = ()) -> None:
    """Delete all below the prefix of a journal unless there is a plan; `ended`, as of `clear_listed`."""
    keys = list(store.list_prefix(prefix))
    if store.get(f"{prefix}{PLAN}") is None:  # after the listing: what a job that began since stores is not listed
        if f"{prefix}{PLAN}" in keys:
            swap(store, f"{prefix}{PLAN}", None, None)  # a link, which is not a plan
        clear_listed(store, prefix, keys, ended=ended)
        remove_folders(store, prefix, keys)


def clear_listed(store: Store, prefix: str, keys: Iterable[str], *, ended: Collection[str] = ()) -> None:
    """Delete keys of a journal, listed before its plan was deleted or missed.

    Of heartbeats those that have `ended`, and those whose clients are dead: a living one may be about to begin.
    """
    keys = [key for key in keys if key != f"{prefix}{PLAN}"]
    others = {key for key in keys if key.startswith(f"{prefix}{RUNNING}") and key not in ended}
    tags = [key for key in keys if key.rpartition("/")[2].startswith(TAG_PREFIX)]
    store.delete_many(tags)  # first: without it, nobody puts in place what is being deleted
    store.delete_many([key for key in keys if key not in others and key not in tags])
    end_dead(store, others)


def remove_folders(store: Store, prefix: str, keys: Iterable[str]) -> None:
    """Remove the folder of a journal, and those of the keys that it had, unless something is left."""
    above = {f"{path}/" for key in keys for path in parents_of(key)}
    for folder in sorted((each for each in above if each.startswith(prefix)), reverse=True):
        store.remove_folder(folder)
    if not store.remove_folder(prefix):
        store.sweep(prefix)  # of clients that were killed while they recorded a task
        store.remove_empty_folders(prefix)
        store.remove_folder(prefix)
