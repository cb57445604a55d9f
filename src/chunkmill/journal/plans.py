"""Names of the keys of journals; plan.json: a job's fingerprint, its choices, and its lease (P7); its end (P6).

Not here: heartbeats (`chunkmill.journal.heartbeat`), what is done with plans (`chunkmill.journal.journal`).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, Self
from uuid import uuid4

from chunkmill.errors import JobError, StoreError
from chunkmill.journal.heartbeat import heartbeats_below, is_beating, stored_beats, watch
from chunkmill.stores import conflicts
from chunkmill.stores.base import Store, check_key, check_prefix

JOB_PREFIX = ".chunkmill-job-"
"""Prefix of the keys of every job's journal, at the root of a store."""

LOCK_PREFIX = ".chunkmill-lock-"
"""Prefix of the keys of `Array.lock`, at the root of a store; the hash of the array's path follows."""

PLAN = "plan.json"
"""Name of the object, below a journal's prefix, that exists from the beginning to the end of the job."""

LEASE = "lease"
"""Kind of a plan that only keeps other writers away."""

RUNNING = "running-"
"""Start of the names of the heartbeats of a job's clients, below a journal's prefix."""

STAGED = "new-"
"""Start of the staging prefixes, below a journal's."""

TAG_PREFIX = ".chunkmill-new-"
"""Start of the name of the tag: a key in a new node, until the job is over, that names the run that wrote it."""


def fingerprint(*parts: Any) -> str:
    """Return a hash of the ``repr`` of `parts`: of values (integers, strings, tuples, metadata), never of objects.

    It must be the same for every run of one plan, in any process, so that one may resume another.

    Examples
    --------
    >>> fingerprint("convert", (3, 4)) == fingerprint("convert", (3, 4))
    True
    """
    hashed = sha256()
    for text in _texts(parts, 2):  # of 10^5 arrays they are 100 MB
        hashed.update(text.encode())
    return hashed.hexdigest()


