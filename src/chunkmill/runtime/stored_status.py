"""State of a job that another process runs, as its journal tells it, and the end of its attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from chunkmill.journal.attempts import attempts_below, is_live
from chunkmill.journal.journal import Journal
from chunkmill.journal.journal_names import RUNNING
from chunkmill.journal.plan_document import Plan
from chunkmill.runtime.job import Job
from chunkmill.runtime.job_monitor import JobState, JobStatus

__all__ = ["end_attempts", "stored_status"]


def stored_status(job: Job, run: str = "") -> JobStatus:
    """Return the state of a job from its journal, and the progress that its last heartbeat told.

    Parameters
    ----------
    run
        Name of the run; any one of this plan where it is empty.
    """
    journal = Journal(job.store, job.path, job.name, job.fingerprint)
    if not _is_there(journal, run):
        return JobStatus(job.name, "ended")
    told: Mapping[str, Any] = {}
    state: JobState = "interrupted"
    for _, heartbeat in _heartbeats(journal):
        if is_live(heartbeat):
            state, told = "running", json.loads(heartbeat)
    known = {name: told[name] for name in JobStatus.__slots__ if name in told}
    return JobStatus(job.name, state, **known)


def end_attempts(job: Job, run: str = "") -> bool:
    """End the attempts at a job, so that its tasks stop wherever they run; return whether there was a live one."""
    journal = Journal(job.store, job.path, job.name, job.fingerprint)
    if not _is_there(journal, run):
        return False
    found = list(_heartbeats(journal))
    for key, _ in found:
        job.store.delete(key)
    return any(is_live(heartbeat) for _, heartbeat in found)


def _is_there(journal: Journal, run: str) -> bool:
    """Return whether the journal at the target is of this plan, and of that run."""
    value = journal.store.get(journal.plan_key)
    if value is None:
        return False
    plan = Plan.read(value, journal.job, journal.plan_key)
    return plan.fingerprint == journal.fingerprint and not plan.over and run in {"", plan.run}


def _heartbeats(journal: Journal) -> Iterator[tuple[str, bytes]]:
    for key in attempts_below(journal.store, journal.prefix + RUNNING):
        if (heartbeat := journal.store.get(key)) is not None:
            yield key, heartbeat
