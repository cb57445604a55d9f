"""Lease a path while its node is written, and refuse other writers there (P4).

A lease is a plan with a heartbeat. It expires when its client dies, and the next client takes it over. Not here: what a
job keeps of itself (`chunkmill.journal.journal`), jobs that have not ended (`chunkmill.journal.unfinished`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.journal.heartbeat import client_of, heartbeats_below, is_live, stored_beats
from chunkmill.journal.journal import Journal
from chunkmill.journal.plans import LEASE, LOCK_PREFIX, PLAN, Plan, watch_client
from chunkmill.journal.unfinished import UnfinishedJob, described, jobs_at, with_state
from chunkmill.model.metadata import is_within
from chunkmill.stores import conflicts
from chunkmill.stores.base import Store


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a path, which others respect.

    Attributes
    ----------
    run
        Name of its run; empty where nothing is leased.
    follows_interrupted
        Whether it was taken over from a writer that died: what is stored may be half written.
    """

    run: str = ""
    follows_interrupted: bool = False


@contextmanager
def leased(
    store: Store,
    path: str,
    job: str,
    *,
    scope: str = "",
    run: str = "",
    stays: Callable[[], bool] = lambda: False,
    old_prefix: str | None = None,
    continues: bool = False,
) -> Iterator[Lease]:
    """Lease the path of a new node while it is written: other writers are refused.

    An expired lease, or an interrupted ``to_store(resume=True)``, is taken over, and its record deleted in the end:
    until then the next one learns of it, however often writers die. In a transaction, which others do not see, nothing
    is leased.

    Parameters
    ----------
    scope
        Lease only what it names (``"append"``): writers of anything else of the node are not refused.
    run
        Name of its run, where the new node is written already.
    stays
        Asked when the caller fails: whether the lease stays, as of a client that died, so that the same call resumes.
    old_prefix
        As of `Plan`, where the new node is staged.
    continues
        Whether the lease stays in the end, as of a client that died: the next one of that run resumes.

    Raises
    ------
    JobError
        Another writer has the lease.
    """
    if store.has_transactions:
        yield Lease()
        return
    plan = Plan(path, job, uuid4().hex, run, kind=LEASE, scope=scope, old_prefix=old_prefix)
    journal = Journal(store, plan)
    version: str | None = None
    asks = False
    while True:
        with journal.running():  # before it begins: a job without a heartbeat counts as interrupted
            if _takes_over(journal, version, waits=asks):
                try:
                    yield Lease(journal.plan.run, version is not None)
                except BaseException:
                    if version is None and not stays():
                        _release(journal)
                    raise  # and what an interrupted writer left is still there: its record stays, too
                if not continues:
                    _release(journal, is_taken_over=version is not None)
                return
        found = _dead(journal)
        # whether its tasks ask for it: those of a lease do not
        version, asks = (None, False) if found is None else (found[1], not found[0].is_lease)


def _takes_over(journal: Journal, version: str | None, *, waits: bool) -> bool:
    """Begin where the plan has that version, or there is none; return False where another one is there."""
    try:
        journal.take_over(version, waits=waits)
    except JobError:
        return False
    return True


def _release(journal: Journal, *, is_taken_over: bool = False) -> None:
    with suppress(OSError):  # the first error is raised; the next writer removes what is left
        journal.release(is_taken_over=is_taken_over)


def _dead(journal: Journal) -> tuple[UnfinishedJob, str | None] | None:
    """Return the interrupted job at the journal's path, and the version of its plan; ``None`` without one.

    A job whose node is in place has ended, and so has one of which only the journal was left. Another client of the
    same run, which does the same there, is waited for. `JobError` where another job is running, or does not give way.
    """
    value, version = journal.store.get_versioned(journal.plan_key)
    if value is None:
        return None
    job = described(journal.plan_key, value, [journal.plan.path])
    watch_client(journal.store, job.key, job)
    job = with_state(journal.store, job)
    if job.is_running and job.run == journal.plan.run:
        conflicts.pause(conflicts.LOOK_SECONDS)
        return None
    if job.is_running or not job.gives_way:
        raise _refused(journal.store, journal.plan.path, job)
    if job.is_in_place or job.over:
        discard_jobs(journal.store, [job])
        return None
    return job, version


def check_no_job(
    store: Store,
    *paths: str,
    overwrite: bool | None = None,
    own_run: str = "",
    below: bool = False,
    waits: bool = False,
) -> list[UnfinishedJob]:
    """Raise `JobError` when a job writes the nodes at `paths`, groups above them, or what is to be overwritten.

    Expired leases refuse nobody; those at `paths` themselves are returned.

    Parameters
    ----------
    overwrite
        ``True``: the caller deletes the nodes and everything below them, so that interrupted jobs there are returned
        instead, to be discarded before (`discard_jobs`). ``False``: the error says that it could. ``None``: it cannot.
    own_run
        Name of the caller's own run, which is not another job.
    below
        Refuse where jobs write nodes below `paths`, too: the caller creates nodes there.
    waits
        Of two that have just begun and meet each other here, refuse one only: the one whose run is named first waits
        for the other to give up. The caller looks afterwards whether its path still is free.
    """
    for seconds in (*(conflicts.PAUSES if waits else ()), None):
        jobs = jobs_at(store, *paths, below=below or bool(overwrite), own_run=own_run, watches=True)
        rivals = [job.run for job in jobs if job.is_running]
        if seconds is None or not rivals or min(rivals) < own_run:
            break
        conflicts.pause(seconds)
    if overwrite and "" in paths:
        _check_no_lock(store)
    discarded = []
    for job in jobs:
        refuses_nobody = (job.is_lease or job.is_damaged) and not job.is_running
        is_replaced = overwrite and not job.is_running and any(is_within(job.path, path) for path in paths)
        if is_replaced or (refuses_nobody and job.path in paths):
            discarded.append(job)
        elif not refuses_nobody:
            raise _refused(store, paths[0], job, overwrite=overwrite)
    return discarded


def _check_no_lock(store: Store) -> None:
    """Raise `JobError` where a process holds `Array.lock`, whose table would be deleted with the whole store (P3)."""
    for beat in filter(is_live, stored_beats(store, heartbeats_below(store, LOCK_PREFIX))):
        reason = f"{client_of(json.loads(beat))} holds the lock of an array there"
        raise JobError(job=f"write to {store.url}", reason=reason, hint="wait until it is done, or stop it")


def _refused(store: Store, path: str, job: UnfinishedJob, *, overwrite: bool | None = None) -> JobError:
    if job.is_running:
        hint = Hint("wait until it is done, or stop it")
    else:
        hint = Hint("run it again to finish it; with {} that job begins again", ("resume", False))
        hint = hint if overwrite is None else hint.also("here, {} discards it", ("overwrite", True))
    state = "is running" if job.is_running else "was interrupted"
    where = f"{store.url}/{path}" if path else store.url
    return JobError(job=f"write to {where}", reason=f"a job that writes there {state}: {job}", hint=hint)


def discard_jobs(store: Store, jobs: Iterable[UnfinishedJob]) -> None:
    """Delete the journals of jobs, before the values that they record are deleted."""
    for job in jobs:
        Journal(store, job, job.key.removesuffix(PLAN)).discard()


def discard_block_write(store: Store, path: str) -> None:
    """Delete the journal of an interrupted ``to_store(resume=True)`` of the array at `path`, which is written again."""
    jobs = [job for job in jobs_at(store, path, watches=True) if job.path == path and job.gives_way]
    # the next client with a lease takes that over
    discard_jobs(store, (job for job in jobs if not (job.is_running or job.is_lease)))