def _texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the ``repr`` of `value` text by text: that of each member of lists and tuples, down to `depth`."""
    if not depth or type(value) not in {list, tuple} or len(value) < 2:  # noqa: PLR2004 - (1,) has a comma
        yield repr(value)
        return
    yield "[" if type(value) is list else "("
    for i, member in enumerate(value):
        if i:
            yield ", "
        yield from _texts(member, depth - 1)
    yield "]" if type(value) is list else ")"


@lru_cache  # every record of a task asks for it
def journal_prefix(path: str, scope: str = "") -> str:
    """Return the prefix of the keys of the journal of a job that writes the node at `path`, or what `scope` names."""
    return f"{JOB_PREFIX}{sha256(path.encode()).hexdigest()[:16]}{f'-{scope}' if scope else ''}/"


def new_run() -> str:
    """Return a name for a run, never the same twice."""
    return uuid4().hex[:8]


def staged_prefix(path: str, run: str, number: int = 0) -> str:
    """Return the staging prefix of a run of the job at `path`, for the first, or another, node that it replaces."""
    return f"{journal_prefix(path)}{STAGED}{run}{f'-{number}' if number else ''}/"


def check_own(path: str, keys: Iterable[str]) -> None:
    """Raise `ValueError` where a record of the job at `path` names keys, or prefixes, that are not below it (P13).

    A store from elsewhere may hold any record.
    """
    own = (f"/{path}/", f"/{path}.")  # as in a/zarr.json, meta/a.array.json
    for key in keys:
        if not any(each in f"/{key}" for each in own):
            raise ValueError(key)


def run_tag(run: str) -> str:
    """Return the name of the key by which a node is known to be the new one of that run."""
    return TAG_PREFIX + run


@dataclass(frozen=True, slots=True)
class Plan:
    """Contents of the document of a plan.

    Attributes
    ----------
    path
        Of the node that it writes.
    job
        Description of the job for messages.
    fingerprint
        Only a job with an equal one resumes what is recorded.
    run, began
        Name of its run, and time of its beginning.
    version
        Of the layout of journals.
    kind
        Operation of the job; `LEASE` of a plan that only keeps other writers away while its client is alive.
    scope
        Names what it writes of the node; empty for all.
    old_prefix
        Prefix of the keys of the node that it replaces, which stays until the job is done.
    choices
        What the planner chose for the workers of that time, the arguments in words, and the call that began the job.
    over
        Whether all is done, and only the journal has to be deleted.
    """

    path: str = ""
    job: str = ""
    fingerprint: str = ""
    run: str = ""
    began: str = ""
    version: int = 0
    kind: str = ""
    scope: str = ""
    old_prefix: str | None = None
    choices: Mapping[str, Any] = field(default_factory=dict, compare=False)
    over: bool = False

    @classmethod
    def parsed(cls, value: bytes) -> Self | None:
        """Return the plan of a document; ``None`` where it is damaged."""
        try:
            known = json.loads(value)
            about: dict[str, Any] = {name: value for name in _DEFAULTS if (value := known.get(name)) is not None}
            for name, value in about.items():
                if not isinstance(value, str if _DEFAULTS[name] is None else type(_DEFAULTS[name])):
                    return None
            check_key(f"{check_prefix(about.get('old_prefix', ''))}{about.get('run', '')}-")
            check_own(about.get("path", ""), filter(None, [about.get("old_prefix")]))
            return cls(**about)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None

    @property
    def is_damaged(self) -> bool:
        """True for what is left of a plan that cannot be read."""
        return not self.run

    @property
    def is_lease(self) -> bool:
        """True for a plan of which nothing is on record, so that nothing resumes it."""
        return self.kind == LEASE

    @property
    def gives_way(self) -> bool:
        """True where the next writer of the path takes over from a client that has died, without being asked."""
        return self.is_damaged or self.kind in {LEASE, "to_store"}

    def said(self) -> dict[str, Any]:
        """Return what its document says."""
        return {name: value for name, default in _DEFAULTS.items() if (value := getattr(self, name)) != default}

    def packed(self) -> bytes:
        """Return its document."""
        return json.dumps(self.said()).encode()


_DEFAULTS: dict[str, Any] = {each.name: getattr(Plan(), each.name) for each in fields(Plan)}


def beats_of(store: Store, key: str, plan: bytes | None = None, *, but: Collection[str] = ()) -> list[bytes]:
    """Return the heartbeats of the clients of the job of the plan at a key: that of a lease is the plan itself.

    `plan` where it was just read; without the heartbeats with the keys `but`.
    """
    plan = store.get(key) if plan is None else plan
    if is_beating(plan):
        return [plan]  # type: ignore[list-item]
    found = heartbeats_below(store, key.removesuffix(PLAN) + RUNNING)
    return stored_beats(store, (each for each in found if each not in but))


def watch_client(store: Store, key: str, plan: Plan) -> None:
    """Wait until it is known whether a client of the job of the plan at a key is alive."""
    watch(lambda: beats_of(store, key), f"{plan.job!r}, begun {plan.began}")


def end_plan(store: Store, key: str, plan: bytes | None, version: str | None, run: str) -> bool | None:
    """Record that the job of a plan is over; return whether it still is that run's plan; ``None`` where there is none.

    Parameters
    ----------
    plan, version
        As they were read.
    """
    is_ours: bool | None = None

    def ended(value: bytes | None) -> bytes | None:
        nonlocal is_ours
        known = Plan.parsed(value) if value is not None and is_of_run(value, run) else None
        is_ours = None if value is None else known is not None
        return value if known is None else replace(known, over=True).packed()

    try:
        conflicts.update(store, key, ended, seen=(plan, version))
    except OSError:  # a full disk: all is done, and the rest frees space
        store.delete(key)
    return is_ours


def is_of_run(plan: bytes | None, run: str) -> bool:
    """Return whether there is a plan, and it is of that run."""
    return plan is not None and f'"run": "{run}"'.encode() in plan  # as `Plan.packed` writes it


def stands(plan: bytes | None, run: str) -> bool:
    """Return whether there is a plan of that run, and it is not over: what the run writes is not visible yet."""
    known = Plan.parsed(plan) if plan is not None and is_of_run(plan, run) else None
    return known is not None and not known.over


# --------------------------------------------------------------------------------------------------------------------
# Put a new node in the place of an old one by one rename (P6), where the store renames
#
# What replaces a node is written below a staging prefix, and the old node stays until the new one is complete:
#
# ======== ============================== ==================== ============================= =========================
# state    stored                         a reader sees        a dead client leaves          the next client
# ======== ============================== ==================== ============================= =========================
# free     the old node                   the old node         nothing                       takes the lease
# leased   + plan                         the old node         an expired lease              takes the lease over
# staged   + new node below `staged`,     the old node         the new node, not visible     deletes it; the same job
#          with the tag of its run                                                           resumes
# in place new node with its tag          the new node         the tag                       deletes the tag
# ======== ============================== ==================== ============================= =========================
#
# A rename is not repeated: the tag says which node is in place. Which keys a node has: `chunkmill.nodes.target`.


def is_tagged(store: Store, prefix: str, run: str) -> bool:
    """Return whether the tag of the run is below its staging prefix, not emptied by a crash of the machine."""
    return bool(store.size(prefix + run_tag(run)))


def is_in_place(store: Store, run: str, old_prefix: str | None) -> bool:
    """Return whether the run's new node has taken the place of the old one, if it replaces one."""
    return old_prefix is not None and store.size(old_prefix + run_tag(run)) is not None


def put_in_place(store: Store, job: str, path: str, run: str, *, old_prefix: str, staged: str) -> None:
    """Put the staged node in place, unless it is there.

    Parameters
    ----------
    job
        Description of the job, for messages.
    path
        Of the node that the journal is named after.

    Raises
    ------
    JobError
        The job has ended, or another one has taken its place.
    """
    is_planned = stands(store.get(f"{journal_prefix(path)}{PLAN}"), run)
    try:
        # a client may have died that had moved a new root out of the one that it replaces
        if is_planned and (is_tagged(store, staged, run) or not old_prefix):
            store.replace_prefix(old_prefix, staged, run_tag(run))
            return
    except StoreError as error:
        if error.errno not in {None, errno.ENOENT} or is_tagged(store, staged, run):
            raise
    if not is_in_place(store, run, old_prefix):
        reason = "the job has ended, or was replaced by another one, while this client was at its end"
        raise JobError(job=job, reason=reason)


def forget_tag(store: Store, run: str, old_prefix: str | None) -> None:
    """Delete the tag of a node that is in place, if the run replaces one."""
    if old_prefix is not None:
        store.delete(old_prefix + run_tag(run))
