"""A job that began and has not ended, as its plan and its attempts tell of it.

Not here: finding jobs, and refusing to write where there are some (`chunkmill.journal.unfinished_jobs`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chunkmill.journal.attempts import age, any_live, attempts_below, is_live
from chunkmill.journal.exchange import is_under_way
from chunkmill.journal.journal_names import PLAN, RUNNING, new_mark
from chunkmill.journal.plan_document import Plan
from chunkmill.stores.base import Store

__all__ = ["UnfinishedJob", "described", "with_state"]


@dataclass(frozen=True, slots=True)
class UnfinishedJob(Plan):
    """A job that began and has not ended: its plan, and its state.

    Attributes
    ----------
    key
        Of its plan, in the store.
    is_running
        True when a client that runs it is alive (see `chunkmill.journal.attempts`).
    is_exchanged
        True where the new node has taken the place of the old one, and only clearing up is left.
    is_exchanging
        True where it is being put there by copies, and the old one is given up.
    """

    key: str = ""
    is_running: bool = False
    is_exchanged: bool = False
    is_exchanging: bool = False

    @property
    def ends_soon(self) -> bool:
        """True for a brief reservation whose client is alive: others wait for its end."""
        return bool(self.client) and self.is_running

    @property
    def replaces(self) -> bool:
        """True where it writes beside a node, which is there until it is done."""
        return self.old_prefix is not None

    def __str__(self) -> str:
        return f"{self.job!r}, begun {self.began} ({age(self.began)})"


def described(key: str, value: bytes) -> UnfinishedJob:
    """Return the job of a plan, at its key; its state is not looked at."""
    plan = UnfinishedJob.parsed(value)  # damaged: whoever runs the job again is told so
    return UnfinishedJob(key=key) if plan is None else replace(plan, key=key)


def with_state(store: Store, job: UnfinishedJob) -> UnfinishedJob:
    """Return the job with its state: whether its client is alive, and how far it has come in replacing a node."""
    if job.client:
        return replace(job, is_running=is_live(job.client.encode()))
    running = job.key.removesuffix(PLAN) + RUNNING
    is_running = any_live(store, attempts_below(store, running))
    if job.old_prefix is None:
        return replace(job, is_running=is_running)
    if is_under_way(store, job.path, job.run):
        return replace(job, is_running=is_running, is_exchanging=True)
    return replace(job, is_running=is_running, is_exchanged=store.get(job.old_prefix + new_mark(job.run)) is not None)
