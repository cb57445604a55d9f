"""Find the jobs that began in a store and have not ended, so that other writers refuse to write there.

Not here: what a job keeps of itself (`chunkmill.journal.journal`), reports about them
(`chunkmill.checks.inventory`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

from chunkmill.array.threads import at_once
from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.journal import plan_document
from chunkmill.journal.attempts import LIVE_SECONDS, alive_briefly
from chunkmill.journal.exchange import complete_exchange
from chunkmill.journal.journal import Journal
from chunkmill.journal.journal_names import JOB_PREFIX, PLAN, journal_prefix, new_run
from chunkmill.journal.unfinished_job import UnfinishedJob, described, with_state
from chunkmill.model.metadata import is_within, parents_of
from chunkmill.stores.base import ByteSpan, Store
from chunkmill.stores.capabilities import remove_folder, scratch_store

__all__ = [
    "Reservation",
    "UnfinishedJob",
    "check_no_job",
    "discard_block_write",
    "discard_jobs",
    "exchanged_now",
    "finish_exchange",
    "jobs_at",
    "reserved",
    "reserved_briefly",
    "reserved_to_replace",
    "unfinished_jobs",
]


def unfinished_jobs(store: Store, *, own_run: str = "") -> list[UnfinishedJob]:
    """Return the jobs that began anywhere in `store` and have not ended: one listing of its root.

    The caller's `own_run` is left out.

    Examples
    --------
    >>> from chunkmill.journal.journal_names import fingerprint
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
    return _found(store, _journals(store), own_run)


def _journals(store: Store) -> list[str]:
    return [name for name in store.list_dir("") if name.startswith(JOB_PREFIX) and name.endswith("/")]


def jobs_at(store: Store, *paths: str, below: bool = False, own_run: str = "") -> list[UnfinishedJob]:
    """Return the unfinished jobs that write the nodes at `paths` or groups above them: a request each, all at once.

    With `below` also those that write nodes below them, for which the store's root is listed. The caller's `own_run` is
    left out.
    """
    places = dict.fromkeys(place for path in paths for place in (path, *parents_of(path)))
    if not below:
        return _found(store, map(journal_prefix, places), own_run)
    names, own = at_once(
        store, lambda: _journals(store), lambda: own_run and store.get(f"{journal_prefix(paths[0])}{PLAN}")
    )
    if plan_document.is_of_run(own or None, own_run):  # seldom is there another, of which to ask when it is listed
        names = [name for name in names if name != journal_prefix(paths[0])]
    jobs = _found(store, names, own_run)
    return [job for job in jobs if job.path in places or any(is_within(job.path, p) for p in paths)]


def exchanged_now(store: Store, paths: Iterable[str]) -> UnfinishedJob | None:
    """Return a job that is replacing a node at `paths`, or above, by copies; one whose client is alive may end soon."""
    for seconds in (*plan_document.PAUSES, None):
        job = next((job for job in jobs_at(store, *paths) if job.is_exchanging), None)
        if job is None or not job.is_running or seconds is None:
            return job
        plan_document.pause(seconds)
    return None


def finish_exchange(store: Store, path: str) -> bool:
    """Finish what a job that died was copying to `path`, or above; return whether there was one. The job remains."""
    jobs = jobs_at(store, path)
    return any(complete_exchange(store, j.path, j.run) for j in jobs if j.is_exchanging and not j.is_running)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Right to write a place, which others respect.

    Attributes
    ----------
    run
        Name of its run; empty where nothing is reserved.
    follows_interrupted
        Whether another writer had reserved the place and died: what is there may be half written.
    interrupted_documents
        Those below the place that it may have published, by store key.
    check
        Raises `JobError` where this client was suspended, and another one has taken the place meanwhile.
    """

    run: str = ""
    follows_interrupted: bool = False
    interrupted_documents: Mapping[str, bytes] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None


@contextmanager
def reserved(
    store: Store,
    path: str,
    job: str,
    *,
    scope: str = "",
    documents: Mapping[str, bytes] | None = None,
    old_prefix: str | None = None,
    run: str = "",
) -> Iterator[Reservation]:
    """Reserve the place of a new node while it is written: other writers are refused.

    An interrupted reservation, or ``to_store(resume=True)``, is taken over, and its record deleted in the end: until
    then the next one learns of it, however often writers die. In a zip file, which has one writer, nothing is reserved.

    Parameters
    ----------
    scope
        Reserve only what it names (``"append"``): writers of anything else of the node are not refused.
    documents
        Those that the caller publishes below the place before it is done: recorded for whoever takes over.
    old_prefix
        Prefix of the keys of the node that is replaced, where the new one is written beside it: where the caller has
        begun to put it in place and dies, or fails, whoever writes there next finishes that first.
    run
        Name of its run, where the new node is written already.

    Raises
    ------
    JobError
        Another writer has reserved the place.
    """
    if scratch_store(store) is not None:
        yield Reservation()
        return
    journal = Journal(store, path, job, uuid4().hex, run, is_block_write=True, is_reservation=True, scope=scope)
    journal.old_prefix = old_prefix
    version: str | None = None
    before: dict[str, bytes] = {}
    asks = False
    while True:
        with journal.running():  # before it begins: others take a job without a heartbeat for an interrupted one
            if _takes_over(journal, version, {**before, **(documents or {})}, waits=asks):
                try:
                    yield Reservation(journal.run, version is not None, before)
                except BaseException:
                    if version is None and not _is_put_in_place(journal):
                        _release(journal)
                    raise  # and what an interrupted writer left is still there: its record stays, too
                _release(journal)
                return
        version, before, asks = _interrupted(journal)


@contextmanager
def reserved_to_replace(
    store: Store, path: str, *, old_prefix: str | None = None, run: str = ""
) -> Iterator[Reservation]:
    """Reserve the place of a node that is replaced with all below it; interrupted jobs there are discarded.

    Parameters, and `JobError` where somebody is at work there, as of `reserved`.
    """
    with reserved(store, path, f"replace {path!r} in {store.url}", old_prefix=old_prefix, run=run) as own:
        discard_jobs(store, check_no_job(store, path, overwrite=True, own_run=own.run, waits=True))
        yield own


@contextmanager
def reserved_briefly(store: Store, path: str, job: str) -> Iterator[Reservation]:
    """Reserve the place of a new node for the few requests of its creation: one object is stored, and deleted.

    Others wait until it is gone, where `reserved` refuses them. The reservation of a writer that died is taken over.
    An interrupted ``to_store(resume=True)`` is not.

    Raises
    ------
    JobError
        Another writer has reserved the place, or a job that writes it was interrupted.
    """
    if scratch_store(store) is not None:
        yield Reservation()
        return
    # named after all others, it gives way to those that meet it while they wait for its end (`check_no_job`)
    run = f"~{new_run()}"
    journal = Journal(store, path, job, uuid4().hex, run, is_block_write=True, is_reservation=True)
    with alive_briefly(f"{journal.plan_key} {run}") as journal.client:
        begun = time.time()
        dead = _begun_instead(journal)

        def check() -> None:
            slept = time.time() - begun > LIVE_SECONDS / 2
            if slept and not plan_document.is_of_run(store.get(journal.plan_key), journal.run):
                raise JobError(job=job, reason="it took so long that another writer took over", hint="try again")

        try:
            before = {} if dead is None else journal.documents(dead)
            yield Reservation(journal.run, dead is not None, before, check)
        except BaseException:
            with suppress(OSError, JobError):
                check()
                _release_briefly(journal, dead)
            raise
        with suppress(OSError, JobError):
            check()
            _release_briefly(journal, None)


def _begun_instead(journal: Journal) -> bytes | None:
    """Begin a reservation; return the plan of the dead one that was in its place, if any."""
    dead: bytes | None = None
    version: str | None = None
    while True:
        if _takes_over(journal, version, {} if dead is None else journal.documents(dead), waits=False):
            return dead
        found = _dead(journal, lambda job: job.is_reservation)
        dead, version = (None, None) if found is None else found[1:]


def _release_briefly(journal: Journal, dead: bytes | None) -> None:
    """Delete a brief reservation, or put the one back that it took over."""
    if dead is not None:
        journal.store.set(journal.plan_key, dead)
        return
    journal.store.delete(journal.plan_key)
    remove_folder(journal.store, journal.prefix)


def _takes_over(journal: Journal, version: str | None, documents: Mapping[str, bytes], *, waits: bool) -> bool:
    """Begin where the plan has that version, or there is none; return False where another one is there."""
    try:
        journal.take_over(version, documents, waits=waits)
    except JobError:
        return False
    return True


def _is_put_in_place(journal: Journal) -> bool:
    try:
        return journal.is_exchanged
    except OSError:  # not to be told: it stays, and whoever writes there next finds out
        return journal.old_prefix is not None


def _release(journal: Journal) -> None:
    with suppress(OSError):  # what failed before is told; the next writer removes what is left
        journal.release()


def _interrupted(journal: Journal) -> tuple[str | None, dict[str, bytes], bool]:
    """Return version and documents of the plan of an interrupted block write, if any, and whether its tasks ask for it.

    Raises
    ------
    JobError
        There is another job, or a running one.
    """
    found = _dead(journal, lambda job: job.is_block_write)
    if found is None:
        return None, {}, False
    job, value, version = found
    return version, journal.documents(value) if job.is_reservation else {}, not job.is_reservation


def _dead(
    journal: Journal, gives_way: Callable[[UnfinishedJob], bool]
) -> tuple[UnfinishedJob, bytes, str | None] | None:
    """Return the interrupted job at the journal's place, its plan and the version of that; ``None`` without one.

    What it had begun to put in place is finished first, and it is gone then; so is one of which only the journal was
    left. Another client of the same run, which does the same there, is waited for. `JobError` where another job is
    running, or does not give way.
    """
    value, version = journal.store.get_versioned(journal.plan_key)
    if value is None:
        return None
    job = with_state(journal.store, described(journal.plan_key, value))
    if job.is_running and job.run == journal.run:
        plan_document.pause(plan_document.LOOK_SECONDS)
        return None
    if job.is_running or not gives_way(job):
        raise _refused(journal.store, journal.path, job)
    if job.is_exchanging or job.is_exchanged or job.over:
        discard_jobs(journal.store, [job])
        return None
    return job, value, version


def check_no_job(
    store: Store,
    *paths: str,
    overwrite: bool | None = None,
    own_run: str = "",
    below: bool = False,
    waits: bool = False,
) -> list[UnfinishedJob]:
    """Raise `JobError` when a job writes the nodes at `paths`, groups above them, or what is to be overwritten.

    Reservations of writers that died refuse nobody; those at `paths` themselves are returned.

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
        for the other to give up. The caller looks afterwards whether its place still is free. Everybody waits for the
        end of a brief reservation.
    """
    pauses, n_pauses = plan_document.PAUSES, 0
    while True:
        jobs = jobs_at(store, *paths, below=below or bool(overwrite), own_run=own_run)
        dead = [job for job in jobs if job.is_reservation and job.is_exchanging and not job.is_running]
        discard_jobs(store, dead)  # what it was putting in place is there then
        jobs = [job for job in jobs if job not in dead]
        rivals = [job.run for job in jobs if job.is_running and not job.ends_soon]
        gives_up = bool(rivals) and (not waits or min(rivals) < own_run)
        brief = [job.run for job in jobs if job.ends_soon]
        # of two brief ones that wait for each other, one gives up while the other still waits
        most = len(pauses) // 2 if min(brief, default="~") < own_run else len(pauses)
        if gives_up or not (rivals or brief) or n_pauses >= most:
            break
        plan_document.pause(pauses[n_pauses])
        n_pauses += 1
    discarded = []
    for job in jobs:
        refuses_nobody = job.is_reservation and not job.is_running
        is_replaced = overwrite and not job.is_running and any(is_within(job.path, path) for path in paths)
        if is_replaced or (refuses_nobody and job.path in paths):
            discarded.append(job)
        elif not refuses_nobody:
            raise _refused(store, paths[0], job, overwrite=overwrite)
    return discarded


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
        Journal(store, job.path, job.job, "", scope=job.scope).discard()


def discard_block_write(store: Store, path: str) -> None:
    """Delete the journal of an interrupted ``to_store(resume=True)`` of the array at `path`, which is written again."""
    jobs = [job for job in jobs_at(store, path) if job.path == path and job.is_block_write and not job.is_running]
    discard_jobs(store, (job for job in jobs if not job.is_reservation))  # that is for whoever reserves the place


def _found(store: Store, prefixes: Iterable[str], own_run: str = "") -> list[UnfinishedJob]:
    keys = [f"{prefix}{PLAN}" for prefix in prefixes]
    plans = zip(keys, store.get_many(map(ByteSpan, keys)), strict=True)
    others = [
        (key, value)
        for key, value in plans
        if value is not None and not (own_run and plan_document.is_of_run(value, own_run))
    ]
    looked_at = [with_state(store, described(key, value)) for key, value in others]
    # one that ends is without a heartbeat for a moment
    return [job for job in looked_at if job.is_running or store.get(job.key) is not None]
